/** alias-bounds — buckets of histograms that other systems have: theirs, and what goes beyond. */

/** The defaults of the libraries for Go and Python together; then up to a day, as retries wait. */
export const ALIAS_BOUNDS_S: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 900,
  3_600, 14_400, 86_400,
];
