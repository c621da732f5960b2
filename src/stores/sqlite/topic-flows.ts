/**
 * topic-flows — entries of one topic, destination and priority form a flow: a small number in
 * every row.
 *
 * Each flow counts its entries by slot, so a large store is counted by state, topic or destination
 * without a scan, and a claim that must leave out a topic or a destination can go straight to what
 * is left. Counts change in the transaction of the entries they count: once per flow and batch.
 */

import { assert } from '../../core/errors.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import { STATE_KEY_COUNT, type StateKey } from '../shared/sql-row.ts';
import type { Connection } from './connection.ts';
import { CLAIMED_KEYS, COUNT_COLUMNS, OPEN_SQL } from './schema.ts';

/** What a flow stands for. */
export interface TopicFlow {
  readonly flow: number;
  readonly topic: string;
  /** '' for none. */
  readonly destination: string;
  readonly priority: number;
}

/** How many new flows may come before those that count nothing are removed. */
const SWEEP_AFTER = 10_000;
/** Flows whose numbers are remembered; past it the memory starts afresh. */
const REMEMBERED_MAX = 10_000;

/** The flows of one file. */
export class TopicFlows {
  readonly #connection: Connection;
  readonly #sql: ReturnType<typeof prepare>;
  readonly #numbers = new Map<string, number>();
  readonly #known = new Map<number, TopicFlow>();
  readonly #deltas = new Map<number, number[]>();
  /** The one asked for last: most batches are of one kind. */
  #last: TopicFlow | undefined;
  /** All flows in the order of their numbers, once they were asked for. */
  #listed: TopicFlow[] = [];
  #generation = 0;
  #priorities: readonly number[] | undefined;
  #seenVersion = -1;
  #epoch = -1;
  #added = 0;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#sql = prepare(connection.database);
  }

  /** Called first in every transaction: forgets what another connection has made untrue. */
  begin(): void {
    const version = this.#connection.dataVersion();
    if (version === this.#seenVersion) return;
    this.#seenVersion = version;
    this.#priorities = undefined;
    // A number may only be remembered while its row is there: another process may have swept it.
    const epoch = Number(this.#sql.epoch.get());
    if (epoch === this.#epoch) return;
    this.#epoch = epoch;
    this.#forget();
  }

  /** The version of the data that `begin` saw. */
  get version(): number {
    return this.#seenVersion;
  }

  /** The number of a flow, made if needed; only in a transaction. */
  numberOf(topic: string, destination: string, priority: number): number {
    const last = this.#last;
    const isLast =
      last !== undefined &&
      last.topic === topic &&
      last.destination === destination &&
      last.priority === priority;
    if (isLast) return last.flow;
    const flow = this.#find(topic, destination, priority);
    this.#last = { flow, topic, destination, priority };
    return flow;
  }

  #find(topic: string, destination: string, priority: number): number {
    const key = `${priority}\n${topic}\n${destination}`;
    const number = this.#numbers.get(key);
    if (number !== undefined) return number;
    const { find, add } = this.#sql;
    const found = find.get(topic, destination, priority) as number | undefined;
    const flow = found ?? Number(add.run(topic, destination, priority).lastInsertRowid);
    if (found === undefined) this.#added += 1;
    if (this.#numbers.size >= REMEMBERED_MAX) this.#numbers.clear();
    this.#numbers.set(key, flow);
    this.#remember({ flow, topic, destination, priority });
    return flow;
  }

  get(flow: number): TopicFlow | undefined {
    const known = this.#known.get(flow) ?? this.#inList(flow);
    if (known !== undefined) return known;
    const row = this.#sql.look.get(flow) as Omit<TopicFlow, 'flow'> | undefined;
    if (row === undefined) return undefined;
    const found = { flow, ...row };
    this.#remember(found);
    return found;
  }

  /** Of the list, which is in the order of numbers. */
  #inList(flow: number): TopicFlow | undefined {
    const listed = this.#listed;
    let from = 0;
    let to = listed.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((listed[middle]?.flow ?? 0) < flow) from = middle + 1;
      else to = middle;
    }
    return listed[from]?.flow === flow ? listed[from] : undefined;
  }

  #remember(flow: TopicFlow): void {
    if (this.#known.size >= REMEMBERED_MAX) this.#known.clear();
    this.#known.set(flow.flow, flow);
  }

  /** Notes that an entry came into a slot (+1) or left it (-1). */
  count(flow: number, slot: StateKey, by: number): void {
    let delta = this.#deltas.get(flow);
    if (delta === undefined) {
      delta = Array.from<number>({ length: STATE_KEY_COUNT }).fill(0);
      this.#deltas.set(flow, delta);
      this.#notePriority(flow);
    }
    delta[slot] = (delta[slot] ?? 0) + by;
  }

  /** Writes the noted counts; last in every transaction. */
  settle(): void {
    for (const [flow, delta] of this.#deltas) {
      if (delta.every((by) => by === 0)) continue;
      const { changes } = this.#sql.adjust.run(delta, flow);
      // Its text is built only where it is needed: this runs for each batch.
      if (changes !== 1) assert(false, `flow ${flow} has no row`);
    }
    this.#deltas.clear();
    if (this.#added < SWEEP_AFTER) return;
    sweepFlows(this.#connection);
    this.drop();
  }

  /** Forgets everything noted and known, as after a rollback. */
  drop(): void {
    this.#deltas.clear();
    this.#forget();
    this.#priorities = undefined;
    this.#seenVersion = -1;
    this.#epoch = -1;
    this.#added = 0;
  }

  #forget(): void {
    this.#numbers.clear();
    this.#known.clear();
    this.#listed = [];
    this.#generation += 1;
    this.#last = undefined;
  }

  /** An entry may come into a slot in which its priority had none. */
  #notePriority(flow: number): void {
    const priority = this.get(flow)?.priority;
    if (priority === undefined || this.#priorities?.includes(priority) !== false) return;
    this.#priorities = [...this.#priorities, priority].sort((a, b) => a - b);
  }

  /** Those that entries which wait or are active may have, the first ones first. */
  priorities(): readonly number[] {
    if (this.#priorities === undefined) {
      this.#priorities = this.#sql.priorities.all() as number[];
      // Entries that this transaction has yet to write to these flows are not noted any more.
      for (const flow of this.#deltas.keys()) this.#notePriority(flow);
    }
    return this.#priorities;
  }

  /** The numbers of the flows that pass; one row at a time, so that nothing is kept of the rest. */
  matching(isWanted: (topic: string, destination: string) => boolean): Set<number> {
    const numbers = new Set<number>();
    for (const row of this.#sql.names.iterate()) {
      const [flow, topic, destination] = row as [number, string, string];
      if (isWanted(topic, destination)) numbers.add(flow);
    }
    return numbers;
  }

  /** The entries in each slot, of these flows or of all. */
  counts(flows?: ReadonlySet<number>): readonly number[] {
    if (flows === undefined) return this.#sql.counts.get() as number[];
    return this.#sql.countsOf.get(JSON.stringify([...flows])) as number[];
  }

  /** All there are, in the order of their numbers; read once, then only what is new. */
  list(): readonly TopicFlow[] {
    const last = this.#listed.at(-1)?.flow ?? 0;
    const rows = this.#sql.since.all(last) as [number, string, string, number][];
    for (const [flow, topic, destination, priority] of rows) {
      this.#listed.push(this.#known.get(flow) ?? { flow, topic, destination, priority });
    }
    return this.#listed;
  }

  /** Another one when numbers of flows that were known may mean something else. */
  get generation(): number {
    return this.#generation;
  }
}

/** Removes flows that count nothing; in a transaction, since others remember their numbers. */
export function sweepFlows(connection: Connection): void {
  const { database } = connection;
  const isEmpty = COUNT_COLUMNS.map((n) => `${n} = 0`).join(' AND ');
  const { changes } = database.prepare(`DELETE FROM {flows} WHERE ${isEmpty}`).run();
  if (changes === 0) return;
  connection.wrote(changes);
  database.prepare("UPDATE {meta} SET value = value + 1 WHERE key = 'flow_epoch'").run();
}

const NEXT_PRIORITY_SQL = `SELECT min(priority) FROM {entries} INDEXED BY {entries_due}
  WHERE ${OPEN_SQL} AND slot = s.value`;

/** From one priority of a slot to the next, through the index: a row for each. */
const PRIORITIES_SQL = `WITH RECURSIVE found (slot, priority) AS (
    SELECT s.value, (${NEXT_PRIORITY_SQL}) FROM json_each('[${CLAIMED_KEYS.join(',')}]') s
    UNION ALL
    SELECT s.slot, (${NEXT_PRIORITY_SQL.replace('s.value', 's.slot')} AND priority > s.priority)
    FROM found s WHERE s.priority IS NOT NULL
  ) SELECT DISTINCT priority FROM found WHERE priority IS NOT NULL ORDER BY 1`;

function prepare(database: SqliteDatabase) {
  const adjust = COUNT_COLUMNS.map((n) => `${n} = ${n} + ?`).join(', ');
  const counts = `SELECT ${COUNT_COLUMNS.map((n) => `total(${n})`).join(', ')} FROM {flows}`;
  return {
    find: database
      .prepare('SELECT flow FROM {flows} WHERE topic = ? AND destination = ? AND priority = ?')
      .pluck(),
    add: database.prepare('INSERT INTO {flows} (topic, destination, priority) VALUES (?, ?, ?)'),
    look: database.prepare('SELECT topic, destination, priority FROM {flows} WHERE flow = ?'),
    epoch: database.prepare("SELECT value FROM {meta} WHERE key = 'flow_epoch'").pluck(),
    priorities: database.prepare(PRIORITIES_SQL).pluck(),
    names: database.prepare('SELECT flow, topic, destination FROM {flows}').raw(),
    counts: database.prepare(counts).raw(),
    countsOf: database.prepare(`${counts} WHERE flow IN (SELECT value FROM json_each(?))`).raw(),
    adjust: database.prepare(`UPDATE {flows} SET ${adjust} WHERE flow = ?`),
    since: database
      .prepare(
        'SELECT flow, topic, destination, priority FROM {flows} WHERE flow > ? ORDER BY flow',
      )
      .raw(),
  };
}
