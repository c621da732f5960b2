/** compress-streams.test — streams: nothing left open, nothing read ahead, nobody kept waiting. */
import { readCompressed } from 'respool/transforms';
import type { Transform as NodeTransform } from 'node:stream';
import * as zlib from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { zlibSource } from '../../src/transforms/codec-zlib.ts';
import {
  CODECS as SOURCES,
  type CodecSources,
  compressWith,
  createReadCompressed,
} from '../../src/transforms/compress.ts';
import { CODECS, collect, KIB, MIB, noise, pack, text, unpack } from './compress-setup.ts';

const FROM_NODE = ['gzip', 'zlib', 'deflate', 'brotli', 'zstd'] as const;
const NO_LIMIT = { id: 'a', maxBytes: Number.POSITIVE_INFINITY };

/** A source that tells how far it was read, and whether it was closed. */
function source(body: Uint8Array, partBytes: number = 64 * KIB) {
  const seen = { readBytes: 0, isClosed: false };
  async function* stream(): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for (let at = 0; at < body.length; at += partBytes) {
        const part = body.subarray(at, at + partBytes);
        seen.readBytes += part.length;
        yield part;
      }
    } finally {
      seen.isClosed = true;
    }
  }
  return { seen, stream: stream() };
}

/** Every stream of node:zlib that is made is remembered. */
function watched(): { readonly codecs: CodecSources; readonly made: NodeTransform[] } {
  const made: NodeTransform[] = [];
  const watching = Object.fromEntries(
    Object.entries(zlib)
      .filter(([name]) => name.startsWith('create'))
      .map(([name, create]) => [
        name,
        (options: object) => {
          const stream = (create as (given: object) => NodeTransform)(options);
          made.push(stream);
          return stream;
        },
      ]),
  );
  const node = { ...zlib, ...watching } as typeof zlib;
  const sources = FROM_NODE.map((name) => [name, zlibSource(name, node)]);
  return { codecs: { ...SOURCES, ...Object.fromEntries(sources) } as CodecSources, made };
}

describe.each(CODECS)('%s', (codec) => {
  const setup = () => {
    const { codecs, made } = watched();
    const encode = (stream: AsyncIterable<Uint8Array>) =>
      compressWith(codecs, codec).writer?.({ id: 'a' }).encode(stream) ?? stream;
    const decode = (stream: AsyncIterable<Uint8Array>, encoding: string = codec) =>
      createReadCompressed(codecs)(encoding, NO_LIMIT)?.decode(stream) ?? stream;
    const expectClosed = () => {
      if ((FROM_NODE as readonly string[]).includes(codec)) expect(made).not.toHaveLength(0);
      for (const stream of made) expect(stream.destroyed).toBe(true);
    };
    return { encode, decode, expectClosed };
  };
  const body = Buffer.concat([text(2 * MIB), noise(2 * MIB)]);

  test('who stops reading early closes the source and the codec', async () => {
    const stored = await pack(codec, body, { way: 'stream' });
    for (const direction of ['encode', 'decode'] as const) {
      const run = setup();
      const { seen, stream } = source(direction === 'encode' ? body : stored.bytes);
      for await (const part of run[direction](stream)) {
        expect(part.length).toBeGreaterThan(0);
        break;
      }
      expect(seen.isClosed).toBe(true);
      run.expectClosed();
    }
  });

  test('reading to the end closes the codec', async () => {
    const { encode, decode, expectClosed } = setup();
    const packed = await collect(encode(source(body).stream));
    expect((await collect(decode(source(packed).stream))).equals(body)).toBe(true);
    expectClosed();
  });

  test('a source that fails in the middle fails the reader, and the codec is closed', async () => {
    const stored = await pack(codec, body, { way: 'stream' });
    const broken = new Error('the source broke');
    for (const direction of ['encode', 'decode'] as const) {
      const { stream } = source(direction === 'encode' ? body : stored.bytes);
      async function* failing(): AsyncGenerator<Uint8Array, void, undefined> {
        let count = 0;
        for await (const part of stream) {
          yield part;
          count += 1;
          if (count === 20) throw broken;
        }
      }
      const run = setup();
      await expect(collect(run[direction](failing()))).rejects.toBe(broken);
      run.expectClosed();
    }
  });

  test('a source that fails at once fails the reader', async () => {
    const broken = new Error('the source broke');
    async function* failing(): AsyncGenerator<Uint8Array, void, undefined> {
      yield text(10);
      throw broken;
    }
    const { encode, decode } = setup();
    await expect(collect(encode(failing()))).rejects.toBe(broken);
    await expect(collect(decode(failing()))).rejects.toBe(broken);
  });

  test('damage in the middle of a stream closes the source and the codec', async () => {
    const { bytes } = await pack(codec, body, { way: 'stream' });
    const damaged = Buffer.from(bytes);
    noise(70 * KIB).copy(damaged, 100 * KIB);
    const { decode, expectClosed } = setup();
    const { seen, stream } = source(damaged);
    const isChecked = codec !== 'brotli' && codec !== 'deflate';
    const back = await collect(decode(stream)).catch(() => undefined);
    if (isChecked) expect(back).toBeUndefined();
    expect(back === undefined || !back.equals(body)).toBe(true);
    expect(seen.isClosed).toBe(true);
    expectClosed();
  });

  test('the source is read only as far as the consumer asks', async () => {
    const long = Buffer.concat(Array.from({ length: 3 }, () => body));
    const stored = await pack(codec, long, { way: 'stream' });
    for (const direction of ['encode', 'decode'] as const) {
      const { seen, stream } = source(direction === 'encode' ? long : stored.bytes);
      const run = setup()[direction](stream)[Symbol.asyncIterator]();
      let gotBytes = 0;
      for (let count = 0; count < 4; count += 1) {
        gotBytes += ((await run.next()).value as Uint8Array).length;
        // What is held inside of a codec: a few steps and the windows of brotli and zstd.
        const ratio = direction === 'encode' ? 12 : 1;
        expect(seen.readBytes).toBeLessThan(gotBytes * ratio + 6 * MIB);
      }
      await run.return?.();
      expect(seen.isClosed).toBe(true);
    }
  });

  test('a long stream from memory lets others have their turn', async () => {
    const long = Buffer.concat(Array.from({ length: 9 }, () => text(MIB)));
    const { bytes, encoding } = await pack(codec, long, { way: 'stream' });
    for (const direction of ['encode', 'decode'] as const) {
      let turns = 0;
      let isOver = false;
      const turn = () => {
        turns += 1;
        if (!isOver) setImmediate(turn);
      };
      setImmediate(turn);
      const { stream } = source(direction === 'encode' ? long : bytes);
      const run = setup();
      const result = await collect(
        direction === 'encode' ? run.encode(stream) : run.decode(stream, encoding),
      );
      isOver = true;
      expect(result.length).toBeGreaterThan(0);
      expect(turns).toBeGreaterThan(3);
    }
  });
});

test.each(CODECS)('%s: bodies that are packed at the same time do not mix', async (codec) => {
  const bodies = Array.from({ length: 12 }, (_, at) => {
    const body = Buffer.concat([text(5_000 * (at + 1)), noise(9_000 * at)]).reverse();
    body.writeUInt32LE(at, 0);
    return body;
  });
  const stored = await Promise.all(
    bodies.map((body) => pack(codec, body, { way: 'stream', sizes: [3_000] })),
  );
  expect(new Set(stored.map(({ encoding }) => encoding))).toEqual(new Set([codec, 'plain']));
  const back = await Promise.all(
    stored.map((one) => unpack(one, { way: 'stream', sizes: [3_000] })),
  );
  for (const [at, body] of bodies.entries()) expect(back[at]?.equals(body)).toBe(true);
});

test('a stream of nothing but empty parts is an empty body', async () => {
  async function* empty(): AsyncGenerator<Uint8Array, void, undefined> {
    for (let count = 0; count < 1_000; count += 1) yield new Uint8Array(0);
  }
  for (const codec of CODECS) {
    const writer = compressWith(SOURCES, codec).writer?.({ id: 'a' });
    expect(await collect(writer?.encode(empty()) ?? empty())).toHaveLength(0);
    expect(writer?.encoding).toBe('plain');
    const reader = readCompressed('plain', NO_LIMIT);
    expect(await collect(reader?.decode(empty()) ?? empty())).toHaveLength(0);
  }
});
