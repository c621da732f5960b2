/** pause and resume: per topic and as a whole, durable, obeyed by every process (R80). */
import { fixed, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { codeOf, failing, makeGate, setup } from './setup.ts';

describe('a pause', () => {
  test('of everything stops all delivering until it is resumed', async () => {
    const { spool, clock, status, kinds } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.operator({ by: 'ops' }).pause('#');
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    expect(attempts).toEqual([]);
    expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(attempts).toEqual([1]);
    expect(kinds()).toEqual(expect.arrayContaining(['paused', 'resumed']));
  });

  test('of a pattern stops these topics only', async () => {
    const { spool, clock } = await setup();
    const seen: string[] = [];
    spool.handle('#', ({ topic }) => void seen.push(topic));
    await spool.operator({ by: 'ops' }).pause('mail.*');
    await clock.settle();
    for (const topic of ['mail.a', 'sms', 'mail.b.c']) await spool.enqueue({ topic });
    await clock.settle();
    expect(seen.toSorted()).toEqual(['mail.b.c', 'sms']);
    await spool.operator({ by: 'ops' }).resume('mail.*');
    await clock.settle();
    expect(seen).toContain('mail.a');
  });

  test('ends with the pattern it was made with, and no other', async () => {
    const { spool, clock } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.operator({ by: 'ops' }).pause('a');
    await spool.operator({ by: 'ops' }).pause('#');
    await spool.enqueue({ topic: 'a' });
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.advance('1m');
    expect(attempts).toEqual([]);
    await spool.operator({ by: 'ops' }).resume('b');
    await clock.advance('1m');
    expect(attempts).toEqual([]);
    await spool.operator({ by: 'ops' }).resume('a');
    await clock.settle();
    expect(attempts).toEqual([1]);
  });

  test('holds for deferred messages and notices too', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1m') } });
    const deliveries = failing(1);
    spool.handle('a', deliveries.handler);
    spool.handle('b', failing(1, () => new PermanentError('x', 'y')).handler);
    const notices = failing(0);
    await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'b' });
    await clock.settle();
    await spool.operator({ by: 'ops' }).pause('#');
    spool.onBounce('b', notices.handler);
    await clock.advance('1h');
    expect([deliveries.attempts, notices.attempts]).toEqual([[1], []]);
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect([deliveries.attempts, notices.attempts]).toEqual([[1, 2], [1]]);
  });

  test('lets what runs come to its end', async () => {
    const { spool, clock } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    await spool.operator({ by: 'ops' }).pause('#');
    gate.open();
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
  });

  test('is not claimed and released: paused messages are not touched at all', async () => {
    const { spool, clock, calls, status } = await setup({ unhandled: 'leave' });
    spool.handle('#', () => undefined);
    await spool.operator({ by: 'ops' }).pause('a');
    const { id } = await spool.enqueue({ topic: 'a' });
    calls.length = 0;
    await spool.enqueue({ topic: 'b' });
    await clock.advance('10m');
    expect((await status(id)).revision).toBe(1);
  });

  test('survives a restart', async () => {
    const { spool, clock } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.operator({ by: 'ops' }).pause('a');
    await spool.enqueue({ topic: 'a' });
    await spool.stop();
    await spool.start();
    await clock.advance('1h');
    expect(attempts).toEqual([]);
    await spool.operator({ by: 'ops' }).resume('a');
    await clock.settle();
    expect(attempts).toEqual([1]);
  });

  test('is obeyed from its first moment by a process that starts later', async () => {
    const one = await setup({ isStarted: false });
    await one.spool.operator({ by: 'ops' }).pause('a');
    await one.spool.enqueue({ topic: 'a' });
    const two = await setup({ with: one, isStarted: false });
    const { handler, attempts } = failing(0);
    two.spool.handle('a', handler);
    await two.spool.start();
    await two.clock.advance('5m');
    expect(attempts).toEqual([]);
  });

  test.each([['everything', '#'] as const, ['a topic', 'a'] as const])(
    'of %s is obeyed by another process on the same data, and so is its end',
    async (_, what) => {
      const traits = { processes: 'many' } as const;
      const one = await setup({ traits });
      const two = await setup({ with: one, traits });
      const { handler, attempts } = failing(0);
      two.spool.handle('a', handler);
      await one.clock.settle();
      await one.spool.operator({ by: 'ops' }).pause(what);
      await one.clock.advance('31s');
      await one.spool.enqueue({ topic: 'a' });
      await one.clock.advance('5m');
      expect(attempts).toEqual([]);
      await one.spool.operator({ by: 'ops' }).resume(what);
      await one.clock.advance('31s');
      expect(attempts).toEqual([1]);
    },
  );

  test('that another process made is obeyed at once by a store that watches', async () => {
    let tell = (): void => undefined;
    const one = await setup({
      extras: () => ({
        watch: (onDue) => {
          tell = onDue;
          return () => undefined;
        },
      }),
    });
    const two = await setup({ with: one, isStarted: false });
    const { handler, attempts } = failing(0);
    one.spool.handle('a', handler);
    await two.spool.operator({ by: 'ops' }).pause('#');
    tell();
    await one.clock.settle();
    await one.spool.enqueue({ topic: 'a' });
    await one.clock.advance('1m');
    expect(attempts).toEqual([]);
    await two.spool.operator({ by: 'ops' }).resume('#');
    tell();
    await one.clock.settle();
    expect(attempts).toEqual([1]);
  });

  test('can be made before the start and by a spool that never starts', async () => {
    const { spool, clock } = await setup({ isStarted: false });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'a' });
    await spool.operator({ by: 'ops' }).pause('#');
    await spool.start();
    await clock.advance('1m');
    expect(attempts).toEqual([]);
  });

  test('of something that is no pattern is refused', async () => {
    const { spool } = await setup();
    const operator = spool.operator({ by: 'ops' });
    expect(await codeOf(operator.pause('a b'))).toBe('message.invalid');
    // A setting that is missing must not pause everything.
    const missing = undefined as unknown as string;
    expect(await codeOf(operator.pause(missing))).toBe('message.invalid');
    expect(await codeOf(operator.resume(missing))).toBe('message.invalid');
    expect(await spool.operator({ by: 'ops' }).pauses()).toEqual([]);
  });
});
