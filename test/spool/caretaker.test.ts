/** The caretaker: orphans, and what has no taker (R28, R29, R79). */
import { describe, expect, test } from 'vitest';
import { bytesOf, HOUR, MINUTE, rejection, setup, type World } from './setup.ts';

const LARGE = Buffer.alloc(50_000, 1);

/** Leaves a body without an entry, as a crash between the two writes does. */
async function orphan({ spool, store }: World): Promise<void> {
  store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
  await rejection(spool.enqueue({ topic: 'a', body: LARGE }));
  store.faults.plan = () => 'ok';
}

async function refs({ bodies }: World): Promise<string[]> {
  const found: string[] = [];
  for await (const { ref } of bodies.refs(Number.MAX_SAFE_INTEGER)) found.push(ref);
  return found;
}

describe('a body without an entry', () => {
  // Weakness 10: elsewhere orphans stay for ever.
  test('goes after its grace and two looks ten minutes apart, not before', async () => {
    const world = await setup({
      isStarted: false,
      caretaker: { orphanGrace: '1h', every: '1d' },
    });
    const { spool, clock } = world;
    await orphan(world);
    await clock.advance(HOUR);
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 0 });
    // Older than its grace only from here on; this is the first look that counts.
    await clock.advance(1);
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 0 });
    await clock.advance(10 * MINUTE - 1);
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 0 });
    expect(await refs(world)).toHaveLength(1);
    await clock.advance(1);
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 1 });
    expect(await refs(world)).toEqual([]);
  });

  test('is collected without being asked, by default after a day', async () => {
    const world = await setup({ caretaker: { every: '1h' } });
    const { clock, events } = world;
    await orphan(world);
    await clock.advance('23h');
    expect(await refs(world)).toHaveLength(1);
    await clock.advance('3h');
    expect(await refs(world)).toEqual([]);
    expect(events).toContainEqual(expect.objectContaining({ kind: 'cleaned-up', orphans: 1 }));
  });

  test('that finds its entry between the looks stays', async () => {
    const world = await setup({ isStarted: false, caretaker: { orphanGrace: 0 } });
    const { spool, clock, store } = world;
    // The insert answers an hour late: its body looks like an orphan meanwhile.
    store.faults.plan = (operation) => (operation === 'insert' ? { delayMs: HOUR } : 'ok');
    const work = spool.enqueue({ topic: 'a', body: LARGE });
    await clock.advance('30m');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 0 });
    await clock.advance('40m');
    const { id } = await work;
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 0 });
    expect((await bytesOf(await spool.body(id))).equals(LARGE)).toBe(true);
  });

  test('is never one that an entry refers to, in any state', async () => {
    const world = await setup({ isStarted: false, caretaker: { orphanGrace: 0 } });
    const { spool, clock } = world;
    const ids: string[] = [];
    for (let at = 0; at < 5; at += 1) {
      ids.push((await spool.enqueue({ topic: 'a', body: LARGE })).id);
    }
    await spool.operator({ by: 'ops' }).hold([ids[1] ?? '']);
    await spool.operator({ by: 'ops' }).bounce([ids[2] ?? '']);
    await spool.operator({ by: 'ops' }).remove([ids[3] ?? '']);
    for (let look = 0; look < 4; look += 1) {
      await clock.advance('20m');
      expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 0 });
    }
    expect(await refs(world)).toHaveLength(5);
  });

  // Regression: the look for its entry threw, and no orphan was ever collected again.
  test('is not one whose entry cannot be read; others are still collected', async () => {
    const world = await setup({ isStarted: false, caretaker: { orphanGrace: 0 } });
    const { spool, clock, data } = world;
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE });
    data.damage(id);
    await orphan(world);
    await clock.advance('1m');
    await spool.operator({ by: 'ops' }).cleanUp();
    await clock.advance('10m');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 1 });
    expect(await refs(world)).toHaveLength(1);
  });

  test('is the body of an entry that was removed while the body store was away', async () => {
    const world = await setup({ caretaker: { orphanGrace: '1m', every: '10m' } });
    const { spool, clock, bodies, events } = world;
    spool.handle('a', () => undefined);
    bodies.faults.plan = (operation) => (operation === 'remove' ? 'before' : 'ok');
    await spool.enqueue({ topic: 'a', body: LARGE });
    await clock.settle();
    expect(events).toContainEqual(
      expect.objectContaining({ kind: 'trouble', doing: 'removing bodies' }),
    );
    bodies.faults.plan = () => 'ok';
    expect(await refs(world)).toHaveLength(1);
    await clock.advance('1h');
    expect(await refs(world)).toEqual([]);
  });

  test('is removed only after the removal of its entry is durable', async () => {
    const { spool, clock, bodies, calls } = await setup();
    spool.handle('a', () => undefined);
    const order: string[] = [];
    const plan = bodies.faults.plan;
    bodies.faults.plan = (operation, n) => {
      if (operation === 'remove') order.push(...calls.map((call) => call.operation), 'remove');
      return plan(operation, n);
    };
    await spool.enqueue({ topic: 'a', body: LARGE });
    await clock.settle();
    const last = order.slice(order.indexOf('insert')).filter((name) => name !== 'claim');
    expect(last.slice(0, 1)).toEqual(['insert']);
    expect(last.indexOf('commit')).toBeLessThan(last.indexOf('flush'));
    expect(last.indexOf('flush')).toBeLessThan(last.indexOf('remove'));
  });
});

describe('rounds of the caretaker', () => {
  test('tell of an entry that cannot be read, once', async () => {
    const { spool, clock, data, events } = await setup({ caretaker: { every: '10m' } });
    await spool.operator({ by: 'ops' }).pause('#');
    const { id: one } = await spool.enqueue({ topic: 'a' });
    const { id: two } = await spool.enqueue({ topic: 'a' });
    const told = (): unknown[] => events.filter(({ kind }) => kind === 'trouble');
    const about = (id: string): unknown => ({
      kind: 'trouble',
      doing: `reading entry "${id}"`,
      error: { code: 'store.corrupt', message: expect.stringContaining(id) as string },
    });
    await clock.advance('10m');
    expect(told()).toEqual([]);
    data.damage(one);
    await clock.advance('1h');
    expect(told()).toMatchObject([about(one)]);
    data.damage(two);
    await clock.advance('1h');
    expect(told()).toMatchObject([about(one), about(two)]);
  });

  test('come as often as asked', async () => {
    const { clock, count } = await setup({ caretaker: { every: '10m' } });
    // The look for topics without a handler comes one second after the start.
    await clock.advance('2s');
    const before = count('list');
    await clock.advance('1h');
    expect(count('list') - before).toBe(6);
  });

  test('go on after trouble', async () => {
    const { clock, store, count, events } = await setup({ caretaker: { every: '10m' } });
    store.faults.plan = (operation) => (operation === 'list' ? 'before' : 'ok');
    await clock.advance('10m');
    expect(events).toContainEqual(
      expect.objectContaining({ kind: 'trouble', doing: 'looking after the store' }),
    );
    store.faults.plan = () => 'ok';
    const before = count('list');
    await clock.advance('10m');
    expect(count('list')).toBe(before + 1);
  });

  test('do not overlap, whoever asks', async () => {
    const { spool, clock, store, count } = await setup({ isStarted: false });
    await spool.count();
    store.faults.plan = (operation) => (operation === 'list' ? { delayMs: 100 } : 'ok');
    const work = Promise.all([
      spool.operator({ by: 'ops' }).cleanUp(),
      spool.operator({ by: 'ops' }).cleanUp(),
    ]);
    await clock.settle();
    expect(count('list')).toBe(1);
    await clock.advance('1s');
    await work;
    expect(count('list')).toBe(2);
  });

  test('keep the audit record from growing without end', async () => {
    const { spool, store } = await setup({ isStarted: false });
    await spool.count();
    const trims: unknown[][] = [];
    const { records } = store;
    const read = records.read.bind(records);
    records.read = async (kind, after, max) =>
      after > 1_000 ? [{ sequence: 100_700, record: {} }] : read(kind, after, max);
    records.trim = async (...args) => void trims.push(args);
    await spool.operator({ by: 'ops' }).hold(['x']);
    await spool.operator({ by: 'ops' }).cleanUp();
    expect(trims).toEqual([['audit', 700]]);
  });
});

describe('rounds that operators ask for', () => {
  // Regression: each request was a round of its own, and a stop waited for all of them.
  test('are shared by those who ask while one runs', async () => {
    const { spool, store, clock } = await setup({ isStarted: false, caretaker: { every: '1d' } });
    const operator = spool.operator({ by: 'ops' });
    await operator.cleanUp();
    const inOneRound = store.faults.count('list');
    store.faults.plan = (operation) => (operation === 'list' ? { delayMs: MINUTE } : 'ok');
    const asked = Array.from({ length: 20 }, () => operator.cleanUp());
    await clock.advance(HOUR);
    await Promise.all(asked);
    expect(store.faults.count('list')).toBe(3 * inOneRound);
  });
});
