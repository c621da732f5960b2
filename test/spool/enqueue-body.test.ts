/** Bodies of every shape go in and come out as the same bytes (R2, R8, R32, R68). */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { compress } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { bytesOf, codeOf, rejection, setup, type World } from './setup.ts';

const MIB = 2 ** 20;
const BINARY = Uint8Array.from({ length: 256 }, (_, at) => at);
const LARGE = Buffer.alloc(MIB, 'respool ');

async function* parts(...all: (Uint8Array | string)[]): AsyncGenerator<Uint8Array | string> {
  yield* all;
}

/** Parts of one buffer, each filled over the one before. */
async function* refilling(bytes: number, count: number): AsyncGenerator<Uint8Array> {
  const buffer = Buffer.alloc(bytes);
  for (let at = 0; at < count; at += 1) yield buffer.fill(97 + at);
}

const filled = (bytes: number, count: number): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, at) => Buffer.alloc(bytes, 97 + at)));

async function roundTrip(world: World, body: unknown): Promise<Buffer> {
  const { spool } = world;
  const { id } = await spool.enqueue({ topic: 'a', body });
  return bytesOf(await spool.body(id));
}

describe('a body', () => {
  const shapes: Record<string, { body: unknown; bytes: Uint8Array }> = {
    'a string': { body: 'grüße', bytes: Buffer.from('grüße') },
    bytes: { body: BINARY, bytes: BINARY },
    'a part of a larger buffer': { body: BINARY.subarray(3, 9), bytes: BINARY.slice(3, 9) },
    'an ArrayBuffer': { body: BINARY.slice().buffer, bytes: BINARY },
    'a view that is not of bytes': {
      body: new DataView(BINARY.slice().buffer, 2, 5),
      bytes: BINARY.slice(2, 7),
    },
    'a JSON object': {
      body: { to: 'a@example.com' },
      bytes: Buffer.from('{"to":"a@example.com"}'),
    },
    'a JSON array': { body: [1, null], bytes: Buffer.from('[1,null]') },
    'a JSON null': { body: null, bytes: Buffer.from('null') },
    'a number': { body: 42, bytes: Buffer.from('42') },
    'a Node stream': {
      body: Readable.from([Buffer.from('ab'), Buffer.from('c')]),
      bytes: b('abc'),
    },
    'a web stream': { body: new Blob(['abc']).stream(), bytes: b('abc') },
    'an async iterable of bytes and text': { body: parts(b('a'), 'b', b('')), bytes: b('ab') },
    'an empty stream': { body: parts(), bytes: b('') },
    'no bytes': { body: new Uint8Array(0), bytes: b('') },
    'an empty string': { body: '', bytes: b('') },
    nothing: { body: undefined, bytes: b('') },
    'a MiB of bytes': { body: LARGE, bytes: LARGE },
    'a MiB as a stream': {
      body: parts(LARGE.subarray(0, 700_000), LARGE.subarray(700_000)),
      bytes: LARGE,
    },
  };
  test.each(Object.entries(shapes))('given as %s comes back as it was', async (_, shape) => {
    const world = await setup();
    const back = await roundTrip(world, shape.body);
    expect(back.equals(shape.bytes)).toBe(true);
  });

  test.each([
    ['stored as it is', []],
    ['compressed', [compress('zstd')]],
    ['compressed otherwise', [compress('lz4')]],
  ])(
    'comes back as it was from a source that fills one buffer again, %s',
    async (_, transforms) => {
      const world = await setup({ transforms });
      expect((await roundTrip(world, refilling(5_000, 30))).equals(filled(5_000, 30))).toBe(true);
      expect((await roundTrip(world, refilling(10, 3))).equals(filled(10, 3))).toBe(true);
    },
  );

  test('is described by its plain size and its digest, in both ways of enqueueing', async () => {
    const { spool } = await setup();
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE });
    const tx = await spool.begin({ topic: 'a' });
    await tx.write(LARGE);
    await tx.commit();
    const digest = `sha256:${createHash('sha256').update(LARGE).digest('hex')}`;
    for (const one of [id, tx.id]) {
      expect((await spool.get(one))?.envelope.body).toMatchObject({
        place: 'store',
        size: MIB,
        storedSize: MIB,
        digest,
        encodings: [],
      });
    }
  });

  test('reaches the handler as it was, as bytes, text, JSON and stream', async () => {
    const { spool, clock } = await setup();
    const seen: unknown[] = [];
    spool.handle('a', async (delivery) => {
      seen.push(await delivery.text(), await delivery.json());
      seen.push((await bytesOf(delivery.stream())).toString());
      seen.push(Buffer.from(await delivery.body()).toString());
    });
    await spool.enqueue({ topic: 'a', body: { n: 1 } });
    await clock.settle();
    expect(seen).toEqual(['{"n":1}', { n: 1 }, '{"n":1}', '{"n":1}']);
  });

  test('is streamed to the handler without being whole in memory', async () => {
    const { spool, clock } = await setup();
    let largest = 0;
    let size = 0;
    spool.handle('a', async (delivery) => {
      for await (const part of delivery.stream()) {
        largest = Math.max(largest, part.byteLength);
        size += part.byteLength;
      }
    });
    const chunk = Buffer.alloc(64 * 1024, 1);
    await spool.enqueue({ topic: 'a', body: parts(...Array.from({ length: 64 }, () => chunk)) });
    await clock.settle();
    expect(size).toBe(4 * MIB);
    expect(largest).toBe(64 * 1024);
  });

  test.each([
    ['a small body', 100],
    ['a large body', 100_000],
  ])('of a buffer that is used again right after the call is kept: %s', async (_, size) => {
    const { spool } = await setup();
    const buffer = Buffer.alloc(size, 'a');
    const work = spool.enqueue({ topic: 'a', body: buffer });
    buffer.fill('b');
    const { id } = await work;
    const back = await bytesOf(await spool.body(id));
    expect(back.equals(Buffer.alloc(size, 'a'))).toBe(true);
  });

  // Regression: the first enqueue opens the store, and copied the body only after that.
  test.each(['enqueue', 'enqueueMany'] as const)(
    'of a buffer that is used again is kept by the %s that opens the store',
    async (method) => {
      const { spool } = await setup({ isStarted: false });
      const buffer = Buffer.alloc(50, 'a');
      const object = { n: 1 };
      const messages = [
        { topic: 'a', body: buffer },
        { topic: 'a', body: buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + 50) },
        { topic: 'a', body: object },
      ];
      const work =
        method === 'enqueue'
          ? Promise.all(messages.map((message) => spool.enqueue(message)))
          : spool.enqueueMany(messages);
      buffer.fill('b');
      object.n = 2;
      const ids = (await work).map(({ id }) => id);
      const back = await Promise.all(ids.map(async (id) => bytesOf(await spool.body(id))));
      expect(back.map(String)).toEqual(['a'.repeat(50), 'a'.repeat(50), '{"n":1}']);
    },
  );

  test('up to the inline limit rides with its entry, above it lies in the body store', async () => {
    const { spool, bodies } = await setup({ limits: { inlineBodyBytes: 10 } });
    const { id: small } = await spool.enqueue({ topic: 'a', body: 'x'.repeat(10) });
    expect(bodies.faults.count('put')).toBe(0);
    const { id: large } = await spool.enqueue({ topic: 'a', body: 'x'.repeat(11) });
    expect(bodies.faults.count('put')).toBe(1);
    expect((await spool.get(small))?.envelope.body.place).toBe('inline');
    expect((await spool.get(large))?.envelope.body.place).toBe('store');
  });

  test('rides inline by default up to 16 KiB, and never above what the store can', async () => {
    const usual = await setup();
    const { id } = await usual.spool.enqueue({ topic: 'a', body: Buffer.alloc(16 * 1024) });
    expect((await usual.spool.get(id))?.envelope.body.place).toBe('inline');
    const narrow = await setup({ traits: { inlineMaxBytes: 4 } });
    const { id: other } = await narrow.spool.enqueue({ topic: 'a', body: '12345' });
    expect((await narrow.spool.get(other))?.envelope.body.place).toBe('store');
  });

  test('above the limit is refused, as bytes and as stream, and nothing is left of it', async () => {
    const { spool, bodies } = await setup({ limits: { bodyBytes: 100, inlineBodyBytes: 10 } });
    const error = await rejection(spool.enqueue({ topic: 'a', body: Buffer.alloc(101) }));
    expect(error).toMatchObject({ code: 'limit.exceeded' });
    expect(error.message).toContain('100');
    const stream = parts(Buffer.alloc(60), Buffer.alloc(60));
    expect(await codeOf(spool.enqueue({ topic: 'a', body: stream }))).toBe('limit.exceeded');
    await spool.enqueue({ topic: 'a', body: Buffer.alloc(100) });
    expect(await spool.count()).toMatchObject({ incoming: 1 });
    let refs = 0;
    for await (const _ of bodies.refs(Number.MAX_SAFE_INTEGER)) refs += 1;
    expect(refs).toBe(1);
  });

  test('whose stream fails is not accepted, and the failure is told as it was', async () => {
    const { spool } = await setup();
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(100_000);
      throw new Error('the line is dead');
    }
    const error = await rejection(spool.enqueue({ topic: 'a', body: broken() }));
    expect(error.message).toContain('the line is dead');
    expect(await spool.count()).toMatchObject({ incoming: 0 });
  });

  const notBodies: Record<string, unknown> = {
    'a function': () => 1,
    'a symbol': Symbol('x'),
    'a bigint': 1n,
    'a cycle': cycle(),
    'a stream of numbers': (async function* () {
      yield 1;
    })(),
  };
  test.each(Object.entries(notBodies))('cannot be %s', async (_, body) => {
    const { spool } = await setup();
    expect(await codeOf(spool.enqueue({ topic: 'a', body }))).toBe('message.invalid');
  });

  test.each<[string, () => unknown]>([
    ['a text', () => 'a\uD83D'],
    ['a stream', () => parts('a', '\uDE00')],
    ['the end of a stream', () => parts('a\uD83D')],
    ['a stream that goes on with bytes', () => parts('a\uD83D', BINARY)],
  ])('with half a surrogate pair in %s is refused, not changed', async (_, body) => {
    const { spool } = await setup();
    const refused = await rejection(spool.enqueue({ topic: 'a', body: body() }));
    expect(refused.code).toBe('message.invalid');
    expect(String(refused)).toContain('half a surrogate pair');
    expect((await spool.count()).incoming).toBe(0);
  });

  test('of text may come in parts that divide a character', async () => {
    const body = parts('a\uD83D', '\uDE00b');
    expect((await roundTrip(await setup(), body)).toString()).toBe('a😀b');
  });

  test('of an unknown message is message.unknown', async () => {
    const { spool } = await setup();
    expect(await codeOf(spool.body('nobody'))).toBe('message.unknown');
  });
});

function b(text: string): Buffer {
  return Buffer.from(text);
}

function cycle(): object {
  const one: { self?: object } = {};
  one.self = one;
  return one;
}
