/** Claims whose answer comes when their lease is over, or nearly: kept first, begun afterwards. */
import { fixed, type Handler } from 'respool';
import { createMemoryData } from 'respool/stores/memory';
import { describe, expect, test } from 'vitest';
import { codeOf, failing, makeGate, SECOND, setup } from '../spool/setup.ts';
import type { World, WorldOptions } from '../spool/setup.ts';
import { BlockedClock } from './blocked-clock.ts';

/** A spool that has asked for what is there, and hears of it only after this span. */
async function lateWorld(
  messages: number,
  answerLateMs: number,
  handler: Handler,
  options: WorldOptions = {},
): Promise<{ world: World; ids: string[] }> {
  const world = await setup({
    lease: '60s',
    policies: { default: fixed('1h') },
    retention: { delivered: { archive: '1d' } },
    ...options,
    isStarted: false,
  });
  const { spool, clock, store, calls } = world;
  spool.handle('a', handler);
  const enqueued = await spool.enqueueMany(
    Array.from({ length: messages }, () => ({ topic: 'a' })),
  );
  store.faults.plan = (operation) => (operation === 'claim' ? { answerLateMs } : 'ok');
  await spool.start();
  await clock.settle();
  store.faults.plan = () => 'ok';
  calls.length = 0;
  return { world, ids: enqueued.map(({ id }) => id) };
}

/** Another process, which takes over what is due. */
async function otherProcess(world: World): Promise<void> {
  const other = await setup({
    lease: '60s',
    policies: { default: fixed('1h') },
    with: world,
  });
  other.spool.handle('a', () => undefined);
}

/** How many changes each commit had. */
function commits({ calls }: World): number[] {
  return calls
    .filter(({ operation }) => operation === 'commit')
    .map(({ args }) => (args[0] as unknown[]).length);
}

describe('a claim that is answered after the end of its lease', () => {
  test('starts no handler when somebody else has taken the message', async () => {
    const { handler, attempts } = failing(0);
    const { world, ids } = await lateWorld(1, 70 * SECOND, handler);
    const [id = ''] = ids;
    await otherProcess(world);
    await world.clock.advance('75s');
    expect(attempts).toEqual([]);
    expect(world.kinds(id)).toEqual(['accepted', 'stale']);
    // Nothing is settled either: it stays as the other process left it.
    expect(await world.status(id)).toMatchObject({ state: 'deferred', lost: 1 });
    expect(world.spool.load).toMatchObject({ running: 0, waiting: 0, settling: 0, settled: 0 });
  });

  test('is kept first, all of one answer in one call, and begins then', async () => {
    const seen: number[][] = [];
    const { world, ids } = await lateWorld(3, 70 * SECOND, () => void seen.push(commits(world)));
    await world.clock.advance('69s');
    expect(seen).toEqual([]);
    await world.clock.advance('2s');
    expect(seen).toEqual([[3], [3], [3]]);
    for (const id of ids) {
      expect(world.kinds(id)).toEqual([
        'accepted',
        'claimed',
        'started',
        'ended',
        'archived',
        'delivered',
      ]);
      expect(await world.status(id)).toMatchObject({ attempts: 1, lost: 0 });
    }
  });

  test('is let go when it cannot be kept: its lease runs out, and the loss is judged', async () => {
    const { handler, attempts } = failing(0);
    const { world, ids } = await lateWorld(1, 70 * SECOND, handler);
    const [id = ''] = ids;
    world.store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    await world.clock.advance('70s');
    expect(world.kinds()).toContain('trouble');
    expect(attempts).toEqual([]);
    world.store.faults.plan = () => 'ok';
    await world.clock.advance('1m');
    expect(attempts).toEqual([]);
    expect(await world.status(id)).toMatchObject({ state: 'deferred', lost: 1 });
    await world.clock.advance('1h');
    expect(attempts).toEqual([2]);
  });

  test('is kept again when the answer to that comes too late as well', async () => {
    const { handler, attempts } = failing(0);
    const { world } = await lateWorld(1, 70 * SECOND, handler);
    world.store.faults.plan = (operation, n) =>
      operation === 'commit' && n === 1 ? { answerLateMs: 50 * SECOND } : 'ok';
    await world.clock.advance('119s');
    expect(attempts).toEqual([]);
    expect(commits(world)).toEqual([1]);
    await world.clock.advance('1s');
    expect(attempts).toEqual([1]);
    expect(commits(world).slice(0, 2)).toEqual([1, 1]);
  });

  test('is given back, not begun, when the spool stops meanwhile', async () => {
    const { handler, attempts } = failing(0);
    const { world, ids } = await lateWorld(2, 70 * SECOND, handler, { destinationConcurrency: 1 });
    world.store.faults.plan = (operation, n) =>
      operation === 'commit' && n === 1 ? { answerLateMs: 5 * SECOND } : 'ok';
    await world.clock.advance('71s');
    const stopping = world.spool.stop();
    await world.clock.advance('10s');
    await stopping;
    expect(attempts).toEqual([]);
    expect(world.clock.timers).toBe(0);
    for (const id of ids) {
      expect(await world.status(id)).toMatchObject({ state: 'incoming', attempts: 0, lost: 0 });
    }
  });

  test('waits for room afterwards, where its handler has a limit', async () => {
    const gate = makeGate();
    const world = await setup({ lease: '60s', isStarted: false, destinationConcurrency: 1 });
    const { spool, clock, store } = world;
    spool.handle('a', gate.handler, { timeout: '1d' });
    const message = { topic: 'a', destination: 'x' };
    await spool.enqueueMany([message, message, message]);
    store.faults.plan = (operation) =>
      operation === 'claim' ? { answerLateMs: 70 * SECOND } : 'ok';
    await spool.start();
    await clock.settle();
    store.faults.plan = () => 'ok';
    await clock.advance('10m');
    expect(spool.load).toMatchObject({ running: 1, waiting: 2 });
    gate.open();
    await clock.advance('1s');
    expect(gate.began).toHaveLength(3);
    expect(gate.mostRunning).toBe(1);
    expect(world.kinds()).not.toContain('lease-lost');
  });

  test('keeps new messages from the slots it will need', async () => {
    const gate = makeGate();
    const { world } = await lateWorld(1, 70 * SECOND, gate.handler, { concurrency: 1 });
    world.store.faults.plan = (operation, n) =>
      operation === 'commit' && n === 1 ? { answerLateMs: 5 * SECOND } : 'ok';
    await world.clock.advance('71s');
    await world.spool.enqueue({ topic: 'a' });
    await world.clock.advance('10s');
    expect(gate.running).toBe(1);
    gate.open();
    await world.clock.advance('1s');
    expect(gate.began).toHaveLength(2);
    expect(gate.mostRunning).toBe(1);
  });
});

test.each([
  ['a third of its lease or more', 40, []],
  ['less than a third of its lease', 41, [1]],
])('a claim that comes with %s left begins after these commits', async (_, seconds, expected) => {
  let seen: number[] | undefined;
  const { world } = await lateWorld(1, seconds * SECOND, () => {
    seen = commits(world);
  });
  await world.clock.advance(seconds * SECOND);
  expect(seen).toEqual(expected);
});

test('a message handed over by an insert that is answered late is left to who took it', async () => {
  const gate = makeGate();
  const world = await setup({ lease: '60s', concurrency: 1, policies: { default: fixed('1h') } });
  const { spool, clock, store, kinds } = world;
  spool.handle('a', gate.handler);
  await clock.settle();
  store.faults.plan = (operation, n) =>
    operation === 'insert' && n === 1 ? { answerLateMs: 70 * SECOND } : 'ok';
  const enqueued = spool.enqueue({ topic: 'a' });
  await clock.settle();
  await otherProcess(world);
  await clock.advance('70s');
  const { id } = await enqueued;
  expect(gate.began).toEqual([]);
  expect(kinds(id)).toEqual(['accepted', 'stale']);
  // Its slot is free again.
  const next = await spool.enqueue({ topic: 'a' });
  await clock.advance('1s');
  expect(gate.began).toEqual([next.id]);
});

test('a message processed by hand is refused when its claim is answered too late', async () => {
  const world = await setup({ lease: '60s', isStarted: false, policies: { default: fixed('1h') } });
  const { spool, clock, store } = world;
  const { id } = await spool.enqueue({ topic: 'a' });
  store.faults.plan = (operation) => (operation === 'claim' ? { answerLateMs: 70 * SECOND } : 'ok');
  const { handler, attempts } = failing(0);
  const refused = codeOf(spool.process(id, handler));
  await clock.settle();
  await otherProcess(world);
  await clock.advance('75s');
  expect(await refused).toBe('move.refused');
  expect(attempts).toEqual([]);
  expect(spool.load).toMatchObject({ running: 0 });
});

test('a claim that waited for room and could not be kept does not begin', async () => {
  const clock = new BlockedClock();
  const world = await setup({
    lease: '60s',
    policies: { default: fixed('1h') },
    destinationConcurrency: 1,
    isStarted: false,
    with: { clock, data: createMemoryData() } as unknown as World,
  });
  const { spool, store, kinds, status } = world;
  const gate = makeGate();
  spool.handle('a', gate.handler);
  const message = { topic: 'a', destination: 'x' };
  const enqueued = await spool.enqueueMany([message, message]);
  await spool.start();
  await clock.settle();
  expect(spool.load).toMatchObject({ running: 1, waiting: 1 });
  const [first = ''] = gate.began;
  const second = enqueued.find(({ id }) => id !== first)?.id ?? '';
  // The process stands still; no timer tells that the leases are over before there is room.
  clock.block(70 * SECOND);
  store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
  gate.open();
  await clock.settle();
  expect(kinds()).toContain('trouble');
  expect(gate.began).toEqual([first]);
  store.faults.plan = () => 'ok';
  await clock.advance('2m');
  expect(gate.began).toEqual([first]);
  expect(await status(second)).toMatchObject({ state: 'deferred', lost: 1 });
});
