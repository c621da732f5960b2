/**
 * chain — the transforms of a spool at work on one body: written as listed, read in reverse.
 *
 *   plain ─first─▶ … ─last─▶ stored          stored ─last─▶ … ─first─▶ plain
 *
 * What was done is recorded with each body, so the list of today writes and the record reads.
 */

import type { BodyInfo } from '../core/entry.ts';
import { isRespoolError, RespoolError, show } from '../core/errors.ts';
import type { BodyReader, BodyWriter, ReadContext, Transform } from '../ports/transform.ts';
import type { ReadCompressed } from '../transforms/compress-read.ts';

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
  #codecs: ReadCompressed | undefined;

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
    const readers = encodings.map((one, at) => this.#reader(one, context(at)));
    const unknown = readers.indexOf(undefined);
    if (unknown < 0) return new ReadChain(readers as BodyReader[]);
    if (this.#codecs === undefined) return this.#loadCodecs().then(() => this.reading(id, body));
    throw unreadable(encodings[unknown] ?? '', id);
  }

  /** What encryption records on a new body; undefined where bodies are not encrypted. */
  async encryption(): Promise<string | undefined> {
    await this.#loadCodecs();
    const encryption = this.#writing.find(({ kind }) => kind === 'encryption');
    if (encryption === undefined) return undefined;
    // A record is known when the bytes are out, so some are written; no message has this id.
    const writer = encryption.writer({ id: 'none' });
    await writer.encodeBytes(new Uint8Array(0));
    return checkEncoding(encryption.name, writer.encoding);
  }

  /** Whether a body is encrypted as a new one is; `wanted` is what `encryption` resolved to. */
  isEncryptedAs(wanted: string | undefined, { encodings }: BodyInfo): boolean {
    if (wanted !== undefined && encodings.includes(wanted)) return true;
    // What nobody here reads may be encrypted: whoever tries will be told.
    return wanted === undefined && encodings.every((one) => this.#isPlainly(one));
  }

  #isPlainly(encoding: string): boolean {
    // Only asked whose it is: no reader is used.
    const context = { id: 'none', maxBytes: 0 };
    for (const transform of this.#transforms) {
      if (isRead(transform, encoding, context)) return transform.kind !== 'encryption';
    }
    return this.#codecs?.(encoding, context) !== undefined;
  }

  /** By the list of today, or by a codec of ours: those read without being configured. */
  #reader(encoding: string, context: ReadContext): BodyReader | undefined {
    for (const transform of this.#transforms) {
      const reader = transform.reader(encoding, context);
      if (reader !== undefined) return reader;
    }
    return this.#codecs?.(encoding, context);
  }

  /** With the first body that needs them, so that importing a spool stays cheap. */
  async #loadCodecs(): Promise<void> {
    this.#codecs = (await import('../transforms/compress-read.ts')).readCompressed;
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

function isRead(transform: Transform, encoding: string, context: ReadContext): boolean {
  try {
    return transform.reader(encoding, context) !== undefined;
  } catch (error) {
    // Whoever says that an encoding is damaged says that it is one of its own.
    if (isRespoolError(error)) return true;
    throw error;
  }
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
