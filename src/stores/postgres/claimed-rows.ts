/**
 * claimed-rows — what a claim answers with, as little of it as can be.
 *
 * Every value that comes is a text that this process has to read. What the claim itself has written
 * it knows, and a count that is as it mostly is comes as NULL: of 17 values per message 5 are left.
 */

import { PRIORITY_DEFAULT } from '../../core/limits.ts';
import type { ClaimRequest } from '../../ports/entry-store.ts';
import { stateKeyOf } from '../shared/sql-row.ts';
import { BODY_SQL, type EntryRow } from './row.ts';

/** A column of the answer, and its value where NULL comes: one of the claim's own, or the usual. */
type Column = readonly [sql: string, usual?: (request: ClaimRequest) => number | string];

const usually = (sql: string, value: number): Column => [`nullif(${sql}, ${value})`, () => value];

/** In the order of `EntryRow`, then what the rows are put in order by. */
const COLUMNS: readonly Column[] = [
  ['e.seq'],
  ['e.id'],
  ['NULL', ({ lane }) => stateKeyOf('active', lane)],
  ['NULL', ({ now, leaseMs }) => now + leaseMs],
  usually('e.revision', 2),
  usually('e.attempts', 1),
  usually('e.notices', 0),
  usually('e.lost', 0),
  usually('e.postponed', 0),
  usually('e.replays', 0),
  ['NULL', ({ holder }) => holder],
  usually('e.claimed_from', 0),
  ['NULL', ({ now }) => now],
  ['e.memory'],
  ['k.envelope'],
  [BODY_SQL],
  usually('c.priority', PRIORITY_DEFAULT),
  ['c.due_at'],
];

/** From `entries e`, as they were just written, `contents k`, and `c`, what was found. */
export const CLAIMED_SQL: string = COLUMNS.map(([sql]) => sql).join(', ');

/** The rows of an answer as those of entries, by priority, then the due time before, then id. */
export function claimedRows(answer: unknown[][], request: ClaimRequest): EntryRow[] {
  const known = COLUMNS.flatMap(([, usual], at) =>
    usual === undefined ? [] : [[at, usual(request)] as const],
  );
  for (const row of answer) {
    for (const [at, value] of known) row[at] ??= value;
  }
  return (answer as unknown as EntryRow[]).sort(byOrder);
}

/** For rows that end with their priority and due time. */
export function byOrder(a: EntryRow, b: EntryRow): number {
  const span = Number(a[16]) - Number(b[16]) || Number(a[17]) - Number(b[17]);
  if (span !== 0) return span;
  return a[1] < b[1] ? -1 : 1;
}
