/**
 * keeper — single steps on single entries: read one, write one, remove one, take a dedupe key.
 *
 * Every step is judged by the server through the sequence it expects, and what came of it goes into
 * the catalog at once. The steps are put together in insert.ts, claim.ts and commit.ts.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Cache } from './cache.ts';
import type { Catalog, KeyHolder } from './catalog.ts';
import {
  type Content,
  type Facts,
  FACTS,
  factsOf,
  HOLDS,
  OPERATION,
  REMOVED,
  readFacts,
  readValue,
  shardOf,
  writeFacts,
  writeValue,
} from './codec.ts';
import type { Graves } from './graves.ts';
import type { Stored, Stream } from './stream.ts';

/** What lies under the key of an entry. */
export type Found =
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
export interface Encoded {
  readonly content: Content;
  readonly facts: Facts;
  readonly header: string;
  readonly value: Uint8Array;
}

/** What a keeper works with. */
export interface KeeperParts {
  readonly stream: Stream;
  readonly catalog: Catalog;
  readonly cache: Cache;
  readonly graves: Graves;
  readonly clock: Clock;
  /** `$KV.<bucket>.` */
  readonly prefix: string;
  readonly makeToken: () => string;
  readonly maxPayload: number;
}

/** Room for the headers of a message, beside its facts. */
const HEADERS_BYTES = 512;

/** Steps on entries. */
export class Keeper {
  readonly catalog: Catalog;
  readonly cache: Cache;
  readonly clock: Clock;
  readonly #parts: KeeperParts;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
    this.catalog = parts.catalog;
    this.cache = parts.cache;
    this.clock = parts.clock;
  }

  /** Makes an entry ready to be written; one that is larger than a message may be is refused. */
  encode(content: Content, isUnborn = false): Encoded {
    const { envelope, status, tail } = content;
    const facts = factsOf(envelope, status, isUnborn);
    const encoded = { content, facts, header: writeFacts(facts), value: writeValue(status, tail) };
    const bytes = encoded.value.length + encoded.header.length + HEADERS_BYTES;
    if (bytes <= this.#parts.maxPayload) return encoded;
    throw new RespoolError(
      'limit.exceeded',
      `cannot keep message "${envelope.id}" in NATS: it has ${bytes} bytes with its headers, ` +
        `the server takes ${this.#parts.maxPayload}; put the body in a body store, or raise ` +
        'max_payload of the server',
    );
  }

  /** Reads what is there now, and takes it in. */
  async read(id: string): Promise<Found> {
    const stored = await this.#parts.stream.last(this.#subjectOf(id));
    return this.#takeIn(id, stored);
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
  async write(encoded: Encoded, expected: number): Promise<number | undefined> {
    const { content, facts, header, value } = encoded;
    const { id } = content.envelope;
    const seq = await this.#parts.stream.write(this.#subjectOf(id), value, {
      token: this.#parts.makeToken(),
      expected,
      headers: [[FACTS, header]],
    });
    if (seq === undefined) return undefined;
    this.catalog.put(id, seq, facts);
    this.cache.set(id, seq, content);
    return seq;
  }

  /** Removes an entry of this sequence, and lets go of its dedupe key. */
  async remove(id: string, expected: number, key: string | undefined): Promise<boolean> {
    const { stream, makeToken, graves } = this.#parts;
    const seq = await stream.write(this.#subjectOf(id), '', {
      token: makeToken(),
      expected,
      headers: [[OPERATION, REMOVED]],
    });
    if (seq === undefined) return false;
    this.catalog.remove(id, seq, true);
    this.cache.delete(id);
    const holder = key === undefined ? undefined : this.catalog.keys.get(key);
    const burial = { name: `e${id}`, seq };
    if (holder?.id === id) graves.add([burial, { name: `d${key}`, seq: holder.seq }]);
    else graves.add([burial]);
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

  #takeIn(id: string, stored: Stored | undefined): Found {
    if (stored === undefined) {
      const row = this.catalog.rows.get(id);
      // Gone without a trace: its marker was taken out already.
      if (row !== undefined) this.catalog.remove(id, row.seq, false);
      return { kind: 'none' };
    }
    const { seq } = stored;
    if (stored.header(OPERATION) !== '') {
      this.catalog.remove(id, seq, false);
      return { kind: 'removed', seq };
    }
    const facts = readFacts(stored.header(FACTS));
    const content = readValue(stored.data);
    if (facts === undefined || typeof content === 'string' || content.envelope.id !== id) {
      const damage = typeof content === 'string' ? content : 'it is not what its key says';
      this.catalog.putDamaged(id, seq, damage);
      return { kind: 'damaged', seq, damage };
    }
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
