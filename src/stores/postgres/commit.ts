/**
 * commit — guarded writes and removals, a batch in one statement; and the way into quarantine.
 *
 * A statement writes a row once, so a second change of the same entry waits for the next one. A
 * change of an envelope may meet another entry's dedupe key, and must not fail its neighbours.
 * Those that only let go of inline bytes, as at the end of every message with a key, go together,
 * and one by one if that fails. All others go by themselves.
 */

import { assert, RespoolError, textOf } from '../../core/errors.ts';
import { type BrokenRow } from '../shared/sql-row.ts';
import { numberArray, Rows, textArray, Values } from './arrays.ts';
import {
  addGuards,
  addStatuses,
  answerSql,
  type ChangeRow,
  type Commit,
  copySql,
  dropBodiesSql,
  ENVELOPE,
  fixedSql,
  isShrinking,
  type ChangeMode,
  moveSql,
  type NumberedChange,
  readAnswer,
  removeSql,
  type ShrinkingBody,
  updateSql,
} from './commit-sql.ts';
import { codeOf } from './errors.ts';
import type { Names } from './names.ts';
import { type Ask, NOW_SQL } from './connection.ts';
import type { OrderKeyTurns } from './order-keys.ts';

/** After a key was met, this many batches expect more of them. */
const KEYED_BATCHES = 16;

/** What became of one; a text says why it was refused. */
export type ChangeResult = 'done' | 'stale' | { readonly refused: string };

/** How the changes of a batch are written, and where the keys of those that end are noted. */
interface Way extends ChangeMode {
  readonly ended: Set<string>;
}

/** What changes go by. */
interface ChangesParts {
  /** The server would not wait for the disk at a commit unless a statement says so. */
  readonly isForced: boolean;
  /** What was delivered goes to the table of what was sent. */
  readonly keepsSent: boolean;
  readonly turns: OrderKeyTurns;
}

/** Changes over the tables of one store. */
export class Changes {
  readonly #names: Names;
  readonly #sql: ReturnType<typeof fixedSql>;
  readonly #durable: Commit;
  readonly #turns: OrderKeyTurns;
  readonly #keepsSent: boolean;
  /** How many more batches think of keys: a statement that does takes half as long again. */
  #keyedLeft = KEYED_BATCHES;

  constructor(names: Names, { isForced, keepsSent, turns }: ChangesParts) {
    this.#names = names;
    this.#sql = fixedSql(names);
    this.#durable = isForced ? 'on' : null;
    this.#turns = turns;
    this.#keepsSent = keepsSent;
  }

  /**
   * `isUnknown`: some may be there already by a try that was not answered. The order keys of those
   * that ended are added to `ended`, for `turns.letGo` afterwards.
   */
  async change(
    ask: Ask,
    rows: readonly ChangeRow[],
    isUnknown: boolean,
    ended: Set<string>,
  ): Promise<ChangeResult[]> {
    const results: ChangeResult[] = rows.map(() => 'done');
    const commit: Commit = rows.every(({ isDurable }) => !isDurable) ? 'off' : this.#durable;
    const isOrdered = this.#turns.isOrdered && this.#keyedLeft > 0;
    if (isOrdered) this.#keyedLeft -= 1;
    for (const wave of wavesOf(rows)) {
      await this.#changeAll(ask, wave, results, { commit, ended, isOrdered });
      // Without thought of keys, rows that have one were passed over.
      if (!isOrdered) {
        const left = wave.filter(([, index]) => results[index] === 'stale');
        if (left.length > 0 && (await this.#turns.learn(ask))) {
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
    if (isUnknown) trustLater(rows, results);
    return results;
  }

  /** Changes of different entries; notes what was not done. */
  async #changeAll(
    ask: Ask,
    items: readonly NumberedChange[],
    results: ChangeResult[],
    how: Omit<Way, 'wakeAt'>,
  ): Promise<void> {
    const way: Way = { ...how, wakeAt: this.#turns.lastNow };
    const plain = items.filter(([{ envelope }]) => envelope === undefined);
    const stale = plain.length === 0 ? [] : await this.#changePlain(ask, plain, way);
    for (const index of stale) results[index] = 'stale';
    const shrinking = items.filter(isShrinking);
    const shrunk = shrinking.length > 1 && (await this.#shrink(ask, shrinking, way));
    for (const item of items) {
      const [row, index] = item;
      if (row.envelope === undefined) continue;
      if (shrunk === false || !isShrinking(item)) {
        results[index] = await this.#reshape(ask, row, way);
      } else if (shrunk.has(index)) results[index] = 'stale';
    }
  }

  /** The indexes of those that were stale. */
  async #changePlain(ask: Ask, items: readonly NumberedChange[], way: Way): Promise<number[]> {
    const removals = items.filter(([{ status }]) => status === null);
    const sent = items.filter(([row]) => this.#isSent(row));
    const updates = items.filter(([row]) => row.status !== null && !this.#isSent(row));
    const values = new Values();
    const parts: string[] = [];
    if (sent.length > 0) {
      const rows = addGuards(new Rows(values), sent);
      const sentAt = sent.map(([{ status }]) => status?.updatedAt ?? null);
      parts.push(moveSql(this.#names, rows.add('sent_at', 'int8', sentAt), way));
    }
    if (updates.length > 0) {
      const rows = addStatuses(addGuards(new Rows(values), updates), updates);
      parts.push(updateSql(this.#names, rows, way));
    }
    if (removals.length > 0) {
      const rows = addGuards(new Rows(values), removals);
      const refs = removals.map(([{ bodyRef }]) => bodyRef);
      const hasBodies = refs.some((ref) => ref !== null);
      if (hasBodies) rows.add('ref', 'text', refs);
      parts.push(removeSql(this.#names, rows, way, hasBodies));
    }
    const sources = [
      ...(sent.length > 0 ? (['moved'] as const) : []),
      ...(updates.length > 0 ? (['changed'] as const) : []),
      ...(removals.length > 0 ? (['gone'] as const) : []),
    ];
    const text = `WITH ${parts.join(', ')}${answerSql(this.#names, sources, way, values)}`;
    const stale = readAnswer(await ask(text, values.list), way.ended);
    const staying = sent.filter(([, index]) => stale.includes(index));
    if (staying.length === 0) return stale;
    const others = stale.filter((index) => !staying.some(([, at]) => at === index));
    return [...others, ...(await this.#copy(ask, staying, way))];
  }

  #isSent({ status }: ChangeRow): boolean {
    return this.#keepsSent && status !== null && status.isDelivered;
  }

  /** What was delivered and stays, as its id or key is to be known again; those that were stale. */
  async #copy(ask: Ask, items: readonly NumberedChange[], way: Way): Promise<number[]> {
    const values = new Values();
    const rows = addStatuses(addGuards(new Rows(values), items), items);
    const answer = answerSql(this.#names, ['changed'], way, values);
    const text = `WITH ${updateSql(this.#names, rows, way)}${copySql(this.#names)}${answer}`;
    return readAnswer(await ask(text, values.list), way.ended);
  }

  /** The indexes of those that were stale; false when they have to go one by one. */
  async #shrink(
    ask: Ask,
    items: readonly ShrinkingBody[],
    way: Way,
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
    const text = `WITH ${updateSql(this.#names, rows, way, more)}, rewritten AS (
  UPDATE ${this.#names.table.contents} k SET envelope = g.to_text, body = NULL
  FROM changed c JOIN wanted g ON g.n = c.n
  WHERE k.seq = ANY(ARRAY(SELECT seq FROM changed)) AND k.seq = c.seq
)${dropBodiesSql(this.#names, refs)}${answerSql(this.#names, ['changed'], way, values)}`;
    try {
      return new Set(readAnswer(await ask(text, values.list), way.ended));
    } catch (error) {
      if (codeOf(error) !== '23505') throw error;
      return false;
    }
  }

  /** One entry with a new envelope: the same guard, more columns, and what lies in `contents`. */
  async #reshape(ask: Ask, row: ChangeRow, way: Way): Promise<ChangeResult> {
    const { envelope, body, bodyRef } = row;
    assert(envelope !== undefined, 'a change of an envelope has one');
    const values = new Values();
    const { bind } = values;
    const rows = addStatuses(addGuards(new Rows(values), [[row, 0]]), [[row, 0]]);
    const more = ENVELOPE.map(
      ([name, type, read]) => `, ${name} = ${bind(read(envelope), type)}`,
    ).join('');
    const bytes = body === undefined ? '' : `, body = ${bind(body, 'bytea')}`;
    const dropped =
      bodyRef === null
        ? ''
        : dropBodiesSql(this.#names, `SELECT ${bind(bodyRef, 'text')} FROM changed`);
    const text = `WITH ${updateSql(this.#names, rows, way, more)}, rewritten AS (
  UPDATE ${this.#names.table.contents} k SET envelope = ${bind(envelope.text, 'text')}${bytes}
  FROM changed WHERE k.seq = changed.seq
)${dropped}${answerSql(this.#names, ['changed'], way, values)}`;
    try {
      const stale = readAnswer(await ask(text, values.list), way.ended);
      return stale.length === 0 ? 'done' : 'stale';
    } catch (error) {
      if (codeOf(error) !== '23505') throw error;
      const found = await ask(this.#sql.keyOwner, [envelope.dedupeKey]);
      return { refused: `its dedupe key belongs to "${textOf(found[0]?.[0] ?? 'another')}"` };
    }
  }

  /**
   * After a try that was not answered a change that looks stale may be our own: the entry is one
   * revision on, with what we wrote, or it is gone as we wanted, and nobody else could have taken
   * it meanwhile. Past the lease nobody can tell: then another one's delivery must not be ours.
   */
  async #lookAgain(
    ask: Ask,
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

  /** Moves rows out of reach, as they are; the order keys they had. */
  async quarantine(ask: Ask, broken: readonly BrokenRow[]): Promise<string[]> {
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
 * After a try that was not answered: of two changes from one revision one at most was done, and
 * what a done change was computed from was done before it.
 */
function trustLater(rows: readonly ChangeRow[], results: ChangeResult[]): void {
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

/** Whether an entry, as `look` finds it, is what a change wanted it to be. */
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
