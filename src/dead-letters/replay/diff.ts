/** diff — what differs between two texts, line by line, within bounds. Pure. */

/** Lines that are compared, at the most, after what is the same at both ends is left out. */
const COMPARED_MAX = 400;
/** Lines of the answer, at the most. */
const SHOWN_MAX = 80;
const CONTEXT = 2;

/** Lines that begin with `- `, `+ ` or two blanks; empty when nothing differs. */
export function lineDiff(before: string, after: string): string[] {
  if (before === after) return [];
  const old = before.split('\n');
  const fresh = after.split('\n');
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  const rest = Math.min(old.length, fresh.length) - head;
  while (tail < rest && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const lines = [
    ...old.slice(Math.max(0, head - CONTEXT), head).map(same),
    ...middle(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail)),
    ...old.slice(old.length - tail, old.length - tail + CONTEXT).map(same),
  ];
  if (lines.length <= SHOWN_MAX) return lines;
  return [...lines.slice(0, SHOWN_MAX), `… ${lines.length - SHOWN_MAX} lines more`];
}

const same = (line: string) => `  ${line}`;
const gone = (line: string) => `- ${line}`;
const come = (line: string) => `+ ${line}`;

/** By the longest common subsequence where that is affordable. */
function middle(old: readonly string[], fresh: readonly string[]): string[] {
  if (old.length > COMPARED_MAX || fresh.length > COMPARED_MAX) {
    return [...old.map(gone), ...fresh.map(come)];
  }
  const width = fresh.length + 1;
  const common = new Uint16Array((old.length + 1) * width);
  const at = (row: number, column: number) => common[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = fresh.length - 1; column >= 0; column -= 1) {
      common[row * width + column] =
        old[row] === fresh[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: string[] = [];
  let row = 0;
  let column = 0;
  while (row < old.length || column < fresh.length) {
    if (row < old.length && column < fresh.length && old[row] === fresh[column]) {
      lines.push(same(old[row] ?? ''));
      row += 1;
      column += 1;
    } else if (
      column >= fresh.length ||
      (row < old.length && at(row + 1, column) >= at(row, column + 1))
    ) {
      lines.push(gone(old[row] ?? ''));
      row += 1;
    } else {
      lines.push(come(fresh[column] ?? ''));
      column += 1;
    }
  }
  return lines;
}
