/**
 * conditions — an EntryQuery as SQL, as far as there are columns for it; what is left is asked in
 * code.
 *
 * Names and numbers only: everything a caller wrote goes in as a bound value.
 */

import { STATES } from '../../core/state.ts';
import { isPattern, topicMatches } from '../../core/topic.ts';
import type { EntryQuery } from '../../ports/entry-store.ts';
import { idRange } from '../shared/query.ts';
import { STATE_KEY_COUNT, type StateKey, stateKeyOf } from '../shared/sql-row.ts';
import type { Flows } from './flows.ts';

/** A query, taken apart. */
export interface Conditions {
  /** Conditions on `entries`, each true for every entry that fits. */
  readonly sql: readonly string[];
  readonly values: readonly unknown[];
  /** The slots it asks for. */
  readonly slots: readonly StateKey[];
  /** The flows it asks for; undefined: all. */
  readonly flows: ReadonlySet<number> | undefined;
  /** Whether entries have to be read to decide: headers and texts have no column. */
  readonly needsReading: boolean;
  /** Whether state, lane, topic and destination are all it asks. */
  readonly isCounted: boolean;
}

export function conditionsOf(query: EntryQuery, flows: Flows): Conditions {
  const slots = slotsOf(query);
  const wanted = flowsOf(query, flows);
  const sql: string[] = [];
  const values: unknown[] = [];
  function add(condition: string, value: unknown): void {
    sql.push(condition);
    values.push(value);
  }
  if (slots.length < STATE_KEY_COUNT) sql.push(`slot IN (${slots.join(', ')})`);
  if (wanted !== undefined) {
    add('flow IN (SELECT value FROM json_each(?))', JSON.stringify([...wanted]));
  }
  const before = sql.length;
  if (query.ids !== undefined) {
    add('id IN (SELECT value FROM json_each(?))', JSON.stringify(query.ids));
  }
  if (query.idPrefix !== undefined) {
    const [from, end] = idRange(query.idPrefix);
    add('id >= ?', from);
    add('id < ?', end);
  }
  if (query.fingerprint !== undefined) add('fingerprint = ?', query.fingerprint);
  for (const [name, condition] of TIMES) {
    if (query[name] !== undefined) add(condition, query[name]);
  }
  const needsReading = [query.header, query.code, query.text].some((word) => word !== undefined);
  return {
    sql,
    values,
    slots,
    flows: wanted,
    needsReading,
    isCounted: !needsReading && sql.length === before,
  };
}

const TIMES = [
  ['enqueuedBefore', 'enqueued_at < ?'],
  ['enqueuedAfter', 'enqueued_at > ?'],
  ['updatedBefore', 'updated_at < ?'],
  ['updatedAfter', 'updated_at > ?'],
  ['dueBefore', 'due_at < ?'],
  ['dueAfter', 'due_at > ?'],
] as const;

function slotsOf({ states = STATES, lane }: EntryQuery): StateKey[] {
  const lanes = lane === undefined ? (['delivery', 'notice'] as const) : [lane];
  return [...new Set(states)].flatMap((state) => lanes.map((name) => stateKeyOf(state, name)));
}

function flowsOf({ topic, destination }: EntryQuery, flows: Flows): Set<number> | undefined {
  if (destination === undefined && (topic === undefined || topic === '#')) return undefined;
  const isMatch = topic === undefined || isPattern(topic) ? topicMatches : Object.is;
  const wanted = destination === undefined ? undefined : new Set([destination].flat());
  // '' is how a flow says that it has no destination; nobody can ask for that.
  wanted?.delete('');
  return flows.matching(
    (ofTopic, ofDestination) =>
      (topic === undefined || isMatch(topic, ofTopic)) &&
      (wanted === undefined || wanted.has(ofDestination)),
  );
}
