/** No metric of brokers, outboxes and dead letters is registered that nothing moves. */

import type { SpoolEvent } from 'respool';
import type { WatchedConsumer, WatchedRelay } from 'respool/observe';
import { expect, test } from 'vitest';
import type { Consumer } from 'respool/rabbit';
import { consume, Hands, ownName } from '../rabbit/ground.ts';
import { until } from '../rabbit/until.ts';
import { service, withService } from '../services/index.ts';
import { bench } from './broker-ground.ts';
import { spoolWith, watched } from './metrics-ground.ts';
import { internalsOf } from '../../src/spool/internals.ts';

const BESIDE = /^respool_(?:rabbit|outbox|sweep|replay)/;
const engine = {
  isRunning: true,
  concurrency: 2,
  running: 1,
  waiting: 1,
  settling: 1,
  settled: 1,
};

/** A consumer about which everything is told, and whose queue gets emptier. */
function busyConsumer(): WatchedConsumer {
  let ready = 110;
  const queueNow = (): object => {
    ready -= 10;
    const more = { unacked: 3, deadLettering: 2, consumers: 1, oldestAgeMs: 5_000 };
    return { name: 'q', role: 'main', ready, ...more };
  };
  const flags = { isConnected: true, isUp: true, isPaused: true, isBlocked: true };
  return {
    queue: 'q',
    plan: { waitsMs: [] } as unknown as Consumer['plan'],
    load: { ...engine, ...flags, buffered: 4, publishing: 2 },
    on: () => () => undefined,
    stats: () =>
      Promise.resolve({ queues: [queueNow()] } as unknown as Awaited<
        ReturnType<Consumer['stats']>
      >),
  };
}

test('every one is told as something other than nothing, when there is something to tell', async () => {
  const { spool, clock, metrics, scrape } = await watched();
  metrics.watchConsumer(busyConsumer());
  const load = { isConnected: true, isBlocked: true, inFlight: 1, waiting: 2, waitingBytes: 3 };
  const publisher = { load: { ...load, fellBack: 0 } };
  metrics.watchPublisher(publisher, { name: 'p' });
  publisher.load.fellBack = 1;
  const relay: WatchedRelay = { load: { ...engine, paused: [] }, on: () => () => undefined };
  const late = { envelope: { enqueuedAt: 0 } };
  const outbox = {
    spool: spoolWith({
      now: () => 9_000,
      tally: () => Promise.resolve([{ key: 'incoming', count: 2, oldestAt: 0 }]),
      page: () => Promise.resolve({ entries: [late], corrupt: [] }),
    }),
  };
  metrics.watchRelay(relay, outbox);
  const report = { queue: 'dlq', moved: 3, left: 2, seen: 5 };
  metrics.sweep({ endedAt: 5_000, tookMs: 1_500, isWell: true, reports: [report] });
  const replay = { at: 0, kind: 'replay', replay: 'r', by: 'ann', failed: 0, again: 0 } as const;
  const told: readonly SpoolEvent[] = [
    { ...replay, state: 'running', sent: 0 },
    { ...replay, state: 'done', sent: 4 },
  ];
  for (const event of told) internalsOf(spool).emit(event);
  await scrape();
  await clock.advance('1m');
  const { types, samples } = await scrape();
  const still = [...types.keys()]
    .filter((name) => BESIDE.test(name))
    .filter((name) => !samples.some((one) => one.name.startsWith(name) && one.value > 0));
  expect(still).toEqual([]);
  expect([...types.keys()].filter((name) => BESIDE.test(name)).length).toBeGreaterThan(20);
});

withService('rabbitmq', () => {
  test('a message in the hands of a handler is told by the management API', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench();
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const consumer = await consume({ queue }, () => promise);
    metrics.watchConsumer(consumer, { management: { url: await service('rabbitmq-management') } });
    await (await Hands.open()).publish('', queue, {});
    const labels = { queue, role: 'main', main: queue };
    await until(async () => {
      const inHand = (await scrape()).value('respool_rabbit_queue_unacked_messages', labels);
      return inHand === 1 ? true : undefined;
    });
    resolve(undefined);
  });
});
