/**
 * count — counts by state, topic, destination or fingerprint.
 *
 * Nothing is counted while messages are written: every writer would wait for a counter's row. Up to
 * COUNT_MAX entries are counted on request, per state through the index. Above that the server's
 * own estimate answers for a state, and else the count of the first ones; both are marked as
 * approximate and remembered for a while.
 */

import { STATES } from '../../core/state.ts';
import type { Clock } from '../../ports/clock.ts';
import type { EntryQuery, TallyBy, TallyRow } from '../../ports/entry-store.ts';
import { matchesQuery } from '../shared/query.ts';
import { decodeAll, type StateKey, stateOfKey } from '../shared/sql-row.ts';
import { decodeRow, type EntryRow, STATUS_SQL, Values } from './row.ts';
import { allOf, type Conditions, conditionsOf, stateKeysSql } from './conditions.ts';
import type { Names } from './options.ts';
import type { QueryRequest } from './connection.ts';

/**
 * Entries that are counted one by one. Also in docs/performance.md and
 * docs/reference/stores/postgres.md.
 */
const COUNT_MAX = 100_000;
/** Entries that a tally over headers, texts or codes reads; past it the counts are marked. */
const READ_MAX = 20_000;
const READ_CHUNK = 2_000;
/**
 * How long an approximate answer is good for. Also in docs/reference/stores/postgres.md;
 * test/stores/postgres/count.test.ts waits for it.
 */
const REMEMBER_MS = 5_000;
const REMEMBER_MAX = 100;

interface Count {
  readonly key: string | null;
  readonly count: number;
  readonly oldestAt: number | null;
  readonly isCut?: boolean;
}

/** Counts over the tables of one store. */
export class Tallies {
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #countMax: number;
  readonly #remembered = new Map<string, { readonly at: number; readonly rows: TallyRow[] }>();

  constructor(names: Names, clock: Clock, countMax: number = COUNT_MAX) {
    this.#names = names;
    this.#clock = clock;
    this.#countMax = countMax;
  }

  async tally(ask: QueryRequest, by: TallyBy, query: EntryQuery): Promise<readonly TallyRow[]> {
    const key = JSON.stringify([by, query]);
    const now = this.#clock.monotonic();
    const known = this.#remembered.get(key);
    if (known !== undefined && now - known.at < REMEMBER_MS) return known.rows;
    const rows = fold(by, await this.#count(ask, by, query));
    // What was counted to its end is never remembered: it is cheap, and right at every moment.
    if (rows.some(({ approximate }) => approximate === true)) this.#remember(key, now, rows);
    return rows;
  }

  #remember(key: string, at: number, rows: TallyRow[]): void {
    if (this.#remembered.size >= REMEMBER_MAX) this.#remembered.clear();
    this.#remembered.set(key, { at, rows });
  }

  async #count(ask: QueryRequest, by: TallyBy, query: EntryQuery): Promise<Count[]> {
    const values = new Values();
    const conditions = conditionsOf(query, values.bind);
    if (conditions.slots.length === 0 || query.ids?.length === 0) return [];
    if (conditions.needsReading) return this.#byReading(ask, by, query);
    if (by === 'state' && conditions.isBySlot) return this.#bySlot(ask, conditions.slots);
    return this.#byPass(ask, by, conditions, values);
  }

  /** Each slot through its index. */
  async #bySlot(ask: QueryRequest, slots: readonly StateKey[]): Promise<Count[]> {
    const { entries } = this.#names.table;
    const parts = slots.map(
      (slot) => `SELECT ${slot} AS slot, count(*) AS n, min(enqueued_at) AS oldest FROM (
  SELECT e.enqueued_at FROM ${entries} e WHERE ${stateKeysSql([slot])} LIMIT ${this.#countMax + 1}
) z`,
    );
    const found = await ask(parts.join(' UNION ALL '));
    const counts: Count[] = [];
    for (const [slot, count, oldestAt] of found as [number, number, number | null][]) {
      const key = stateOfKey(slot) ?? null;
      if (count <= this.#countMax) counts.push({ key, count, oldestAt });
      else counts.push({ key, ...(await this.#estimate(ask, slot)) });
    }
    return counts;
  }

  /** What the server's statistics say, and at least what was counted. */
  async #estimate(ask: QueryRequest, slot: StateKey): Promise<Omit<Count, 'key'>> {
    const { entries } = this.#names.table;
    const rows = await ask(
      `EXPLAIN (FORMAT JSON) SELECT FROM ${entries} e WHERE ${stateKeysSql([slot])}`,
    );
    const plan = JSON.parse(String(rows[0]?.[0])) as readonly {
      readonly Plan?: { readonly 'Plan Rows'?: number };
    }[];
    const estimated = Math.round(plan[0]?.Plan?.['Plan Rows'] ?? 0);
    return { count: Math.max(estimated, this.#countMax + 1), oldestAt: null, isCut: true };
  }

  /** One pass over what fits, up to the limit. */
  async #byPass(
    ask: QueryRequest,
    by: TallyBy,
    { sql }: Conditions,
    values: Values,
  ): Promise<Count[]> {
    const { entries } = this.#names.table;
    const found = (await ask(
      `SELECT key, count(*), min(enqueued_at), sum(count(*)) OVER () FROM (
  SELECT ${KEY_SQL[by]} AS key, e.enqueued_at FROM ${entries} e WHERE ${allOf(sql)}
  LIMIT ${this.#countMax + 1}
) z GROUP BY key`,
      values.list,
    )) as [string | number | null, number, number, string][];
    return found.map(([key, count, oldestAt, total]) => {
      const isCut = Number(total) > this.#countMax;
      return { key: keyOf(by, key), count, oldestAt: isCut ? null : oldestAt, isCut };
    });
  }

  async #byReading(ask: QueryRequest, by: TallyBy, query: EntryQuery): Promise<Count[]> {
    const { entries, contents } = this.#names.table;
    const counts: Count[] = [];
    let after = '';
    for (let read = 0; read < READ_MAX; read += READ_CHUNK) {
      const values = new Values();
      const { sql } = conditionsOf(query, values.bind);
      const start = `e.id > ${values.bind(after, 'text')}`;
      const rows = (await ask(
        `SELECT ${STATUS_SQL}, k.envelope, NULL::bytea, ${KEY_SQL[by]}, e.enqueued_at
FROM ${entries} e LEFT JOIN ${contents} k ON k.seq = e.seq
WHERE ${allOf([...sql, start])} ORDER BY e.id LIMIT ${READ_CHUNK}`,
        values.list,
      )) as unknown as EntryRow[];
      for (const row of rows) {
        // Unreadable rows are not counted: the next list or claim reports them.
        const [entry] = decodeAll([row], decodeRow).entries;
        if (entry === undefined || !matchesQuery(entry, query)) continue;
        const key = keyOf(by, row[16] as string | number | null);
        counts.push({ key, count: 1, oldestAt: Number(row[17]) });
      }
      if (rows.length < READ_CHUNK) return counts;
      after = rows.at(-1)?.[1] ?? after;
    }
    return counts.map((count) => ({ ...count, isCut: true }));
  }
}

const KEY_SQL: Readonly<Record<TallyBy, string>> = {
  state: 'e.slot',
  topic: 'e.topic',
  destination: "nullif(e.destination, '')",
  fingerprint: 'e.fingerprint',
};

function keyOf(by: TallyBy, key: string | number | null): string | null {
  if (by === 'state') return stateOfKey(Number(key)) ?? null;
  return key === null ? null : String(key);
}

function fold(by: TallyBy, counts: readonly Count[]): TallyRow[] {
  const rows = new Map<string, { count: number; oldestAt: number | null; isCut: boolean }>();
  for (const { key, count, oldestAt, isCut = false } of counts) {
    if (count === 0 || key === null) continue;
    const row = rows.get(key);
    if (row === undefined) {
      rows.set(key, { count, oldestAt, isCut });
      continue;
    }
    row.count += count;
    const isKnown = row.oldestAt !== null && oldestAt !== null;
    row.oldestAt = isKnown ? Math.min(row.oldestAt ?? 0, oldestAt) : null;
    row.isCut ||= isCut;
  }
  const found = [...rows].map(([key, { count, oldestAt, isCut }]) =>
    isCut ? { key, count, oldestAt, approximate: true as const } : { key, count, oldestAt },
  );
  if (by !== 'state') return found.sort((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1));
  const place = new Map<string, number>(STATES.map((state, number) => [state, number]));
  return found.sort((a, b) => (place.get(a.key) ?? 0) - (place.get(b.key) ?? 0));
}
