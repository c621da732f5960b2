/** A process that stands still for longer than its leases: nobody was lost, nothing runs twice. */
import type { Handler } from 'respool';
import { createMemoryData } from 'respool/stores/memory';
import type { SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, SECOND, setup, type World, type WorldOptions } from '../spool/setup.ts';
import { BlockedClock } from './blocked-clock.ts';

async function blockable(options: WorldOptions = {}): Promise<World & { clock: BlockedClock }> {
  const clock = new BlockedClock();
  const other = { clock, data: createMemoryData() } as unknown as World;
  return { ...(await setup({ lease: '60s', ...options, with: other })), clock };
}

function sleepOf(clock: SimClock, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.after(ms, resolve));
}

describe('a handler that blocks its process for longer than the lease', () => {
  // Regression: its own engine claimed the message, judged it as lost and ran it again, four times.
  test('is not taken for lost by its own engine', async () => {
    const { spool, clock, kinds } = await blockable({ isStarted: false });
    const blocking: Handler = async () => {
      clock.block(70 * SECOND);
      await sleepOf(clock, SECOND);
    };
    spool.handle('a', blocking);
    const all = await spool.enqueueMany([{ topic: 'a' }, { topic: 'a' }, { topic: 'a' }]);
    await spool.start();
    await clock.advance('10m');
    for (const { id } of all) {
      expect(kinds(id)).toEqual(['accepted', 'claimed', 'started', 'ended', 'delivered']);
    }
  });

  test('costs nothing what was claimed with it and begins after it', async () => {
    const { spool, clock, kinds, status } = await blockable({
      isStarted: false,
      retention: { delivered: { archive: '1d' } },
    });
    spool.handle('a', () => clock.block(70 * SECOND));
    spool.handle('b', () => sleepOf(clock, 90 * SECOND));
    const [, { id } = { id: '' }] = await spool.enqueueMany([{ topic: 'a' }, { topic: 'b' }]);
    await spool.start();
    await clock.advance('10m');
    expect(kinds(id)).toEqual(['accepted', 'claimed', 'started', 'ended', 'archived', 'delivered']);
    expect(await status(id)).toMatchObject({ attempts: 1, lost: 0 });
  });

  test('costs nothing what was handed over meanwhile', async () => {
    const { spool, clock, store, kinds } = await blockable();
    spool.handle('a', () => sleepOf(clock, 90 * SECOND));
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'insert' ? { answerLateMs: SECOND } : 'ok');
    const enqueued = spool.enqueue({ topic: 'a' });
    await clock.settle();
    // The insert is through; what it says is heard only now.
    clock.block(70 * SECOND);
    await clock.advance('1s');
    const { id } = await enqueued;
    // A new handler is a reason to look for work at once.
    spool.handle('b', () => undefined);
    await clock.advance('10m');
    expect(kinds(id)).toEqual(['accepted', 'claimed', 'started', 'ended', 'delivered']);
  });
});

// Regression: after its fence had fallen, nobody planned the next heartbeat.
test('a lease that is got back after a standstill is kept from then on', async () => {
  const one = await blockable();
  const two = await setup({ lease: '60s', with: one });
  const gate = makeGate();
  one.spool.handle('a', gate.handler, { timeout: '1d' });
  const { id } = await one.spool.enqueue({ topic: 'a' });
  await one.clock.settle();
  one.clock.block(90 * SECOND);
  await one.clock.advance('20s');
  const other = failing(0);
  two.spool.handle('a', other.handler);
  await one.clock.advance('1h');
  expect(other.attempts).toEqual([]);
  gate.open();
  await one.clock.settle();
  expect(gate.began).toEqual([id]);
  expect(one.kinds(id).at(-1)).toBe('delivered');
});
