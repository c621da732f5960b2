/**
 * chain — the transforms of a spool at work on one body: written as listed, read in reverse.
 *
 *   plain ─first─▶ … ─last─▶ stored          stored ─last─▶ … ─first─▶ plain
 *
 * What was done is recorded with each body: new bodies are written with the list of today, and read
 * by that record. The list itself is checked here too (`checkTransforms`).
 */

import type { BodyInfo } from '../core/entry.ts';
import { isRespoolError, RespoolError, show, textOf } from '../core/errors.ts';
import type { BodyReader, BodyWriter, ReadContext, Transform } from '../ports/transform.ts';
import { type ReadWindow, setReadWindow, shareWindow, streamWithWindow } from '../system/memory.ts';
import type { ReadCompressed } from '../transforms/compress.ts';
import { checkOneOf } from '../core/limits.ts';

type Bytes = Uint8Array;
type Stream = AsyncIterable<Bytes>;

/**
 * Maximum number of characters that an envelope records of one transform. Also in
 * docs/reference/limits.md.
 */
const ENCODING_MAX_CHARS = 256;
const ENCODING_PATTERN = /^[\x21-\x7e]+$/;

/** A transform that can write. */
type Writing = Transform & Required<Pick<Transform, 'writer'>>;

/** The transforms of one spool. */
export class Chain {
  /** Whether new bodies are encoded in any way. */
  readonly isWriting: boolean;
  readonly #transforms: readonly Transform[];
  readonly #writing: readonly Writing[];
  readonly #opened = new Set<Transform>();
  #codecs: ReadCompressed | undefined;

  constructor(transforms: readonly Transform[]) {
    this.#transforms = transforms;
    this.#writing = transforms.filter((one): one is Writing => one.writer !== undefined);
    this.isWriting = this.#writing.length > 0;
  }

  /** Lets every transform fetch what it needs, once. */
  async open(): Promise<void> {
    for (const transform of this.#transforms) await this.#open(transform);
  }

  /** The way of one new body; undefined where bodies are stored as they are. */
  writing(id: string): WriteChain | undefined {
    if (!this.isWriting) return undefined;
    return new WriteChain(this.#writing.map((one) => ({ name: one.name, at: writerOf(one, id) })));
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
    if (unknown < 0) {
      const steps = encodings.map((name, at) => ({ name, at: readers[at] as BodyReader }));
      return new ReadChain(id, steps);
    }
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
  isEncryptedAs(text: string | undefined, { encodings }: BodyInfo): boolean {
    if (text !== undefined && encodings.includes(text)) return true;
    // A body that is not read here may be encrypted: reading it reports that.
    return text === undefined && encodings.every((one) => this.#isPlainly(one));
  }

  #isPlainly(encoding: string): boolean {
    // Only asked whose it is: no reader is used.
    const context = { id: 'none', maxBytes: 0 };
    for (const transform of this.#transforms) {
      if (isRead(transform, encoding, context)) return transform.kind !== 'encryption';
    }
    return this.#codecs?.(encoding, context) !== undefined;
  }

  /** By the list of today, or by our own codec: those read without being configured. */
  #reader(encoding: string, context: ReadContext): BodyReader | undefined {
    for (const transform of this.#transforms) {
      const reader = readerOf(transform, encoding, context);
      if (reader !== undefined) return reader;
    }
    return this.#codecs?.(encoding, context);
  }

  /** With the first body that needs them, so that importing a spool stays cheap. */
  async #loadCodecs(): Promise<void> {
    this.#codecs = (await import('../transforms/compress.ts')).readCompressed;
  }

  async #open(transform: Transform): Promise<void> {
    if (this.#opened.has(transform)) return;
    await transform.open?.();
    this.#opened.add(transform);
  }
}

/** A transform at work on one body; the name is the transform's, or what was recorded of it. */
interface Step<At> {
  readonly name: string;
  readonly at: At;
}

/** The errors of a step that fails or does not give bytes, by whose fault that is. */
interface Blame {
  failed(name: string, error: unknown): unknown;
  wrong(name: string, value: unknown): RespoolError;
}

/** An error while a body is accepted goes to the caller as it is. */
const WRITING: Blame = { failed: (_, error) => error, wrong: noBytes };

/** One body on its way to the store. */
class WriteChain {
  readonly #steps: readonly Step<BodyWriter>[];

  constructor(steps: readonly Step<BodyWriter>[]) {
    this.#steps = steps;
  }

  /** The key of the digest over the plain bytes, if any. */
  get digestKey(): Bytes | undefined {
    return keyOf(this.#steps, WRITING);
  }

  /** What is to be recorded; known when the bytes are out. */
  get encodings(): readonly string[] {
    return this.#steps.map(({ name, at }) => checkEncoding(name, at.encoding));
  }

  stream(plain: Stream): Stream {
    return this.#steps.reduce(
      (stream, { name, at }) => partsFrom(name, () => at.encode(stream), WRITING),
      plain,
    );
  }

  /** At once, as long as every step is. */
  bytes(plain: Bytes): Bytes | Promise<Bytes> {
    const run = (at: BodyWriter, bytes: Bytes): unknown => at.encodeBytes(bytes);
    return through(this.#steps, run, plain, WRITING);
  }
}

/** One body on its way back. */
export class ReadChain {
  readonly #id: string;
  /** The last that was applied is the first to be undone. */
  readonly #steps: readonly Step<BodyReader>[];

  constructor(id: string, steps: readonly Step<BodyReader>[]) {
    this.#id = id;
    this.#steps = steps.toReversed();
  }

  /** The key of the digest, once the first byte or the end is out. */
  get digestKey(): Bytes | undefined {
    return keyOf(this.#steps, this.#blame());
  }

  stream(stored: Stream): Stream {
    const source: { failure?: { readonly error: unknown } } = {};
    const blame = this.#blame(source);
    return this.#steps.reduce<Stream>(
      (stream, { name, at }) => partsFrom(name, () => at.decode(stream), blame),
      shareWindow(stored, noting(stored, source)),
    );
  }

  bytes(stored: Bytes): Bytes | Promise<Bytes> {
    const run = (at: BodyReader, bytes: Bytes): unknown => at.decodeBytes(bytes);
    return through(this.#steps, run, stored, this.#blame());
  }

  /**
   * An error of a transform becomes one that holds the message; one of the store stays as it is.
   */
  #blame(source: { readonly failure?: { readonly error: unknown } } = {}): Blame {
    return {
      failed: (name, error) => {
        const isStores = source.failure !== undefined && source.failure.error === error;
        return isStores ? error : asOurs(this.#id, name, error);
      },
      wrong: (name, value) => broken(this.#id, name, noBytes(name, value)),
    };
  }
}

/** The stream as it is; what it fails with is noted. */
async function* noting(
  stream: Stream,
  source: { failure?: { readonly error: unknown } },
): AsyncGenerator<Bytes> {
  try {
    yield* stream;
  } catch (error) {
    source.failure = { error };
    throw error;
  }
}

/** What a step makes of a stream, as long as it is bytes. */
function partsFrom(name: string, make: () => unknown, blame: Blame): Stream {
  return streamWithWindow((window) => checkedParts(name, make, { blame, window }));
}

async function* checkedParts(
  name: string,
  make: () => unknown,
  { blame, window }: { readonly blame: Blame; readonly window: ReadWindow },
): AsyncGenerator<Bytes> {
  try {
    const parts = make();
    if (!isStream(parts)) throw blame.wrong(name, parts);
    setReadWindow(parts, window.maxBytes);
    for await (const part of parts) {
      if (!(part instanceof Uint8Array)) throw blame.wrong(name, part);
      yield part;
    }
  } catch (error) {
    throw blame.failed(name, error);
  }
}

function through<At>(
  steps: readonly Step<At>[],
  run: (at: At, bytes: Bytes) => unknown,
  value: Bytes,
  blame: Blame,
): Bytes | Promise<Bytes> {
  let bytes = value;
  for (const [index, { name, at }] of steps.entries()) {
    let answer: unknown;
    try {
      answer = run(at, bytes);
    } catch (error) {
      throw blame.failed(name, error);
    }
    if (answer instanceof Uint8Array) {
      bytes = answer;
      continue;
    }
    if (!isPromise(answer)) throw blame.wrong(name, answer);
    const failed = (error: unknown): never => {
      throw blame.failed(name, error);
    };
    return Promise.resolve(answer).then((later: unknown) => {
      if (!(later instanceof Uint8Array)) throw blame.wrong(name, later);
      return through(steps.slice(index + 1), run, later, blame);
    }, failed);
  }
  return bytes;
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value;
}

function isStream(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}

function keyOf(
  steps: readonly Step<{ readonly digestKey?: Bytes }>[],
  blame: Blame,
): Bytes | undefined {
  for (const { name, at } of steps) {
    const key: unknown = at.digestKey;
    if (key instanceof Uint8Array) return key;
    if (key !== undefined) throw blame.wrong(name, key);
  }
  return undefined;
}

function writerOf(transform: Writing, id: string): BodyWriter {
  const writer: unknown = transform.writer({ id });
  if (typeof writer === 'object' && writer !== null) return writer as BodyWriter;
  throw new RespoolError(
    'config.invalid',
    `cannot write with transform "${transform.name}": its writer() gave ${show(writer)}, allowed ` +
      'is an object with encode, encodeBytes and encoding',
  );
}

function readerOf(
  transform: Transform,
  encoding: string,
  context: ReadContext,
): BodyReader | undefined {
  try {
    return transform.reader(encoding, context);
  } catch (error) {
    throw asOurs(context.id, encoding, error);
  }
}

function isRead(transform: Transform, encoding: string, context: ReadContext): boolean {
  try {
    return transform.reader(encoding, context) !== undefined;
  } catch {
    // A transform that calls an encoding damaged has recognised it as its own.
    return true;
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

/** Never the key itself: what a transform gave by mistake may be what it should have hidden. */
function noBytes(name: string, value: unknown): RespoolError {
  return new RespoolError(
    'config.invalid',
    `transform "${name}" gave ${kindOf(value)} where bytes belong; allowed is a Uint8Array, or a ` +
      'stream of them; fix the transform, or remove it from "transforms"',
  );
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** An error of the family that tells what to do with the message. */
function asOurs(id: string, encoding: string, error: unknown): RespoolError {
  return isRespoolError(error) ? error : broken(id, encoding, error);
}

/** Damaged bytes, or a transform that is wrong: which, is not known, so a person has to look. */
function broken(id: string, encoding: string, error: unknown): RespoolError {
  return new RespoolError(
    'body.corrupt',
    `cannot read the body of message "${id}", stored as "${encoding}": ${textOf(error)}; ` +
      'its bytes are damaged, or the transform is wrong',
    { cause: error },
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

// A list of transforms, checked: whole, named once, in a sound order.

/** Maximum number of transforms in one list. Also in docs/reference/limits.md. */
const TRANSFORMS_MAX = 16;
const NAME_PATTERN = /^[a-z0-9-]{1,64}$/;
const KINDS = ['compression', 'encryption', 'other'] as const;

/** Refuses what is no list of transforms, and lists that would do harm. */
export function checkTransforms(value: unknown): readonly Transform[] {
  if (!Array.isArray(value)) throw invalid('transforms', value, 'a list of transforms');
  const transforms = value.map((one: unknown, at) => checkTransform(`transforms[${at}]`, one));
  if (transforms.length > TRANSFORMS_MAX) {
    throw refused(`there are ${transforms.length}, allowed are ${TRANSFORMS_MAX}`);
  }
  const names = new Set<string>();
  for (const { name } of transforms) {
    if (names.has(name)) throw refused(`"${name}" is there twice; a name tells who reads a body`);
    names.add(name);
  }
  checkKinds(transforms);
  return transforms;
}

function checkKinds(transforms: readonly Transform[]): void {
  const [compression, again] = transforms.filter(({ kind }) => kind === 'compression');
  const [encryption, encrypted] = transforms.filter(({ kind }) => kind === 'encryption');
  if (again !== undefined) {
    throw refused(
      `"${compression?.name}" and "${again.name}" both compress, and what is compressed twice is ` +
        'no smaller; keep the one for new bodies: those of any other are readable without it',
    );
  }
  if (encrypted !== undefined) {
    throw refused(
      `"${encryption?.name}" and "${encrypted.name}" both encrypt; keep one and give it all ` +
        'keys, also those that only read',
    );
  }
  if (compression === undefined || encryption === undefined) return;
  if (transforms.indexOf(compression) > transforms.indexOf(encryption)) {
    throw refused(
      `compression "${compression.name}" stands after encryption "${encryption.name}", and ` +
        'encrypted bytes cannot be compressed; put the compression first',
    );
  }
}

function checkTransform(what: string, input: unknown): Transform {
  if (typeof input !== 'object' || input === null) {
    throw invalid(what, input, 'a transform, such as compress() or encrypt() make');
  }
  const { name, kind, reader, writer, open } = input as Partial<Record<keyof Transform, unknown>>;
  if (typeof name !== 'string' || !NAME_PATTERN.test(name)) {
    throw invalid(`${what}.name`, name, '1 to 64 lower case letters, digits and dashes');
  }
  checkOneOf(`${what}.kind`, kind, KINDS);
  if (typeof reader !== 'function') throw invalid(`${what}.reader`, reader, 'a function');
  for (const [part, value] of Object.entries({ writer, open })) {
    if (value !== undefined && typeof value !== 'function') {
      throw invalid(`${what}.${part}`, value, 'a function, or nothing');
    }
  }
  return input as Transform;
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  const text = `cannot use ${show(value)} as "${what}": allowed is ${allowed}`;
  return new RespoolError('config.invalid', text);
}

function refused(why: string): RespoolError {
  return new RespoolError('config.invalid', `cannot use these "transforms": ${why}`);
}
