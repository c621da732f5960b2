/** Metrics as a user of the library meets them: registries, names, bounds, stores that are away. */
import { Counter, Registry } from '@prometheus-io/client';
import { createMetrics, type MetricsOptions } from 'respool/observe';
import { describe, expect, test } from 'vitest';
import { makeGate, rejection, setup } from '../spool/setup.ts';
import { scrapeOf, watched } from './metrics-ground.ts';
import { internalsOf } from '../../src/spool/internals.ts';

const SPOOL = { source: 'spool' };
const A = { ...SPOOL, topic: 'a' };

describe('a registry of the user', () => {
  test('gets our metrics beside its own, and loses only ours at the end', async () => {
    const registry = new Registry();
    const own = new Counter({ name: 'my_own_total', help: 'Mine.', registers: [registry] });
    own.inc(3);
    const metrics = await createMetrics({ registry });
    expect(metrics.registry).toBe(registry);
    const { spool } = await setup();
    metrics.watch(spool);
    await spool.enqueue({ topic: 'a' });
    const { value } = await scrapeOf(metrics);
    expect([value('my_own_total'), value('respool_accepted_total', A)]).toEqual([3, 1]);
    metrics.close();
    expect(registry.getMetricsAsArray().map(({ name }) => name)).toEqual(['my_own_total']);
  });

  test('takes no second set of the same names, and says what to do', async () => {
    const registry = new Registry();
    await createMetrics({ registry });
    const error = await rejection(createMetrics({ registry }));
    expect(error).toMatchObject({ code: 'config.invalid' });
    expect(error.message).toMatch(/^cannot register metric "respool_.*a "prefix" of its own$/);
    const second = await createMetrics({ registry, prefix: 'mail' });
    const { types } = await scrapeOf(second);
    expect(types.get('mail_accepted_total')).toBe('counter');
    expect(types.get('respool_accepted_total')).toBe('counter');
  });

  test('that speaks OpenMetrics gets counters as it wants them', async () => {
    const { metrics, spool } = await watched({ registry: new Registry(OPEN_METRICS) });
    await spool.enqueue({ topic: 'a' });
    for (let at = 0; at < 2; at += 1) {
      const { type, text } = await metrics.text();
      expect(type).toContain('openmetrics');
      expect(text).toContain('# TYPE respool_accepted counter\n');
      expect(text).toContain('respool_accepted_total{source="spool",topic="a"} 1\n');
    }
  });

  test('that is reset begins at zero, and goes on counting', async () => {
    const { metrics, spool, scrape } = await watched();
    await spool.enqueue({ topic: 'a' });
    metrics.registry.resetMetrics();
    expect((await scrape()).value('respool_accepted_total', A)).toBe(0);
    await spool.enqueue({ topic: 'a' });
    expect((await scrape()).value('respool_accepted_total', A)).toBe(1);
  });
});

const OPEN_METRICS = 'application/openmetrics-text; version=1.0.0; charset=utf-8';

test('a name that is taken leaves nothing of ours in the registry', async () => {
  const registry = new Registry();
  const own = new Counter({ name: 'goqueue_messages_dlq_total', help: '-', registers: [registry] });
  const error = await rejection(createMetrics({ registry, aliases: ['goqueue'] }));
  expect(error.message).toContain('"goqueue_messages_dlq_total"');
  expect(registry.getMetricsAsArray()).toEqual([own]);
  await createMetrics({ registry });
});

test('metrics of Node that a registry has already stay the user’s', async () => {
  const registry = new Registry();
  const name = 'process_cpu_seconds_total';
  const own = new Counter({ name, help: 'Mine.', registers: [registry] });
  const metrics = await createMetrics({ registry, processMetrics: true });
  expect(registry.getSingleMetric(name)).toBe(own);
  expect(registry.getSingleMetric('nodejs_heap_size_used_bytes')).toBeDefined();
  metrics.close();
  expect(registry.getMetricsAsArray()).toEqual([own]);
});

describe('options', () => {
  test.each<[MetricsOptions, RegExp]>([
    [{ prefix: '1st' }, /"1st" as "prefix".*with no digit first/],
    [{ prefix: 'with-dash' }, /"prefix"/],
    [{ topicsMax: 0 }, /"topicsMax": allowed is a whole number 1 to 10000/],
    [{ queuesMax: 10_001 }, /"queuesMax": allowed is a whole number 1 to 10000/],
    [{ every: '1ms' }, /"every"/],
    [{ every: '2h' }, /"every"/],
    [{ aliases: ['statsd' as 'outbox'] }, /"statsd" as "aliases": allowed is goqueue \| outbox/],
    [{ registers: [] } as MetricsOptions, /no option "registers" of createMetrics/],
  ])('%j is refused with what is allowed', async (options, text) => {
    const error = await rejection(createMetrics(options));
    expect(error).toMatchObject({ code: 'config.invalid' });
    expect(error.message).toMatch(text);
  });

  test('processMetrics brings those of Node, and the end takes them away', async () => {
    const metrics = await createMetrics({ processMetrics: true });
    const { types } = await scrapeOf(metrics);
    expect(types.get('process_cpu_seconds_total')).toBe('counter');
    expect(types.get('nodejs_heap_size_used_bytes')).toBe('gauge');
    const { registry } = metrics;
    metrics.close();
    expect(registry.getMetricsAsArray()).toEqual([]);
    const without = await scrapeOf(await createMetrics());
    expect([...without.types.keys()].filter((name) => !name.startsWith('respool_'))).toEqual([]);
  });

  test('a second spool needs a name of its own', async () => {
    const { metrics, spool, scrape } = await watched();
    const other = await setup();
    expect(() => metrics.watch(other.spool)).toThrow(/cannot watch a spool as "spool": another/);
    expect(() => metrics.watch(other.spool, { sorce: 'b' } as object)).toThrow(/option "sorce"/);
    metrics.watch(other.spool, { source: 'mail' });
    await spool.enqueue({ topic: 'a' });
    await other.spool.enqueue({ topic: 'a' });
    await other.spool.enqueue({ topic: 'a' });
    const { value } = await scrape();
    const counts = ['spool', 'mail'].map((source) =>
      value('respool_accepted_total', { source, topic: 'a' }),
    );
    expect(counts).toEqual([1, 2]);
  });
});

test('what is no longer watched keeps its counts, loses its gauges, and can be watched again', async () => {
  const { spool, clock } = await setup();
  const metrics = await createMetrics({ clock });
  const stop = metrics.watch(spool);
  await spool.enqueue({ topic: 'a' });
  await scrapeOf(metrics);
  stop();
  stop();
  await spool.enqueue({ topic: 'a' });
  const { value, samples } = await scrapeOf(metrics);
  expect(value('respool_accepted_total', A)).toBe(1);
  const gauges = ['engine_slots', 'messages', 'topic_messages', 'states_age_seconds'];
  const names = new Set(samples.map(({ name }) => name));
  expect(gauges.filter((name) => names.has(`respool_${name}`))).toEqual([]);
  metrics.watch(spool);
  await spool.enqueue({ topic: 'a' });
  expect((await scrapeOf(metrics)).value('respool_accepted_total', A)).toBe(2);
});

test('metrics that are closed watch nothing more, and a spool that has stopped is still told of', async () => {
  const { metrics, spool, clock, scrape, count } = await watched();
  await spool.enqueue({ topic: 'a' });
  await scrape();
  const asked = count('tally');
  await Promise.all([spool.stop(), clock.advance('1m')]);
  const { value } = await scrape();
  expect(value('respool_accepted_total', A)).toBe(1);
  expect(value('respool_engine_running', SPOOL)).toBe(0);
  expect(value('respool_messages', { ...SPOOL, state: 'incoming' })).toBe(1);
  expect(value('respool_states_age_seconds', SPOOL)).toBe(60);
  // A question would have opened its stores again.
  expect([count('tally'), count('open'), internalsOf(spool).isOpen]).toEqual([asked, 1, false]);
  metrics.close();
  metrics.close();
  expect(() => metrics.watch(spool)).toThrow(/cannot watch more: these metrics are closed/);
});

test('the stores of a spool are counted as they tell of their operations', async () => {
  const { spool, scrape, bodies } = await watched({}, { limits: { inlineBodyBytes: 10 } });
  await spool.enqueue({ topic: 'a', body: 'x'.repeat(100) });
  await spool.enqueue({ topic: 'a' });
  bodies.faults.plan = () => 'before';
  await rejection(spool.enqueue({ topic: 'a', body: 'x'.repeat(100) }));
  const { value } = await scrape();
  const insert = { ...SPOOL, store: 'entries', operation: 'insert' };
  const put = { ...SPOOL, store: 'bodies', operation: 'put' };
  expect(value('respool_store_batch_size_sum', insert)).toBe(2);
  expect(value('respool_store_operation_duration_seconds_count', insert)).toBe(2);
  expect(value('respool_store_operation_failures_total', insert)).toBe(0);
  expect(value('respool_store_batch_size_sum', put)).toBe(1);
});

test('a scrape opens no store that nothing has been put into yet', async () => {
  const { spool, scrape, count } = await watched({}, { isStarted: false });
  const { value } = await scrape();
  expect([value('respool_engine_running', SPOOL), count('open')]).toEqual([0, 0]);
  await spool.operator({ by: 'ops' }).pauses();
  const { value: later } = await scrape();
  expect(later('respool_messages', { ...SPOOL, state: 'incoming' })).toBe(0);
});

describe('labels', () => {
  test('of 10,000 topics take 101 values, and what has none of its own is still counted', async () => {
    const { spool, scrape } = await watched({}, { isStarted: false });
    for (let at = 0; at < 10_000; at += 1) {
      internalsOf(spool).emit({
        kind: 'accepted',
        at: 0,
        id: 'x',
        topic: `t${at}`,
        state: 'incoming',
        dueAt: 0,
      });
    }
    // In the store as well: they must not take labels of their own a second time.
    for (let at = 9_000; at < 9_200; at += 1) await spool.enqueue({ topic: `t${at}` });
    const { value, labelled } = await scrape();
    expect(labelled('topic').size).toBe(101);
    expect(value('respool_accepted_total', { ...SPOOL, topic: 't99' })).toBe(1);
    expect(value('respool_accepted_total', { ...SPOOL, topic: 'other' })).toBe(10_100);
    const waiting = { ...SPOOL, state: 'incoming', topic: 'other' };
    expect(value('respool_topic_messages', waiting)).toBe(200);
  });

  test('topicsMax sets how many', async () => {
    const { spool, scrape } = await watched({ topicsMax: 2 });
    for (const topic of ['a', 'b', 'c', 'd']) await spool.enqueue({ topic });
    expect((await scrape()).labelled('topic')).toEqual(new Set(['a', 'b', 'other']));
  });

  test('of codes and words that others choose are bounded too', async () => {
    const { spool, scrape } = await watched();
    const about = { at: 0, id: 'x', topic: 'a', lane: 'delivery', attempt: 1 } as const;
    for (let at = 0; at < 1_000; at += 1) {
      const because = { code: `c${at}`, text: '', by: 'handler' };
      internalsOf(spool).emit({ ...about, kind: 'bounced', because, spent: false });
      internalsOf(spool).emit({ kind: 'operator', at: 0, action: `a${at}`, by: 'x', ids: [] });
      internalsOf(spool).emit({
        kind: 'alert',
        at: 0,
        rule: `r${at}`,
        phase: 'fired',
        episode: 1,
        text: '',
      });
    }
    const { labelled, value } = await scrape();
    expect(labelled('code').size).toBe(51);
    expect(value('respool_bounced_total', { ...A, code: 'other' })).toBe(950);
    expect(labelled('action').size + labelled('rule').size).toBeLessThanOrEqual(202);
  });

  test('with quotes, backslashes, line ends and other scripts come back as they were', async () => {
    const { spool, scrape } = await watched();
    const topics = ['say "hi"', 'a\\b', 'line\nend', 'a\\nb', 'größe✓', '{x="y"} 1', 'trail\\'];
    for (const topic of topics) {
      internalsOf(spool).emit({
        kind: 'accepted',
        at: 0,
        id: 'x',
        topic,
        state: 'incoming',
        dueAt: 0,
      });
    }
    const { labelled } = await scrape();
    expect(labelled('topic')).toEqual(new Set(topics));
  });
});

describe('what the store is asked', () => {
  test('is asked at a scrape only, and again after "every"', async () => {
    const { clock, count, scrape, spool } = await watched({ every: '30s' });
    await clock.advance('5m');
    expect(count('tally')).toBe(0);
    await scrape();
    const asked = count('tally');
    expect(asked).toBeGreaterThan(0);
    await spool.enqueue({ topic: 'a' });
    await clock.advance('29s');
    const early = await scrape();
    expect(count('tally')).toBe(asked);
    expect(early.value('respool_messages', { ...SPOOL, state: 'incoming' })).toBe(0);
    expect(early.value('respool_states_age_seconds', SPOOL)).toBe(29);
    await clock.advance('1s');
    const late = await scrape();
    expect(late.value('respool_messages', { ...SPOOL, state: 'incoming' })).toBe(1);
    expect(late.value('respool_states_age_seconds', SPOOL)).toBe(0);
  });

  test('is asked once by many scrapes at the same time', async () => {
    const { count, scrape } = await watched();
    const scrapes = await Promise.all(Array.from({ length: 5 }, scrape));
    expect(count('nextDueAt')).toBeLessThanOrEqual(2);
    expect(count('tally')).toBe(1);
    for (const { value } of scrapes) {
      expect(value('respool_messages', { ...SPOOL, state: 'incoming' })).toBe(0);
    }
  });

  test('holds a scrape up for 2 s when it hangs, and is not asked again meanwhile', async () => {
    const { store, clock, scrape, count, spool } = await watched();
    await spool.enqueue({ topic: 'a' });
    store.faults.plan = (operation) => (operation === 'tally' ? { delayMs: 120_000 } : 'ok');
    for (let at = 1; at <= 3; at += 1) {
      const startedAt = clock.monotonic();
      const asking = scrape();
      await clock.advance('2s');
      const { value, samples } = await asking;
      expect(clock.monotonic() - startedAt).toBe(2_000);
      expect(value('respool_accepted_total', A)).toBe(1);
      expect(value('respool_states_age_seconds', SPOOL)).toBe(at * 2 + (at - 1) * 15);
      expect(samples.some(({ name }) => name === 'respool_messages')).toBe(false);
      await clock.advance('15s');
    }
    expect(count('tally')).toBe(1);
  });

  test('is told as it was, with its age, while the store is away; then as it is', async () => {
    const { store, clock, scrape, spool } = await watched();
    await spool.enqueue({ topic: 'a' });
    await scrape();
    await spool.enqueue({ topic: 'a' });
    store.faults.plan = (operation) => (operation === 'tally' ? 'before' : 'ok');
    await clock.advance('1m');
    const away = await scrape();
    const incoming = { ...SPOOL, state: 'incoming' };
    expect(away.value('respool_messages', incoming)).toBe(1);
    expect(away.value('respool_states_age_seconds', SPOOL)).toBe(60);
    expect(away.value('respool_oldest_age_seconds', { ...A, state: 'incoming' })).toBe(60);
    expect(away.value('respool_scrape_failures_total', SPOOL)).toBe(1);
    store.faults.plan = () => 'ok';
    await clock.advance('15s');
    const back = await scrape();
    expect(back.value('respool_messages', incoming)).toBe(2);
    expect(back.value('respool_states_age_seconds', SPOOL)).toBe(0);
  });

  test('is asked less often when it takes long: a twentieth of the time', async () => {
    const { store, clock, scrape, count } = await watched();
    store.faults.plan = (operation) => (operation === 'tally' ? { delayMs: 1_900 } : 'ok');
    const first = scrape();
    await clock.advance('1900ms');
    await first;
    const asked = count('tally');
    await clock.advance('35s');
    await scrape();
    expect(count('tally')).toBe(asked);
    await clock.advance('2s');
    const second = scrape();
    await clock.advance('2s');
    await second;
    expect(count('tally')).toBeGreaterThan(asked);
  });

  test('is asked for the oldest by a look at all where it does not know it otherwise', async () => {
    const { clock, scrape, spool, calls } = await watched(
      {},
      {
        extras: (store) => ({
          tally: async (by, query) =>
            (await store.tally(by, query)).map((row) =>
              query.enqueuedAfter === undefined ? { ...row, oldestAt: null } : row,
            ),
        }),
      },
    );
    const { id } = await spool.enqueue({ topic: 'old' });
    await spool.operator({ by: 'ops' }).remove([id]);
    await spool.enqueue({ topic: 'a' });
    await clock.advance('10s');
    const { value } = await scrape();
    expect(value('respool_oldest_age_seconds', { ...A, state: 'incoming' })).toBe(10);
    // What has ended waits for nothing: it is not worth the look.
    const archived = { ...SPOOL, state: 'archived', topic: 'old' };
    expect(value('respool_topic_messages', archived)).toBe(1);
    expect(value('respool_oldest_age_seconds', archived)).toBeUndefined();
    expect(calls.filter(({ operation }) => operation === 'tally')).toHaveLength(4);
  });
});

test('counters under load are those of the ledger, at every scrape', async () => {
  const { spool, clock, events, scrape } = await watched({}, { concurrency: 5 });
  const gate = makeGate();
  spool.handle('a', (delivery) => {
    if (delivery.attempt === 1 && delivery.id.endsWith('3')) throw new Error('no');
    return gate.handler(delivery);
  });
  const told = (kind: string): number => events.filter((event) => event.kind === kind).length;
  gate.open();
  for (let round = 1; round <= 2; round += 1) {
    for (let at = 0; at < 100; at += 1) await spool.enqueue({ topic: 'a', id: `m-${round}-${at}` });
    await clock.advance('20s');
    const { value } = await scrape();
    expect(value('respool_accepted_total', A)).toBe(100 * round);
    expect(value('respool_delivered_total', A)).toBe(told('delivered'));
    expect(value('respool_deferred_total', A)).toBe(told('deferred'));
    expect(value('respool_messages', { ...SPOOL, state: 'deferred' })).toBe(10 * round);
    expect(told('deferred')).toBe(10 * round);
  }
});
