/**
 * body — from whatever the caller gives to bytes or a stream, and from what is stored back to bytes
 * that hash to what was accepted (invariant 11).
 *
 * Nothing above the inline limit is ever held whole in memory by us.
 */

import { createHash, hash } from 'node:crypto';
import type { BodyInfo, Entry } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import type { BodyStore } from '../ports/body-store.ts';

/** What can be a body: text, bytes, a stream of bytes, or any JSON value; nothing: empty. */
export type BodyInput = unknown;

/** What body storing needs. */
export interface BodySettings {
  readonly bodies: BodyStore;
  readonly inlineMaxBytes: number;
  readonly bodyMaxBytes: number;
}

/**
 * A body that is kept: what the envelope says of it, and its bytes when they ride with the entry.
 */
export interface KeptBody {
  readonly info: BodyInfo;
  readonly inline?: Uint8Array;
}

/** A body that the caller can no longer change: bytes of our own, or a stream. */
export type OwnBody =
  | { readonly bytes: Uint8Array }
  | { readonly stream: AsyncIterable<Uint8Array | string> };

/** Takes over what the caller gave. Called before anything is awaited: buffers are used again. */
export function ownBody(input: BodyInput): OwnBody {
  if (input instanceof Blob) return { stream: input.stream() };
  return isStream(input) ? { stream: input } : { bytes: bytesOf(input) };
}

/**
 * Keeps a body: small ones are returned to ride with the entry, large ones are durable in the
 * store.
 */
export function keepBody(
  body: OwnBody,
  newRef: () => string,
  settings: BodySettings,
): KeptBody | Promise<KeptBody> {
  if ('stream' in body) return keepStream(body.stream, newRef(), settings);
  const { bytes } = body;
  if (bytes.byteLength > settings.bodyMaxBytes) throw tooLarge(settings.bodyMaxBytes);
  if (bytes.byteLength <= settings.inlineMaxBytes) return inlineBody(bytes);
  return keepStream(once(bytes), newRef(), settings);
}

/** The stored bytes of an inline body, verified. */
export function inlineBytes(entry: Entry): Uint8Array {
  const { envelope, inlineBody: bytes } = entry;
  if (bytes === undefined) throw missing(entry);
  const isWhole =
    bytes.byteLength === envelope.body.size && digestOf(bytes) === envelope.body.digest;
  if (!isWhole) throw corrupt(entry);
  return bytes;
}

/** The body of an entry as a stream; the last step fails if it is not what was accepted. */
export async function* readBody(entry: Entry, bodies: BodyStore): AsyncIterable<Uint8Array> {
  const { body } = entry.envelope;
  if (body.place === 'none') throw missing(entry);
  if (body.place === 'inline') {
    const bytes = inlineBytes(entry);
    if (bytes.byteLength > 0) yield bytes;
    return;
  }
  const running = createHash('sha256');
  let size = 0;
  for await (const part of bodies.get(body.ref)) {
    running.update(part);
    size += part.byteLength;
    if (size > body.size) throw corrupt(entry);
    yield part;
  }
  if (size !== body.size || `sha256:${running.digest('hex')}` !== body.digest) throw corrupt(entry);
}

function isStream(input: unknown): input is AsyncIterable<Uint8Array | string> {
  return typeof input === 'object' && input !== null && Symbol.asyncIterator in input;
}

function bytesOf(input: unknown): Uint8Array {
  if (input === undefined) return new Uint8Array(0);
  if (typeof input === 'string') return Buffer.from(input, 'utf8');
  // Copied: the caller may use its buffer again before the batch is written.
  if (input instanceof Uint8Array) return copyOf(input);
  if (input instanceof ArrayBuffer) return copyOf(new Uint8Array(input));
  if (ArrayBuffer.isView(input)) {
    return copyOf(new Uint8Array(input.buffer, input.byteOffset, input.byteLength));
  }
  if (saysNothing(input)) throw notABody(undefined);
  let text: string | undefined;
  try {
    text = JSON.stringify(input);
  } catch (error) {
    throw notABody(error);
  }
  if (text === undefined) throw notABody(undefined);
  return Buffer.from(text, 'utf8');
}

/** n.b. Out of Node's pool: less than half the time of an array of its own for 1 KiB. */
function copyOf(bytes: Uint8Array): Uint8Array {
  const copy = Buffer.allocUnsafe(bytes.byteLength);
  copy.set(bytes);
  return copy;
}

/** A promise, a map, an error, NaN: what JSON would turn into `{}` or null without a word. */
function saysNothing(input: unknown): boolean {
  if (typeof input === 'number') return !Number.isFinite(input);
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return false;
  const prototype: unknown = Object.getPrototypeOf(input);
  const isPlain = prototype === Object.prototype || prototype === null;
  return !isPlain && !('toJSON' in input) && Object.keys(input).length === 0;
}

function inlineBody(bytes: Uint8Array): KeptBody {
  const size = bytes.byteLength;
  const digest = digestOf(bytes);
  return {
    info: { ref: '', place: 'inline', size, storedSize: size, digest, encodings: [] },
    inline: bytes,
  };
}

async function keepStream(
  input: AsyncIterable<Uint8Array | string>,
  ref: string,
  { bodies, inlineMaxBytes, bodyMaxBytes }: BodySettings,
): Promise<KeptBody> {
  const parts = partsOf(input, bodyMaxBytes);
  const head: Uint8Array[] = [];
  let headBytes = 0;
  let isEnded = false;
  while (headBytes <= inlineMaxBytes) {
    const step = await parts.next();
    if (step.done === true) {
      isEnded = true;
      break;
    }
    head.push(step.value);
    headBytes += step.value.byteLength;
  }
  if (isEnded) return inlineBody(Buffer.concat(head));
  const running = createHash('sha256');
  let size = 0;
  const measured = async function* (): AsyncGenerator<Uint8Array> {
    try {
      for (const part of head.splice(0)) yield measure(part);
      for await (const part of parts) yield measure(part);
    } finally {
      await parts.return(undefined);
    }
  };
  const measure = (part: Uint8Array): Uint8Array => {
    running.update(part);
    size += part.byteLength;
    return part;
  };
  const stored = await bodies.put(ref, measured());
  const digest = `sha256:${running.digest('hex')}`;
  const info: BodyInfo = {
    ref,
    place: 'store',
    size,
    storedSize: stored.size,
    digest,
    encodings: [],
  };
  return { info };
}

/** The caller's parts as bytes, cut off with an error at the byte that passes the limit. */
async function* partsOf(
  input: AsyncIterable<Uint8Array | string>,
  maxBytes: number,
): AsyncGenerator<Uint8Array, undefined> {
  let size = 0;
  for await (const part of input) {
    const bytes = typeof part === 'string' ? Buffer.from(part, 'utf8') : part;
    if (!(bytes instanceof Uint8Array)) throw notABody(undefined);
    size += bytes.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    if (bytes.byteLength > 0) yield bytes;
  }
  return undefined;
}

async function* once(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes;
}

function digestOf(bytes: Uint8Array): string {
  return `sha256:${hash('sha256', bytes, 'hex')}`;
}

function tooLarge(maxBytes: number): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot accept the body: it has more than the allowed ${maxBytes} bytes (limits.bodyBytes)`,
  );
}

function notABody(cause: unknown): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot use this value as body: allowed is a string, bytes, a Blob, a stream of bytes or a ' +
      'JSON value; a promise has to be awaited first',
    { cause },
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
