/** wake — relays of this process are told at once, others rarely; and the time of the server. */

import { expect, test } from 'vitest';
import { ServerTime } from '../../src/outbox/postgres-outbox.ts';
import { OutboxWake } from '../../src/outbox/wake.ts';
import { memory } from 'respool/stores/memory';
import type { Clock } from 'respool';

/** A clock that is moved by hand. */
class HandClock implements Clock {
  wall = 1_800_000_000_000;
  passed = 0;
  readonly timers: (() => void)[] = [];
  now(): number {
    return this.wall;
  }
  monotonic(): number {
    return this.passed;
  }
  after(_ms: number, call: () => void): () => void {
    this.timers.push(call);
    return () => undefined;
  }
  soon(call: () => void): void {
    call();
  }
  /** Time goes by, for both. */
  pass(ms: number): void {
    this.wall += ms;
    this.passed += ms;
  }
}

test('those who watch a store of the outbox are called by a wake, until they stop', async () => {
  const wake = new OutboxWake({
    notify: () => Promise.resolve(),
    clock: new HandClock(),
    logger: undefined,
  });
  const store = wake.withWake(memory());
  await store.open();
  let calls = 0;
  const stop = store.watch?.(() => {
    calls += 1;
  });
  await wake.wake();
  expect(calls).toBe(1);
  stop?.();
  void wake.wake();
  expect(calls).toBe(1);
  await store.close();
});

test('others are told at once, and then at most every 20 ms for all who ask', async () => {
  const clock = new HandClock();
  let told = 0;
  const tell = async (): Promise<void> => {
    told += 1;
  };
  const wake = new OutboxWake({ notify: tell, clock, logger: undefined });
  await Promise.all([wake.wake(), wake.wake(), wake.wake()]);
  expect(told).toBe(1);
  const later = Promise.all([wake.wake(), wake.wake()]);
  await Promise.resolve();
  expect([told, clock.timers.length]).toEqual([1, 1]);
  clock.timers.shift()?.();
  await later;
  await wake.idle();
  expect(told).toBe(2);
});

test('idle() waits for what is being told', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const wake = new OutboxWake({ notify: () => promise, clock: new HandClock(), logger: undefined });
  const woken = wake.wake();
  await Promise.resolve();
  let isIdle = false;
  const idle = wake.idle().then(() => {
    isIdle = true;
  });
  await new Promise((call) => setImmediate(call));
  expect(isIdle).toBe(false);
  resolve();
  await Promise.all([woken, idle]);
  expect(isIdle).toBe(true);
});

interface Server {
  readonly clock: HandClock;
  readonly time: ServerTime;
  /** Asks if it is to be asked. */
  readonly now: () => Promise<number>;
  asked: number;
  /** How far the server is ahead of this machine. */
  aheadMs: number;
  /** How long it takes to answer. */
  tookMs: number;
}

function setup(): Server {
  const clock = new HandClock();
  const server: Server = {
    clock,
    time: new ServerTime(clock),
    asked: 0,
    aheadMs: 5_000,
    tookMs: 10,
    async now() {
      if (server.time.isStale) await server.time.measure(ask);
      return server.time.now();
    },
  };
  const ask = async (): Promise<number> => {
    server.asked += 1;
    clock.pass(server.tookMs / 2);
    const now = clock.now() + server.aheadMs;
    clock.pass(server.tookMs / 2);
    return now;
  };
  return server;
}

test('the server is asked for its time once a minute', async () => {
  const server = setup();
  expect(await server.now()).toBe(server.clock.now() + 5_000);
  server.clock.pass(59_000);
  expect(await server.now()).toBe(server.clock.now() + 5_000);
  expect(server.asked).toBe(1);
  server.clock.pass(2_000);
  server.aheadMs = 7_000;
  expect(await server.now()).toBe(server.clock.now() + 7_000);
  expect(server.asked).toBe(2);
});

test('a clock that was set is noticed, and the server asked again', async () => {
  const server = setup();
  await server.now();
  // The machine's clock is put forward by an hour; that of the server is not.
  server.clock.wall += 3_600_000;
  server.aheadMs -= 3_600_000;
  expect(await server.now()).toBe(server.clock.now() + server.aheadMs);
  expect(server.asked).toBe(2);
});

test('an answer that took long does not replace a good one', async () => {
  const server = setup();
  await server.now();
  server.clock.pass(61_000);
  server.tookMs = 8_000;
  server.aheadMs = 9_000;
  expect(await server.now()).toBe(server.clock.now() + 5_000);
  expect(server.asked).toBe(2);
});
