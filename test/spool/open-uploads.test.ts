/** Bodies that are still coming in, and bodies that are none. */
import { describe, expect, test } from 'vitest';
import { createTestSpool } from 'respool/testkit';

describe('a stop', () => {
  async function* endless(): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(100_000, 1);
    await new Promise(() => undefined);
  }

  // Regression: a slow upload, or a begin() left open, kept stop() from ever ending.
  test('fails an upload that does not end within its time, and leaves nothing of it', async () => {
    const { spool, clock } = await createTestSpool();
    const enqueued = spool.enqueue({ topic: 'x', body: endless() });
    const outcome = expect(enqueued).rejects.toMatchObject({ code: 'engine.stopping' });
    await clock.advance('1s');
    const stopped = spool.stop({ within: '2s' });
    await clock.advance('3s');
    await stopped;
    await outcome;
    expect((await spool.operator({ by: 'ops' }).check()).bodies).toBe(0);
    await spool.stop();
  });

  test('fails a begin() that was left open', async () => {
    const { spool, clock } = await createTestSpool();
    const tx = await spool.begin({ topic: 'x' });
    await tx.write(Buffer.alloc(100_000, 1));
    const stopped = spool.stop({ within: '2s' });
    await clock.advance('3s');
    await stopped;
    await expect(tx.commit()).rejects.toMatchObject({ code: 'engine.stopping' });
    await spool.stop();
  });

  test('waits for an upload that ends within its time', async () => {
    const { spool, clock } = await createTestSpool();
    async function* slow(): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(100_000, 1);
      await new Promise<void>((resolve) => void clock.after(1_000, resolve));
      yield Buffer.alloc(1, 2);
    }
    const enqueued = spool.enqueue({ topic: 'x', body: slow() });
    await clock.advance(0);
    const stopped = spool.stop({ within: '5s' });
    await clock.advance('2s');
    await stopped;
    const { id } = await enqueued;
    expect((await spool.get(id))?.envelope.body.size).toBe(100_001);
    await spool.stop();
  });
});

describe('a body', () => {
  test.each<[string, unknown]>([
    ['a promise', Promise.resolve({ a: 1 })],
    ['a map', new Map([['a', 1]])],
    ['a set', new Set([1])],
    ['an error', new Error('x')],
    ['a regular expression', /x/],
    ['a generator', (function* () {})()],
    ['NaN', Number.NaN],
    ['a function', () => undefined],
  ])('that is %s is refused, not kept as nothing', async (_name, body) => {
    const { spool } = await createTestSpool();
    await expect(spool.enqueue({ topic: 'x', body })).rejects.toMatchObject({
      code: 'message.invalid',
    });
    await spool.stop();
  });

  test('may be a Blob, an instance with fields, or something with toJSON', async () => {
    const { spool } = await createTestSpool();
    class Order {
      readonly orderId = 7;
    }
    const texts: string[] = [];
    for (const body of [new Blob(['blob']), new Order(), new Date(0)]) {
      const { id } = await spool.enqueue({ topic: 'x', body });
      const parts: Uint8Array[] = [];
      for await (const part of await spool.body(id)) parts.push(part);
      texts.push(Buffer.concat(parts).toString());
    }
    expect(texts).toEqual(['blob', '{"orderId":7}', '"1970-01-01T00:00:00.000Z"']);
    await spool.stop();
  });
});

test('an iterator that answers without promises is a stream as well', async () => {
  const { spool } = await createTestSpool();
  const parts = [Buffer.from('a'), Buffer.from('b')];
  const body = {
    [Symbol.asyncIterator]: () => ({
      next: () => ({ done: parts.length === 0, value: parts.shift() }),
    }),
  };
  const { id } = await spool.enqueue({ topic: 'x', body });
  expect((await spool.get(id))?.envelope.body.size).toBe(2);
  await spool.stop();
});
