/**
 * body — turns what the caller passes into bytes or a stream, and what is stored back into bytes
 * whose digest matches that of the accepted body (invariant 11, ARCHITECTURE.md); the check of a
 * body's record; whether a message whose body is missing had already ended (a store that lost
 * writes); and the removal of bodies that are no longer needed.
 *
 * A stream above the inline limit is never held whole in memory by us. Text, bytes and JSON are
 * copied once, whole, when the call begins: the caller may use its buffer again.
 */

import type * as Crypto from 'node:crypto';
import type { BodyInfo, Entry, Envelope, Status } from '../core/entry.ts';
import type { Millis } from '../core/duration.ts';
import { isRespoolError, RespoolError, show, textOf } from '../core/errors.ts';
import { REF_PATTERN } from '../core/limits.ts';
import type { BodyStore, SettledAs } from '../ports/body-store.ts';
import type { Change, EntryStore } from '../ports/entry-store.ts';
import {
  countUnreleasedBytes,
  ReusedBuffers,
  type ReadWindow,
  setReadWindow,
  shareWindow,
  streamWithWindow,
} from '../system/memory.ts';
import type { Chain, ReadChain } from './chain.ts';
import { nextStatus, type SettleContext } from '../core/next-status.ts';
import type { Verdict } from '../core/verdict.ts';

let crypto: typeof Crypto | undefined;

/** Loaded with the first body: it takes a tenth of the time of importing the package. */
function nodeCrypto(): typeof Crypto {
  return (crypto ??= process.getBuiltinModule('node:crypto'));
}

/** Parts that a body in memory is cut into. */
const PART_MAX_BYTES: number = 2 ** 20;

/** What can be a body: text, bytes, a stream of bytes, or any JSON value; nothing: empty. */
export type BodyInput = unknown;

/** What body storing needs. */
export interface BodySettings {
  readonly bodies: BodyStore;
  readonly chain: Chain;
  /** Bodies up to this size, as the caller gave them, are stored with their entry. */
  readonly inlineMaxBytes: number;
  /** The largest body, as it is stored, that the entry store takes with an entry. */
  readonly encodedInlineMaxBytes: number;
  readonly bodyMaxBytes: number;
  /** A ref for a new body of the message. */
  readonly newRef: (id: string) => string;
}

/**
 * A body that is kept: what the envelope says of it, and its bytes if they are stored with the
 * entry.
 */
export interface StoredOrInlineBody {
  readonly info: BodyInfo;
  readonly inline?: Uint8Array;
  /** The bytes as the caller gave them, where they are in memory anyway. */
  readonly plain?: Uint8Array;
}

/** A body that the caller can no longer change: bytes of our own, or a stream. */
export type OwnBody =
  | { readonly bytes: Uint8Array }
  | { readonly stream: AsyncIterable<Uint8Array | string> };

/** Copies bytes, not streams. Called before anything is awaited: buffers may be used again. */
export function ownBody(input: BodyInput): OwnBody {
  if (input instanceof Blob) return { stream: input.stream() };
  return isStream(input) ? { stream: input } : { bytes: bytesOf(input) };
}

/**
 * Keeps a body: a small one is returned, to be stored with its entry; a large one is durable in the
 * store. No promise for bytes within the inline limit and without transforms: outbox/message.ts
 * relies on that.
 */
export function keepBody(
  body: OwnBody,
  id: string,
  settings: BodySettings,
): StoredOrInlineBody | Promise<StoredOrInlineBody> {
  if ('stream' in body) return keepStream(body.stream, id, settings);
  const { bytes } = body;
  if (bytes.byteLength > settings.bodyMaxBytes) throw tooLarge(settings.bodyMaxBytes);
  if (bytes.byteLength <= settings.inlineMaxBytes) return keepBytes(bytes, id, settings);
  return keepParts(partsIn(bytes), id, settings);
}

/** The plain bytes of an inline body, verified; a promise only where decoding takes long. */
export function inlineBytes(entry: Entry, chain: Chain): Uint8Array | Promise<Uint8Array> {
  const { envelope, inlineBody: stored } = entry;
  const body = checkBodyRecord(envelope);
  if (stored === undefined) throw missing(entry);
  if (body.encodings.length === 0) return verified(entry, stored, undefined);
  if (stored.byteLength !== body.storedSize) throw corrupt(entry);
  const reading = chain.reading(envelope.id, body);
  return reading instanceof Promise
    ? reading.then((ready) => decoded(entry, stored, ready))
    : decoded(entry, stored, reading);
}

/** The body of an entry as a stream; the last step fails if it is not what was accepted. */
export function readBody(entry: Entry, parts: ReadArguments): AsyncIterable<Uint8Array> {
  return streamWithWindow((window) => verifiedParts(entry, parts, window));
}

interface ReadArguments {
  readonly bodies: BodyStore;
  readonly chain: Chain;
  readonly entries?: Pick<EntryStore, 'traits' | 'onTrouble'>;
  /** When the entry store last found that it had gone back. */
  readonly wentBackAt?: () => Millis | undefined;
}

async function* verifiedParts(
  entry: Entry,
  parts: ReadArguments,
  window: ReadWindow,
): AsyncGenerator<Uint8Array> {
  const { bodies, chain } = parts;
  const { id } = entry.envelope;
  const body = checkBodyRecord(entry.envelope);
  if (body.place === 'none') throw missing(entry);
  if (body.place === 'inline') {
    const bytes = await inlineBytes(entry, chain);
    if (bytes.byteLength > 0) yield bytes;
    return;
  }
  const reading = body.encodings.length === 0 ? undefined : await chain.reading(id, body);
  const stored = bodies.get(body.ref);
  const plain = reading?.stream(shareWindow(stored, measured(entry, stored))) ?? stored;
  // Our reader keeps as much of it as the reader of this stream does (system/memory.ts).
  setReadWindow(plain, window.maxBytes);
  let running: RunningDigest | undefined;
  try {
    for await (const part of plain) {
      // The key of the digest is known with the first byte.
      running ??= new RunningDigest(reading?.digestKey);
      running.add(part);
      if (running.size > body.size) throw corrupt(entry);
      yield part;
      // By half: here only the parts for the reader become garbage; when a body is stored, also
      // what the caller's stream and a transform leave.
      if (reading !== undefined) countUnreleasedBytes(part.byteLength / 2);
    }
  } catch (error) {
    throw explained(error, parts);
  }
  running ??= new RunningDigest(reading?.digestKey);
  if (running.size !== body.size || running.digest() !== body.digest) throw corrupt(entry);
}

/** What was thrown; of a body that is missing, with why that may be, where there is a reason. */
function explained(error: unknown, parts: ReadArguments): unknown {
  const why = isRespoolError(error, 'body.missing') ? whyMissing(parts) : undefined;
  if (why === undefined) return error;
  return new RespoolError('body.missing', `${textOf(error)}; ${why}`, { cause: error });
}

/** A store of entries that shows older states shows messages that have ended, without a body. */
function whyMissing({ entries, wentBackAt }: ReadArguments): string | undefined {
  const foundAt = wentBackAt?.();
  // Searched for with --text: docs/operations/damaged-data.md. Also in tests of stores/nats.
  const may = 'so the message may have ended before';
  if (foundAt !== undefined) {
    const at = new Date(foundAt).toISOString();
    return `the server of its entry went back, as was found at ${at}, ${may}`;
  }
  if (entries?.onTrouble === undefined) return undefined;
  const { durability } = entries.traits;
  if (durability !== 'process' && durability !== 'server') return undefined;
  return `its entry is on a server that may go back (durability "${durability}"), ${may}`;
}

/** Refuses stored bytes that are more or fewer than were stored: a decoder may not look at all. */
async function* measured(
  entry: Entry,
  stored: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const { storedSize } = entry.envelope.body;
  let size = 0;
  for await (const part of stored) {
    size += part.byteLength;
    if (size > storedSize) throw corrupt(entry);
    yield part;
  }
  if (size !== storedSize) throw corrupt(entry);
}

function decoded(
  entry: Entry,
  stored: Uint8Array,
  reading: ReadChain,
): Uint8Array | Promise<Uint8Array> {
  const plain = reading.bytes(stored);
  return plain instanceof Promise
    ? plain.then((bytes) => verified(entry, bytes, reading.digestKey))
    : verified(entry, plain, reading.digestKey);
}

function verified(entry: Entry, plain: Uint8Array, key: Uint8Array | undefined): Uint8Array {
  const { size, digest } = entry.envelope.body;
  if (plain.byteLength !== size || digestOf(plain, key) !== digest) throw corrupt(entry);
  return plain;
}

function isStream(input: unknown): input is AsyncIterable<Uint8Array | string> {
  return typeof input === 'object' && input !== null && Symbol.asyncIterator in input;
}

function bytesOf(input: unknown): Uint8Array {
  if (input === undefined) return new Uint8Array(0);
  if (typeof input === 'string') return utf8Of(input);
  // Copied: the caller may use its buffer again before the batch is written.
  if (input instanceof Uint8Array) return copyOf(input);
  if (input instanceof ArrayBuffer) return copyOf(new Uint8Array(input));
  if (ArrayBuffer.isView(input)) {
    return copyOf(new Uint8Array(input.buffer, input.byteOffset, input.byteLength));
  }
  if (isEmptyAsJson(input)) throw notABody(undefined);
  let text: string | undefined;
  try {
    text = JSON.stringify(input);
  } catch (error) {
    throw notABody(error);
  }
  if (text === undefined) throw notABody(undefined);
  return Buffer.from(text, 'utf8');
}

/** A promise, a map, an error, NaN: what JSON would turn into `{}` or null without a word. */
function isEmptyAsJson(input: unknown): boolean {
  if (typeof input === 'number') return !Number.isFinite(input);
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return false;
  const prototype: unknown = Object.getPrototypeOf(input);
  const isPlain = prototype === Object.prototype || prototype === null;
  return !isPlain && !('toJSON' in input) && Object.keys(input).length === 0;
}

function keepBytes(
  plain: Uint8Array,
  id: string,
  settings: BodySettings,
): StoredOrInlineBody | Promise<StoredOrInlineBody> {
  const size = plain.byteLength;
  const { chain } = settings;
  const writing = chain.isWriting ? chain.writing(id) : undefined;
  if (writing === undefined) {
    const digest = digestOf(plain, undefined);
    const place = { ref: '', place: 'inline' as const };
    const info = { ...place, size, storedSize: size, digest, encodings: [] };
    return { info, inline: plain, plain };
  }
  const digest = digestOf(plain, writing.digestKey);
  const keep = (encoded: Uint8Array): StoredOrInlineBody | Promise<StoredOrInlineBody> => {
    const { encodings } = writing;
    const storedSize = encoded.byteLength;
    const what = { size, storedSize, digest, encodings };
    if (storedSize <= settings.encodedInlineMaxBytes) {
      return { info: { ref: '', place: 'inline', ...what }, inline: encoded, plain };
    }
    const ref = settings.newRef(id);
    return settings.bodies
      .put(ref, partsIn(encoded))
      .then(() => ({ info: { ref, place: 'store', ...what }, plain }));
  };
  const encoded = writing.bytes(plain);
  return encoded instanceof Promise ? encoded.then(keep) : keep(encoded);
}

function keepStream(
  input: AsyncIterable<Uint8Array | string>,
  id: string,
  settings: BodySettings,
): Promise<StoredOrInlineBody> {
  const parts = streamWithWindow((window) =>
    partsOf(input, settings.bodyMaxBytes, new BodyCopies(window)),
  );
  return keepParts(parts, id, settings);
}

async function keepParts(
  parts: AsyncGenerator<Uint8Array, undefined>,
  id: string,
  settings: BodySettings,
): Promise<StoredOrInlineBody> {
  const head: Uint8Array[] = [];
  let headBytes = 0;
  while (headBytes <= settings.inlineMaxBytes) {
    const step = await parts.next();
    if (step.done === true) return keepBytes(Buffer.concat(head), id, settings);
    head.push(step.value);
    headBytes += step.value.byteLength;
  }
  return store(head, parts, { id, settings });
}

/** Writes a body to the store, encoded and measured on its way. */
async function store(
  head: Uint8Array[],
  parts: AsyncGenerator<Uint8Array, undefined>,
  { id, settings }: { readonly id: string; readonly settings: BodySettings },
): Promise<StoredOrInlineBody> {
  const { bodies, chain, newRef } = settings;
  const ref = newRef(id);
  let isStored = false;
  try {
    const writing = chain.writing(id);
    const running = new RunningDigest(writing?.digestKey);
    const plain = shareWindow(parts, measuredBy(running, head, parts));
    const stream = writing?.stream(shareWindow(plain, counted(plain))) ?? plain;
    const storedSize = (await bodies.put(ref, stream)).size;
    isStored = true;
    if (!running.isWhole) throw notRead(id);
    const { size } = running;
    const encodings = writing?.encodings ?? [];
    const digest = running.digest();
    return { info: { ref, place: 'store', size, storedSize, digest, encodings } };
  } catch (error) {
    // A transform that failed before it read anything leaves the caller's stream open.
    parts.return(undefined).catch(() => undefined);
    // If it cannot be removed, it is a body without an entry, which the caretaker removes.
    if (isStored) await bodies.remove([ref]).catch(() => undefined);
    throw error;
  }
}

async function* measuredBy(
  running: RunningDigest,
  head: Uint8Array[],
  parts: AsyncGenerator<Uint8Array, undefined>,
): AsyncGenerator<Uint8Array> {
  try {
    for (const part of head.splice(0)) yield running.add(part);
    for await (const part of parts) yield running.add(part);
    running.isWhole = true;
  } finally {
    await parts.return(undefined);
  }
}

/** Only with transforms: a body stored as it is leaves too little garbage to be worth counting. */
async function* counted(plain: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const part of plain) {
    yield part;
    countUnreleasedBytes(part.byteLength);
  }
}

/** Size and digest of a body that goes by. */
class RunningDigest {
  readonly #hash: { update(part: Uint8Array): unknown; digest(form: 'hex'): string };
  readonly #name: string;
  size = 0;
  /** Whether all of it went by. */
  isWhole = false;

  constructor(key: Uint8Array | undefined) {
    this.#name = digestName(key);
    const { createHash, createHmac } = nodeCrypto();
    this.#hash = key === undefined ? createHash('sha256') : createHmac('sha256', key);
  }

  add(part: Uint8Array): Uint8Array {
    this.#hash.update(part);
    this.size += part.byteLength;
    return part;
  }

  digest(): string {
    return `${this.#name}:${this.#hash.digest('hex')}`;
  }
}

/** In parts: hashing 64 MiB at once would block the event loop. */
async function* partsIn(bytes: Uint8Array): AsyncGenerator<Uint8Array, undefined> {
  for (let at = 0; at < bytes.byteLength; at += PART_MAX_BYTES) {
    yield bytes.subarray(at, at + PART_MAX_BYTES);
  }
  return undefined;
}

function digestOf(bytes: Uint8Array, key: Uint8Array | undefined): string {
  const { createHmac, hash } = nodeCrypto();
  if (key === undefined) return `sha256:${hash('sha256', bytes, 'hex')}`;
  return `${digestName(key)}:${createHmac('sha256', key).update(bytes).digest('hex')}`;
}

/** Keyed if the body is encrypted: a plain hash would confirm a guessed body. */
function digestName(key: Uint8Array | undefined): string {
  return key === undefined ? 'sha256' : 'hmac-sha256';
}

function notRead(id: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot keep the body of message "${id}": a transform of this spool ended before it had read ` +
      'all of it; fix the transform, or remove it from "transforms"',
  );
}

function missing({ envelope }: Entry): RespoolError {
  return new RespoolError('body.missing', `the body of message "${envelope.id}" is not stored`);
}

function corrupt({ envelope }: Entry): RespoolError {
  return new RespoolError(
    'body.corrupt',
    `the body of message "${envelope.id}" is not what was accepted: its size or digest differs`,
  );
}

// The parts of a caller's stream as bytes of our own.
//
// Copied: a source may fill the same buffer again for its next part, while a transform or a store
// still gathers. Where these are ours and set a read window, the copies take turns in the same
// memory: 1 GiB would leave 1 GiB of dead buffers otherwise.

/** Smaller copies come out of Node's pool; longer ones would stay for as long as the stream. */
const LENT_MIN_BYTES: number = 16 * 1024;
const LENT_MAX_BYTES: number = 1024 * 1024;

/** Copies of what one caller gives. */
class BodyCopies {
  readonly #window: ReadWindow;
  #lent: ReusedBuffers | undefined;

  constructor(window: ReadWindow) {
    this.#window = window;
  }

  copy(bytes: Uint8Array): Uint8Array {
    const length = bytes.byteLength;
    const isLent = length >= LENT_MIN_BYTES && length <= LENT_MAX_BYTES;
    const { maxBytes } = this.#window;
    // Undefined until the store reads: what is kept inline or sampled by a transform is not reused.
    if (maxBytes === undefined || !isLent) return copyOf(bytes);
    this.#lent ??= new ReusedBuffers(maxBytes);
    const memory = this.#lent.take(length);
    memory.set(bytes);
    return this.#lent.handOut(memory, length);
  }
}

/** n.b. Out of Node's pool: less than half the time of an array of its own for 1 KiB. */
function copyOf(bytes: Uint8Array): Uint8Array {
  const copy = Buffer.allocUnsafe(bytes.byteLength);
  copy.set(bytes);
  return copy;
}

/** The caller's parts, cut off with an error at the byte that passes the limit. */
async function* partsOf(
  input: AsyncIterable<Uint8Array | string>,
  maxBytes: number,
  copies: BodyCopies,
): AsyncGenerator<Uint8Array, undefined> {
  let size = 0;
  for await (const { bytes, isOurs } of encodedParts(input)) {
    if (!(bytes instanceof Uint8Array)) throw notABody(undefined);
    size += bytes.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    if (bytes.byteLength > 0) yield isOurs ? bytes : copies.copy(bytes);
  }
  return undefined;
}

/** Parts as bytes; a character may be divided between two parts of text. */
export async function* encodedParts(
  input: AsyncIterable<Uint8Array | string>,
): AsyncGenerator<{ readonly bytes: Uint8Array; readonly isOurs: boolean }, undefined> {
  let half = '';
  for await (const part of input) {
    if (typeof part !== 'string') {
      if (half !== '') throw loneSurrogate();
      yield { bytes: part, isOurs: false };
      continue;
    }
    const text = half + part;
    half = /[\uD800-\uDBFF]$/.test(text) ? text.slice(-1) : '';
    yield { bytes: utf8Of(half === '' ? text : text.slice(0, -1)), isOurs: true };
  }
  if (half !== '') throw loneSurrogate();
  return undefined;
}

/** A text as UTF-8; half a surrogate pair would be stored as another character, and is refused. */
export function utf8Of(text: string): Uint8Array {
  if (!text.isWellFormed()) throw loneSurrogate();
  return Buffer.from(text, 'utf8');
}

function loneSurrogate(): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot use this text as body: it holds half a surrogate pair, which UTF-8 cannot write; ' +
      'send well-formed text, or bytes',
  );
}

/** The refusal of a body that passes the limit. */
export function tooLarge(maxBytes: number): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot accept the body: it has more than the allowed ${maxBytes} bytes (limits.bodyBytes)`,
  );
}

/** The refusal of what is no body. */
export function notABody(cause: unknown): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot use this value as body: allowed is a string, bytes, a Blob, a stream of bytes or a ' +
      'JSON value; a promise has to be awaited first',
    { cause },
  );
}

// The record of a body in its envelope, checked before it is believed.
//
// A store proves that an envelope is JSON, or that its bytes are those that were written; it does
// not know what a body's record has to look like. One damaged record must not stop anything else.

/** The record of a body that can be read by it; `body.corrupt` otherwise. */
function checkBodyRecord({ id, body }: Envelope): BodyInfo {
  const damage = damageIn(body);
  if (damage === undefined) return body;
  throw new RespoolError(
    'body.corrupt',
    `cannot read the body of message "${id}": what is recorded of it is damaged: ${damage}`,
  );
}

/** Whether a body is unreadable by this record. */
export function isDamaged({ body }: Envelope): boolean {
  return damageIn(body) !== undefined;
}

function damageIn(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null) return `it is ${show(body)}`;
  const { ref, place, size, storedSize, digest, encodings } = body as Record<string, unknown>;
  if (place === 'none') return undefined;
  if (place !== 'inline' && place !== 'store') return `its place is ${show(place)}`;
  if (!isSize(size)) return `its size is ${show(size)}`;
  if (!isSize(storedSize)) return `its stored size is ${show(storedSize)}`;
  if (typeof digest !== 'string') return `its digest is ${show(digest)}`;
  const isList = Array.isArray(encodings) && encodings.every((one) => typeof one === 'string');
  if (!isList) return `its encodings are ${show(encodings)}`;
  if (encodings.length === 0 && size !== storedSize) {
    return `it has ${size} bytes, is stored as it is, and yet in ${storedSize} bytes`;
  }
  return place === 'inline' || isRef(ref) ? undefined : `its ref is ${show(ref)}`;
}

/** The ref of the body that a change removes; none if it is inline, or no store could have it. */
export function removedBodyRef({ body }: Envelope): Pick<Change, 'bodyRef'> {
  const { place, ref } = (body as BodyInfo | null | undefined) ?? {};
  return place === 'store' && isRef(ref) ? { bodyRef: ref } : {};
}

/** Whether a store could have a body under this. */
function isRef(ref: unknown): ref is string {
  return typeof ref === 'string' && REF_PATTERN.test(ref);
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

// A message whose body is gone because it has ended already.
//
// A server that lost its last writes may show an entry again after its removal was acknowledged.
// Its body was removed only after that (invariant 4), and a ref is used once: what the body store
// remembers of such a removal proves that the message has ended. Without that proof it is held.

/** How a message ended before, if it would be held now for its missing body. */
export async function settledBefore(
  bodies: BodyStore,
  { envelope }: Pick<Entry, 'envelope'>,
  { because }: Extract<Verdict, { kind: 'hold' }>,
): Promise<SettledAs | undefined> {
  if (because.code !== 'body.missing') return undefined;
  return endingOf(bodies, envelope);
}

/** How the message of a missing body ended, as far as the body store can prove it. */
export async function endingOf(
  bodies: BodyStore,
  envelope: Entry['envelope'],
): Promise<SettledAs | undefined> {
  if (isDamaged(envelope) || envelope.body.place !== 'store') return undefined;
  return bodies.wasSettled?.(envelope.body.ref);
}

/** The status that ends an active entry again, as it had ended before it came back. */
export function statusOfEnding(
  entry: Entry,
  settledAs: SettledAs,
  context: SettleContext,
): Status | 'remove' {
  // One that is kept after its delivery still has to be recognised when it is enqueued again.
  return settledAs === 'removed' ? 'remove' : nextStatus(entry, { kind: 'ack' }, context);
}

/** The error of the `trouble` event for a message that came back. */
export function cameBack(id: string, settledAs: SettledAs): RespoolError {
  return new RespoolError(
    'store.corrupt',
    `message "${id}" had ended before (${settledAs}) and came back without its body: the store ` +
      'lost the write that ended it. It is ended again, not held; look for other messages that ' +
      'are missing or came twice',
  );
}

// Removes bodies, only after the removal of their entries is durable (invariant 4).
//
// A crash in between leaves a body without entry; the caretaker finds it. Never the other way
// round.

/** A body to remove, and how its message ended; `replaced`: by another body of its message. */
interface Going {
  readonly ref: string;
  readonly because: SettledAs | 'replaced';
}

/** Collects refs and removes them in batches. */
export class BodyRemover {
  readonly #entries: EntryStore;
  readonly #bodies: BodyStore;
  readonly #onTrouble: (error: unknown) => void;
  #going: Going[] = [];
  #work: Promise<void> | undefined;

  constructor(entries: EntryStore, bodies: BodyStore, onTrouble: (error: unknown) => void) {
    this.#entries = entries;
    this.#bodies = bodies;
    this.#onTrouble = onTrouble;
  }

  /** The entry of this body is committed as gone; the body may follow when that is durable. */
  add(ref: string, because: Going['because']): void {
    // One that is not a ref, from a damaged record, would keep the others from being removed.
    if (!isRef(ref)) return;
    this.#going.push({ ref, because });
    this.#work ??= this.#run();
  }

  /** Resolves when everything added so far is removed. */
  async idle(): Promise<void> {
    while (this.#work !== undefined) await this.#work;
  }

  async #run(): Promise<void> {
    // Let what was added in this turn of the loop come together.
    await Promise.resolve();
    while (this.#going.length > 0) {
      const all = this.#going;
      this.#going = [];
      try {
        await this.#entries.flush();
        for (const because of ['delivered', 'removed', 'replaced'] as const) {
          const refs = all.filter((one) => one.because === because).map(({ ref }) => ref);
          const settledAs = because === 'replaced' ? undefined : because;
          if (refs.length > 0) await this.#bodies.remove(refs, settledAs);
        }
      } catch (error) {
        // Not tried again here: they are orphans now, and the caretaker removes those.
        this.#onTrouble(error);
      }
    }
    this.#work = undefined;
  }
}
