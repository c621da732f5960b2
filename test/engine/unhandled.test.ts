/** Topics that nobody handles: held with a reason, or left, never spun (R79, R209). */
import { type EntryStore, fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, setup } from '../spool/setup.ts';

describe('a topic without a handler', () => {
  test('is held at once where one process has the store, without an attempt', async () => {
    const { spool, clock, status, kinds } = await setup();
    spool.handle('a', () => undefined);
    await clock.settle();
    const { id } = await spool.enqueue({ topic: 'other' });
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'hold',
      attempts: 0,
      dueAt: null,
      because: { code: 'handler.missing' },
    });
    expect((await status(id)).because?.text).toContain('"other"');
    expect(kinds(id)).toEqual(expect.arrayContaining(['handler-missing', 'held']));
  });

  test('is delivered after a handler came and it was released', async () => {
    const { spool, clock } = await setup();
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'other' });
    await clock.settle();
    const { handler, attempts } = failing(0);
    spool.handle('other', handler);
    await spool.operator({ by: 'ops' }).release([id]);
    await clock.settle();
    expect(attempts).toEqual([1]);
  });

  test('is left alone when that is asked for', async () => {
    const { spool, clock, status, count } = await setup({ unhandled: 'leave' });
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'other' });
    await clock.settle();
    const claims = count('claim');
    await clock.advance('1h');
    expect(await status(id)).toMatchObject({ state: 'incoming', revision: 1 });
    expect(count('claim') - claims).toBeLessThanOrEqual(2 * 120 + 4);
  });

  test('is left alone by a spool without any handler, which claims nothing at all', async () => {
    const { spool, clock, status, count } = await setup();
    const { id } = await spool.enqueue({ topic: 'other' });
    await clock.advance('1h');
    expect(count('claim')).toBe(0);
    expect((await status(id)).state).toBe('incoming');
  });

  test('is left alone by a spool that only announces bounces', async () => {
    const { spool, clock, status } = await setup();
    spool.onBounce('#', () => undefined);
    const { id } = await spool.enqueue({ topic: 'other' });
    await clock.advance('1h');
    expect((await status(id)).state).toBe('incoming');
  });
});

describe('with several processes on one store', () => {
  const traits = { processes: 'many' } as const;

  test('a topic without a handler is held only after five minutes, by the caretaker', async () => {
    const { spool, clock, status, kinds } = await setup({ traits, caretaker: { every: '1m' } });
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'other' });
    await clock.advance('5m');
    expect((await status(id)).state).toBe('incoming');
    await clock.advance('1m');
    expect(await status(id)).toMatchObject({
      state: 'hold',
      attempts: 0,
      because: { code: 'handler.missing', by: 'caretaker' },
    });
    expect(kinds(id)).toContain('handler-missing');
  });

  test('an old process does not hold the topics of a new one', async () => {
    const old = await setup({ traits, caretaker: { every: '1m' } });
    old.spool.handle('a', () => undefined);
    const fresh = await setup({ with: old, traits });
    const { handler, attempts } = failing(0);
    fresh.spool.handle('new', handler);
    await old.spool.enqueue({ topic: 'new' });
    await old.clock.advance('10m');
    expect(attempts).toEqual([1]);
  });

  test('a retry that is not due for long is not held for its age', async () => {
    const old = await setup({ traits, caretaker: { every: '1m' } });
    old.spool.handle('a', () => undefined);
    const { id } = await old.spool.enqueue({ topic: 'other', delay: '1h' });
    await old.clock.advance('1h4m');
    expect((await old.status(id)).state).toBe('deferred');
    await old.clock.advance('3m');
    expect((await old.status(id)).state).toBe('hold');
  });

  test('nothing is held when that is not wanted, or by a process without handlers', async () => {
    for (const options of [{ unhandled: 'leave' as const }, {}]) {
      const { spool, clock, status } = await setup({ traits, ...options });
      if ('unhandled' in options) spool.handle('a', () => undefined);
      const { id } = await spool.enqueue({ topic: 'other' });
      await clock.advance('20m');
      expect((await status(id)).state).toBe('incoming');
    }
  });

  // Regression: only the first page was looked at, and stores may give pages that are empty.
  test('messages past an empty page and past a full one are held in the same round', async () => {
    const extras = (store: EntryStore): Partial<EntryStore> => ({
      async list(query) {
        const { after, topic } = query;
        if (topic === undefined) return store.list(query);
        if (after === undefined) return { entries: [], corrupt: [], next: 'start' };
        const { after: _, ...rest } = query;
        return store.list(after === 'start' ? rest : query);
      },
    });
    const { spool, clock } = await setup({ traits, extras, caretaker: { every: '1d' } });
    spool.handle('a', () => undefined);
    for (const size of [500, 101]) {
      await spool.enqueueMany(Array.from({ length: size }, () => ({ topic: 'other' })));
    }
    await clock.advance('6m');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ unhandled: 601 });
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ unhandled: 0 });
  });

  test('nothing is listed by topic while nothing without a handler is due for long', async () => {
    const { spool, clock, calls } = await setup({ traits, caretaker: { every: '1d' } });
    spool.handle('a', () => undefined);
    await spool.enqueue({ topic: 'other', delay: '1h' });
    await clock.advance('6m');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ unhandled: 0 });
    const lists = calls.filter(({ operation }) => operation === 'list');
    expect(lists.filter(({ args }) => 'topic' in (args[0] as object))).toEqual([]);
  });
});

test('a handler that is taken away leaves its waiting messages without an attempt', async () => {
  const { spool, clock, status } = await setup({ policies: { default: fixed('1m') } });
  spool.handle('other', () => undefined);
  const undo = spool.handle('a', failing(9).handler);
  const { id } = await spool.enqueue({ topic: 'a' });
  await clock.settle();
  undo();
  await clock.advance('1m');
  expect(await status(id)).toMatchObject({
    state: 'hold',
    attempts: 1,
    because: { code: 'handler.missing' },
  });
});
