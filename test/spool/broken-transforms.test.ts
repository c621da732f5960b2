/** Transforms of others that do not keep to their door: nothing wrong is stored, nothing is lost. */
import { fixed, RespoolError } from 'respool';
import type { BodyReader, BodyWriter, Transform } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { all, bytesOf, setup, type World } from './setup.ts';

const SMALL = Buffer.from('hello');
const LARGE = Buffer.alloc(300_000, 'x');

type Way = (...given: never[]) => unknown;

/** A transform that does nothing, but for what is wrong with it. */
function odd(
  writes: { readonly [key in keyof BodyWriter]?: unknown } = {},
  reads: { readonly [key in keyof BodyReader]?: unknown } = {},
): Transform {
  const same = (bytes: Uint8Array): Uint8Array => bytes;
  async function* pass(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    yield* stream;
  }
  const writer = { encoding: 'odd', encodeBytes: same, encode: pass, ...writes } as BodyWriter;
  const reader = { decodeBytes: same, decode: pass, ...reads } as BodyReader;
  return {
    name: 'odd',
    kind: 'other',
    writer: () => writer,
    reader: (encoding) => (encoding === 'odd' ? reader : undefined),
  };
}

/** Each part as something else. */
function parts(change: (part: Uint8Array) => unknown): Way {
  return async function* (stream: AsyncIterable<Uint8Array>) {
    for await (const part of stream) yield change(part);
  };
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');

/** Ways that give no bytes: of a whole body, and of a stream. */
const wrong: Record<string, readonly [Way, Way]> = {
  'a text': [text, parts(text)],
  nothing: [() => undefined, () => undefined],
  null: [() => null, () => null],
  'a list of numbers': [(bytes: Uint8Array) => [...bytes], parts((part) => [part[0]])],
  'words of two bytes': [() => new Uint16Array(3), parts(() => new Uint16Array(3))],
  'what looks like empty bytes': [() => ({ byteLength: 0 }), parts(() => ({ byteLength: 0 }))],
  'a text later': [async (bytes: Uint8Array) => text(bytes), parts(async () => 'abc')],
};

describe.each(Object.entries(wrong))('a transform that gives %s', (_, [whole, stream]) => {
  test.each([
    ['small', SMALL],
    ['large', LARGE],
  ])('for a %s body has it refused, and nothing is stored', async (_size, body) => {
    const transforms = [odd({ encodeBytes: whole, encode: stream })];
    const { spool, bodies } = await setup({ transforms });
    const work = spool.enqueue({ topic: 'a', body });
    await expect(work).rejects.toMatchObject({ code: 'config.invalid' });
    await expect(work).rejects.toThrow('transform "odd" gave');
    expect(await all(bodies.refs(Number.MAX_SAFE_INTEGER))).toEqual([]);
    expect(await all(spool.list())).toEqual([]);
  });

  test.each([
    ['small', SMALL],
    ['large', LARGE],
  ])('when it reads a %s body holds the message at no cost', async (_size, body) => {
    await expectHeld(odd({}, { decodeBytes: whole, decode: stream }), body, 'gave');
  });
});

async function reading(transform: Transform, body: Uint8Array): Promise<World> {
  const before = await setup({ transforms: [odd()], isStarted: false });
  await before.spool.enqueue({ id: 'one', topic: 'a', body });
  await before.spool.stop();
  const policies = { default: fixed('1m', { attempts: 1 }) };
  return setup({ with: before, transforms: [transform], policies });
}

async function expectHeld(transform: Transform, body: Uint8Array, why: string): Promise<void> {
  const { spool, clock, status } = await reading(transform, body);
  spool.handle('a', async (delivery) => void (await bytesOf(delivery.stream())));
  await clock.advance('1h');
  const { state, attempts, because } = await status('one');
  expect({ state, attempts }).toEqual({ state: 'hold', attempts: 0 });
  expect(because?.code).toBe('body.corrupt');
  expect(because?.text).toContain('stored as "odd"');
  expect(because?.text).toContain(why);
}

const slip = (): never => {
  throw new TypeError('a slip');
};

describe.each([
  ['small', SMALL],
  ['large', LARGE],
])('a %s body', (_size, body) => {
  test.each<[string, Transform]>([
    ['at once', odd({}, { decodeBytes: slip, decode: slip })],
    ['later', odd({}, { decodeBytes: async () => slip(), decode: parts(slip) })],
    ['when it is asked for a reader', { ...odd(), reader: slip }],
  ])('whose transform fails %s is held at no cost', async (_name, transform) => {
    await expectHeld(transform, body, 'a slip');
  });

  test('whose key of the digest is none is refused, and held where it is read', async () => {
    const { spool } = await setup({ transforms: [odd({ digestKey: 'abc' })] });
    const work = spool.enqueue({ topic: 'a', body });
    await expect(work).rejects.toMatchObject({ code: 'config.invalid' });
    await expect(work).rejects.not.toThrow('abc');
    await expectHeld(odd({}, { digestKey: 'abc' }), body, 'gave a string');
  });

  test('whose transform has no writer for it is refused', async () => {
    const transform = { ...odd(), writer: () => undefined as unknown as BodyWriter };
    const { spool } = await setup({ transforms: [transform] });
    const work = spool.enqueue({ topic: 'a', body });
    await expect(work).rejects.toMatchObject({ code: 'config.invalid' });
    await expect(work).rejects.toThrow('"odd": its writer() gave undefined');
  });
});

test('what a body store throws in its own words is not blamed on the transform', async () => {
  const { spool, bodies, clock, status } = await reading(odd(), LARGE);
  bodies.get = () => {
    throw new Error('the wire is cut');
  };
  spool.handle('a', async (delivery) => void (await delivery.body()));
  await clock.settle();
  expect(await status('one')).toMatchObject({ lastFailure: { reason: 'the wire is cut' } });
});

test.each<[string, Transform, string]>([
  ['no writer', { ...odd(), writer: slip }, 'a slip'],
  ['a writer that fails', odd({ encode: slip }), 'a slip'],
  ['a writer without a stream', odd({ encode: () => undefined }), 'gave undefined'],
  ['a bad record', odd({ encoding: 'with space' }), 'with space'],
])('a stream is closed, and nothing stored, where there is %s', async (_, transform, why) => {
  const { spool, bodies } = await setup({ transforms: [transform] });
  let isClosed = false;
  async function* source(): AsyncGenerator<Uint8Array> {
    try {
      for (let at = 0; at < 30; at += 1) yield Buffer.alloc(20_000, at);
    } finally {
      isClosed = true;
    }
  }
  await expect(spool.enqueue({ topic: 'a', body: source() })).rejects.toThrow(why);
  await Promise.resolve();
  expect(isClosed).toBe(true);
  expect(await all(bodies.refs(Number.MAX_SAFE_INTEGER))).toEqual([]);
});

test('an error of ours passes as it is', async () => {
  const gone = (): never => {
    throw new RespoolError('key.unavailable', 'no such key');
  };
  const { spool } = await reading(odd({}, { decode: gone, decodeBytes: gone }), LARGE);
  const read = async (): Promise<Buffer> => bytesOf(await spool.body('one'));
  await expect(read()).rejects.toMatchObject({ code: 'key.unavailable' });
});
