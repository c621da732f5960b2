/**
 * commit — guarded writes and removals, a batch in one statement. The same statement moves
 * delivered messages to the table `sent` and releases the next message of an order key. A body
 * stored in the tables beside ours is removed in the same commit as its entry. Also here: the move
 * of unreadable rows into quarantine.
 *
 * A statement writes a row once, so a second change of the same entry waits for the next one.
 * Changes with a new envelope are written one by one, since one may meet another entry's dedupe key
 * and must not fail its neighbours. Exception: those that only drop inline bytes, as at the end of
 * every message with a key, are written in one statement, and one by one if it fails.
 *
 * After a try without an answer (`isUnknown`) a change that looks stale may be our own: it is
 * looked up, and settled by later changes of the batch.
 *
 * statements.ts runs `Changes` without a server, to print the SQL for `respool doctor --sql`.
 */

import { assert, RespoolError, textOf } from '../../core/errors.ts';
import type { Change } from '../../ports/entry-store.ts';
import { type BrokenRow, checkInline, WAITING_KEYS } from '../shared/sql-row.ts';
import { type QueryRequest, NOW_SQL } from './connection.ts';
import { codeOf } from './errors.ts';
import type { WriteTracker } from './notify.ts';
import type { Names } from './options.ts';
import { blockingSql, DUE_KEYS_SQL, firstSql, letGoSql, type OrderKeys } from './order-keys.ts';
import {
  type Cell,
  type CellType,
  checkColumns,
  type EnvelopeColumns,
  envelopeColumns,
  numberArray,
  Rows,
  type StatusColumns,
  statusColumns,
  textArray,
  Values,
} from './row.ts';

/** After an order key was met, this many batches expect more of them. */
const KEYED_BATCHES = 16;

/** SQLSTATE: another entry has the dedupe key. */
const UNIQUE_VIOLATION = '23505';

/** The result of one change; a text says why it was refused. */
export type ChangeResult = 'done' | 'stale' | { readonly refused: string };

/** How the changes of a batch are written, and where the keys of those that end are noted. */
interface BatchMode extends ChangeMode {
  readonly ended: Set<string>;
}

/** How a store writes its changes. */
interface ChangesOptions {
  /** By default the server's commits do not wait for the disk; a statement can ask for it. */
  readonly isForced: boolean;
  /** What was delivered goes to the table of what was sent. */
  readonly keepsSent: boolean;
  readonly orderKeys: OrderKeys;
  /** Our own writes, which are no news to us. */
  readonly writes: WriteTracker;
}

/** Changes over the tables of one store. */
export class Changes {
  readonly #names: Names;
  readonly #sql: ReturnType<typeof fixedSql>;
  readonly #durable: Commit;
  readonly #orderKeys: OrderKeys;
  readonly #keepsSent: boolean;
  readonly #writes: WriteTracker;
  /** Remaining batches that handle order keys; such a statement takes 1.5 times as long. */
  #keyedLeft = KEYED_BATCHES;

  constructor(names: Names, { isForced, keepsSent, orderKeys, writes }: ChangesOptions) {
    this.#names = names;
    this.#sql = fixedSql(names);
    this.#durable = isForced ? 'on' : null;
    this.#orderKeys = orderKeys;
    this.#keepsSent = keepsSent;
    this.#writes = writes;
  }

  /** Sends a statement that writes; what it made due is noted as our own. */
  #write(
    ask: QueryRequest,
    text: string,
    values: Values,
    items: readonly NumberedChange[],
  ): Promise<unknown[][]> {
    const write = (): Promise<unknown[][]> => ask(text, values.list);
    // 1: `updateSql` draws one number under the same condition.
    return items.some(makesDue) ? this.#writes.counted(1, write) : write();
  }

  /**
   * `isUnknown`: some may be there already by a try that was not answered. The order keys of those
   * that ended are added to `ended`, for `orderKeys.letGo` afterwards.
   */
  async change(
    ask: QueryRequest,
    rows: readonly ChangeRow[],
    isUnknown: boolean,
    ended: Set<string>,
  ): Promise<ChangeResult[]> {
    const results: ChangeResult[] = rows.map(() => 'done');
    const commit: Commit = rows.every(({ isDurable }) => !isDurable) ? 'off' : this.#durable;
    const isOrdered = this.#orderKeys.isOrdered && this.#keyedLeft > 0;
    if (isOrdered) this.#keyedLeft -= 1;
    for (const wave of wavesOf(rows)) {
      await this.#changeAll(ask, wave, results, { commit, ended, isOrdered });
      // A statement without key handling skipped rows that have one.
      if (!isOrdered) {
        const left = wave.filter(([, index]) => results[index] === 'stale');
        if (left.length > 0 && (await this.#orderKeys.learn(ask))) {
          for (const [, index] of left) results[index] = 'done';
          await this.#changeAll(ask, left, results, { commit, ended, isOrdered: true });
          const isMet = left.some(([, index]) => results[index] !== 'stale');
          if (isMet) this.#keyedLeft = KEYED_BATCHES;
        }
      }
      // Before the next wave writes over it.
      if (isUnknown) await this.#lookAgain(ask, wave, results);
    }
    if (ended.size > 0) this.#keyedLeft = KEYED_BATCHES;
    if (isUnknown) settleByLaterChanges(rows, results);
    return results;
  }

  /** Changes of different entries; notes what was not done. */
  async #changeAll(
    ask: QueryRequest,
    items: readonly NumberedChange[],
    results: ChangeResult[],
    how: Omit<BatchMode, 'lastClaimAt'>,
  ): Promise<void> {
    const mode: BatchMode = { ...how, lastClaimAt: this.#orderKeys.lastClaimAt };
    const plain = items.filter(([{ envelope }]) => envelope === undefined);
    const stale = plain.length === 0 ? [] : await this.#changePlain(ask, plain, mode);
    for (const index of stale) results[index] = 'stale';
    const shrinking = items.filter(isShrinking);
    const shrunk = shrinking.length > 1 && (await this.#dropInlineBytes(ask, shrinking, mode));
    for (const item of items) {
      const [row, index] = item;
      if (row.envelope === undefined) continue;
      if (shrunk === false || !isShrinking(item)) {
        results[index] = await this.#writeEnvelope(ask, row, mode);
      } else if (shrunk.has(index)) results[index] = 'stale';
    }
  }

  /** The indexes of those that were stale. */
  async #changePlain(
    ask: QueryRequest,
    items: readonly NumberedChange[],
    mode: BatchMode,
  ): Promise<number[]> {
    const removals = items.filter(([{ status }]) => status === null);
    const sent = items.filter(([row]) => this.#isSent(row));
    const updates = items.filter(([row]) => row.status !== null && !this.#isSent(row));
    const values = new Values();
    const parts: string[] = [];
    if (sent.length > 0) {
      const rows = addGuards(new Rows(values), sent);
      const sentAt = sent.map(([{ status }]) => status?.updatedAt ?? null);
      parts.push(moveSql(this.#names, rows.add('sent_at', 'int8', sentAt), mode));
    }
    if (updates.length > 0) {
      const rows = addStatuses(addGuards(new Rows(values), updates), updates);
      parts.push(updateSql(this.#names, rows, updates, mode));
    }
    if (removals.length > 0) {
      const rows = addGuards(new Rows(values), removals);
      const refs = removals.map(([{ bodyRef }]) => bodyRef);
      const hasBodies = refs.some((ref) => ref !== null);
      if (hasBodies) rows.add('ref', 'text', refs);
      parts.push(removeSql(this.#names, rows, mode, hasBodies));
    }
    const sources = [
      ...(sent.length > 0 ? (['moved'] as const) : []),
      ...(updates.length > 0 ? (['changed'] as const) : []),
      ...(removals.length > 0 ? (['gone'] as const) : []),
    ];
    const text = `WITH ${parts.join(', ')}${answerSql(this.#names, sources, mode, values)}`;
    const stale = readAnswer(await this.#write(ask, text, values, updates), mode.ended);
    const staying = sent.filter(([, index]) => stale.includes(index));
    if (staying.length === 0) return stale;
    const others = stale.filter((index) => !staying.some(([, at]) => at === index));
    return [...others, ...(await this.#copy(ask, staying, mode))];
  }

  #isSent({ status }: ChangeRow): boolean {
    return this.#keepsSent && status !== null && status.isDelivered;
  }

  /**
   * Copies delivered entries that stay because their id or key must still be recognised; returns
   * those that were stale.
   */
  async #copy(
    ask: QueryRequest,
    items: readonly NumberedChange[],
    mode: BatchMode,
  ): Promise<number[]> {
    const values = new Values();
    const rows = addStatuses(addGuards(new Rows(values), items), items);
    const answer = answerSql(this.#names, ['changed'], mode, values);
    const update = updateSql(this.#names, rows, items, mode);
    const text = `WITH ${update}${copySql(this.#names)}${answer}`;
    return readAnswer(await this.#write(ask, text, values, items), mode.ended);
  }

  /** The indexes of those that were stale; false when they have to go one by one. */
  async #dropInlineBytes(
    ask: QueryRequest,
    items: readonly ShrinkingBody[],
    mode: BatchMode,
  ): Promise<ReadonlySet<number> | false> {
    const values = new Values();
    const rows = addStatuses(addGuards(new Rows(values), items), items);
    for (const [name, type, read] of ENVELOPE) {
      rows.add(
        `to_${name}`,
        type,
        items.map(([{ envelope }]) => read(envelope)),
      );
    }
    rows.add(
      'to_text',
      'text',
      items.map(([{ envelope }]) => envelope.text),
    );
    rows.add(
      'ref',
      'text',
      items.map(([{ bodyRef }]) => bodyRef),
    );
    const more = ENVELOPE.map(([name]) => `, ${name} = g.to_${name}`).join('');
    const refs = 'SELECT g.ref FROM changed c JOIN wanted g ON g.n = c.n WHERE g.ref IS NOT NULL';
    const text = `WITH ${updateSql(this.#names, rows, items, mode, more)}, rewritten AS (
  UPDATE ${this.#names.table.contents} k SET envelope = g.to_text, body = NULL
  FROM changed c JOIN wanted g ON g.n = c.n
  WHERE k.seq = ANY(ARRAY(SELECT seq FROM changed)) AND k.seq = c.seq
)${dropBodiesSql(this.#names, refs)}${answerSql(this.#names, ['changed'], mode, values)}`;
    try {
      return new Set(readAnswer(await this.#write(ask, text, values, items), mode.ended));
    } catch (error) {
      if (codeOf(error) !== UNIQUE_VIOLATION) throw error;
      return false;
    }
  }

  /** One entry with a new envelope: the same guard, more columns, and what is in `contents`. */
  async #writeEnvelope(ask: QueryRequest, row: ChangeRow, mode: BatchMode): Promise<ChangeResult> {
    const { envelope, body, bodyRef } = row;
    assert(envelope !== undefined, 'a change of an envelope has one');
    const values = new Values();
    const { bind } = values;
    const items: readonly NumberedChange[] = [[row, 0]];
    const rows = addStatuses(addGuards(new Rows(values), items), items);
    const more = ENVELOPE.map(
      ([name, type, read]) => `, ${name} = ${bind(read(envelope), type)}`,
    ).join('');
    const bytes = body === undefined ? '' : `, body = ${bind(body, 'bytea')}`;
    const dropped =
      bodyRef === null
        ? ''
        : dropBodiesSql(this.#names, `SELECT ${bind(bodyRef, 'text')} FROM changed`);
    const text = `WITH ${updateSql(this.#names, rows, items, mode, more)}, rewritten AS (
  UPDATE ${this.#names.table.contents} k SET envelope = ${bind(envelope.text, 'text')}${bytes}
  FROM changed WHERE k.seq = changed.seq
)${dropped}${answerSql(this.#names, ['changed'], mode, values)}`;
    try {
      const stale = readAnswer(await this.#write(ask, text, values, items), mode.ended);
      return stale.length === 0 ? 'done' : 'stale';
    } catch (error) {
      if (codeOf(error) !== UNIQUE_VIOLATION) throw error;
      const found = await ask(this.#sql.keyOwner, [envelope.dedupeKey]);
      return { refused: `its dedupe key belongs to "${textOf(found[0]?.[0] ?? 'another')}"` };
    }
  }

  /**
   * After a try that was not answered a change that looks stale may be our own: the entry is one
   * revision on, with what we wrote, or it is gone as we wanted, and no other could have taken
   * it meanwhile. After the lease it is unknown: another holder's delivery must not count as ours.
   */
  async #lookAgain(
    ask: QueryRequest,
    wave: readonly NumberedChange[],
    results: ChangeResult[],
  ): Promise<void> {
    const doubtful = wave.filter(([, index]) => results[index] === 'stale');
    if (doubtful.length === 0) return;
    const found = await ask(this.#sql.look, [textArray(doubtful.map(([{ id }]) => id))]);
    const present = new Map(found.map((line) => [String(line[0]), line]));
    const [[now] = []] = await ask(NOW_SQL);
    for (const [row, index] of doubtful) {
      const line = present.get(row.id);
      const isGone = line === undefined && (row.status === null || this.#isSent(row));
      const isOurs = isGone ? Number(now) < row.leaseEndsAt : isWritten(row, line);
      if (isOurs) results[index] = 'done';
    }
  }

  /** Moves rows into quarantine unchanged; returns their order keys. */
  async quarantine(ask: QueryRequest, broken: readonly BrokenRow[]): Promise<string[]> {
    const keys = await ask(this.#sql.quarantine, [
      textArray(broken.map(({ id }) => id)),
      numberArray(broken.map(({ seq }) => seq)),
      textArray(broken.map(({ reason }) => reason.replaceAll('\0', ''))),
    ]);
    return keys.map(([key]) => String(key));
  }
}

/** The error of a commit whose change was refused. */
export function refusal(id: string, reason: string): RespoolError {
  return new RespoolError(
    'message.duplicate',
    `cannot change "${id}": ${reason}; choose another key`,
  );
}

/**
 * After a try that was not answered: of two changes based on the same revision, at most one
 * was done, and what a done change was computed from was done before it.
 */
function settleByLaterChanges(rows: readonly ChangeRow[], results: ChangeResult[]): void {
  const done = new Set<string>();
  for (const [index, { id, revision }] of rows.entries()) {
    if (results[index] !== 'done') continue;
    if (done.has(`${id} ${revision}`)) results[index] = 'stale';
    done.add(`${id} ${revision}`);
  }
  for (const [index, { id, status }] of [...rows.entries()].reverse()) {
    const isFollowed = status !== null && done.has(`${id} ${status.revision}`);
    if (results[index] === 'stale' && isFollowed) results[index] = 'done';
  }
}

/** Whether an entry, in the columns of `look` behind the id, is what a change wanted it to be. */
function isWritten({ status }: ChangeRow, line: readonly unknown[] | undefined): boolean {
  if (status === null || line === undefined) return false;
  const { revision, slot, updatedAt, holder, dueAt, memory } = status;
  const wanted = [revision, slot, updatedAt, holder, dueAt, memory];
  return wanted.every((value, at) => line[at + 1] === value);
}

/** In each wave an id comes once, in the order of the changes. */
function wavesOf(rows: readonly ChangeRow[]): NumberedChange[][] {
  const waves: NumberedChange[][] = [];
  const seen = new Map<string, number>();
  for (const [index, row] of rows.entries()) {
    const turn = seen.get(row.id) ?? 0;
    seen.set(row.id, turn + 1);
    const wave = waves[turn];
    if (wave === undefined) waves.push([[row, index]]);
    else wave.push([row, index]);
  }
  return waves;
}

// The statements: guarded writes and removals.
//
// In a store without order keys a statement ignores them, and skips rows that have
// one after all. In a store with order keys, an entry that ends releases the next of its key in
// the same statement.

/** `synchronous_commit` of a batch; null: as the server has it. */
export type Commit = 'off' | 'on' | null;

/** How a statement is written. */
interface ChangeMode {
  readonly commit: Commit;
  /** Whether there are order keys. */
  readonly isOrdered: boolean;
  /** As of `OrderKeys`: what waited for its key is due then. */
  readonly lastClaimAt: number | null;
}

/** How an entry is found as it should be. */
const GUARDS: readonly (readonly [string, CellType, (item: NumberedChange) => Cell])[] = [
  ['id', 'text', ([{ id }]) => id],
  ['n', 'int4', ([, index]) => index],
  ['revision', 'int4', ([{ revision }]) => revision],
  ['holder', 'text', ([{ holder }]) => holder],
];

function addGuards(rows: Rows, items: readonly NumberedChange[]): Rows {
  for (const [name, type, read] of GUARDS) rows.add(name, type, items.map(read));
  return rows;
}

/**
 * The columns that every step writes; also in insert.ts, row.ts and schema.ts. One that is read too
 * (`EntryRow`) moves the columns that claim-sql.ts, list.ts and count.ts read behind it by number.
 */
const STATUS: readonly (readonly [string, CellType, (status: StatusColumns) => Cell])[] = [
  ['slot', 'int2', ({ slot }) => slot],
  ['due_at', 'int8', ({ dueAt }) => dueAt],
  ['revision', 'int4', ({ revision }) => revision],
  ['attempts', 'int4', ({ attempts }) => attempts],
  ['notices', 'int4', ({ notices }) => notices],
  ['lost', 'int4', ({ lost }) => lost],
  ['postponed', 'int4', ({ postponed }) => postponed],
  ['replays', 'int4', ({ replays }) => replays],
  ['holder', 'text', ({ holder }) => holder],
  ['claimed_from', 'int2', ({ claimedFrom }) => claimedFrom],
  ['updated_at', 'int8', ({ updatedAt }) => updatedAt],
  ['fingerprint', 'text', ({ fingerprint }) => fingerprint],
  ['memory', 'text', ({ memory }) => memory],
];

function addStatuses(rows: Rows, items: readonly NumberedChange[]): Rows {
  const all = items.flatMap(([{ status }]) => status ?? []);
  for (const [name, type, read] of STATUS) rows.add(`to_${name}`, type, all.map(read));
  return rows;
}

/** The columns that a new envelope writes besides. */
const ENVELOPE: readonly (readonly [string, CellType, (envelope: EnvelopeColumns) => Cell])[] = [
  ['topic', 'text', ({ topic }) => topic],
  ['destination', 'text', ({ destination }) => destination],
  ['priority', 'int2', ({ priority }) => priority],
  ['enqueued_at', 'int8', ({ enqueuedAt }) => enqueuedAt],
  ['dedupe_key', 'text', ({ dedupeKey }) => dedupeKey],
];

const SET_SQL: string = STATUS.map(([name]) => `${name} = g.to_${name}`).join(', ');

/** One that is written as it was found goes on waiting for its turn. */
const BEHIND_SQL =
  ', behind = (e.behind AND e.slot = g.to_slot AND e.due_at IS NOT DISTINCT FROM g.to_due_at)';

/**
 * n.b. The redundant array makes the server look up each entry in the index; left to its
 * own estimate, it reads the whole table for a batch: 40 ms against 2 ms. (40,000 entries, a batch
 * of 333, PostgreSQL 15, 2026-11-15)
 */
function guardSql(text: string, { isOrdered }: ChangeMode): string {
  return `e.id = ANY(ARRAY(SELECT id FROM ${text}))
    AND e.id = g.id AND e.revision = g.revision AND e.holder = g.holder${
      isOrdered ? '' : ' AND e.order_key IS NULL'
    }`;
}

/**
 * Whether the commit waits for the disk is said in the statement: one round trip, and nothing is
 * left behind on a connection that another call uses next.
 */
function commitSql({ commit }: ChangeMode, more: readonly string[] = []): string {
  const set = commit === null ? [] : [`set_config('synchronous_commit', '${commit}', true)`];
  const first = [...set, ...more].map((call) => `(SELECT ${call}) IS NOT NULL`);
  return first.length === 0 ? '' : ` WHERE ${first.join(' AND ')}`;
}

/** Whether a change makes something due, now or later. */
function makesDue([{ status }]: NumberedChange): boolean {
  return status !== null && WAITING_KEYS.some((slot) => slot === status.slot);
}

/**
 * Writes `wanted`; those it found as they should be are in `changed`. If they make something due,
 * it draws a number, so that others notice (notify.ts).
 */
function updateSql(
  { table, sequence }: Names,
  rows: Rows,
  items: readonly NumberedChange[],
  mode: ChangeMode,
  more = '',
): string {
  const draw = items.some(makesDue) ? [`nextval('${sequence}')`] : [];
  const behind = mode.isOrdered ? BEHIND_SQL : '';
  return `wanted AS MATERIALIZED (${rows.sql}${commitSql(mode, draw)}), changed AS (
  UPDATE ${table.entries} e SET ${SET_SQL}${behind}${more} FROM wanted g
  WHERE ${guardSql('wanted', mode)}
  RETURNING g.n, e.seq${mode.isOrdered ? ', e.order_key, e.slot' : ''}
)`;
}

/** Removes `unwanted`; those it found as they should be are in `gone`. */
function removeSql(names: Names, rows: Rows, mode: ChangeMode, hasBodies: boolean): string {
  const { table } = names;
  const more = `${hasBodies ? ', g.ref' : ''}${mode.isOrdered ? ', e.order_key, e.slot' : ''}`;
  return `unwanted AS MATERIALIZED (${rows.sql}${commitSql(mode)}), gone AS (
  DELETE FROM ${table.entries} e USING unwanted g
  WHERE ${guardSql('unwanted', mode)} RETURNING g.n, e.seq${more}
), dropped AS (
  DELETE FROM ${table.contents} WHERE seq = ANY(ARRAY(SELECT seq FROM gone))
)${hasBodies ? dropBodiesSql(names, 'SELECT ref FROM gone WHERE ref IS NOT NULL') : ''}`;
}

/**
 * Bodies that are removed with their entries, in the same commit: neither outlives the other. Where
 * bodies are kept elsewhere, this is one look into an index that finds nothing.
 */
function dropBodiesSql({ table }: Names, refs: string): string {
  return `, let_go AS (
  DELETE FROM ${table.bodies} WHERE ref = ANY(ARRAY(${refs})) RETURNING ref
), emptied AS (
  DELETE FROM ${table.chunks} WHERE ref = ANY(ARRAY(SELECT ref FROM let_go))
)`;
}

/**
 * Removes `leaving` and puts it in the table of what was sent; the rows it moved are in `moved`.
 * Not those whose id or key is to be known again: they stay, and are copied (copySql). `ownId` of
 * an envelope is looked for in the text that shared/sql-row.ts writes.
 */
function moveSql({ table }: Names, rows: Rows, mode: ChangeMode): string {
  const more = mode.isOrdered ? ', e.order_key, e.slot' : '';
  return `leaving AS MATERIALIZED (${rows.sql}${commitSql(mode)}), moved AS (
  DELETE FROM ${table.entries} e USING leaving g
  WHERE ${guardSql('leaving', mode)} AND e.dedupe_key IS NULL AND coalesce((
      SELECT position('"ownId":true' IN k.envelope) FROM ${table.contents} k WHERE k.seq = e.seq
    ), 1) = 0
  RETURNING g.n, g.sent_at, e.seq, e.id, e.topic${more}
), carried AS (
  DELETE FROM ${table.contents} k WHERE k.seq = ANY(ARRAY(SELECT seq FROM moved))
  RETURNING k.seq, k.envelope, k.body
), arrived AS (
  INSERT INTO ${table.sent} (sent_at, id, topic, envelope, body)
  SELECT m.sent_at, m.id, m.topic, k.envelope, k.body FROM moved m JOIN carried k ON k.seq = m.seq
)`;
}

/** Puts a copy of what was `changed` in the table of what was sent. */
function copySql({ table }: Names): string {
  return `, arrived AS (
  INSERT INTO ${table.sent} (sent_at, id, topic, envelope, body)
  SELECT g.to_updated_at, g.id, e.topic, k.envelope, k.body
  FROM changed c JOIN wanted g ON g.n = c.n
    JOIN ${table.entries} e ON e.id = g.id JOIN ${table.contents} k ON k.seq = c.seq
  WHERE k.seq = ANY(ARRAY(SELECT seq FROM changed))
    AND e.id = ANY(ARRAY(SELECT id FROM wanted))
)`;
}

/** The CTEs of a statement that return the rows they wrote, with their inputs. */
type ChangeSource = 'changed' | 'gone' | 'moved';

const GIVEN: Readonly<Record<ChangeSource, string>> = {
  changed: 'wanted',
  gone: 'unwanted',
  moved: 'leaving',
};

/**
 * The end of a statement: it answers with the numbers of those that were not found as they should
 * be and, where keys have an order, with the keys of those that ended, after their next ones were
 * let go.
 */
function answerSql(
  names: Names,
  sources: readonly ChangeSource[],
  { isOrdered, lastClaimAt }: ChangeMode,
  { bind }: Values,
): string {
  const key = isOrdered ? ', NULL::text AS key' : '';
  const answers = sources.map(
    (source) => `SELECT n${key} FROM ${GIVEN[source]} WHERE n NOT IN (SELECT n FROM ${source})`,
  );
  if (!isOrdered) return ` ${answers.join(' UNION ALL ')}`;
  const letGo = letGoSql(names, 'SELECT id FROM heads', bind(lastClaimAt, 'int8'));
  return `, touched AS (${sources.map((source) => TOUCHED[source]).join(' UNION ALL ')}),
ended AS MATERIALIZED (
  SELECT order_key, array_agg(seq) AS touched, array_agg(seq) FILTER (WHERE ends) AS seqs
  FROM touched GROUP BY order_key HAVING bool_or(ends)
), heads AS MATERIALIZED (
  SELECT h.id FROM ended k CROSS JOIN LATERAL (
    ${firstSql(names, 'k.order_key', ' AND b.seq <> ALL(k.seqs)')}
  ) h WHERE h.slot IN (${DUE_KEYS_SQL}) AND h.seq <> ALL(k.touched)
), woken AS (${letGo})
${answers.join(' UNION ALL ')} UNION ALL SELECT NULL, order_key FROM ended`;
}

/** Rows with keys that a statement wrote, and whether they stopped blocking others. */
const TOUCHED: Readonly<Record<ChangeSource, string>> = {
  changed: `SELECT order_key, seq, NOT ${blockingSql('')} AS ends FROM changed
  WHERE order_key IS NOT NULL`,
  gone: removedSql('gone'),
  moved: removedSql('moved'),
};

function removedSql(source: string): string {
  return `SELECT order_key, seq, true AS ends FROM ${source}
  WHERE order_key IS NOT NULL AND ${blockingSql('')}`;
}

/** The numbers in an answer; its keys are added to `ended`. */
function readAnswer(rows: readonly unknown[][], ended: Set<string>): number[] {
  const numbers: number[] = [];
  for (const [number, key] of rows) {
    if (typeof key === 'string') ended.add(key);
    else numbers.push(Number(number));
  }
  return numbers;
}

function fixedSql({ table }: Names): Readonly<Record<'keyOwner' | 'look' | 'quarantine', string>> {
  return {
    keyOwner: `SELECT id FROM ${table.entries} WHERE dedupe_key = $1`,
    look: `SELECT id, revision, slot, updated_at, holder, due_at, memory FROM ${table.entries}
  WHERE id = ANY($1::text[])`,
    quarantine: `WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::int8[], $3::text[]) AS g(id, seq, reason)
), gone AS (
  DELETE FROM ${table.entries} e USING given g WHERE e.id = g.id AND e.seq = g.seq
  RETURNING e.seq, e.id, e.order_key, g.reason, to_jsonb(e)::text AS entry
), dropped AS (
  DELETE FROM ${table.contents} k USING gone WHERE k.seq = gone.seq
  RETURNING k.seq, k.envelope, k.body
), put AS (
  INSERT INTO ${table.quarantine} (id, reason, entry, envelope, body)
  SELECT g.id, g.reason, g.entry, d.envelope, d.body
  FROM gone g LEFT JOIN dropped d ON d.seq = g.seq
)
SELECT order_key FROM gone WHERE order_key IS NOT NULL`,
  };
}

// A change, checked, as the columns it writes.

/** A change, ready to go. */
export interface ChangeRow {
  readonly id: string;
  readonly revision: number;
  readonly holder: string;
  readonly isDurable: boolean;
  /** Null: remove it. */
  readonly status: StatusColumns | null;
  readonly envelope: EnvelopeColumns | undefined;
  /** New bytes; null: drop them; undefined: as they are. */
  readonly body: Uint8Array | null | undefined;
  /** The body that goes with it, if that is in the tables beside ours. */
  readonly bodyRef: string | null;
  /** From then on another holder may have removed it. */
  readonly leaseEndsAt: number;
}

export function changeRow(change: Change, isDurable: boolean): ChangeRow {
  const { id, revision, holder = '', to, envelope, inlineBody, bodyRef = null } = change;
  const { leaseEndsAt = Number.POSITIVE_INFINITY } = change;
  if (bodyRef !== null) checkColumns(id, { counts: [], times: [], texts: [bodyRef] });
  const isInline = envelope?.body.place === 'inline';
  const body = isInline ? checkInline(inlineBody, id) : null;
  return {
    id,
    revision,
    holder,
    isDurable,
    status: to === 'remove' ? null : statusColumns(to, id),
    envelope: envelope === undefined ? undefined : envelopeColumns(envelope),
    body: envelope === undefined ? undefined : body,
    bodyRef,
    leaseEndsAt,
  };
}

/** A change, and its place in the batch. */
type NumberedChange = readonly [row: ChangeRow, index: number];

/** One with a new envelope that drops the inline bytes, if there are any. */
type ShrinkingBody = readonly [
  row: ChangeRow & { readonly envelope: EnvelopeColumns },
  index: number,
];

function isShrinking(item: NumberedChange): item is ShrinkingBody {
  const [{ envelope, body, status }] = item;
  return envelope !== undefined && body === null && status !== null;
}
