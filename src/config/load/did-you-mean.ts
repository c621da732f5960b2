/** did-you-mean — the known name that a mistyped one probably meant. Pure. */

/** ` (did you mean "store"?)`, or nothing; a beginning that all names share does not count. */
export function didYouMean(given: string, known: readonly string[], beginning = ''): string {
  const near = nearest(
    given.slice(beginning.length),
    known.map((name) => name.slice(beginning.length)),
  );
  return near === undefined ? '' : ` (did you mean "${beginning}${near}"?)`;
}

/** Whether a name is a known one, or nearly. */
export function isNear(given: string, known: readonly string[]): boolean {
  return nearest(given, known) !== undefined;
}

function nearest(given: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(given.length / 3)) + 1;
  for (const name of known) {
    const distance = distanceOf(given.toLowerCase(), name.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [name, distance];
  }
  return best;
}

/** How many letters must be put in, taken out, replaced or swapped with their neighbour. */
function distanceOf(from: string, to: string): number {
  // Long names are nobody's typing error, and the table below grows with the square.
  if (from.length > 64 || to.length > 64) return Number.POSITIVE_INFINITY;
  let before: number[] = [];
  let last: number[] = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let row = 1; row <= from.length; row += 1) {
    const next = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const isSame = from[row - 1] === to[column - 1];
      let cost = Math.min(
        (last[column] ?? 0) + 1,
        (next[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (isSame ? 0 : 1),
      );
      const isSwap = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      if (row > 1 && column > 1 && isSwap) cost = Math.min(cost, (before[column - 2] ?? 0) + 1);
      next.push(cost);
    }
    [before, last] = [last, next];
  }
  return last[to.length] ?? 0;
}
