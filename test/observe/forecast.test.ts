/** Forecasts: when a backlog is gone, and when a disk is full, at the present rates. */
import { internalsOf } from '../../src/spool/internals.ts';
import { createOperator } from '../../src/spool/operator/spool-operator.ts';
import { DiskMeter, ThroughputMeter } from '../../src/spool/operator/throughput.ts';
import { SimClock } from 'respool/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { drainsInMs, Trend } from '../../src/core/forecast.ts';
import { MINUTE, SECOND, setup } from '../spool/setup.ts';

test.each([
  [0, 5, 0, 0],
  [100, 1, 3, 50_000],
  [100, 3, 1, null],
  [100, 2, 2, null],
])('a backlog of %d with %d in and %d out a second ends in %s ms', (backlog, into, out, ms) => {
  expect(drainsInMs(backlog, { inPerSecond: into, outPerSecond: out })).toBe(ms);
});

test('a trend is told from the looks of its window, and from more than one', () => {
  const trend = new Trend(10 * SECOND);
  expect(trend.endsInMs).toBeUndefined();
  trend.add(0, 1_000);
  expect(trend.perSecond).toBeUndefined();
  trend.add(SECOND, 990);
  expect(trend.perSecond).toBe(-10);
  expect(trend.endsInMs).toBe(99_000);
  trend.add(20 * SECOND, 995);
  trend.add(21 * SECOND, 1_000);
  // What is older than the window counts no more.
  expect(trend.perSecond).toBe(5);
  expect(trend.endsInMs).toBeNull();
  // A clock that went back begins anew.
  trend.add(SECOND, 5);
  expect(trend.endsInMs).toBeUndefined();
});

test('a course is not told from less than a fifteenth of its window, nor beyond a hundred years', () => {
  const trend = new Trend(15 * MINUTE);
  trend.add(0, 1e15);
  trend.add(59 * SECOND, 0.9e15);
  expect(trend.endsInMs).toBeUndefined();
  trend.add(MINUTE, 1e15 - 1);
  expect(trend.endsInMs).toBeNull();
  trend.add(MINUTE, 0);
  expect(trend.endsInMs).toBe(0);
});

test('a flow that has just begun says nothing about the end of a backlog', async () => {
  const { spool, clock } = await setup();
  const meter = new ThroughputMeter(internalsOf(spool));
  onTestFinished(() => meter.stop());
  const operator = createOperator(internalsOf(spool), { by: 'tester', meter });
  spool.handle('a', () => undefined);
  await spool.enqueue({ topic: 'later', delay: '1h' });
  await clock.advance(5 * SECOND);
  for (let at = 0; at < 5; at += 1) await spool.enqueue({ topic: 'a' });
  expect((await operator.stats()).forecast).toMatchObject({ drainsInMs: null });
  await clock.advance(MINUTE);
  // A clock that goes back does not bring what was counted before it.
  await spool.enqueue({ topic: 'a' });
  clock.jump(-MINUTE * 10);
  expect((await operator.stats()).flow).toMatchObject({ windowMs: 0, accepted: 0 });
});

test('the stats of a process that delivers tell when its backlog is gone', async () => {
  const { spool, clock } = await setup();
  const meter = new ThroughputMeter(internalsOf(spool));
  onTestFinished(() => meter.stop());
  const operator = createOperator(internalsOf(spool), {
    by: 'tester',
    meter,
    disk: { fullInMs: 7_000 },
  });
  spool.handle('a', () => undefined);
  for (let at = 0; at < 60; at += 1) await spool.enqueue({ topic: 'a' });
  for (let at = 0; at < 10; at += 1) await spool.enqueue({ topic: 'later', delay: '1h' });
  await clock.advance(MINUTE - 1);
  const { forecast } = await operator.stats();
  expect(forecast).toMatchObject({ backlog: 10, drainsInMs: null, fullInMs: 7_000 });
  expect(forecast?.inPerSecond).toBeCloseTo(70 / 60, 1);
  expect(forecast?.outPerSecond).toBeCloseTo(1, 1);
  await clock.advance(2 * MINUTE);
  expect((await operator.stats()).forecast).toMatchObject({ inPerSecond: 0, outPerSecond: 0 });
  await spool.stop();
  expect((await operator.stats()).forecast).toBeUndefined();
});

test('a disk that fills up is full at a time; one that does not, or cannot be asked, never', async () => {
  const clock = new SimClock();
  let free = 1_000_000;
  const meter = new DiskMeter(() => Promise.resolve(free), clock);
  await clock.settle();
  expect(meter.fullInMs).toBeNull();
  free -= 60_000;
  await clock.advance(MINUTE);
  expect(meter.fullInMs).toBe(940 * SECOND);
  free = 1_000_000;
  await clock.advance(MINUTE);
  expect(meter.fullInMs).toBeNull();
  meter.stop();
  const broken = new DiskMeter(() => Promise.reject(new Error('no disk')), clock);
  await clock.settle();
  expect(broken.fullInMs).toBeNull();
  broken.stop();
});
