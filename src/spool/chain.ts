/**
 * chain — the transforms of a spool at work on one body: written as listed, read in reverse.
 *
 *   plain ─first─▶ … ─last─▶ stored          stored ─last─▶ … ─first─▶ plain
 *
 * What was done is recorded with each body, so the list of today writes and the record reads.
 */

import type { BodyInfo } from '../core/entry.ts';
import { RespoolError, show } from '../core/errors.ts';
import type { BodyReader, BodyWriter, ReadContext, Transform } from '../ports/transform.ts';

type Bytes = Uint8Array;
type Stream = AsyncIterable<Bytes>;

/** What an envelope records of one transform, in characters at the most. */
const ENCODING_MAX_CHARS = 256;
const ENCODING_PATTERN = /^[\x21-\x7e]+$/;

/** A transform that can write. */
type Writing = Transform & Required<Pick<Transform, 'writer'>>;

/** The transforms of one spool. */
export class Chain {
  readonly #transforms: readonly Transform[];
  readonly #writing: readonly Writing[];
  readonly #opened = new Set<Transform>();

  constructor(transforms: readonly Transform[]) {
    this.#transforms = transforms;
    this.#writing = transforms.filter((one): one is Writing => one.writer !== undefined);
  }

  /** Lets every transform fetch what it needs, once. */
  async open(): Promise<void> {
    for (const transform of this.#transforms) await this.#open(transform);
  }

  /** The way of one new body; undefined where bodies are stored as they are. */
  writing(id: string): WriteChain | undefined {
    if (this.#writing.length === 0) return undefined;
    return new WriteChain(this.#writing.map((one) => ({ name: one.name, at: one.writer({ id }) })));
  }

  /** The way back of one body; a promise where something has to be fetched for it first. */
  reading(id: string, body: BodyInfo): ReadChain | Promise<ReadChain> {
    const { encodings, size } = body;
    // Only what comes out last has a size that was promised.
    const context = (at: number): ReadContext => ({
      id,
      maxBytes: at === 0 ? size : Number.POSITIVE_INFINITY,
    });
    return new ReadChain(encodings.map((one, at) => this.#reader(one, context(at))));
  }

  /** What encryption records on a new body; undefined where bodies are not encrypted. */
  async encryption(): Promise<string | undefined> {
    const encryption = this.#writing.find(({ kind }) => kind === 'encryption');
    if (encryption === undefined) return undefined;
    // A record is known when the bytes are out, so some are written; no message has this id.
    const writer = encryption.writer({ id: 'none' });
    await writer.encodeBytes(new Uint8Array(0));
    return checkEncoding(encryption.name, writer.encoding);
  }

  /** Whether a body is encrypted as a new one would be, with the record that a new one gets. */
  isEncryptedAs(wanted: string | undefined, { encodings }: BodyInfo): boolean {
    if (wanted !== undefined && encodings.includes(wanted)) return true;
    // What nobody here reads may be encrypted: whoever tries will be told.
    return wanted === undefined && encodings.every((one) => this.#isPlainly(one));
  }

  #isPlainly(encoding: string): boolean {
    const kind = this.#kindOf(encoding);
    return kind === 'compression' || kind === 'other';
  }

  #kindOf(encoding: string): Transform['kind'] | undefined {
    for (const transform of this.#transforms) {
      if (transform.name === nameIn(encoding)) return transform.kind;
      // Only asked whose it is: the reader is not used.
      const context = { id: 'none', maxBytes: 0 };
      if (transform.reader(encoding, context) !== undefined) return transform.kind;
    }
    return undefined;
  }

  #reader(encoding: string, context: ReadContext): BodyReader {
    for (const transform of this.#transforms) {
      const reader = transform.reader(encoding, context);
      if (reader !== undefined) return reader;
    }
    throw unreadable(encoding, context.id);
  }

  async #open(transform: Transform): Promise<void> {
    if (this.#opened.has(transform)) return;
    await transform.open?.();
    this.#opened.add(transform);
  }
}

/** One body on its way to the store. */
export class WriteChain {
  readonly #steps: readonly { readonly name: string; readonly at: BodyWriter }[];

  constructor(steps: readonly { readonly name: string; readonly at: BodyWriter }[]) {
    this.#steps = steps;
  }

  /** The key of the digest over the plain bytes, if any. */
  get digestKey(): Bytes | undefined {
    return keyOf(this.#steps.map(({ at }) => at));
  }

  /** What is to be recorded; known when the bytes are out. */
  get encodings(): readonly string[] {
    return this.#steps.map(({ name, at }) => checkEncoding(name, at.encoding));
  }

  stream(plain: Stream): Stream {
    return this.#steps.reduce((stream, { at }) => at.encode(stream), plain);
  }

  /** At once, as long as every step is. */
  bytes(plain: Bytes): Bytes | Promise<Bytes> {
    return through(
      this.#steps.map(
        ({ at }) =>
          (bytes: Bytes) =>
            at.encodeBytes(bytes),
      ),
      plain,
    );
  }
}

/** One body on its way back. */
export class ReadChain {
  /** The last that was applied is the first to be undone. */
  readonly #steps: readonly BodyReader[];

  constructor(steps: readonly BodyReader[]) {
    this.#steps = steps.toReversed();
  }

  /** The key of the digest, once the first byte or the end is out. */
  get digestKey(): Bytes | undefined {
    return keyOf(this.#steps);
  }

  stream(stored: Stream): Stream {
    return this.#steps.reduce((stream, step) => step.decode(stream), stored);
  }

  bytes(stored: Bytes): Bytes | Promise<Bytes> {
    return through(
      this.#steps.map((step) => (bytes: Bytes) => step.decodeBytes(bytes)),
      stored,
    );
  }
}

function through(
  steps: readonly ((bytes: Bytes) => Bytes | Promise<Bytes>)[],
  given: Bytes,
): Bytes | Promise<Bytes> {
  let bytes = given;
  for (const [at, step] of steps.entries()) {
    const answer = step(bytes);
    if (!(answer instanceof Uint8Array)) {
      return Promise.resolve(answer).then((later) => through(steps.slice(at + 1), later));
    }
    bytes = answer;
  }
  return bytes;
}

function keyOf(steps: readonly { readonly digestKey?: Bytes }[]): Bytes | undefined {
  for (const { digestKey } of steps) if (digestKey !== undefined) return digestKey;
  return undefined;
}

/** The name that an encoding begins with. */
function nameIn(encoding: string): string {
  return encoding.split(';', 1)[0] ?? encoding;
}

function checkEncoding(name: string, encoding: unknown): string {
  const isText = typeof encoding === 'string' && ENCODING_PATTERN.test(encoding);
  if (isText && encoding.length <= ENCODING_MAX_CHARS) return encoding;
  throw new RespoolError(
    'config.invalid',
    `cannot record what transform "${name}" did: its encoding is ${show(encoding)}, allowed are ` +
      `1 to ${ENCODING_MAX_CHARS} visible characters`,
  );
}

function unreadable(encoding: string, id: string): RespoolError {
  const name = nameIn(encoding);
  return new RespoolError(
    'transform.missing',
    `cannot read the body of message "${id}": it was stored as "${encoding}", and no transform ` +
      `of this spool reads that; add one that reads "${name}" to "transforms", then release it`,
  );
}
