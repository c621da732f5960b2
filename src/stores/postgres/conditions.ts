/**
 * conditions — an EntryQuery as SQL, as far as there are columns for it; what is left is asked in
 * code.
 *
 * Names and numbers only: everything a caller wrote goes in as a bound value.
 *
 * Repeats in SQL what code says elsewhere: change both. `conditionsOf`: `matchesQuery` of
 * shared/query.ts; `patternSql` and `rulesSql`: `topicMatches` and `takesTopic` of core/topic.ts.
 */

import { STATES } from '../../core/state.ts';
import { isPattern, type TopicRule } from '../../core/topic.ts';
import type { EntryQuery } from '../../ports/entry-store.ts';
import { idRange } from '../shared/query.ts';
import { ARCHIVED_KEY, STATE_KEY_COUNT, type StateKey, stateKeyOf } from '../shared/sql-row.ts';
import { type Bind, textArray } from './row.ts';

/** A query, taken apart. */
export interface Conditions {
  /** Conditions on `entries e`, each true for every entry that fits. */
  readonly sql: readonly string[];
  /** The slots it asks for. */
  readonly slots: readonly StateKey[];
  /** Whether entries have to be read to decide: headers, texts and codes have no column. */
  readonly needsReading: boolean;
  /** Whether states and lane are all it asks. */
  readonly isBySlot: boolean;
}

const TIMES = [
  ['enqueuedBefore', 'e.enqueued_at <'],
  ['enqueuedAfter', 'e.enqueued_at >'],
  ['updatedBefore', 'e.updated_at <'],
  ['updatedAfter', 'e.updated_at >'],
  ['dueBefore', 'e.due_at <'],
  ['dueAfter', 'e.due_at >'],
] as const;

export function conditionsOf(query: EntryQuery, bind: Bind): Conditions {
  const slots = slotsOf(query);
  const sql: string[] = [];
  if (slots.length < STATE_KEY_COUNT) sql.push(stateKeysSql(slots));
  const before = sql.length;
  const { topic, destination, ids, fingerprint } = query;
  if (topic !== undefined && topic !== '#') sql.push(patternSql('e.topic', topic, bind));
  if (destination !== undefined) {
    // '' means that an entry has no destination; a query cannot ask for that.
    const wanted = bind(textArray([destination].flat()), 'text[]', 'destinations');
    sql.push(`e.destination = ANY(${wanted}) AND e.destination <> ''`);
  }
  if (ids !== undefined) sql.push(`e.id = ANY(${bind(textArray(ids), 'text[]')})`);
  if (query.idPrefix !== undefined) {
    const [from, end] = idRange(query.idPrefix).map((id) => bind(id, 'text'));
    sql.push(`e.id >= ${from} AND e.id < ${end}`);
  }
  if (fingerprint !== undefined) sql.push(`e.fingerprint = ${bind(fingerprint, 'text')}`);
  for (const [name, condition] of TIMES) {
    // Any number of milliseconds may be asked for, also a fraction.
    if (query[name] !== undefined) sql.push(`${condition} ${bind(query[name], 'float8')}`);
  }
  const needsReading = [query.header, query.code, query.text].some((word) => word !== undefined);
  return { sql, slots, needsReading, isBySlot: !needsReading && sql.length === before };
}

/** With the conditions of the partial indexes, so that the server can use them. */
export function stateKeysSql(slots: readonly StateKey[]): string {
  if (slots.length === 0) return 'false';
  const wanted = `e.slot IN (${slots.join(', ')})`;
  if (slots.every((slot) => slot >= ARCHIVED_KEY)) return `${wanted} AND e.slot >= ${ARCHIVED_KEY}`;
  if (slots.every((slot) => slot < ARCHIVED_KEY)) return `${wanted} AND e.slot < ${ARCHIVED_KEY}`;
  return wanted;
}

export function allOf(sql: readonly string[]): string {
  return sql.length === 0 ? 'true' : sql.join(' AND ');
}

function slotsOf({ states = STATES, lane }: EntryQuery): StateKey[] {
  const lanes = lane === undefined ? (['delivery', 'notice'] as const) : [lane];
  return [...new Set(states)].flatMap((state) => lanes.map((name) => stateKeyOf(state, name)));
}

// Topic patterns and rules as SQL, with everything a caller wrote as a value or a literal.

/** Whether a topic fits a pattern. */
export function patternSql(column: string, pattern: string, bind: Bind): string {
  if (pattern === '#') return 'true';
  if (!isPattern(pattern)) return `${column} = ${bind(pattern, 'text', 'topic')}`;
  return `('.' || ${column}) ~ ${bind(regexOf(pattern), 'text', 'topic_pattern')}`;
}

/** What ordered rules say of a topic: the first match decides, no match means no. */
export function rulesSql(column: string, rules: readonly TopicRule[], bind: Bind): string {
  if (rules.length === 0) return 'false';
  const cases = rules.map(
    ({ pattern, take }) => `WHEN ${patternSql(column, pattern, bind)} THEN ${take}`,
  );
  return `CASE ${cases.join(' ')} ELSE false END`;
}

/**
 * The pattern over a topic with a dot in front, so that every word is a dot and what follows it.
 * Built from our own words only; PostgreSQL's engine is not slowed by any of them.
 */
export function regexOf(pattern: string): string {
  const words = pattern.split('.').map((word) => {
    if (word === '#') return '(?:\\.[^.]+)*';
    return word === '*' ? '\\.[^.]+' : `\\.${word.replaceAll(/[^\w]/g, escaped)}`;
  });
  return `^${words.join('')}$`;
}

/** n.b. Only signs: a backslash before a letter means something else. */
function escaped(sign: string): string {
  return /[!-/:-@[-`{-~]/.test(sign) ? `\\${sign}` : sign;
}
