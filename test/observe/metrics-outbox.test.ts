/** The metrics of an outbox and its relay: backlog, lag, target, and what is sent. */

import { failure, ladder, type Sink } from 'respool';
import type { WatchedRelay } from 'respool/observe';
import { describe, expect, test } from 'vitest';
import { openSqliteOutbox } from '../outbox/core-setup.ts';
import { ground, told as heard } from '../outbox/relay-ground.ts';
import { openRoad } from '../rabbit/publisher-setup.ts';
import { until } from '../rabbit/until.ts';
import { service, withService } from '../services/index.ts';
import { bench } from './broker-ground.ts';
import { spoolWith } from './metrics-ground.ts';

const BACKLOG = 'respool_outbox_backlog';
const LAG = 'respool_outbox_lag_seconds';
const UP = 'respool_outbox_target_up';
const relaySource = { source: 'relay' };

withService('postgres', () => {
  test('what waits is the backlog, and what is sent is counted under the relay', async () => {
    const { metrics, scrape } = await bench();
    const { outbox, emit, relay: make, broker } = await ground();
    const relay = make();
    metrics.watchRelay(relay, outbox);
    const before = await scrape();
    expect(before.value(BACKLOG, relaySource)).toBe(0);
    expect(before.value(LAG, relaySource)).toBe(0);
    await emit(5);
    await emit(2, { eta: '1h' });
    // Not at once: the clock of the server is known but for some milliseconds.
    const waiting = await until(async () => {
      const now = await scrape();
      return (now.value(LAG, relaySource) ?? 0) > 0 ? now : undefined;
    });
    expect(waiting.value(BACKLOG, relaySource)).toBe(7);
    expect(waiting.value('respool_messages', { ...relaySource, state: 'incoming' })).toBe(5);
    expect(waiting.value('respool_messages', { ...relaySource, state: 'deferred' })).toBe(2);
    await relay.start();
    await broker.arrived(5);
    const after = await until(async () => {
      const now = await scrape();
      return now.value(BACKLOG, relaySource) === 2 ? now : undefined;
    });
    // What is to wait until its eta is no lag.
    expect(after.value(LAG, relaySource)).toBe(0);
    expect(after.value(UP, relaySource)).toBe(1);
    const labels = { ...relaySource, topic: 'q.order' };
    expect(after.value('respool_delivered_total', labels)).toBe(5);
    expect(after.value('respool_time_to_delivery_seconds_count', labels)).toBe(5);
  });

  test('a target that is away is down, the backlog stays, and both recover with it', async () => {
    const { metrics, scrape } = await bench();
    const road = await openRoad(await service('rabbitmq'));
    const { outbox, emit, relay: make, broker } = await ground();
    const relay = make({
      to: { amqp: road.url, exchange: broker.exchange },
      pauseAfter: '100ms',
    });
    metrics.watchRelay(relay, outbox);
    await relay.start();
    const sent = heard(relay, 'delivered');
    await emit(1, { wakes: true });
    await sent;
    expect((await scrape()).value(UP, relaySource)).toBe(1);
    await road.cut();
    await emit(3, { wakes: true });
    const down = await until(async () => {
      const now = await scrape();
      const isLate = (now.value(LAG, relaySource) ?? 0) > 0;
      return isLate && now.value(UP, relaySource) === 0 ? now : undefined;
    });
    expect(down.value(BACKLOG, relaySource)).toBe(3);
    await road.recover();
    const back = await until(async () => {
      const now = await scrape();
      return now.value(BACKLOG, relaySource) === 0 ? now : undefined;
    });
    expect(back.value(UP, relaySource)).toBe(1);
    expect(back.value('respool_delivered_total', { ...relaySource, topic: 'q.order' })).toBe(4);
    await relay.stop();
    await road.cut();
  });

  test('pauses of a relay are told', async () => {
    const { metrics, scrape } = await bench();
    const { outbox, relay: make } = await ground();
    const relay = make();
    await outbox.spool.operator({ by: 'ops' }).pause('q.order');
    await relay.start();
    const stop = metrics.watchRelay(relay);
    const paused = 'respool_paused_topics';
    await until(async () => ((await scrape()).value(paused, relaySource) === 1 ? true : undefined));
    // Without the outbox nobody tells what waits.
    expect((await scrape()).value(BACKLOG, relaySource)).toBeUndefined();
    stop();
    expect((await scrape()).value(paused, relaySource)).toBeUndefined();
    expect((await scrape()).value(UP, relaySource)).toBeUndefined();
  });
});

test('the lag is that of the oldest message that could have gone, from its eta on', async () => {
  const { metrics, scrape, clock } = await bench();
  const { outbox } = await openSqliteOutbox({ clock });
  const [sink, answers] = stubborn();
  const relay = outbox.relay({ to: sink });
  let delivered = 0;
  relay.on('delivered', () => (delivered += 1));
  metrics.watchRelay(relay, outbox);
  const lag = async (): Promise<number | undefined> => (await scrape()).value(LAG, relaySource);
  outbox.transaction((tx) => outbox.emit(tx, 'later', {}, { eta: '30s' }));
  await clock.advance(28_000);
  expect(await lag()).toBe(0);
  await clock.advance(10_000);
  // A scrape takes a second of virtual time: 1 + 28 + 10 + 1 since the emit, 10 since the eta.
  expect(await lag()).toBe(10);
  outbox.transaction((tx) => outbox.emit(tx, 'now', {}));
  expect(await lag()).toBe(11);
  // One that is on its way and has no answer is not sent yet.
  await relay.start();
  await clock.settle();
  expect(await lag()).toBeGreaterThanOrEqual(12);
  answers();
  // The file is a real one: what is written to it takes a time of its own.
  await expect
    .poll(async () => {
      await clock.settle();
      return delivered;
    })
    .toBe(2);
  expect(await lag()).toBe(0);
  await relay.stop({ within: 0 });
});

// Regression: while a message waited for its next try, the lag was 0, however old it was.
test('a message that fails is late since its emit, also while it waits for its next try', async () => {
  const { metrics, scrape, clock } = await bench();
  const { outbox } = await openSqliteOutbox({ clock, policies: { default: ladder(['1h', '1h']) } });
  const send: Sink['send'] = async (parcels) =>
    parcels.map(() => failure('transient', 'broker.unroutable', 'no queue takes it'));
  const sink: Sink = { name: 'picky', send, close: () => Promise.resolve() };
  const relay = outbox.relay({ to: sink });
  let deferred = 0;
  relay.on('deferred', () => (deferred += 1));
  metrics.watchRelay(relay, outbox);
  outbox.transaction((tx) => outbox.emit(tx, 'now', {}));
  outbox.transaction((tx) => outbox.emit(tx, 'later', {}, { eta: '9h' }));
  await relay.start();
  await expect
    .poll(async () => {
      await clock.settle();
      return deferred;
    })
    .toBe(1);
  await clock.advance(10 * 60_000);
  expect((await scrape()).value(LAG, relaySource)).toBeGreaterThanOrEqual(600);
  await relay.stop({ within: 0 });
});

/** A sink that does not answer before it is told to. */
function stubborn(): readonly [Sink, () => void] {
  const { promise, resolve } = Promise.withResolvers<void>();
  const send: Sink['send'] = async (parcels) => {
    await promise;
    return parcels.map(() => 'confirmed' as const);
  };
  return [{ name: 'stubborn', send, close: () => Promise.resolve() }, resolve];
}

describe('without a database', () => {
  const load: WatchedRelay['load'] = {
    isRunning: true,
    concurrency: 1,
    running: 0,
    waiting: 0,
    settling: 0,
    settled: 0,
    paused: [],
  };
  const relay: WatchedRelay = { load, on: () => () => undefined };

  test('tables that do not answer have no series, and the failure is counted', async () => {
    const { metrics, scrape } = await bench();
    let isAway = false;
    const spool = spoolWith({
      now: () => 0,
      page: () => Promise.reject(new Error('not asked for when nothing waits')),
      tally: () => (isAway ? Promise.reject(new Error('away')) : Promise.resolve([])),
    });
    metrics.watchRelay(relay, { spool });
    expect((await scrape()).value(BACKLOG, relaySource)).toBe(0);
    isAway = true;
    const away = await scrape();
    expect(away.value(BACKLOG, relaySource)).toBeUndefined();
    expect(away.value(LAG, relaySource)).toBeUndefined();
    expect(away.value('respool_scrape_failures_total', relaySource)).toBe(1);
  });

  test('a backlog that gets smaller is told with the time until it is gone', async () => {
    const { metrics, scrape, clock } = await bench();
    let count = 100;
    const spool = spoolWith({
      now: () => 0,
      page: () => Promise.resolve({ entries: [], corrupt: [] }),
      tally: () =>
        count < 0
          ? Promise.reject(new Error('away'))
          : Promise.resolve([{ key: 'incoming', count, oldestAt: null }]),
    });
    const stop = metrics.watchRelay(relay, { spool });
    const drain = async (): Promise<number | undefined> =>
      (await scrape()).value('respool_forecast_drain_seconds', relaySource);
    expect(await drain()).toBeUndefined();
    await clock.advance(59_000);
    count = 70;
    // Thirty in a minute, and seventy to go.
    expect(await drain()).toBe(140);
    count = -1;
    expect(await drain()).toBeUndefined();
    count = 0;
    expect(await drain()).toBe(0);
    stop();
    expect(await drain()).toBeUndefined();
  });

  test('two relays need names of their own', async () => {
    const { metrics, scrape } = await bench();
    const stop = metrics.watchRelay(relay);
    expect(() => metrics.watchRelay(relay)).toThrow(/give it a "source" of its own/);
    metrics.watchRelay(relay, undefined, { source: 'relay-2' });
    stop();
    const told = await scrape();
    expect(told.value(UP, relaySource)).toBeUndefined();
    expect(told.value(UP, { source: 'relay-2' })).toBe(1);
  });
});
