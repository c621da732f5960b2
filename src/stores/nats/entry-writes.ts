/**
 * entry-writes — single steps on single entries: read one, write one, remove one, take a dedupe
 * key. Also which inserts of this process are on their way (`PendingInserts`).
 *
 * Every step is judged by the server through the sequence it expects, and what came of it goes into
 * the catalog at once. The steps are put together in insert.ts, claim.ts and commit.ts.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemDice } from '../../system/clock.ts';
import type { Cache, Catalog, KeyHolder } from './catalog.ts';
import {
  type Content,
  type Facts,
  FACTS,
  factsOf,
  HOLDS,
  INSERT_MARK,
  OPERATION,
  readFacts,
  readValue,
  REMOVE_MARK,
  shardOf,
  writeFacts,
  writeValue,
} from './row.ts';
import { type StoredMessage, type Stream, TOKEN, type WriteOptions } from './stream.ts';
import type { Tombstones } from './tombstones.ts';

/** Instead of a sequence: an entry was written, and has gone on or is gone since. */
export const MOVED_ON = 0;

/** What is under the key of an entry. */
export type FoundEntry =
  | { readonly kind: 'none' }
  | { readonly kind: 'removed'; readonly seq: number }
  | { readonly kind: 'damaged'; readonly seq: number; readonly damage: string }
  | {
      readonly kind: 'entry';
      readonly seq: number;
      readonly facts: Facts;
      readonly content: Content;
    };

/** An entry as it goes out. */
export interface EncodedEntry {
  readonly content: Content;
  readonly facts: Facts;
  readonly header: string;
  readonly value: Uint8Array;
}

/** What `EntryWrites` works with. */
export interface EntryWritesOptions {
  readonly stream: Stream;
  readonly catalog: Catalog;
  readonly cache: Cache;
  readonly tombstones: Tombstones;
  readonly clock: Clock;
  /** `$KV.<bucket>.` */
  readonly prefix: string;
  readonly makeToken: () => string;
  readonly maxPayload: number;
  readonly maxValueSize: number | undefined;
  readonly births: PendingInserts;
  /** The server has acknowledged a write of an entry. */
  readonly onWritten: () => void;
  /** The server has acknowledged the removal of this life of an id. */
  readonly onRemoved: (id: string, birth: number) => void;
  /** Resolves when the catalog and the births are up to the stream. */
  readonly caughtUp: () => Promise<void>;
}

/** Room for the headers of a message, beside its facts. */
const HEADERS_BYTES = 512;
/**
 * What attempts and notes add to an entry; one that fits when it is new must fit until its end.
 * Also in docs/reference/stores/nats.md and test/stores/nats/options.test.ts.
 */
const STATUS_ROOM_BYTES = 64 * 1024;

/** Steps on entries. */
export class EntryWrites {
  readonly catalog: Catalog;
  readonly cache: Cache;
  readonly clock: Clock;
  readonly #parts: EntryWritesOptions;

  constructor(parts: EntryWritesOptions) {
    this.#parts = parts;
    this.catalog = parts.catalog;
    this.cache = parts.cache;
    this.clock = parts.clock;
  }

  /** Makes an entry ready to be written; one that is larger than a message may be is refused. */
  encode(content: Content, isUnborn = false): EncodedEntry {
    const { status, tail } = content;
    const facts = factsOf(content, isUnborn);
    const encoded = { content, facts, header: writeFacts(facts), value: writeValue(status, tail) };
    const { maxPayload } = this.#parts;
    const why = `the server takes ${maxPayload}`;
    checkBytes(encoded, HEADERS_BYTES, maxPayload, `${why}; raise max_payload of the server`);
    return encoded;
  }

  /** As `encode`, for a new entry: `maxValueSize` is for these, and their steps need room. */
  encodeNew(content: Content, isUnborn: boolean): EncodedEntry {
    const encoded = this.encode(content, isUnborn);
    const { maxPayload, maxValueSize } = this.#parts;
    if (maxValueSize !== undefined) {
      const why = `"maxValueSize" is ${maxValueSize}`;
      checkBytes(encoded, 0, maxValueSize, `${why}; put the body in a body store, or raise it`);
    }
    const room = Math.min(STATUS_ROOM_BYTES, maxPayload / 2);
    const why = `the server takes ${maxPayload}, ${room} of it for the attempts to come`;
    const todo = 'put the body in a body store, or raise max_payload of the server';
    checkBytes(encoded, HEADERS_BYTES, maxPayload - room, `${why}; ${todo}`);
    return encoded;
  }

  /** Reads what is there now into the catalog. */
  async read(id: string): Promise<FoundEntry> {
    const known = this.catalog.rows.get(id)?.seq ?? 0;
    const stored = await this.#parts.stream.last(this.#subjectOf(id));
    if (stored !== undefined) return this.#takeIn(id, stored);
    // Gone without a trace: its marker was taken out already. One that came since then is not.
    this.catalog.remove(id, known, false);
    return { kind: 'none' };
  }

  /** The content of an entry as of a sequence; undefined when it has moved on. */
  async contentAt(id: string, seq: number): Promise<Content | undefined> {
    const held = this.cache.get(id, seq);
    if (held !== undefined) return held;
    const stored = await this.#parts.stream.at(seq);
    if (stored === undefined || stored.subject !== this.#subjectOf(id)) return undefined;
    const found = this.#takeIn(id, stored);
    return found.kind === 'entry' ? found.content : undefined;
  }

  /** Writes an entry over the sequence it is expected to have; undefined: it has another. */
  async write(encoded: EncodedEntry, expected: number): Promise<number | undefined> {
    return this.#write(encoded, { token: this.#parts.makeToken(), expected });
  }

  /** As `write`, for a new entry; `MOVED_ON`: a try whose answer was lost arrived, and went on. */
  async create(encoded: EncodedEntry, expected: number): Promise<number | undefined> {
    const { births, makeToken } = this.#parts;
    const token = makeToken();
    const { id } = encoded.content.envelope;
    const { birth } = encoded.facts;
    const findWritten = () => this.#findBirth(id, birth, token);
    births.begin(id, birth);
    try {
      return await this.#write(encoded, { token, expected, findWritten });
    } finally {
      births.end(birth);
    }
  }

  async #write(
    { content, facts, header, value }: EncodedEntry,
    parts: Pick<WriteOptions, 'token' | 'expected' | 'findWritten'>,
  ): Promise<number | undefined> {
    const { id } = content.envelope;
    const headers = [[FACTS, header]] as const;
    const seq = await this.#parts.stream.write(this.#subjectOf(id), value, { ...parts, headers });
    if (seq === undefined || seq === MOVED_ON) return seq;
    this.#parts.onWritten();
    this.catalog.put(id, seq, facts);
    this.cache.set(id, seq, content);
    return seq;
  }

  /** Where an insert of unknown outcome has come to; undefined: it never arrived. */
  async #findBirth(id: string, birth: number, token: string): Promise<number | undefined> {
    const { stream, births, caughtUp } = this.#parts;
    const stored = await stream.last(this.#subjectOf(id));
    if (stored?.header(TOKEN) === token) return stored.seq;
    if (stored !== undefined && birthOf(stored) === birth) return MOVED_ON;
    // Removed for good, it is named in a tombstone; the stream keeps that for long enough.
    await caughtUp();
    return births.isSeen(birth) ? MOVED_ON : undefined;
  }

  /** Removes an entry of this sequence, and lets go of its dedupe key. */
  async remove(id: string, expected: number, key: string | undefined): Promise<boolean> {
    const { stream, makeToken, tombstones } = this.#parts;
    const row = this.catalog.rows.get(id);
    const birth = row?.seq === expected ? row.birth : 0;
    const seq = await stream.write(this.#subjectOf(id), '', {
      token: makeToken(),
      expected,
      headers: [
        [OPERATION, REMOVE_MARK],
        [INSERT_MARK, String(birth)],
      ],
    });
    if (seq === undefined) return false;
    this.#parts.onRemoved(id, birth);
    this.catalog.remove(id, seq, true);
    this.cache.delete(id);
    const holder = key === undefined ? undefined : this.catalog.keys.get(key);
    const burial = { name: `e${id}`, seq, birth };
    if (holder?.id === id) tombstones.add([burial, { name: `d${key}`, seq: holder.seq }]);
    else tombstones.add([burial]);
    return true;
  }

  /** Who holds a dedupe key, as the server knows it. */
  async readKey(key: string): Promise<KeyHolder | undefined> {
    const stored = await this.#parts.stream.last(this.#keySubjectOf(key));
    const id = stored?.header(HOLDS) ?? '';
    if (stored === undefined || id === '') return undefined;
    const holder = { id, seq: stored.seq };
    this.catalog.putKey(key, holder);
    return holder;
  }

  /** Points a dedupe key to an entry, over the sequence the key is expected to have. */
  async takeKey(key: string, id: string, expected: number): Promise<number | undefined> {
    const seq = await this.#parts.stream.write(this.#keySubjectOf(key), '', {
      token: this.#parts.makeToken(),
      expected,
      headers: [[HOLDS, id]],
    });
    if (seq !== undefined) this.catalog.putKey(key, { id, seq });
    return seq;
  }

  /** Takes back a key that points to an entry without it. */
  async dropKey(key: string, seq: number): Promise<void> {
    await this.#parts.stream.drop(seq);
    this.catalog.removeKey(key, seq);
  }

  #takeIn(id: string, stored: StoredMessage): FoundEntry {
    const { seq } = stored;
    if (stored.header(OPERATION) !== '') {
      this.catalog.remove(id, seq, false);
      return { kind: 'removed', seq };
    }
    const facts = readFacts(stored.header(FACTS));
    const value = readValue(stored.data);
    if (facts === undefined || typeof value === 'string' || value.envelope.id !== id) {
      const damage = typeof value === 'string' ? value : 'it is not what its key says';
      this.catalog.putDamaged(id, seq, damage);
      return { kind: 'damaged', seq, damage };
    }
    const content = { ...value, birth: facts.birth };
    this.catalog.put(id, seq, facts);
    this.cache.set(id, seq, content);
    return { kind: 'entry', seq, facts, content };
  }

  #subjectOf(id: string): string {
    return `${this.#parts.prefix}e.${shardOf(id)}.${id}`;
  }

  #keySubjectOf(key: string): string {
    return `${this.#parts.prefix}d.${shardOf(key)}.${key}`;
  }
}

function checkBytes(encoded: EncodedEntry, more: number, max: number, why: string): void {
  const { content, value, header } = encoded;
  const bytes = value.length + header.length + more;
  if (bytes <= max) return;
  throw new RespoolError(
    'limit.exceeded',
    `cannot keep message "${content.envelope.id}" in NATS: it has ${bytes} bytes with its ` +
      `headers, and ${why}`,
  );
}

/** Which life of its id a message belongs to, be it an entry or the marker over one. */
function birthOf(stored: StoredMessage): number {
  if (stored.header(OPERATION) !== '') return Number(stored.header(INSERT_MARK));
  return readFacts(stored.header(FACTS))?.birth ?? 0;
}

// Inserts on their way, and whether the stream has shown that one of them
// arrived.
//
// A message may be stored, delivered and removed by another process while the answer to its insert
// is lost. Then nothing is under its key, and writing it again would deliver it twice. So every
// insert draws a number. All steps of that entry carry it, and so do the marker over it and the
// tombstone that outlives both by ten minutes. A process about to repeat an insert has the stream
// followed up to its end, and knows by the number what became of the first one, also after a
// restart of the server: tombstones are messages like any other.

/** Enough to tell two lives of one id apart, and a small number in memory. */
const BIRTH_MAX = 2 ** 30;

/** Draws the number of a new entry. */
export function drawInsertMark(): number {
  return 1 + Math.floor(systemDice.random() * (BIRTH_MAX - 1));
}

/** The inserts that this process has on their way. */
export class PendingInserts {
  readonly #underway = new Map<number, { readonly id: string; isSeen: boolean }>();

  begin(id: string, birth: number): void {
    this.#underway.set(birth, { id, isSeen: false });
  }

  end(birth: number): void {
    this.#underway.delete(birth);
  }

  /** Applies what the stream says about an entry. */
  note(id: string, birth: number): void {
    const insert = this.#underway.get(birth);
    if (insert?.id === id) insert.isSeen = true;
  }

  isSeen(birth: number): boolean {
    return this.#underway.get(birth)?.isSeen === true;
  }

  /** Before the stream is reread: a server that failed may have lost what it had shown. */
  forget(): void {
    for (const insert of this.#underway.values()) insert.isSeen = false;
  }
}
