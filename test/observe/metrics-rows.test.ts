/** Where the rows of metrics begin, that counters never go back, and what others tell for a scrape. */
import { fixed, PermanentError } from 'respool';
import { createMetrics } from 'respool/observe';
import { describe, expect, onTestFinished, test } from 'vitest';
import { setup } from '../spool/setup.ts';
import { scrapeOf } from './metrics-ground.ts';

const SPOOL = { source: 'spool' };
const A = { ...SPOOL, topic: 'a' };

test('what is settled is counted from the watch on, and never counted twice', async () => {
  const { spool, clock } = await setup();
  spool.handle('a', () => undefined);
  const deliver = async (): Promise<void> => {
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
  };
  const metrics = await createMetrics({ clock });
  onTestFinished(() => metrics.close());
  const settled = async (): Promise<number | undefined> =>
    (await scrapeOf(metrics)).value('respool_engine_settled_total', SPOOL);
  await deliver();
  const stop = metrics.watch(spool);
  expect(await settled()).toBe(0);
  await deliver();
  await deliver();
  // Nobody has scraped: it is counted nevertheless.
  stop();
  expect(await settled()).toBe(2);
  await deliver();
  metrics.watch(spool);
  await deliver();
  expect(await settled()).toBe(3);
});

describe('rows begin at 0', () => {
  test('of topics that the store has, and of codes that deferred a message', async () => {
    const { spool, clock } = await setup();
    await spool.enqueue({ topic: 'a' });
    const metrics = await createMetrics({ clock });
    onTestFinished(() => metrics.close());
    metrics.watch(spool);
    const { value: first } = await scrapeOf(metrics);
    const names = ['accepted', 'delivered', 'deferred'];
    expect(names.map((name) => first(`respool_${name}_total`, A))).toEqual([0, 0, 0]);
    spool.handle('a', () => {
      throw Object.assign(new Error('no'), { code: 'full' });
    });
    await clock.settle();
    const { samples } = await scrapeOf(metrics);
    const bounced = samples.filter(({ name }) => name === 'respool_bounced_total');
    expect(bounced).toMatchObject([{ labels: A, value: 0 }]);
  });

  test('of sweeps and replays, and of the rules of alerts', async () => {
    const { spool, clock } = await setup();
    const metrics = await createMetrics({ clock });
    onTestFinished(() => metrics.close());
    let isFiring = true;
    metrics.watch(spool, { alerts: async () => [{ rule: 'slow', isFiring }] });
    const { value } = await scrapeOf(metrics);
    expect(value('respool_sweep_runs_total', { result: 'failed' })).toBe(0);
    expect(value('respool_sweep_last_success_timestamp_seconds')).toBeUndefined();
    expect(value('respool_replays_total', { state: 'stopped' })).toBe(0);
    expect(value('respool_replay_letters_total', { result: 'failed' })).toBe(0);
    expect(value('respool_alerts_total', { rule: 'slow', phase: 'fired' })).toBe(0);
    // It fired before this process began.
    expect(value('respool_alerts_firing', { rule: 'slow' })).toBe(1);
    isFiring = false;
    await clock.advance('15s');
    expect((await scrapeOf(metrics)).value('respool_alerts_firing', { rule: 'slow' })).toBe(0);
  });
});

test('rules without a label of their own are firing when one of them is', async () => {
  const { spool, clock } = await setup();
  const metrics = await createMetrics({ clock });
  onTestFinished(() => metrics.close());
  const rules = Array.from({ length: 203 }, (_, at) => ({ rule: `r${at}`, isFiring: at === 201 }));
  metrics.watch(spool, { alerts: async () => rules });
  const { value } = await scrapeOf(metrics);
  expect(value('respool_alerts_firing', { rule: 'other' })).toBe(1);
  expect(value('respool_alerts_firing', { rule: 'r199' })).toBe(0);
});

// Regression: a bounce whose handler was given up, too, was counted twice.
test('a notice that is given up is no second bounce', async () => {
  const { spool, clock, events } = await setup({
    policies: { notice: fixed('1m', { attempts: 3 }) },
  });
  const metrics = await createMetrics({ clock });
  onTestFinished(() => metrics.close());
  metrics.watch(spool);
  spool.handle('a', () => Promise.reject(new PermanentError('smtp.550', 'no such user')));
  spool.onBounce('a', () => Promise.reject(new Error('nobody to tell')));
  await spool.enqueue({ topic: 'a' });
  await clock.advance('10m');
  expect(events.filter(({ kind }) => kind === 'bounced')).toHaveLength(2);
  const { samples, value } = await scrapeOf(metrics);
  const bounced = samples.filter(({ name }) => name === 'respool_bounced_total');
  expect(bounced).toMatchObject([{ labels: { ...A, code: 'smtp.550' }, value: 1 }]);
  expect(value('respool_attempts_total', { ...A, outcome: 'failed' })).toBe(4);
  expect(value('respool_deferred_total', A)).toBe(2);
});

test('a forecast is told of the backlog, and is absent while there is none', async () => {
  const { spool, clock } = await setup();
  const metrics = await createMetrics({ clock });
  onTestFinished(() => metrics.close());
  let hasForecast = true;
  metrics.watch(spool, {
    forecast: (backlog) =>
      hasForecast ? { drainsInMs: backlog * 1_500, fullInMs: null } : undefined,
  });
  await spool.enqueue({ topic: 'a' });
  await spool.enqueue({ topic: 'a', delay: '1h' });
  const { value } = await scrapeOf(metrics);
  expect(value('respool_forecast_drain_seconds', SPOOL)).toBe(3);
  expect(value('respool_forecast_full_seconds', SPOOL)).toBeUndefined();
  hasForecast = false;
  const { value: later } = await scrapeOf(metrics);
  expect(later('respool_forecast_drain_seconds', SPOOL)).toBeUndefined();
});
