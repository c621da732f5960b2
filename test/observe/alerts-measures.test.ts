/** What conditions are about, measured one by one. */
import { noRetry } from 'respool';
import { expect, onTestFinished, test } from 'vitest';
import { parseCondition } from 'respool/observe';
import type {
  BacklogForecast,
  ExternalMeasures,
  MeasureReading,
} from '../../src/observe/alerts/external-measures.ts';
import { createMeasures } from '../../src/observe/alerts/measures.ts';
import { HOUR, MINUTE, SECOND, setup, type World } from '../spool/setup.ts';
import { alertsOver, earOf, ruleOf } from './alerts-ground.ts';
import { internalsOf } from '../../src/spool/internals.ts';

interface Ground extends World {
  /** The value of what this condition is about. */
  readonly read: (when: string) => Promise<MeasureReading>;
  readonly forecast: (when: string) => Promise<BacklogForecast | undefined>;
}

async function ground(whens: readonly string[], around: ExternalMeasures = {}): Promise<Ground> {
  const world = await setup({ policies: { default: noRetry() } });
  const wanted = whens.map((when) => parseCondition(when).measure);
  const measures = createMeasures({
    ...around,
    spool: internalsOf(world.spool),
    clock: world.clock,
    wanted,
  });
  onTestFinished(() => measures.close());
  return {
    ...world,
    read: (when) => {
      const { measure, unit } = parseCondition(when);
      return measures.read(measure, unit);
    },
    forecast: (when) => measures.forecast(parseCondition(when).measure),
  };
}

test('the bounce rate is the share of what ended within the window, notifications left out', async () => {
  const when = 'bounce rate over 1m > 5 %';
  const ofMail = 'bounce rate of mail.# over 1m > 5 %';
  const { spool, clock, read } = await ground([when, ofMail]);
  spool.handle('ok.#', () => undefined);
  spool.handle('mail.#', () => Promise.reject(new Error('no')));
  spool.handle('respool.alert.#', () => Promise.reject(new Error('no')));
  expect(await read(when)).toMatchObject({ isEarly: true });
  for (let at = 0; at < 3; at += 1) await spool.enqueue({ topic: 'ok.a' });
  await spool.enqueue({ topic: 'mail.a' });
  await spool.enqueue({ topic: 'respool.alert.ops' });
  await clock.settle();
  expect(await read(when)).toEqual({ value: 25 });
  expect(await read(ofMail)).toEqual({ value: 100 });
  // What is older than the window is forgotten; then nothing ended, and nothing bounced.
  await clock.advance(2 * MINUTE);
  expect(await read(when)).toEqual({ value: 0 });
});

test('the failure rate counts every attempt that failed, and not what was only put off', async () => {
  const when = 'failure rate > 5 %';
  const { spool, clock, read } = await ground([when]);
  spool.handle('ok', () => undefined);
  spool.handle('retried', () => Promise.reject(new Error('no')), {
    policy: {
      maxAttempts: 5,
      maxAgeMs: null,
      backoff: { kind: 'fixed', delayMs: HOUR },
      jitter: 0,
    },
  });
  spool.handle('later', () => ({ kind: 'postponed', delayMs: HOUR, reason: 'not now' }));
  for (const topic of ['ok', 'retried', 'later']) await spool.enqueue({ topic });
  await clock.settle();
  expect(await read(when)).toEqual({ value: 50 });
});

// Regression: a bounce handler that failed made the rates higher, and bounces leave twice.
test('notices of bounces are in no rate, and nothing that leaves', async () => {
  const bounces = 'bounce rate > 5 %';
  const failures = 'failure rate > 5 %';
  const { spool, clock, read, events } = await ground([bounces, failures]);
  spool.handle('ok', () => undefined);
  spool.handle('bad', () => Promise.reject(new Error('no')));
  spool.onBounce('bad', () => Promise.reject(new Error('nobody to tell')));
  for (const topic of ['ok', 'bad']) await spool.enqueue({ topic });
  await clock.settle();
  const notices = events.filter((event) => 'lane' in event && event.lane === 'notice');
  expect(notices.map(({ kind }) => kind)).toContain('bounced');
  expect(await read(bounces)).toEqual({ value: 50 });
  expect(await read(failures)).toEqual({ value: 50 });
});

test('messages are counted by state and topic, and the oldest has its age', async () => {
  const { spool, clock, read } = await ground([]);
  await spool.enqueue({ topic: 'respool.alert.ops', delay: '9h' });
  await clock.advance(HOUR);
  await spool.enqueue({ topic: 'mail.a', delay: '9h' });
  await clock.advance(HOUR);
  const { id } = await spool.enqueue({ topic: 'sms.a', delay: '9h' });
  expect(await read('count deferred > 0')).toEqual({ value: 2 });
  expect(await read('count deferred of mail.# > 0')).toEqual({ value: 1 });
  expect(await read('count deferred of respool.alert.# > 0')).toEqual({ value: 1 });
  expect(await read('oldest deferred > 2h')).toEqual({ value: HOUR });
  expect(await read('oldest deferred of sms.# > 2h')).toEqual({ value: 0 });
  expect(await read('oldest bounce > 2h')).toEqual({ value: 0 });
  await spool.operator({ by: 'ops' }).hold([id]);
  expect(await read('count held > 0')).toEqual({ value: 1 });
  expect(await read('messages incoming > 0')).toEqual({ value: 0 });
});

test('the disk is told in percent and in bytes, and when it is full', async () => {
  let freeBytes = 2 ** 30;
  const disk = () => Promise.resolve({ freeBytes, totalBytes: 2 ** 32 });
  const { clock, read } = await ground([], { disk });
  expect(await read('disk < 10 %')).toEqual({ value: 25 });
  expect(await read('disk < 2 GiB')).toEqual({ value: 2 ** 30 });
  await clock.advance(MINUTE);
  freeBytes /= 2;
  expect(await read('time to full < 1h')).toEqual({ value: MINUTE });
  await clock.advance(MINUTE);
  freeBytes *= 4;
  expect(await read('time to full < 1h')).toEqual({ value: Number.POSITIVE_INFINITY });
});

test('a disk that tells no size is neither measured in percent, nor ever full', async () => {
  const { read, forecast } = await ground([], {
    disk: () => Promise.resolve({ freeBytes: 0, totalBytes: 0 }),
  });
  const why = 'the disk of the store does not tell its size';
  expect(await read('disk < 10 %')).toEqual({ why });
  expect(await read('time to full < 1h')).toEqual({
    why: `time to full cannot be measured: ${why}`,
  });
  expect(await forecast('disk < 1 GiB')).toMatchObject({ backlog: 0, fullInMs: null });
});

test('two rules about one disk, at one moment, do not take its course from each other', async () => {
  let freeBytes = 1_000;
  const disk = () => Promise.resolve({ freeBytes, totalBytes: 2_000 });
  const { clock, read } = await ground([], { disk });
  for (let at = 0; at < 3; at += 1) {
    await read('time to full < 1h');
    await read('disk < 10 %');
    await clock.advance(MINUTE);
    freeBytes -= 100;
  }
  await read('disk < 10 %');
  expect(await read('time to full < 1h')).toEqual({ value: 7 * MINUTE });
});

test('looks that come quickly are kept for the whole window', async () => {
  let freeBytes = 10_000;
  const disk = () => Promise.resolve({ freeBytes, totalBytes: 20_000 });
  const { clock, read } = await ground([], { disk });
  // It fills up for five minutes, and rests for five.
  for (let at = 0; at < 600; at += 1) {
    await read('disk < 10 %');
    await clock.advance(SECOND);
    if (at < 300) freeBytes -= 10;
  }
  const reading = await read('time to full < 1h');
  expect('value' in reading && reading.value).toBeCloseTo((7_000 / 3_000) * 10 * MINUTE, -2);
});

test('without a disk nobody can tell when it is full, and that is no matter of time', async () => {
  const { read } = await ground([]);
  const reading = await read('time to full < 1h');
  expect(reading).toEqual({ why: expect.stringMatching(/not on a disk/) as string });
});

test('notifications that wait are no backlog: an alert does not keep itself alive', async () => {
  const { spool, clock, read } = await ground([]);
  await spool.enqueue({ topic: 'respool.alert.ops', delay: '9h' });
  await clock.advance(2 * MINUTE);
  expect(await read('time to drain > 6h')).toEqual({ value: 0 });
  expect(await read('count deferred > 0')).toEqual({ value: 0 });
  expect(await read('oldest deferred > 1m')).toEqual({ value: 0 });
});

test('asking a store is at most a twentieth of the time, for all rules together', async () => {
  const world = await setup();
  const { spool, clock } = world;
  const whens = ['count held > 0', 'count deferred of a > 0', 'oldest bounce of b > 1h'];
  let [asked, askedMs] = [0, 0];
  const measures = createMeasures({
    clock,
    wanted: [],
    spool: {
      now: () => internalsOf(spool).now(),
      on: () => () => undefined,
      tally: async () => {
        asked += 1;
        askedMs += 500;
        await new Promise<void>((resolve) => void clock.after(500, resolve));
        return [];
      },
    },
  });
  for (let at = 0; at < 600; at += 1) {
    for (const when of whens) {
      const { measure, unit } = parseCondition(when);
      void measures.read(measure, unit);
    }
    await clock.advance(SECOND);
  }
  expect(askedMs).toBeLessThanOrEqual(600 * SECOND * 0.06);
  expect(asked).toBeGreaterThan(30);
});

test('one look alone does not tell when a disk is full', async () => {
  const disk = () => Promise.resolve({ freeBytes: 1, totalBytes: 2 });
  const { read } = await ground([], { disk });
  expect(await read('time to full < 1h')).toMatchObject({ isEarly: true });
});

test('queues and dead queues are told by whoever knows the broker', async () => {
  const { read } = await ground([], {
    queueDepth: (queue) => Promise.resolve(queue.length),
    deadQueues: () =>
      Promise.resolve([
        { queue: 'a', depth: 2 },
        { queue: 'b', depth: 3 },
      ]),
  });
  expect(await read('queue "orders" > 0')).toEqual({ value: 6 });
  expect(await read('dead queue "dlq" > 0')).toEqual({ value: 3 });
  expect(await read('dead queue > 0')).toEqual({ value: 5 });
});

test('a time to drain goes by the flow of the spool, and by looks at a queue or an outbox', async () => {
  let depth = 100;
  const { spool, clock, read } = await ground([], {
    queueDepth: () => Promise.resolve(depth),
    outbox: () => Promise.resolve({ backlog: depth, lagMs: 7 * SECOND }),
  });
  spool.handle('a', () => undefined);
  for (let at = 0; at < 4; at += 1) await spool.enqueue({ topic: 'a' });
  await clock.settle();
  expect(await read('time to drain > 6h')).toEqual({ value: 0 });
  for (let at = 0; at < 10; at += 1) await spool.enqueue({ topic: 'b', delay: '1h' });
  expect(await read('time to drain > 6h')).toMatchObject({ isEarly: true });
  await clock.advance(MINUTE);
  expect(await read('time to drain > 6h')).toEqual({ value: Number.POSITIVE_INFINITY });
  for (const of of ['"orders"', 'outbox']) {
    depth = 100;
    await read(`time to drain of ${of} > 6h`);
    await clock.advance(MINUTE);
    depth = 90;
    expect(await read(`time to drain of ${of} > 6h`)).toEqual({ value: 9 * MINUTE });
  }
  expect(await read('outbox lag > 30s')).toEqual({ value: 7 * SECOND });
  expect(await read('outbox backlog > 30')).toEqual({ value: 90 });
});

test('a forecast is of the backlog that the rule is about', async () => {
  let depth = 100;
  const { spool, clock, read, forecast } = await ground([], {
    disk: () => Promise.resolve({ freeBytes: 0, totalBytes: 9 }),
    queueDepth: () => Promise.resolve(depth),
    deadQueues: () => Promise.resolve([{ queue: 'a', depth }]),
    outbox: () => Promise.resolve({ backlog: depth, lagMs: 0 }),
  });
  await spool.enqueue({ topic: 'a', delay: '1h' });
  const rules = ['outbox lag > 30s', 'dead queue > 0', 'queue "orders" > 0'];
  for (const when of rules) await read(when);
  await clock.advance(MINUTE);
  depth = 90;
  const told = { backlog: 90, drainsInMs: 9 * MINUTE, fullInMs: null };
  expect(await forecast('outbox lag > 30s')).toEqual({ of: 'outbox', ...told });
  expect(await forecast('relay down')).toEqual({ of: 'outbox', ...told });
  expect(await forecast('dead queue > 0')).toEqual({ of: 'dead queues', ...told });
  expect(await forecast('queue "orders" > 0')).toEqual({ of: 'queue "orders"', ...told });
  // Nobody has looked at that one before.
  expect(await forecast('consumer of "bills" down')).toMatchObject({ drainsInMs: null });
  const ofSpool = { of: 'spool', backlog: 1, drainsInMs: null, fullInMs: 0 };
  expect(await forecast('bounce rate of a > 5 %')).toEqual(ofSpool);
});

test('consumers and the relay are up or down', async () => {
  let isConnected = true;
  const { read } = await ground([], {
    consumers: () => [
      { queue: 'a', isConnected: true },
      { queue: 'b', isConnected },
    ],
    relay: () => (isConnected ? 'up' : 'down'),
  });
  for (const what of ['consumer down', 'consumer of "b" down', 'relay down']) {
    isConnected = true;
    expect(await read(what)).toEqual({ value: 0 });
    isConnected = false;
    expect(await read(what)).toEqual({ value: 1 });
  }
  expect(await read('consumer of "a" down')).toEqual({ value: 0 });
  expect(await read('consumer of "c" down')).toEqual({ why: 'there is no such consumer' });
});

test.each([
  ['disk < 10 %', /not on a disk of this machine/],
  ['dead queue > 0', /no consumers/],
  ['queue "a" > 0', /no broker: name it as "rabbit.url"/],
  ['consumer down', /no consumers/],
  ['relay down', /no relay/],
  ['outbox lag > 1s', /no outbox/],
])('%s without what it is about is not measured, and says why', async (when, why) => {
  const { read } = await ground([]);
  expect(await read(when)).toEqual({ why: expect.stringMatching(why) as string });
});

test('whoever cannot be asked now is named', async () => {
  const { read } = await ground([], { disk: () => Promise.reject(new Error('EIO')) });
  expect(await read('disk < 10 %')).toEqual({ why: 'disk cannot be measured: EIO' });
});

test('a rate counts what every process on the store has seen, also one that is gone', async () => {
  const rule = ruleOf('r', 'bounce rate over 10m > 40 %');
  const ear = earOf();
  const receivers = new Map([['ops', ear.handler]]);
  const policies = { default: noRetry() };
  const one = await setup({ policies });
  const two = await setup({ policies, with: one });
  one.spool.handle('ok', () => undefined);
  two.spool.handle('bad', () => Promise.reject(new Error('no')));
  const rules = [rule];
  const first = alertsOver(one.spool, one.clock, { rules, receivers, name: 'one' });
  const second = alertsOver(two.spool, two.clock, { rules, receivers, name: 'two' });
  await first.alerts.round();
  await one.spool.enqueue({ topic: 'ok' });
  await two.spool.enqueue({ topic: 'bad' });
  await one.clock.advance(15 * SECOND);
  // The other one counts and shares, and is killed; the first one looks.
  await second.alerts.round();
  await two.spool.stop({ within: 0 });
  await one.clock.advance(MINUTE);
  await first.alerts.round();
  await one.clock.settle();
  expect(ear.heard).toMatchObject([{ phase: 'fired', value: 50 }]);
  await one.clock.advance(25 * HOUR);
  await first.alerts.round();
  const left = await one.spool.operator({ by: 'ops' }).records.list('alert.flow');
  // Under a word of its own that does not tell its name: keys of records are never sealed.
  expect(left.map(({ key }) => key)).toEqual([expect.stringMatching(/^[0-9a-f]{16}$/)]);
});

test('a queue that does not answer is asked once a minute, and believed when it does', async () => {
  let asked = 0;
  const queueDepth = (): Promise<number> => {
    asked += 1;
    return asked < 3 ? new Promise(() => undefined) : Promise.resolve(7);
  };
  const { clock, read } = await ground([], { queueDepth });
  for (let at = 0; at < 119; at += 1) {
    void read('queue "q" > 0');
    await clock.advance(SECOND);
  }
  expect(asked).toBe(2);
  await clock.advance(SECOND);
  expect(await read('queue "q" > 0')).toEqual({ value: 7 });
});
