/** The metrics of RabbitMQ: every family moves at a real broker, and none outlives its truth. */

import { createSpool } from 'respool';
import type { WatchedConsumer } from 'respool/observe';
import { memory, memoryBodies } from 'respool/stores/memory';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  type Consumer,
  type ConsumerLoad,
  createManagement,
  createPublisher,
  perDelay,
  type PublisherLoad,
} from 'respool/rabbit';
import { consume, Hands, ownName } from '../rabbit/ground.ts';
import { openRoad, setup as publishing } from '../rabbit/publisher-setup.ts';
import { until } from '../rabbit/until.ts';
import { service, withService } from '../services/index.ts';
import { bench, obedient, obeyed } from './broker-ground.ts';
import type { Scrape } from './metrics-ground.ts';

const MESSAGES = 'respool_rabbit_queue_messages';
const CONNECTED = 'respool_rabbit_consumer_connected';

/** The series of one family that belong to a consumer, by role. */
function byRole(scrape: Scrape, name: string, main: string): Record<string, number> {
  const found = scrape.samples.filter((one) => one.name === name && one.labels['main'] === main);
  return Object.fromEntries(found.map(({ labels, value }) => [labels['role'] ?? '', value]));
}

withService('rabbitmq', (url) => {
  test('the events of a consumer are counted under its queue', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench();
    const consumer = await obedient({ queue });
    metrics.watchConsumer(consumer);
    const hands = await Hands.open();
    for (const fate of ['deliver', 'retry', 'reject', 'hold'] as const) {
      const done = obeyed(consumer, fate);
      await hands.publish('', queue, { fate });
      await done;
    }
    const told = await scrape();
    const labels = { source: `queue:${queue}`, topic: queue };
    expect(told.value('respool_delivered_total', labels)).toBe(1);
    expect(told.value('respool_deferred_total', labels)).toBe(1);
    expect(told.value('respool_bounced_total', { ...labels, code: 'shop.gone' })).toBe(1);
    expect(told.value('respool_held_total', labels)).toBe(1);
    expect(told.value('respool_retry_delay_seconds_count', labels)).toBe(1);
    expect(told.value('respool_retry_delay_seconds_bucket', { ...labels, le: '1800' })).toBe(0);
    expect(told.value('respool_retry_delay_seconds_bucket', { ...labels, le: '7200' })).toBe(1);
    expect(told.value('respool_engine_slots', { source: labels.source })).toBeGreaterThan(0);
    expect(told.value('respool_engine_settled_total', { source: labels.source })).toBe(4);
  });

  test('the depth of main, wait, dead and parked queues is told over AMQP alone', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench();
    const consumer = await obedient({ queue });
    metrics.watchConsumer(consumer);
    const hands = await Hands.open();
    expect((await scrape()).value(CONNECTED, { queue })).toBe(1);
    expect(byRole(await scrape(), 'respool_rabbit_queue_consumers', queue)['main']).toBe(1);
    for (const fate of ['retry', 'reject', 'hold'] as const) {
      const done = obeyed(consumer, fate);
      await hands.publish('', queue, { fate });
      await done;
    }
    await consumer.pause();
    await hands.publish('', queue, { fate: 'deliver' });
    // A pause is wanted: it is no loss of the connection.
    const paused = await scrape();
    expect(paused.value(CONNECTED, { queue })).toBe(1);
    expect(paused.value('respool_rabbit_consumer_paused', { queue })).toBe(1);
    const { dead, parked, topology } = consumer.plan;
    const told = await until(async () => {
      const now = await scrape();
      const roles = byRole(now, MESSAGES, queue);
      return roles['main'] === 1 && roles['dead'] === 1 ? now : undefined;
    });
    const waits = topology.queues.filter(({ role }) => role === 'wait');
    const depths = waits.map(({ name }) =>
      told.value(MESSAGES, { queue: name, role: 'wait', main: queue }),
    );
    // Each level by itself: the first holds the message.
    expect(depths).toHaveLength(2);
    expect(new Set(depths)).toEqual(new Set([0, 1]));
    expect(told.value(MESSAGES, { queue: dead.key, role: 'dead', main: queue })).toBe(1);
    expect(told.value(MESSAGES, { queue: parked.key, role: 'parked', main: queue })).toBe(1);
    expect(told.labelled('role')).toContain('unrouted');
    expect(byRole(told, 'respool_rabbit_queue_oldest_age_seconds', queue)).toEqual({});
    await consumer.resume();
  });

  test('the management API tells messages in hand, on their way out, and ages', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench();
    const consumer = await obedient({ queue, type: 'classic', topology: perDelay() });
    metrics.watchConsumer(consumer, { management: { url: await service('rabbitmq-management') } });
    const hands = await Hands.open();
    await consumer.pause();
    const timestamp = Math.floor(Date.now() / 1_000) - 120;
    await hands.publish('', queue, { fate: 'reject' }, { timestamp });
    const ages = await until(async () => {
      const found = byRole(await scrape(), 'respool_rabbit_queue_oldest_age_seconds', queue);
      return found['main'] === undefined ? undefined : found;
    });
    expect(ages['main']).toBeGreaterThanOrEqual(119);
    const told = await scrape();
    expect(byRole(told, 'respool_rabbit_queue_unacked_messages', queue)['main']).toBe(0);
    expect(byRole(told, MESSAGES, queue)).toMatchObject({ main: 1, dead: 0 });
  });

  test('a client of the management API that was given stays open, and one away costs little', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench();
    const consumer = await obedient({ queue });
    await using away = createManagement({ url: 'http://127.0.0.1:1' });
    const close = vi.spyOn(away, 'close');
    const stop = metrics.watchConsumer(consumer, { management: away });
    const told = await scrape();
    expect(byRole(told, MESSAGES, queue)['main']).toBe(0);
    expect(told.value('respool_scrape_failures_total', { source: `queue:${queue}` })).toBe(1);
    stop();
    expect(close).not.toHaveBeenCalled();
    expect((await scrape()).value(CONNECTED, { queue })).toBeUndefined();
  });

  test('while the broker is away its depths are absent, and all comes back with it', async () => {
    const queue = ownName();
    const road = await openRoad(url());
    onTestFinished(() => road.cut());
    const { metrics, scrape } = await bench();
    const consumer = await obedient({ queue, url: road.url });
    metrics.watchConsumer(consumer);
    expect(byRole(await scrape(), MESSAGES, queue)['main']).toBe(0);
    await road.cut();
    await until(async () => (consumer.isConnected ? undefined : true));
    const gone = await scrape();
    expect(gone.value(CONNECTED, { queue })).toBe(0);
    expect(byRole(gone, MESSAGES, queue)).toEqual({});
    expect(gone.value('respool_scrape_failures_total', { source: `queue:${queue}` })).toBe(1);
    await road.recover();
    await until(async () => (consumer.isConnected ? true : undefined));
    const back = await scrape();
    expect(back.value(CONNECTED, { queue })).toBe(1);
    expect(byRole(back, MESSAGES, queue)['main']).toBe(0);
    const hands = await Hands.open();
    const done = obeyed(consumer, 'deliver');
    await hands.publish('', queue, { fate: 'deliver' });
    await done;
    const labels = { source: `queue:${queue}`, topic: queue };
    expect((await scrape()).value('respool_delivered_total', labels)).toBe(1);
  });

  test('deliveries that wait for a slot are told', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench();
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const consumer = await consume({ queue, prefetch: 5, concurrency: 1 }, () => promise);
    metrics.watchConsumer(consumer);
    const hands = await Hands.open();
    for (const at of [1, 2, 3]) await hands.publish('', queue, { at });
    const source = `queue:${queue}`;
    await until(async () => {
      const told = await scrape();
      const waits =
        (told.value('respool_rabbit_consumer_buffered', { queue }) ?? 0) +
        (told.value('respool_engine_waiting', { source }) ?? 0);
      return waits === 2 ? told : undefined;
    });
    expect((await scrape()).value('respool_engine_slots_busy', { source })).toBe(1);
    resolve(undefined);
  });

  test('two consumers of one queue are told together, and their queues once', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench();
    const consumers = [await obedient({ queue }), await obedient({ queue })];
    const stops = consumers.map((consumer) => metrics.watchConsumer(consumer));
    const hands = await Hands.open();
    await hands.publish('', consumers[0]?.plan.dead.key ?? '', {});
    const told = await scrape();
    expect(told.value(CONNECTED, { queue })).toBe(2);
    expect(byRole(told, MESSAGES, queue)['dead']).toBe(1);
    expect(byRole(told, 'respool_rabbit_queue_consumers', queue)['main']).toBe(2);
    const slots = told.value('respool_engine_slots', { source: `queue:${queue}` }) ?? 0;
    stops[0]?.();
    const left = await scrape();
    expect(left.value(CONNECTED, { queue })).toBe(1);
    expect(left.value('respool_engine_slots', { source: `queue:${queue}` })).toBe(slots / 2);
  });

  test('a publisher tells whether it is connected and what fell back', async () => {
    const { metrics, scrape } = await bench();
    const { publisher } = await publishing(url());
    metrics.watchPublisher(publisher, { name: 'orders' });
    const name = { publisher: 'orders' };
    expect((await scrape()).value('respool_rabbit_publisher_connected', name)).toBe(0);
    await publisher.publish({ key: 'q.order', body: {} });
    const told = await scrape();
    expect(told.value('respool_rabbit_publisher_connected', name)).toBe(1);
    expect(told.value('respool_rabbit_publisher_fell_back_total', name)).toBe(0);
    const spool = createSpool({ entries: memory(), bodies: memoryBodies() });
    const nowhere = createPublisher({
      url: 'amqp://127.0.0.1:1',
      fallback: spool,
      fallbackAfter: 0,
    });
    onTestFinished(async () => {
      await nowhere.close();
      await spool.stop({ within: 0 });
    });
    const stop = metrics.watchPublisher(nowhere, { name: 'letters' });
    await nowhere.publish({ key: 'q.order', body: {} });
    const fell = (scraped: Scrape): number | undefined =>
      scraped.value('respool_rabbit_publisher_fell_back_total', { publisher: 'letters' });
    expect(fell(await scrape())).toBe(1);
    stop();
    // What happened has happened: a counter does not go away.
    expect(fell(await scrape())).toBe(1);
  });
});

describe('without a broker', () => {
  const NOTHING: ConsumerLoad = {
    isRunning: true,
    concurrency: 1,
    running: 0,
    waiting: 0,
    settling: 0,
    settled: 0,
    isConnected: true,
    isUp: true,
    isPaused: false,
    isBlocked: false,
    buffered: 0,
    publishing: 0,
  };

  const IDLE: PublisherLoad = {
    isConnected: true,
    isBlocked: false,
    inFlight: 0,
    waiting: 0,
    waitingBytes: 0,
    fellBack: 0,
  };

  function consumerOf(
    queue: string,
    { load = NOTHING, depth = 1 }: { readonly load?: ConsumerLoad; readonly depth?: number } = {},
  ): WatchedConsumer {
    const plan = { waitsMs: [] } as unknown as Consumer['plan'];
    const queues = [{ name: queue, role: 'main', ready: depth, deadLettering: 3 }];
    const report = { queues } as unknown as Awaited<ReturnType<Consumer['stats']>>;
    return { queue, plan, load, on: () => () => undefined, stats: () => Promise.resolve(report) };
  }

  test('a consumer that the broker blocks, and what it has on its way, are told', async () => {
    const { metrics, scrape } = await bench();
    const load = { ...NOTHING, isBlocked: true, publishing: 4 };
    metrics.watchConsumer(consumerOf('q', { load }));
    const told = await scrape();
    expect(told.value('respool_rabbit_consumer_blocked', { queue: 'q' })).toBe(1);
    expect(told.value('respool_rabbit_consumer_publishing', { queue: 'q' })).toBe(4);
    const labels = { queue: 'q', role: 'main', main: 'q' };
    expect(told.value('respool_rabbit_queue_leaving_messages', labels)).toBe(3);
  });

  test.each([
    ['subscribed', {}, 1],
    ['paused', { isConnected: false, isPaused: true }, 1],
    ['blocked by the broker', { isConnected: false, isBlocked: true }, 1],
    ['not subscribed, though connected', { isConnected: false }, 0],
    ['paused, without a connection', { isConnected: false, isUp: false, isPaused: true }, 0],
  ])('a consumer that is %s is told as connected or not', async (_, load, connected) => {
    const { metrics, scrape } = await bench();
    metrics.watchConsumer(consumerOf('q', { load: { ...NOTHING, ...load } }));
    expect((await scrape()).value(CONNECTED, { queue: 'q' })).toBe(connected);
  });

  test('what consumers and publishers of one name count goes on when one of them goes', async () => {
    const { metrics, scrape } = await bench();
    const loads = [5, 7].map((settled) => ({ ...NOTHING, settled }));
    const stops = loads.map((load) => metrics.watchConsumer(consumerOf('q', { load })));
    const publishers = [5, 7].map((fellBack) => ({ load: { ...IDLE, fellBack } }));
    stops.push(...publishers.map((one) => metrics.watchPublisher(one, { name: 'p' })));
    for (const load of loads) load.settled += 10;
    for (const { load } of publishers) load.fellBack += 10;
    const counts = async (): Promise<unknown[]> => {
      const { value } = await scrape();
      return [
        value('respool_engine_settled_total', { source: 'queue:q' }),
        value('respool_rabbit_publisher_fell_back_total', { publisher: 'p' }),
      ];
    };
    expect(await counts()).toEqual([20, 20]);
    for (const at of [0, 2]) stops[at]?.();
    expect(await counts()).toEqual([20, 20]);
    // Started anew, it counts from 0.
    for (const load of loads) load.settled = 1;
    for (const { load } of publishers) load.fellBack = 1;
    expect(await counts()).toEqual([21, 21]);
  });

  test('a publisher that waits is told with what is on its way', async () => {
    const { metrics, scrape } = await bench();
    const load = { ...IDLE, isBlocked: true, inFlight: 2, waiting: 3 };
    metrics.watchPublisher({ load }, { name: 'p' });
    const told = await scrape();
    expect(told.value('respool_rabbit_publisher_in_flight', { publisher: 'p' })).toBe(2);
    expect(told.value('respool_rabbit_publisher_waiting', { publisher: 'p' })).toBe(3);
    expect(told.value('respool_rabbit_publisher_blocked', { publisher: 'p' })).toBe(1);
  });

  test('a broker that does not answer holds a scrape up for two seconds, and is absent', async () => {
    const { metrics, clock } = await bench();
    const stats = vi.fn(() => new Promise<never>(() => undefined));
    metrics.watchConsumer({ ...consumerOf('q'), stats });
    const scraping = metrics.text();
    await clock.advance(1_999);
    expect(stats).toHaveBeenCalledTimes(1);
    await clock.advance(1);
    const { text } = await scraping;
    expect(text).not.toContain(`${MESSAGES}{`);
    expect(text).toContain(`${CONNECTED}{queue="q"} 1`);
    // One question is on its way: it is not asked again.
    const again = metrics.text();
    await clock.advance(2_000);
    await again;
    expect(stats).toHaveBeenCalledTimes(1);
  });

  test('a management API that hangs keeps no depth back', async () => {
    const { metrics, clock } = await bench();
    const consumer = consumerOf('q');
    const stats: WatchedConsumer['stats'] = (options) =>
      options?.management === undefined ? consumer.stats() : new Promise(() => undefined);
    metrics.watchConsumer({ ...consumer, stats }, { management: { url: 'http://127.0.0.1:1' } });
    const scraping = metrics.text();
    await clock.advance(2_000);
    expect((await scraping).text).toContain(`${MESSAGES}{queue="q",role="main",main="q"} 1`);
  });

  test('queues are asked for at most once in `every`, and only when somebody scrapes', async () => {
    const { metrics, clock } = await bench({ every: '15s' });
    const consumer = consumerOf('q');
    const stats = vi.spyOn(consumer, 'stats');
    metrics.watchConsumer(consumer);
    await clock.advance(60_000);
    expect(stats).not.toHaveBeenCalled();
    await metrics.text();
    await clock.advance(14_999);
    await metrics.text();
    expect(stats).toHaveBeenCalledTimes(1);
    await clock.advance(1);
    await metrics.text();
    expect(stats).toHaveBeenCalledTimes(2);
  });

  test('each queue that gets emptier is told with the time until it is empty', async () => {
    const { metrics, scrape, clock } = await bench();
    const queues = [
      { name: 'q', role: 'main', ready: 100 },
      { name: 'q.dlq', role: 'dead', ready: 5 },
      { name: 'q.parked', role: 'parked', ready: 0 },
    ];
    const report = { queues } as unknown as Awaited<ReturnType<Consumer['stats']>>;
    metrics.watchConsumer({ ...consumerOf('q'), stats: () => Promise.resolve(report) });
    const drains = async (): Promise<object> =>
      byRole(await scrape(), 'respool_rabbit_queue_forecast_drain_seconds', 'q');
    // What is empty is so already; of the others one look tells nothing.
    expect(await drains()).toEqual({ parked: 0 });
    await clock.advance(59_000);
    queues.splice(0, 1, { name: 'q', role: 'main', ready: 90 });
    // Ten in a minute, and ninety to go; dead letters stay where they are.
    expect(await drains()).toEqual({ main: 540, parked: 0 });
    queues.splice(0, 1);
    expect(await drains()).toEqual({ parked: 0 });
  });

  test('at most `queuesMax` queues have labels of their own, the rest is told together', async () => {
    const { metrics, scrape } = await bench({ queuesMax: 3 });
    for (let at = 0; at < 10; at += 1) metrics.watchConsumer(consumerOf(`q${at}`, { depth: 2 }));
    const told = await scrape();
    expect(told.labelled('queue')).toEqual(new Set(['q0', 'q1', 'q2', 'other']));
    expect(told.labelled('main')).toEqual(new Set(['q0', 'q1', 'q2', 'other']));
    const sources = new Set(['q0', 'q1', 'q2', 'other'].map((name) => `queue:${name}`));
    expect(told.labelled('source')).toEqual(sources);
    expect(told.value(CONNECTED, { queue: 'other' })).toBe(7);
    expect(told.value(MESSAGES, { queue: 'other', role: 'main', main: 'other' })).toBe(14);
  });

  test('what cannot be meant is refused', async () => {
    const { metrics } = await bench();
    const bad = { managment: {} } as object;
    expect(() => metrics.watchConsumer(consumerOf('q'), bad)).toThrow(/managment/);
    const load = {} as PublisherLoad;
    expect(() => metrics.watchPublisher({ load }, { name: '' })).toThrow(/"name"/);
  });
});
