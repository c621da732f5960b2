/**
 * compress-read — compressed bodies on their way back, whatever the configuration of today says.
 *
 * Promise: no body unpacks to more than its envelope allows, and what cannot have been written by
 * us is `body.corrupt`. A body that unpacks to far more than it is long is stopped on the way.
 */

import { RespoolError } from '../core/errors.ts';
import type { BodyReader, ReadContext } from '../ports/transform.ts';
import { type Bytes, type Codec, type CodecSource, Damaged, STEP_BYTES } from './codec.ts';
import { collect, createJoin, gather, joined, pieces, resumed, slices } from './codec-pieces.ts';
import {
  CODECS,
  type CodecSources,
  type StoredCodec,
  parseEncoding,
  PLAIN,
  RATIO_FREE_BYTES,
} from './compress-codecs.ts';

/** What is collected of a stream whose plain size is small enough for one call. */
const COLLECT_MAX_BYTES = 1024 * 1024;

/** Finds who can read an encoding; undefined for one that is no compression. */
export type ReadCompressed = (encoding: string, context: ReadContext) => BodyReader | undefined;

/**
 * Reads what any `compress()` has written, without a configuration.
 *
 * Optional packages are loaded when the first body needs them; `decodeBytes` is a promise then.
 */
export const readCompressed: ReadCompressed = createReadCompressed(CODECS);

/** The same with codecs from elsewhere. */
export function createReadCompressed(codecs: CodecSources): ReadCompressed {
  return (encoding, context) => {
    if (encoding === PLAIN) return new PlainReader(context);
    const parsed = parseEncoding(encoding);
    if (parsed === undefined) return undefined;
    const { codec, ratioMax } = parsed;
    return new CompressReader(codecs[codec], { ...context, codec, ratioMax });
  };
}

/** A body that was left as it was. */
class PlainReader implements BodyReader {
  readonly #context: ReadContext;

  constructor(context: ReadContext) {
    this.#context = context;
  }

  decodeBytes(bytes: Bytes): Bytes {
    this.#check(bytes.length);
    return bytes;
  }

  async *decode(stream: AsyncIterable<Bytes>): AsyncGenerator<Bytes, void, undefined> {
    let bytes = 0;
    for await (const part of stream) {
      bytes += part.length;
      this.#check(bytes);
      yield part;
    }
  }

  #check(bytes: number): void {
    const { id, maxBytes } = this.#context;
    if (bytes > maxBytes) throw corrupt(id, PLAIN, tooLong(maxBytes));
  }
}

/** What is known of a compressed body before it is read. */
interface Expectation extends ReadContext {
  readonly codec: StoredCodec;
  readonly ratioMax: number;
}

class CompressReader implements BodyReader {
  readonly #source: CodecSource;
  readonly #expected: Expectation;

  constructor(source: CodecSource, expected: Expectation) {
    this.#source = source;
    this.#expected = expected;
  }

  get holdsMaxBytes(): number | undefined {
    const codec = this.#source.ready();
    if (codec === undefined || !codec.isDoneWithPieces) return undefined;
    return this.#isQuick(codec) ? COLLECT_MAX_BYTES : STEP_BYTES;
  }

  decodeBytes(packed: Bytes): Bytes | Promise<Bytes> {
    const codec = this.#source.ready();
    if (codec !== undefined && this.#isQuick(codec)) return this.#unpack(codec, packed);
    return collect(this.decode(slices(packed, STEP_BYTES)));
  }

  async *decode(stream: AsyncIterable<Bytes>): AsyncGenerator<Bytes, void, undefined> {
    // Before the stream is begun: what fails here must leave nothing open.
    const codec = this.#source.ready() ?? (await this.#source.load());
    if (!this.#isQuick(codec)) {
      yield* this.#unpackStream(codec, stream);
      return;
    }
    const rest = stream[Symbol.asyncIterator]();
    const { held, isWhole } = await gather(rest, COLLECT_MAX_BYTES);
    if (!isWhole) {
      yield* this.#unpackStream(codec, resumed(held, rest));
      return;
    }
    const plain = this.#unpack(codec, joined(held));
    if (plain.length > 0) yield plain;
  }

  #isQuick(codec: Codec): boolean {
    return this.#expected.maxBytes <= codec.unpackMaxBytes;
  }

  #unpack(codec: Codec, packed: Bytes): Bytes {
    try {
      return codec.unpack(packed, this.#expected.maxBytes);
    } catch (error) {
      throw this.#named(error);
    }
  }

  async *#unpackStream(
    codec: Codec,
    packed: AsyncIterable<Bytes>,
  ): AsyncGenerator<Bytes, void, undefined> {
    const join = codec.isDoneWithPieces ? createJoin(STEP_BYTES) : joined;
    let givenBytes = 0;
    let plainBytes = 0;
    async function* counted(): AsyncGenerator<Bytes, void, undefined> {
      for await (const piece of pieces(packed, STEP_BYTES, join)) {
        givenBytes += piece.length;
        yield piece;
      }
    }
    try {
      for await (const part of codec.unpackStream(counted())) {
        plainBytes += part.length;
        this.#check(plainBytes, givenBytes);
        yield part;
      }
    } catch (error) {
      throw this.#named(error);
    }
  }

  #check(plainBytes: number, givenBytes: number): void {
    const { maxBytes, ratioMax } = this.#expected;
    if (plainBytes > maxBytes) throw new Damaged(tooLong(maxBytes));
    if (plainBytes > RATIO_FREE_BYTES && plainBytes > givenBytes * ratioMax) {
      throw new Damaged(`it unpacks to more than ${ratioMax} times its size`);
    }
  }

  /** Says whose body is damaged; what the source of the bytes has thrown stays as it is. */
  #named(error: unknown): unknown {
    const { id, codec } = this.#expected;
    return error instanceof Damaged ? corrupt(id, codec, error.message, error) : error;
  }
}

function corrupt(id: string, codec: string, why: string, damaged?: Damaged): RespoolError {
  return new RespoolError(
    'body.corrupt',
    `cannot read the body of message "${id}", stored as ${codec}: ${why}; ` +
      'the stored bytes are not what was written',
    damaged === undefined ? {} : { cause: damaged.cause ?? damaged },
  );
}

function tooLong(maxBytes: number): string {
  return `it holds more than the ${maxBytes} bytes of its envelope`;
}
