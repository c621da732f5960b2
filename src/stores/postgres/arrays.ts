/**
 * arrays — a batch as a few parameters: one array per column, all bytes in one.
 *
 * Written here and not by the client library, which looks at every value again: with 500 rows that
 * is most of the time a batch costs in this process.
 */

import { RespoolError } from '../../core/errors.ts';

/** Takes a value in and gives what stands for it in SQL: a placeholder or a literal. */
export type Bind = (value: unknown, type: string) => string;

/** Collects the values of a statement. */
export class Values {
  readonly list: unknown[] = [];
  readonly bind: Bind;

  /**
   * `isForeign`: it goes through a library of the user's. Some send what they take for an array in
   * a form of their own; a text they leave alone, so it is the server that reads it as one.
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
 * value: of some twenty columns of a message most are, and the server opens a store for each array.
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
