/** The names of other systems: exactly theirs, and equal to ours. */

import { describe, expect, test, vi } from 'vitest';
import { createMetrics, type WatchedOutbox, type WatchedRelay } from 'respool/observe';
import type { Consumer } from 'respool/rabbit';
import { type EventKind, type EventOf, RespoolError } from 'respool';
import { Families } from '../../src/observe/metrics/families.ts';
import { ground, told as heard } from '../outbox/relay-ground.ts';
import { Hands, ownName } from '../rabbit/ground.ts';
import { until } from '../rabbit/until.ts';
import { withService } from '../services/index.ts';
import { bench, obedient, obeyed } from './broker-ground.ts';
import { type Scrape, spoolWith } from './metrics-ground.ts';

const GOQUEUE = {
  goqueue_messages_retried_total: ['queue', 'retry_level'],
  goqueue_messages_dlq_total: ['queue', 'reason'],
  goqueue_retry_delay_seconds: ['queue', 'retry_level'],
};
const OUTBOX = {
  outbox_messages_published_total: ['exchange_name'],
  outbox_publish_failures_total: ['exchange_name', 'failure_type', 'error_type'],
  outbox_message_age_seconds: ['exchange_name'],
  outbox_poll_duration_seconds: ['exchange_name'],
  outbox_table_backlog: ['exchange_name'],
  outbox_messages_received_total: ['queue', 'exchange_name'],
  outbox_messages_processed_total: ['queue', 'exchange_name', 'status'],
  outbox_retry_attempts_total: ['queue', 'delay_seconds'],
  outbox_message_processing_duration_seconds: ['queue', 'exchange_name'],
  outbox_dlq_messages: ['queue'],
  outbox_active_consumers: ['queue', 'exchange_name'],
};

/** The names that a choice of aliases registers besides ours, with their labels. */
async function namesOf(aliases: readonly ('goqueue' | 'outbox')[]): Promise<object> {
  const types = ['counter', 'gauge', 'histogram'] as const;
  const spies = types.map((type) => vi.spyOn(Families.prototype, type));
  const metrics = await createMetrics({ aliases });
  const shapes = spies.flatMap(({ mock }) => mock.calls.map(([shape]) => shape));
  for (const spy of spies) spy.mockRestore();
  metrics.close();
  return Object.fromEntries(
    shapes.flatMap(({ name, prefix, labels }) =>
      prefix === undefined ? [] : [[`${prefix}_${name}`, labels]],
    ),
  );
}

/** The sum of all series of a name with these labels among theirs. */
function sum(scrape: Scrape, name: string, labels: Readonly<Record<string, string>>): number {
  const fits = Object.entries(labels);
  return scrape.samples
    .filter((one) => one.name === name && fits.every(([key, value]) => one.labels[key] === value))
    .reduce((all, { value }) => all + value, 0);
}

describe('names', () => {
  test('are those of GoQueue and of the outbox, with their labels', async () => {
    expect(await namesOf(['goqueue'])).toEqual(GOQUEUE);
    expect(await namesOf(['outbox'])).toEqual(OUTBOX);
    expect(await namesOf(['goqueue', 'outbox'])).toEqual({ ...GOQUEUE, ...OUTBOX });
  });

  test('are not there unless they are asked for', async () => {
    expect(await namesOf([])).toEqual({});
  });
});

withService('rabbitmq', () => {
  test('what GoQueue counts of a consumer equals ours', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench({ aliases: ['goqueue'] });
    const consumer = await obedient({ queue });
    metrics.watchConsumer(consumer);
    const hands = await Hands.open();
    for (const fate of ['deliver', 'retry', 'retry', 'reject'] as const) {
      const done = obeyed(consumer, fate);
      await hands.publish('', queue, { fate });
      await done;
    }
    const told = await scrape();
    const level = { queue, retry_level: '1' };
    const ours = { source: `queue:${queue}` };
    expect(told.value('goqueue_messages_retried_total', level)).toBe(2);
    expect(sum(told, 'respool_deferred_total', ours)).toBe(2);
    expect(told.value('goqueue_messages_dlq_total', { queue, reason: 'shop.gone' })).toBe(1);
    expect(sum(told, 'respool_bounced_total', { ...ours, code: 'shop.gone' })).toBe(1);
    expect(told.value('goqueue_retry_delay_seconds_count', level)).toBe(2);
    expect(told.value('goqueue_retry_delay_seconds_sum', level)).toBe(
      sum(told, 'respool_retry_delay_seconds_sum', ours),
    );
  });

  test('what the outbox counts of its worker equals ours', async () => {
    const queue = ownName();
    const { metrics, scrape } = await bench({ aliases: ['outbox'] });
    const consumer = await obedient({ queue });
    metrics.watchConsumer(consumer, { exchange: 'shop' });
    const hands = await Hands.open();
    for (const fate of ['deliver', 'deliver', 'retry', 'reject', 'hold'] as const) {
      const done = obeyed(consumer, fate);
      await hands.publish('', queue, { fate });
      await done;
    }
    const unreadable = obeyed(consumer, 'reject');
    await hands.publish('', queue, Buffer.from('{'));
    await unreadable;
    const told = await until(async () => {
      const now = await scrape();
      return now.value('outbox_dlq_messages', { queue }) === 2 ? now : undefined;
    });
    const worker = { queue, exchange_name: 'shop' };
    const status = (name: string): number | undefined =>
      told.value('outbox_messages_processed_total', { ...worker, status: name });
    const ours = { source: `queue:${queue}` };
    expect(told.value('outbox_messages_received_total', worker)).toBe(6);
    expect(sum(told, 'respool_attempts_total', ours)).toBe(6);
    expect(status('success')).toBe(2);
    expect(sum(told, 'respool_delivered_total', ours)).toBe(2);
    expect(status('failed')).toBe(1);
    expect(sum(told, 'respool_deferred_total', ours)).toBe(1);
    expect(status('rejected')).toBe(2);
    expect(status('deserialization_failed')).toBe(1);
    expect(told.value('outbox_retry_attempts_total', { queue, delay_seconds: '3600' })).toBe(1);
    const durations = 'outbox_message_processing_duration_seconds';
    expect(told.value(`${durations}_count`, worker)).toBe(6);
    expect(told.value(`${durations}_sum`, worker)).toBeCloseTo(
      sum(told, 'respool_handler_duration_seconds_sum', ours),
    );
    expect(sum(told, 'respool_rabbit_queue_messages', { main: queue, role: 'dead' })).toBe(2);
    expect(told.value('outbox_active_consumers', worker)).toBe(1);
    await consumer.pause();
    expect((await scrape()).value('outbox_active_consumers', worker)).toBe(0);
  });
});

withService('postgres', () => {
  test('what the outbox counts of its relay equals ours', async () => {
    const { metrics, scrape } = await bench({ aliases: ['outbox'] });
    const { outbox, emit, relay: make, broker } = await ground();
    const relay = make();
    metrics.watchRelay(relay, outbox, { exchange: broker.exchange });
    await emit(3);
    const exchange = { exchange_name: broker.exchange };
    const ours = { source: 'relay' };
    const before = await scrape();
    expect(before.value('outbox_table_backlog', exchange)).toBe(3);
    expect(before.value('respool_outbox_backlog', ours)).toBe(3);
    const failed = heard(relay, 'deferred');
    await relay.start();
    await broker.arrived(3);
    // No queue takes it: it is returned, and tried again.
    await emit(1, { routingKey: 'nobody.listens', wakes: true });
    await failed;
    const told = await until(async () => {
      const now = await scrape();
      const sent = now.value('outbox_messages_published_total', exchange);
      return sent === 3 && now.value('outbox_table_backlog', exchange) === 1 ? now : undefined;
    });
    expect(sum(told, 'respool_delivered_total', ours)).toBe(3);
    expect(told.value('outbox_message_age_seconds_count', exchange)).toBe(3);
    expect(told.value('outbox_message_age_seconds_sum', exchange)).toBeCloseTo(
      sum(told, 'respool_time_to_delivery_seconds_sum', ours),
    );
    expect(told.value('outbox_poll_duration_seconds_count', exchange)).toBe(
      sum(told, 'respool_handler_duration_seconds_count', ours),
    );
    const failures = { ...exchange, failure_type: 'main', error_type: 'broker.unroutable' };
    expect(told.value('outbox_publish_failures_total', failures)).toBe(
      sum(told, 'respool_deferred_total', ours) + sum(told, 'respool_bounced_total', ours),
    );
  });
});

describe('without a broker', () => {
  test('the backlogs of two outboxes whose relays send to one exchange are added', async () => {
    const { metrics, scrape } = await bench({ aliases: ['outbox'] });
    const relay = { on: () => () => undefined, load: { paused: [] } } as unknown as WatchedRelay;
    const outboxOf = (count: number): WatchedOutbox => ({
      spool: spoolWith({
        now: () => 0,
        tally: () => Promise.resolve([{ key: 'incoming', count, oldestAt: null }]),
        page: () => Promise.resolve({ entries: [], cursor: null }),
      }),
    });
    const stops = [3, 4].map((count) =>
      metrics.watchRelay(relay, outboxOf(count), { source: `relay-${count}`, exchange: 'shop' }),
    );
    const labels = { exchange_name: 'shop' };
    expect((await scrape()).value('outbox_table_backlog', labels)).toBe(7);
    stops[0]?.();
    expect((await scrape()).value('outbox_table_backlog', labels)).toBe(4);
    stops[1]?.();
    expect((await scrape()).value('outbox_table_backlog', labels)).toBeUndefined();
  });

  test('a retry that could not be published is a failure of its kind', async () => {
    const { metrics, scrape } = await bench({ aliases: ['outbox'] });
    const listeners = new Map<EventKind, (event: never) => void>();
    const consumer = {
      queue: 'q',
      plan: { waitsMs: [] },
      load: {},
      on: (kind: EventKind, listener: (event: never) => void) => {
        listeners.set(kind, listener);
        return () => undefined;
      },
      stats: () => Promise.reject(new Error('away')),
    } as unknown as Consumer;
    metrics.watchConsumer(consumer, { exchange: 'shop' });
    const tell = (doing: string): void => {
      const error = new RespoolError('broker.unavailable', 'away');
      const event: EventOf<'trouble'> = { at: 0, kind: 'trouble', doing, error };
      listeners.get('trouble')?.(event as never);
    };
    tell('passing on message "m1"');
    tell('consuming');
    const labels = {
      exchange_name: 'shop',
      failure_type: 'retry',
      error_type: 'broker.unavailable',
    };
    expect((await scrape()).value('outbox_publish_failures_total', labels)).toBe(1);
  });
});
