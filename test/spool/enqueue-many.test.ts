/** enqueueMany: one write, all or none, results in order. */
import { describe, expect, test } from 'vitest';
import { bytesOf, codeOf, rejection, setup } from './setup.ts';

describe('enqueueMany', () => {
  test('puts all down with one insert and answers in their order', async () => {
    const { spool, count, status } = await setup();
    const answers = await spool.enqueueMany([
      { topic: 'a', body: '1' },
      { topic: 'b', body: Buffer.alloc(50_000), delay: '1h' },
      { topic: 'c', id: 'mine' },
    ]);
    expect(count('insert')).toBe(1);
    expect(answers.map((answer) => answer.duplicate)).toEqual([false, false, false]);
    const topics = await Promise.all(
      answers.map(async ({ id }) => (await spool.get(id))?.envelope.topic),
    );
    expect(topics).toEqual(['a', 'b', 'c']);
    expect((await status(answers[1]?.id ?? '')).state).toBe('deferred');
  });

  test('checks all of them before any is written', async () => {
    const { spool, count, bodies } = await setup();
    const work = spool.enqueueMany([
      { topic: 'a', body: Buffer.alloc(50_000) },
      { topic: 'a' },
      { topic: 'not a topic' },
    ]);
    expect(await codeOf(work)).toBe('message.invalid');
    expect(count('insert')).toBe(0);
    expect(bodies.faults.count('put')).toBe(0);
  });

  test('writes none of them when one has a body that is none', async () => {
    const { spool, count } = await setup();
    const work = spool.enqueueMany([{ topic: 'a' }, { topic: 'a', body: () => 1 }]);
    expect(await codeOf(work)).toBe('message.invalid');
    expect(count('insert')).toBe(0);
  });

  test('knows duplicates of what is there and among themselves', async () => {
    const { spool } = await setup();
    const { id } = await spool.enqueue({ topic: 'a', dedupeKey: 'k1' });
    const [one, two, three] = await spool.enqueueMany([
      { topic: 'a', dedupeKey: 'k1' },
      { topic: 'a', dedupeKey: 'k2', body: 'first' },
      { topic: 'a', dedupeKey: 'k2', body: 'second' },
    ]);
    expect(one).toEqual({ id, duplicate: true });
    expect(two).toMatchObject({ duplicate: false });
    expect(three).toEqual({ id: two?.id, duplicate: true });
    expect(String(await bytesOf(await spool.body(two?.id ?? '')))).toBe('first');
  });

  test.each([null, undefined, 'x', 7, { topic: 'a' }])(
    'refuses %j, which is no list',
    async (no) => {
      const { spool } = await setup();
      const error = await rejection(spool.enqueueMany(no as never));
      expect(error).toMatchObject({ code: 'message.invalid' });
      expect(error.message).toContain('a list of messages');
    },
  );

  test('of nothing does nothing', async () => {
    const { spool } = await setup();
    expect(await spool.enqueueMany([])).toEqual([]);
  });

  test('fails as a whole when the store does', async () => {
    const { spool, store } = await setup();
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    const error = await rejection(spool.enqueueMany([{ topic: 'a' }, { topic: 'a' }]));
    expect(error.code).toBe('store.unavailable');
    store.faults.plan = () => 'ok';
    expect(await spool.count()).toMatchObject({ incoming: 0 });
  });

  test('never starts more handlers than there are slots', async () => {
    const { spool, clock } = await setup({ concurrency: 3 });
    let running = 0;
    let most = 0;
    spool.handle('a', async () => {
      running += 1;
      most = Math.max(most, running);
      await Promise.resolve();
      running -= 1;
    });
    await clock.settle();
    await spool.enqueueMany(Array.from({ length: 20 }, () => ({ topic: 'a' })));
    await clock.settle();
    expect(most).toBe(3);
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0 });
  });
});
