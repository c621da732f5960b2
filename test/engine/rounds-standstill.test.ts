/** A process that stands still while messages are asked for early keeps what it has in hand. */

import { type EntryStore, fixed } from 'respool';
import { createMemoryData } from 'respool/stores/memory';
import { expect, test } from 'vitest';
import { makeGate, SECOND, setup, type World } from '../spool/setup.ts';
import { BlockedClock } from './blocked-clock.ts';

const MESSAGES = 400;
const SLOTS = 4;
/** Longer than the lease. */
const STANDSTILL_MS = 70 * SECOND;

function wait(clock: BlockedClock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(ms, resolve);
  });
}

type Claims = EntryStore['claim'];

async function world(claim: (claims: Claims, clock: BlockedClock) => Claims) {
  const clock = new BlockedClock();
  const made = await setup({
    concurrency: SLOTS,
    lease: '60s',
    policies: { default: fixed('1h') },
    isStarted: false,
    extras: (store) => ({ claim: claim((request) => store.claim(request), clock) }),
    with: { clock, data: createMemoryData() } as unknown as World,
  });
  const lost = () => made.events.filter(({ kind }) => kind === 'lease-lost');
  return { ...made, clock, lost };
}

/** Does something between the fifth large claim and its answer: by then, handlers are quick. */
function late(work: (clock: BlockedClock) => Promise<void>) {
  let number = 0;
  return (claims: Claims, clock: BlockedClock): Claims =>
    async (request) => {
      const got = await claims(request);
      if (!request.states.includes('incoming') || request.max <= SLOTS) return got;
      number += 1;
      if (number === 5) await work(clock);
      return got;
    };
}

// Regression: the next claim went out before any heartbeat, and found our own lease over.
test('it does not take for lost what ran before a standstill', async () => {
  let isRunning = false;
  const { spool, clock, kinds } = await world(
    late(async (blocked) => {
      await wait(blocked, 100);
      isRunning = gate.running > 0;
      blocked.block(STANDSTILL_MS);
    }),
  );
  const gate = makeGate();
  spool.handle('long', gate.handler, { timeout: '1d' });
  spool.handle('a', () => undefined);
  const made = await spool.enqueueMany(
    Array.from({ length: MESSAGES }, (_, at) => ({ topic: at === 30 ? 'long' : 'a' })),
  );
  await spool.start();
  await clock.settle();
  await clock.advance('2s');
  expect(isRunning).toBe(true);
  gate.open();
  await clock.advance('2h');
  expect(kinds(made[30]?.id)).toEqual(['accepted', 'claimed', 'started', 'ended', 'delivered']);
  await spool.stop();
});

test('it does not take for lost what an answer brings after the end of its lease', async () => {
  const { spool, clock, lost } = await world(late((blocked) => wait(blocked, STANDSTILL_MS)));
  let delivered = 0;
  spool.handle('a', () => {
    delivered += 1;
  });
  await spool.enqueueMany(Array.from({ length: MESSAGES }, () => ({ topic: 'a' })));
  await spool.start();
  await clock.settle();
  await clock.advance('80s');
  expect(lost()).toEqual([]);
  expect(delivered).toBe(MESSAGES);
  await spool.stop();
});

// Regression: the second claim of a round was made with the time after the standstill.
test('it does not take for lost what a handler holds that stops the process within a round', async () => {
  let came = 0;
  let blocks = 0;
  const { spool, clock, lost } = await world((claims, blocked) => async (request) => {
    if (!request.states.includes('incoming')) return claims(request);
    const isShort = MESSAGES - came < request.max;
    if (isShort && blocks === 0) blocks = 1;
    const got = await claims(request);
    came += got.length;
    if (isShort) await wait(blocked, 10);
    return got;
  });
  spool.handle('a', async () => {
    if (blocks !== 1) return;
    blocks = 2;
    clock.block(STANDSTILL_MS);
    await wait(clock, SECOND);
  });
  await spool.enqueueMany(Array.from({ length: MESSAGES }, () => ({ topic: 'a' })));
  await spool.start();
  await clock.settle();
  await clock.advance('3h');
  expect(blocks).toBe(2);
  expect(lost()).toEqual([]);
  await spool.stop();
});
