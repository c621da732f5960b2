/** What operators and processes do after the clock was set back. */
import { describe, expect, test } from 'vitest';
import { makeGate, setup } from './setup.ts';

describe('after the clock was set back by an hour', () => {
  test('a retry makes a message due that came before, and was not delayed', async () => {
    const { spool, clock, status } = await setup();
    await spool.operator({ by: 'ops' }).pause('#');
    const { id } = await spool.enqueue({ topic: 'a', body: 'x' });
    clock.jump(-3_600_000);
    expect((await status(id)).dueAt).toBeGreaterThan(clock.now());
    expect(await spool.operator({ by: 'ops' }).retry([id])).toEqual([{ id, result: 'done' }]);
    expect(await status(id)).toMatchObject({ state: 'incoming', dueAt: clock.now(), replays: 0 });
    // Once due, there is nothing to retry.
    expect(await spool.operator({ by: 'ops' }).retry([id])).toMatchObject([{ result: 'refused' }]);
    const delivered: string[] = [];
    spool.handle('a', (delivery) => void delivered.push(delivery.id));
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(delivered).toEqual([id]);
  });

  test('process takes a message that came before', async () => {
    const { spool, clock } = await setup({ isStarted: false });
    const { id } = await spool.enqueue({ topic: 'a' });
    clock.jump(-3_600_000);
    expect(await spool.process(id, () => undefined)).toEqual({ kind: 'ack' });
  });

  test('a held message that is released is due at once, and so is the first of an order key', async () => {
    const { spool, clock } = await setup();
    await spool.operator({ by: 'ops' }).pause('#');
    await spool.enqueueMany([
      { topic: 'a', id: 'm-1', orderKey: 'k' },
      { topic: 'a', id: 'm-2', orderKey: 'k' },
    ]);
    await spool.operator({ by: 'ops' }).hold(['m-1', 'm-2']);
    clock.jump(-3_600_000);
    await spool.operator({ by: 'ops' }).release(['m-1', 'm-2']);
    const delivered: string[] = [];
    spool.handle('a', ({ id }) => void delivered.push(id));
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(delivered).toEqual(['m-1', 'm-2']);
  });

  test('a new message is not handed over ahead of one that is due', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await clock.advance('1h');
    clock.jump(-3_600_000);
    await spool.enqueueMany(['m-1', 'm-2'].map((id) => ({ topic: 'a', id })));
    await clock.settle();
    gate.open();
    await clock.settle();
    await spool.enqueue({ topic: 'a', id: 'm-3' });
    await clock.settle();
    expect(gate.began).toEqual(['m-1', 'm-2', 'm-3']);
  });
});
