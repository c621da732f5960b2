/**
 * changes — guarded writes and removals, a batch in one statement; and the way into quarantine.
 *
 * A statement writes a row once, so a second change of the same entry waits for the next one. A
 * change of an envelope goes by itself: it may meet another entry's dedupe key, and must not fail
 * its neighbours.
 */

import { assert, RespoolError } from '../../core/errors.ts';
import type { Change } from '../../ports/entry-store.ts';
import { numberArray, textArray } from './arrays.ts';
import { codeOf } from './failures.ts';
import type { Names } from './names.ts';
import {
  type BrokenRow,
  checkInline,
  type EnvelopeColumns,
  envelopeColumns,
  type StatusColumns,
  statusColumns,
} from './rows.ts';
import type { Ask } from './server.ts';

/** A change, ready to go. */
export interface ChangeRow {
  readonly id: string;
  readonly revision: number;
  readonly holder: string;
  readonly isDurable: boolean;
  /** Null: remove it. */
  readonly status: StatusColumns | null;
  readonly envelope: EnvelopeColumns | undefined;
  /** New bytes; null: let go of them; undefined: as they are. */
  readonly body: Uint8Array | null | undefined;
}

/** What became of one; a text says why it was refused. */
export type Changed = 'done' | 'stale' | { readonly refused: string };

export function changeRow(change: Change, isDurable: boolean): ChangeRow {
  const { id, revision, holder = '', to, envelope, inlineBody } = change;
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
  };
}

/** `synchronous_commit` of a batch; null: as the server has it. */
type Commit = 'off' | 'on' | null;

type Numbered = readonly [row: ChangeRow, index: number];

/** Changes over the tables of one store. */
export class Changes {
  readonly #sql: ReturnType<typeof sqlOf>;
  readonly #durable: Commit;

  /** `isForced`: the server would commit without waiting for the disk, so each statement says so. */
  constructor(names: Names, isForced: boolean) {
    this.#sql = sqlOf(names);
    this.#durable = isForced ? 'on' : null;
  }

  /** `isUnknown`: some may be there already by a try that was not answered. */
  async change(ask: Ask, rows: readonly ChangeRow[], isUnknown: boolean): Promise<Changed[]> {
    const results: Changed[] = rows.map(() => 'done');
    const commit: Commit = rows.every(({ isDurable }) => !isDurable) ? 'off' : this.#durable;
    for (const wave of wavesOf(rows)) {
      const plain = wave.filter(([{ envelope }]) => envelope === undefined);
      const stale = plain.length === 0 ? [] : await this.#changePlain(ask, plain, commit);
      for (const index of stale) results[index] = 'stale';
      for (const [row, index] of wave) {
        if (row.envelope !== undefined) results[index] = await this.#reshape(ask, row, commit);
      }
    }
    if (isUnknown) await this.#lookAgain(ask, rows, results);
    return results;
  }

  /** The indexes of those that were stale. */
  async #changePlain(ask: Ask, items: readonly Numbered[], commit: Commit): Promise<number[]> {
    const removals = items.filter(([{ status }]) => status === null);
    const updates = items.filter(([{ status }]) => status !== null);
    const { remove, update, both } = this.#sql;
    const rows =
      updates.length === 0
        ? await ask(remove, [commit, ...guardsOf(removals)])
        : removals.length === 0
          ? await ask(update, [commit, ...guardsOf(updates), ...statusesOf(updates)])
          : await ask(both, [
              commit,
              ...guardsOf(updates),
              ...statusesOf(updates),
              ...guardsOf(removals),
            ]);
    return rows.map(([index]) => Number(index));
  }

  async #reshape(ask: Ask, row: ChangeRow, commit: Commit): Promise<Changed> {
    const { envelope, body } = row;
    assert(envelope !== undefined, 'a change of an envelope has one');
    const items: readonly Numbered[] = [[row, 0]];
    try {
      const rows = await ask(this.#sql.reshape, [
        commit,
        ...guardsOf(items),
        ...statusesOf(items),
        envelope.topic,
        envelope.destination,
        envelope.priority,
        envelope.enqueuedAt,
        envelope.dedupeKey,
        envelope.text,
        body === undefined,
        body ?? null,
      ]);
      return rows.length === 0 ? 'done' : 'stale';
    } catch (error) {
      if (codeOf(error) !== '23505') throw error;
      const found = await ask(this.#sql.keyOwner, [envelope.dedupeKey]);
      return { refused: `its dedupe key belongs to "${String(found[0]?.[0] ?? 'another')}"` };
    }
  }

  /**
   * After a try that was not answered a change that looks stale may be our own: the entry is one
   * revision on, with what we wrote, or it is gone as we wanted.
   */
  async #lookAgain(ask: Ask, rows: readonly ChangeRow[], results: Changed[]): Promise<void> {
    const doubtful = rows.filter((_, index) => results[index] === 'stale');
    if (doubtful.length === 0) return;
    const found = await ask(this.#sql.look, [textArray(doubtful.map(({ id }) => id))]);
    const present = new Map(found.map((line) => [String(line[0]), line]));
    for (const [index, { id, status }] of rows.entries()) {
      if (results[index] !== 'stale') continue;
      const line = present.get(id);
      const isOurs =
        status === null
          ? line === undefined
          : line?.[1] === status.revision &&
            line[2] === status.slot &&
            line[3] === status.updatedAt &&
            line[4] === status.holder;
      if (isOurs) results[index] = 'done';
    }
  }

  /** Moves rows out of reach, as they are. */
  async quarantine(ask: Ask, broken: readonly BrokenRow[]): Promise<void> {
    await ask(this.#sql.quarantine, [
      textArray(broken.map(({ id }) => id)),
      numberArray(broken.map(({ seq }) => seq)),
      textArray(broken.map(({ reason }) => reason.replaceAll('\0', ''))),
    ]);
  }
}

/** The error of a commit whose change was refused. */
export function refusal(id: string, reason: string): RespoolError {
  return new RespoolError(
    'message.duplicate',
    `cannot change "${id}": ${reason}; choose another key`,
  );
}

/** In each wave an id comes once, in the order of the changes. */
function wavesOf(rows: readonly ChangeRow[]): Numbered[][] {
  const waves: Numbered[][] = [];
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

function guardsOf(items: readonly Numbered[]): unknown[] {
  return [
    numberArray(items.map(([, index]) => index)),
    textArray(items.map(([{ id }]) => id)),
    numberArray(items.map(([{ revision }]) => revision)),
    textArray(items.map(([{ holder }]) => holder)),
  ];
}

const GUARDS = ['int4', 'text', 'int4', 'text'] as const;

const STATUS_COLUMNS = [
  ['slot', 'int2'],
  ['due_at', 'int8'],
  ['revision', 'int4'],
  ['attempts', 'int4'],
  ['notices', 'int4'],
  ['lost', 'int4'],
  ['postponed', 'int4'],
  ['replays', 'int4'],
  ['holder', 'text'],
  ['claimed_from', 'int2'],
  ['updated_at', 'int8'],
  ['fingerprint', 'text'],
  ['memory', 'text'],
] as const;

function statusesOf(items: readonly Numbered[]): unknown[] {
  const all = items.flatMap(([{ status }]) => status ?? []);
  const numbers = (of: (status: StatusColumns) => number | null) => numberArray(all.map(of));
  const words = (of: (status: StatusColumns) => string | null) => textArray(all.map(of));
  return [
    numbers(({ slot }) => slot),
    numbers(({ dueAt }) => dueAt),
    numbers(({ revision }) => revision),
    numbers(({ attempts }) => attempts),
    numbers(({ notices }) => notices),
    numbers(({ lost }) => lost),
    numbers(({ postponed }) => postponed),
    numbers(({ replays }) => replays),
    words(({ holder }) => holder),
    numbers(({ claimedFrom }) => claimedFrom),
    numbers(({ updatedAt }) => updatedAt),
    words(({ fingerprint }) => fingerprint),
    words(({ memory }) => memory),
  ];
}

/** Arrays of parameters from this number on. */
function arraysFrom(first: number, types: readonly string[]): string {
  return types.map((type, at) => `$${first + at}::${type}[]`).join(', ');
}

function sqlOf(names: Names) {
  const { table } = names;
  const types = STATUS_COLUMNS.map(([, type]) => type);
  const columns = STATUS_COLUMNS.map(([name]) => name);
  // Whether the commit waits for the disk is said in the statement: one round trip, and nothing is
  // left behind on a connection that somebody else uses next.
  const lazy =
    "SELECT set_config('synchronous_commit', coalesce($1::text, " +
    "current_setting('synchronous_commit')), true) AS was";
  const set = columns.map((name) => `${name} = g.to_${name}`).join(', ');
  const guard = 'e.id = g.id AND e.revision = g.revision AND e.holder = g.holder';
  const update = `wanted AS MATERIALIZED (
  SELECT g.* FROM lazy, unnest(${arraysFrom(2, [...GUARDS, ...types])})
    AS g(n, id, revision, holder, ${columns.map((name) => `to_${name}`).join(', ')})
), changed AS (
  UPDATE ${table.entries} e SET ${set} FROM wanted g WHERE ${guard} RETURNING g.n
)`;
  const remove = (first: number) => `unwanted AS MATERIALIZED (
  SELECT g.* FROM lazy, unnest(${arraysFrom(first, GUARDS)}) AS g(n, id, revision, holder)
), gone AS (
  DELETE FROM ${table.entries} e USING unwanted g WHERE ${guard} RETURNING g.n, e.seq
), dropped AS (
  DELETE FROM ${table.contents} k USING gone WHERE k.seq = gone.seq
)`;
  const notChanged = 'SELECT n FROM wanted WHERE n NOT IN (SELECT n FROM changed)';
  const notGone = 'SELECT n FROM unwanted WHERE n NOT IN (SELECT n FROM gone)';
  const removeAt = 2 + GUARDS.length + types.length;
  return {
    update: `WITH lazy AS MATERIALIZED (${lazy}), ${update} ${notChanged}`,
    remove: `WITH lazy AS MATERIALIZED (${lazy}), ${remove(2)} ${notGone}`,
    both: `WITH lazy AS MATERIALIZED (${lazy}), ${update}, ${remove(removeAt)}
${notChanged} UNION ALL ${notGone}`,
    reshape: reshapeSql(names, `WITH lazy AS MATERIALIZED (${lazy}), ${update}`, removeAt),
    keyOwner: `SELECT id FROM ${table.entries} WHERE dedupe_key = $1`,
    look: `SELECT id, revision, slot, updated_at, holder FROM ${table.entries}
  WHERE id = ANY($1::text[])`,
    quarantine: `WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::int8[], $3::text[]) AS g(id, seq, reason)
), gone AS (
  DELETE FROM ${table.entries} e USING given g WHERE e.id = g.id AND e.seq = g.seq
  RETURNING e.seq, e.id, g.reason, to_jsonb(e)::text AS entry
), dropped AS (
  DELETE FROM ${table.contents} k USING gone WHERE k.seq = gone.seq
  RETURNING k.seq, k.envelope, k.body
)
INSERT INTO ${table.quarantine} (id, reason, entry, envelope, body)
SELECT g.id, g.reason, g.entry, d.envelope, d.body
FROM gone g LEFT JOIN dropped d ON d.seq = g.seq`,
  };
}

/** One entry with a new envelope: the same guard, more columns, and what lies in `contents`. */
function reshapeSql({ table }: Names, start: string, at: number): string {
  const changed = start
    .replace(
      ' FROM wanted g WHERE',
      `, topic = $${at}::text, destination = $${at + 1}::text, priority = $${at + 2}::int2,
    enqueued_at = $${at + 3}::int8, dedupe_key = $${at + 4}::text FROM wanted g WHERE`,
    )
    .replace('RETURNING g.n', 'RETURNING g.n, e.seq');
  return `${changed}, rewritten AS (
  UPDATE ${table.contents} k SET envelope = $${at + 5}::text,
    body = CASE WHEN $${at + 6}::boolean THEN k.body ELSE $${at + 7}::bytea END
  FROM changed WHERE k.seq = changed.seq
)
SELECT n FROM wanted WHERE n NOT IN (SELECT n FROM changed)`;
}
