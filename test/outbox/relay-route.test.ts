/** A relay whose target is a handler: what reached nobody costs nothing, the rest goes by its word. */
import { type Delivery, delivered, failed, failure, type Handler, RetryableError } from 'respool';
import { http } from 'respool/deliver';
import { expect, test } from 'vitest';
import { put, relayWorld } from './relay-setup.ts';

const MINUTE = 60_000;

function refused(): Error {
  const cause = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
  return new TypeError('fetch failed', { cause });
}

const toOneAddress: Handler = Object.assign(
  () => failed(failure('transient', 'http.unreachable', 'nobody listens')),
  { describe: () => ({ kind: 'http', url: 'http://shop.example/' }) },
);

test.each<[string, Handler]>([
  [
    'throws broker.unavailable',
    () => {
      throw new RetryableError('broker.unavailable', 'gone');
    },
  ],
  ['answers broker.unavailable', () => failed(failure('transient', 'broker.unavailable', 'gone'))],
  ['finds nobody at its one address', toOneAddress],
])('a handler that %s spends no attempts, and is asked seldom', async (_, gone) => {
  const calls: number[] = [];
  let isGone = true;
  const deliver: Handler = Object.assign((delivery: Delivery) => {
    calls.push(world.clock.now());
    return isGone ? gone(delivery) : undefined;
  }, gone);
  const world = relayWorld({ deliver }, { concurrency: 20 });
  const { relay, clock, spool, events, count } = world;
  await put(spool, 500);
  await relay.start();
  await clock.settle();
  const downAt = clock.now();
  expect(relay.load).toMatchObject({ target: 'open', running: 0, downSince: downAt });
  // What was in hand when the first of them found nobody.
  expect(calls.length).toBeLessThanOrEqual(20);
  calls.length = 0;
  const claims = count('claim');
  await clock.advance(2 * MINUTE);
  expect(calls.map((at) => at - downAt)).toEqual([
    1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000,
  ]);
  expect(count('claim') - claims).toBeLessThanOrEqual(2 * calls.length);
  for await (const { status } of spool.list()) expect(status.attempts).toBe(0);
  expect(events.filter(({ kind }) => kind === 'trouble')).toMatchObject([
    { doing: 'sending to a route', error: { code: 'broker.unavailable' } },
  ]);
  expect(relay.load.downSince).toBe(downAt);
  isGone = false;
  await clock.advance(MINUTE);
  expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0, bounce: 0 });
  expect(relay.load.target).toBe('closed');
  expect(relay.load.downSince).toBeUndefined();
  await relay.stop();
});

test('where one of two places is gone, its messages pay, and the others go on', async () => {
  const world = relayWorld(
    {
      deliver: ({ topic }) => {
        if (topic === 'dead') throw refused();
      },
    },
    { concurrency: 10 },
  );
  const { relay, clock, spool } = world;
  const topics = Array.from({ length: 300 }, (_, at) => (at % 3 === 0 ? 'dead' : 'alive'));
  await spool.enqueueMany(topics.map((topic) => ({ topic })));
  await relay.start();
  await clock.settle();
  expect(relay.load.target).toBe('closed');
  const left: string[] = [];
  for await (const { envelope, status } of spool.list()) {
    left.push(envelope.topic);
    expect(status).toMatchObject({ state: 'deferred', lastFailure: { code: 'econnrefused' } });
    expect(status.attempts).toBe(1);
  }
  expect(left).toEqual(Array<string>(100).fill('dead'));
  await clock.advance(MINUTE);
  const [late = ''] = await put(spool, 1, 'alive');
  await clock.advance('30s');
  expect(await spool.get(late)).toBeUndefined();
  await relay.stop();
});

test('http() to a port where nobody listens costs no attempts', async () => {
  const world = relayWorld({
    deliver: http({ url: 'http://127.0.0.1:1/', allow: ['127.0.0.1'] }),
  });
  const { relay, spool } = world;
  await put(spool, 3);
  await relay.start();
  await expect.poll(() => relay.load).toMatchObject({ target: 'open', running: 0, settling: 0 });
  for await (const { status } of spool.list()) expect(status.attempts).toBe(0);
  await relay.stop();
});

test('what is delivered while the valve shuts beside it is delivered', async () => {
  let answer = (): void => undefined;
  let calls = 0;
  const world = relayWorld({
    deliver: ({ topic }) => {
      if (topic === 'dead') throw new RetryableError('broker.unavailable', 'gone');
      calls += 1;
      return new Promise((resolve) => {
        answer = () => resolve(delivered());
      });
    },
  });
  const { relay, clock, spool } = world;
  const [slow = ''] = await put(spool, 1, 'slow');
  await put(spool, 1, 'dead');
  await relay.start();
  await clock.settle();
  expect(relay.load).toMatchObject({ target: 'open', running: 1 });
  answer();
  await clock.advance('1s');
  expect(await spool.get(slow)).toBeUndefined();
  expect(calls).toBe(1);
  await relay.stop();
});

test('a handler may take longer than a sink, and permanent failures stay permanent', async () => {
  let calls = 0;
  const world = relayWorld({
    deliver: async ({ topic }) => {
      if (topic === 'never') return failed(failure('permanent', 'broker.unavailable', 'for good'));
      calls += 1;
      await new Promise<void>((resolve) => void world.clock.after(10 * MINUTE, resolve));
      return delivered();
    },
  });
  const { relay, clock, spool, status } = world;
  const [long = ''] = await put(spool, 1, 'long');
  const [never = ''] = await put(spool, 1, 'never');
  await relay.start();
  await clock.advance(9 * MINUTE);
  expect(await status(long)).toMatchObject({ state: 'active' });
  expect(await status(never)).toMatchObject({ state: 'bounce' });
  await clock.advance(2 * MINUTE);
  expect(await spool.get(long)).toBeUndefined();
  expect(calls).toBe(1);
  await relay.stop();
});

test('a handler that never ends while it asks holds up nobody for longer than its time limit', async () => {
  let mode: 'gone' | 'hangs' | 'there' = 'gone';
  const deliver: Handler = () => {
    if (mode === 'gone') return failed(failure('transient', 'broker.unavailable', 'gone'));
    if (mode === 'there') return undefined;
    mode = 'there';
    return new Promise(() => undefined);
  };
  const { relay, clock, spool } = relayWorld({ deliver });
  await put(spool, 40);
  await relay.start();
  await clock.settle();
  mode = 'hangs';
  await clock.advance(30 * MINUTE);
  expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0, bounce: 0 });
  const stopped = relay.stop({ within: '10s' });
  await clock.advance(MINUTE);
  await stopped;
});
