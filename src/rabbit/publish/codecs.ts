/**
 * codecs — from values to bytes and back, by content type: the same table for publishers and
 * consumers.
 *
 * JSON, text and plain bytes are built in; users register codecs for other types.
 */

import { RespoolError, show, textOf } from '../../core/errors.ts';
import { PermanentError } from '../../core/failure.ts';
import { checkNames } from '../../core/limits.ts';

/**
 * Turns values of one content type into bytes and back; one for a built-in content type replaces
 * it.
 */
export interface ContentCodec {
  /** Such as `application/msgpack`; parameters and case do not matter. */
  readonly contentType: string;
  encode(value: unknown): Uint8Array;
  decode(bytes: Uint8Array): unknown;
}

/** Gives the bytes of a body; bytes are passed through; `undefined` becomes an empty body. */
export type Encode = (contentType: string, body: unknown) => Buffer;

/**
 * Gives the value of a body; `PermanentError` with code `body.invalid` for a content type that
 * is not registered and for bytes that are not what it says.
 */
export type Decode = (contentType: string | undefined, bytes: Uint8Array) => unknown;

/** The content type of a body without one: most such publishers write JSON. */
const CONTENT_TYPE_DEFAULT = 'application/json';
export const CONTENT_TYPE_BYTES = 'application/octet-stream';

/** The content type of a body, by what the message and the publisher say. */
export function contentTypeOf(
  body: unknown,
  own: string | undefined,
  common: string | undefined,
): string {
  const isBytes = body instanceof Uint8Array;
  return own ?? common ?? (isBytes ? CONTENT_TYPE_BYTES : CONTENT_TYPE_DEFAULT);
}

/** The encoder of a publisher. */
export function encodersOf(codecs: readonly ContentCodec[] = []): Encode {
  const table = tableOf(codecs, 'encoders');
  return (contentType, body) => {
    if (body === undefined) return EMPTY;
    if (body instanceof Uint8Array) return bufferOf(body);
    const codec = find(table, contentType);
    if (codec === undefined) throw unencoded(contentType, `known are ${known(table)}`);
    let bytes: unknown;
    try {
      bytes = codec.encode(body);
    } catch (error) {
      throw unencoded(contentType, textOf(error), error);
    }
    if (bytes instanceof Uint8Array) return bufferOf(bytes);
    throw unencoded(contentType, `its codec gave ${show(bytes)}; an encoder gives bytes`);
  };
}

/** The decoder of a consumer. */
export function decodersOf(codecs: readonly ContentCodec[] = []): Decode {
  const table = tableOf(codecs, 'decoders');
  return (contentType = CONTENT_TYPE_DEFAULT, bytes) => {
    const codec = find(table, contentType);
    if (codec === undefined) {
      throw new PermanentError(
        'body.invalid',
        `cannot read a body of content type ${show(contentType)}: known are ${known(table)}; ` +
          'register a decoder for it',
      );
    }
    try {
      return codec.decode(bytes);
    } catch (error) {
      throw new PermanentError(
        'body.invalid',
        `the body is not what its content type ${show(contentType)} says: ${textOf(error)}`,
        { cause: error },
      );
    }
  };
}

const EMPTY = Buffer.alloc(0);

const JSON_CODEC: ContentCodec = {
  contentType: CONTENT_TYPE_DEFAULT,
  encode: (value) => {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined) throw new Error(`${typeof value} is no JSON value`);
    return Buffer.from(text);
  },
  decode: (bytes) => JSON.parse(utf8(bytes)) as unknown,
};

const BUILT_IN: readonly ContentCodec[] = [
  JSON_CODEC,
  {
    contentType: 'text/plain',
    encode: (value) => {
      if (typeof value !== 'string') throw new Error(`${show(value)} is no text`);
      // It would be published with another character in its place.
      if (!value.isWellFormed()) throw new Error(`${show(value)} has half a surrogate pair`);
      return Buffer.from(value);
    },
    decode: utf8,
  },
  {
    contentType: CONTENT_TYPE_BYTES,
    encode: (value) => {
      throw new Error(`${show(value)} is not bytes`);
    },
    decode: (bytes) => bytes,
  },
];

const STRICT = new TextDecoder('utf-8', { fatal: true });

/** Half a character is damage, not text. */
function utf8(bytes: Uint8Array): string {
  return STRICT.decode(bytes);
}

function tableOf(
  codecs: readonly ContentCodec[],
  option: string,
): ReadonlyMap<string, ContentCodec> {
  if (!Array.isArray(codecs)) throw unusable(option, codecs);
  for (const codec of codecs as readonly unknown[]) checkCodec(codec, option);
  return new Map([...BUILT_IN, ...codecs].map((codec) => [essence(codec.contentType), codec]));
}

function checkCodec(codec: unknown, option: string): void {
  if (typeof codec !== 'object' || codec === null) throw unusable(option, codec);
  checkNames(option, codec, ['contentType', 'encode', 'decode']);
  const { contentType, encode, decode } = codec as Partial<ContentCodec>;
  const isWhole = typeof encode === 'function' && typeof decode === 'function';
  if (typeof contentType !== 'string' || essence(contentType) === '' || !isWhole) {
    throw unusable(option, codec);
  }
}

function unusable(option: string, value: unknown): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} in "${option}": allowed is a list of ` +
      '{ contentType, encode(value), decode(bytes) }',
  );
}

/** By the type itself; `application/problem+json` and its like are JSON. */
function find(
  table: ReadonlyMap<string, ContentCodec>,
  contentType: string,
): ContentCodec | undefined {
  const name = essence(contentType);
  const found = table.get(name);
  return found ?? (name.endsWith('+json') ? table.get(CONTENT_TYPE_DEFAULT) : undefined);
}

/** Without its parameters: `Text/Plain; charset=utf-8` is text/plain. */
function essence(contentType: string): string {
  return (contentType.split(';', 1)[0] ?? '').trim().toLowerCase();
}

function known(table: ReadonlyMap<string, ContentCodec>): string {
  return [...table.keys()].join(', ');
}

function unencoded(contentType: string, why: string, cause?: unknown): RespoolError {
  return new RespoolError(
    'message.invalid',
    `cannot write the body as ${show(contentType)}: ${why}`,
    cause === undefined ? undefined : { cause },
  );
}

function bufferOf(bytes: Uint8Array): Buffer {
  if (Buffer.isBuffer(bytes)) return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
