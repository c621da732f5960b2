/** candidates — due entries that a claim may take, as statements select them. */

import type { StateKey } from '../shared/sql-row.ts';

/** A due entry, not yet claimed; without flow and key where nothing asks for them. */
export type Candidate = readonly [
  seq: number,
  dueAt: number,
  id: string,
  slot: StateKey,
  flow: number | null,
  orderKey: string | null,
  behind: number,
];

/** The same, as a statement selects it. */
export const CANDIDATE_SQL = 'seq, due_at, id, slot, flow, order_key, behind';

/** The order of claims within one priority. */
export function byDueAtAndId(a: Candidate, b: Candidate): number {
  const span = a[1] - b[1];
  if (span !== 0) return span;
  return a[2] < b[2] ? -1 : 1;
}
