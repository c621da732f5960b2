/** spread — where most of the measured spans lie. Pure. */

/** Spans in milliseconds, by how many of them are shorter. */
export interface Spread {
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Half and nearly all of them are not longer than this. */
export function spreadOf(spansMs: readonly number[]): Spread {
  const sorted = spansMs.toSorted((a, b) => a - b);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] ?? 0;
  return { p50Ms: at(0.5), p99Ms: at(0.99) };
}
