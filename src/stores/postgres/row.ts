/**
 * row — an entry as columns, and back; a batch of rows as the parameters of a statement.
 */

import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import { STATES } from '../../core/state.ts';
import {
  decodeEnvelope,
  decodeStatus,
  envelopeText,
  memoryText,
  type StateKey,
  stateKeyOf,
} from '../shared/sql-row.ts';

/**
 * The columns of an entry row, in the order of `STATUS_SQL` and `CONTENTS_SQL`. Read by position:
 * up to 12 by `decodeStatus` of shared/sql-row.ts, 13 to 15 by `decodeRow`, and what follows as 16
 * and 17 by `#byReading` of count.ts and `byOrder` of claim-sql.ts.
 */
export type EntryRow = readonly [
  seq: number,
  id: string,
  slot: StateKey,
  dueAt: number | null,
  revision: number,
  attempts: number,
  notices: number,
  lost: number,
  postponed: number,
  replays: number,
  holder: string,
  claimedFrom: number | null,
  updatedAt: number,
  memory: string | null,
  envelope: string | null,
  /** In base64; see BODY_SQL. */
  body: string | null,
  ...more: unknown[],
];

/** From `entries e`, in the order of `EntryRow`; what is in CONTENTS_SQL follows. */
export const STATUS_SQL: string =
  'e.seq, e.id, e.slot, e.due_at, e.revision, e.attempts, e.notices, e.lost, e.postponed, ' +
  'e.replays, e.holder, e.claimed_from, e.updated_at, e.memory';

/**
 * Of `contents k`. n.b. Bytes come as text in any case: in hex, which is the server's way, twice
 * as many as they are, and Node takes twice as long to read them. (PostgreSQL 15, Node 24,
 * 2026-11-18)
 */
export const BODY_SQL = "encode(k.body, 'base64')";

/** From `contents k`. */
export const CONTENTS_SQL: string = `k.envelope, ${BODY_SQL}`;

/** The columns that a step writes. */
export interface StatusColumns {
  readonly slot: StateKey;
  readonly dueAt: number | null;
  readonly revision: number;
  readonly attempts: number;
  readonly notices: number;
  readonly lost: number;
  readonly postponed: number;
  readonly replays: number;
  /** '' for none. */
  readonly holder: string;
  readonly claimedFrom: number | null;
  readonly updatedAt: number;
  readonly fingerprint: string | null;
  readonly memory: string | null;
  /** No column: whether it was delivered and only rests here. */
  readonly isDelivered: boolean;
}

/** The columns that change only with the envelope. */
export interface EnvelopeColumns {
  readonly topic: string;
  /** '' for none. */
  readonly destination: string;
  readonly priority: number;
  readonly enqueuedAt: number;
  readonly dedupeKey: string | null;
  /** Written with the insert, and never again. */
  readonly orderKey: string | null;
  readonly text: string;
}

export function statusColumns(status: Status, id: string): StatusColumns {
  const { state, lane, dueAt, holder = '', claimedFrom, lastFailure, updatedAt } = status;
  const { revision, attempts, notices, lost, postponed, replays } = status;
  const fingerprint = lastFailure?.fingerprint ?? null;
  checkColumns(id, {
    counts: [revision, attempts, notices, lost, postponed, replays],
    times: [dueAt, updatedAt],
    texts: [id, holder, fingerprint],
  });
  return {
    slot: stateKeyOf(state, lane),
    dueAt,
    revision,
    attempts,
    notices,
    lost,
    postponed,
    replays,
    holder,
    claimedFrom: claimedFrom === undefined ? null : STATES.indexOf(claimedFrom),
    updatedAt,
    fingerprint,
    memory: memoryText(status),
    isDelivered: state === 'archived' && status.ending === 'delivered',
  };
}

export function envelopeColumns(envelope: Envelope): EnvelopeColumns {
  const { topic, destination = '', priority, enqueuedAt, id } = envelope;
  const { dedupeKey = null, orderKey = null } = envelope;
  checkColumns(id, {
    counts: [priority],
    times: [enqueuedAt],
    texts: [topic, destination, dedupeKey, orderKey],
  });
  const text = envelopeText(envelope);
  return { topic, destination, priority, enqueuedAt, dedupeKey, orderKey, text };
}

/** The entry a row holds; throws with the reason when the row cannot be one. */
export function decodeRow(row: EntryRow): Entry {
  const body = row[15];
  const envelope = decodeEnvelope(row[1], row[14]);
  const status = decodeStatus(row, row[13]);
  if (body === null) return { envelope, status };
  const { buffer, byteOffset, byteLength } = Buffer.from(body, 'base64');
  return { envelope, status, inlineBody: new Uint8Array(buffer, byteOffset, byteLength) };
}

// A batch as a few parameters: one array per column, all bytes in one.
//
// Formatted here and not by the client library, which inspects every value again: with 500 rows
// that is most of what a batch costs in this process.

/** Returns what stands for a value in SQL: a placeholder or a literal; the name is for readers. */
export type Bind = (value: unknown, type: string, name?: string) => string;

/** Collects the values of a statement. */
export class Values {
  readonly list: unknown[] = [];
  readonly bind: Bind;

  /**
   * `isForeign`: the statement goes through a library of the user's. Some libraries re-encode what
   * they take for an array; a text they leave alone, and the server casts it.
   */
  constructor({ isForeign = false }: { readonly isForeign?: boolean } = {}) {
    this.bind = (value, type) => {
      this.list.push(value);
      const cast = isForeign && type.endsWith('[]') ? `text::${type}` : type;
      return `$${this.list.length}::${cast}`;
    };
  }
}

/** What stands in one column of one row. */
export type Cell = number | string | null;

export type CellType = 'text' | 'int2' | 'int4' | 'int8';

/**
 * The rows of a batch as a source to select from. A column that is the same in all rows goes as one
 * value: most of the twenty columns of a message are, and the server builds a tuplestore for each
 * array.
 * (500 rows there and back: 2.6 ms with 22 arrays, 0.6 ms with 4; PostgreSQL 15, 2026-11-15)
 */
export class Rows {
  readonly #values: Values;
  readonly #arrays: string[] = [];
  readonly #names: string[] = [];
  readonly #constants: string[] = [];

  constructor(values: Values) {
    this.#values = values;
  }

  add(name: string, type: CellType, cells: readonly Cell[]): this {
    const [first] = cells;
    const isSame = this.#names.length > 0 && cells.every((cell) => cell === first);
    if (isSame) {
      const value = first === null ? `NULL::${type}` : this.#values.bind(first, type);
      this.#constants.push(`, ${value} AS ${name}`);
    } else {
      const array =
        type === 'text'
          ? textArray(cells as readonly (string | null)[])
          : numberArray(cells as readonly (number | null)[]);
      this.#arrays.push(this.#values.bind(array, `${type}[]`));
      this.#names.push(name);
    }
    return this;
  }

  /** A `SELECT` of all columns; the first one is always an array. */
  get sql(): string {
    const source = `unnest(${this.#arrays.join(', ')}) AS u(${this.#names.join(', ')})`;
    return `SELECT u.*${this.#constants.join('')} FROM ${source}`;
  }
}

/** An array of numbers as PostgreSQL reads it. */
export function numberArray(values: readonly (number | null)[]): string {
  let text = '';
  for (const value of values) text += `${text === '' ? '' : ','}${value ?? 'NULL'}`;
  return `{${text}}`;
}

/** An array of texts as PostgreSQL reads it. */
export function textArray(values: readonly (string | null)[]): string {
  let text = '';
  for (const value of values) text += `${text === '' ? '' : ','}${quote(value)}`;
  return `{${text}}`;
}

/** What needs no quotes: not empty, no separators, and not the word NULL. */
const PLAIN = /^[a-z0-9][\w./:-]*$/;

function quote(value: string | null): string {
  if (value === null) return 'NULL';
  if (PLAIN.test(value) && value !== 'null') return value;
  return `"${value.replaceAll(/["\\]/g, '\\$&')}"`;
}

/** Pieces of bytes and texts, one behind the other in one parameter. */
export class Blob {
  readonly #pieces: (Uint8Array | string)[] = [];
  #bytes = 0;

  /** How many bytes it has so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** How many bytes the piece has. */
  add(piece: Uint8Array | string): number {
    const bytes = typeof piece === 'string' ? Buffer.byteLength(piece) : piece.byteLength;
    this.#pieces.push(piece);
    this.#bytes += bytes;
    return bytes;
  }

  toBuffer(): Buffer {
    const buffer = Buffer.allocUnsafe(this.#bytes);
    let at = 0;
    for (const piece of this.#pieces) {
      if (typeof piece === 'string') at += buffer.write(piece, at);
      else {
        buffer.set(piece, at);
        at += piece.byteLength;
      }
    }
    return buffer;
  }
}

const COUNT_MAX: number = 2 ** 31 - 1;

/**
 * Refused here, before the batch: one wrong value must not fail the calls it shares a batch with.
 */
export function checkColumns(
  id: string,
  columns: {
    readonly counts: readonly number[];
    readonly times: readonly (number | null)[];
    readonly texts: readonly (string | null | undefined)[];
  },
): void {
  for (const count of columns.counts) {
    if (!Number.isInteger(count) || count < -COUNT_MAX || count > COUNT_MAX) throw bad(id, count);
  }
  for (const time of columns.times) {
    if (time !== null && !Number.isSafeInteger(time)) throw bad(id, time);
  }
  for (const text of columns.texts) {
    // n.b. PostgreSQL keeps no text with a zero byte.
    if (text?.includes('\0') === true) {
      throw new RespoolError(
        'message.invalid',
        `cannot store "${id}": a key or topic of it has a zero character`,
      );
    }
  }
}

function bad(id: string, value: number): RespoolError {
  return new RespoolError(
    'message.invalid',
    `cannot store "${id}": ${value} is not a whole number of milliseconds or a count`,
  );
}
