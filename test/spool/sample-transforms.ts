/**
 * sample-transforms — two transforms that are easy to follow: one that flips bits, and a lock that
 * only looks like encryption. For tests of what the spool does with any transform.
 */
import { RespoolError } from 'respool';
import type { BodyReader, BodyWriter, Transform } from 'respool/transforms';

/** How a sample behaves. */
export interface SampleOptions {
  readonly name?: string;
  readonly kind?: Transform['kind'];
  /** Whether whole bodies take a turn of the loop. */
  readonly isSlow?: boolean;
  /** Bytes put in front of the encoded ones. */
  readonly growsBy?: number;
}

/** Flips bits of every byte by a mask. */
export function flip(mask: number, options: SampleOptions = {}): Transform {
  const { name = `flip-${mask}`, kind = 'other', isSlow = false, growsBy = 0 } = options;
  const answer = (bytes: Uint8Array): Uint8Array | Promise<Uint8Array> =>
    isSlow ? Promise.resolve(bytes) : bytes;
  const flipped = (bytes: Uint8Array): Uint8Array => bytes.map((byte) => byte ^ mask);
  const writer = (): BodyWriter => ({
    encoding: name,
    async *encode(stream) {
      if (growsBy > 0) yield new Uint8Array(growsBy);
      for await (const part of stream) yield flipped(part);
    },
    encodeBytes: (bytes) => answer(Buffer.concat([new Uint8Array(growsBy), flipped(bytes)])),
  });
  const reader = (): BodyReader => ({
    async *decode(stream) {
      let toSkip = growsBy;
      for await (const part of stream) {
        yield flipped(part.subarray(toSkip));
        toSkip = Math.max(0, toSkip - part.byteLength);
      }
    },
    decodeBytes: (bytes) => answer(flipped(bytes.subarray(growsBy))),
  });
  return { name, kind, writer, reader: (encoding) => (encoding === name ? reader() : undefined) };
}

/** The same, for reading only. */
export function readsOnly(transform: Transform): Transform {
  const { name, kind } = transform;
  return { name, kind, reader: (encoding, context) => transform.reader(encoding, context) };
}

/** A lock with several keys, one of them for writing; the digest is keyed with it. */
export function lock(keys: Readonly<Record<string, number>>, primary: string): Transform {
  const digestKey = (key: string): Uint8Array => Buffer.alloc(32, `${key}-${keys[key]}`);
  const flips = (key: string): Transform => flip(keys[key] ?? 0);
  return {
    name: 'lock',
    kind: 'encryption',
    writer: (context) => ({
      ...(flips(primary).writer?.(context) as BodyWriter),
      encoding: `lock;key=${primary}`,
      digestKey: digestKey(primary),
    }),
    reader: (encoding, context) => {
      const key = /^lock;key=(.*)$/.exec(encoding)?.[1];
      if (key === undefined) return undefined;
      if (keys[key] === undefined) return withoutKey(key);
      const step = flips(key);
      return { ...(step.reader(step.name, context) as BodyReader), digestKey: digestKey(key) };
    },
  };
}

/** Fails when the body is read, not before: as where keys are fetched when they are needed. */
function withoutKey(key: string): BodyReader {
  const fail = (): never => {
    throw new RespoolError('key.unavailable', `there is no key "${key}"; add it to keys`);
  };
  return {
    // oxlint-disable-next-line require-yield -- it fails before it can yield.
    async *decode() {
      fail();
    },
    decodeBytes: fail,
  };
}
