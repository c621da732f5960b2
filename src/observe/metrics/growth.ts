/**
 * growth — a number that somebody else counts, as a counter that never goes back: what it grew by
 * is added, whoever else adds to the same row, and whether or not its owner began anew.
 */

import type { Row } from './families.ts';

/** Adds to the row what the count grew by since the last call, at first since now. */
export function growthOf(count: () => number, row: Row): () => void {
  let before = count();
  return () => {
    const now = count();
    // Less than before: its owner was started anew, and counts from 0.
    row.value += now < before ? now : now - before;
    before = now;
  };
}
