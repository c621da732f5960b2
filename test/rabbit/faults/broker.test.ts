/** A broker that crashes, comes back, and runs out of memory and disk. */

import {
  afterAll,
  beforeAll,
  describe,
  expect,
  onTestFinished,
  test,
  type TestContext,
} from 'vitest';
import { fixed, RetryableError } from 'respool';
import { shared } from 'respool/rabbit';
import { type PrivateServer, privateServer, skipReason } from '../../services/index.ts';
import { freshSeed } from '../../torture/chance.ts';
import { consume, Hands, nextEvent, ownName, Tray } from '../ground.ts';
import { clearAlarm, setAlarm, setConsumerTimeout } from './alarms.ts';
import { restarts } from './runs.ts';
import { Gate } from './setup.ts';

const TIMEOUT_MS = 600_000;
const TIMEOUT = { timeout: TIMEOUT_MS };
const reason = skipReason('rabbitmq');

describe.skipIf(reason !== undefined)('with a rabbitmq of its own', () => {
  let server: PrivateServer;
  beforeAll(async () => {
    server = await privateServer('rabbitmq');
  }, TIMEOUT_MS);
  afterAll(() => server.stop());

  test.for(['memory', 'disk'] as const)(
    'an alarm of %s lets a consumer pause and go on afterwards, and nothing is lost',
    TIMEOUT,
    async (alarm, context) => {
      needOperator(server, context);
      onTestFinished(() => clearAlarm(server, alarm));
      const { consumer, hands, queue, fate } = await setup(server);
      const count = 60;
      const ids = Array.from({ length: count }, (_, at) => `m${at}`);
      for (const id of ids.slice(0, 30)) await hands.publish('', queue, 1, { messageId: id });
      await setAlarm(server, alarm);
      // Its next retry tells it.
      await until(() => consumer.load.isBlocked);
      const whileBlocked = Promise.all(
        ids.slice(30).map((messageId) => hands.publish('', queue, 1, { messageId })),
      );
      await until(() => consumer.load.running === 0);
      expect(consumer.isConnected).toBe(false);
      expect(consumer.load).toMatchObject({ buffered: 0, isRunning: true });
      fate.isOver = true;
      await clearAlarm(server, alarm);
      await whileBlocked;
      await until(() => fate.done.size === count);
      expect([...fate.done].toSorted()).toEqual(ids.toSorted());
      expect(consumer.load).toMatchObject({ isBlocked: false, isConnected: true });
    },
  );

  test(
    'a consumer stops in bounded time while the broker takes nothing, and gives all back',
    async (context) => {
      needOperator(server, context);
      onTestFinished(() => clearAlarm(server, 'memory'));
      const { consumer, hands, queue, fate } = await setup(server);
      for (let at = 0; at < 30; at += 1) {
        await hands.publish('', queue, 1, { messageId: `m${at}` });
      }
      await setAlarm(server, 'memory');
      await until(() => consumer.load.isBlocked);
      // The alarm is cleared after the stop: one that waited for the broker would not end.
      await consumer.stop({ within: '500ms' });
      fate.isOver = true;
      await clearAlarm(server, 'memory');
      const next = await setup(server, queue, fate);
      await until(() => fate.done.size === 30);
      expect(next.consumer.load.isBlocked).toBe(false);
    },
    TIMEOUT_MS,
  );

  test(
    'a delivery that took longer than the broker allows comes again, on a new channel',
    async (context) => {
      needOperator(server, context);
      await setConsumerTimeout(server, { timeoutMs: 1_000, lookEveryMs: 200 });
      const queue = ownName();
      const hands = await Hands.open(server.url);
      const gate = new Gate();
      const runs = new Tray<string>();
      const topology = shared({ prefix: queue });
      const consumer = await consume({ queue, url: server.url, topology }, async ({ id }) => {
        runs.add(id);
        if (runs.items.length === 1) await gate.opened;
      });
      const trouble = nextEvent(consumer, 'trouble');
      const [stale, delivered] = [nextEvent(consumer, 'stale'), nextEvent(consumer, 'delivered')];
      await hands.publish('', queue, 1, { messageId: 'slow' });
      expect((await trouble).error.message).toMatch(/timed out|timeout/);
      expect(await runs.until(2)).toEqual(['slow', 'slow']);
      await delivered;
      gate.open();
      await stale;
      expect(consumer.isConnected).toBe(true);
      await consumer.stop();
      expect(await hands.depth(queue)).toBe(0);
    },
    TIMEOUT_MS,
  );

  test(
    'a broker that is killed and comes back has lost nothing, and its consumers go on',
    async () => {
      const seed = freshSeed();
      const options = { restarts: 1, waitsForLate: false, consumers: 2, seed };
      const result = await restarts(server, options);
      expect(result.complaints, `seed ${seed}`).toEqual([]);
      expect(result).toMatchObject({ lost: 0, unexpected: 0, corrupt: 0 });
      expect(result.messages).toBeGreaterThan(50);
    },
    TIMEOUT_MS,
  );
});

/** Alarms are raised beside the node, which nobody can do for one in a container. */
function needOperator({ operator }: PrivateServer, { skip }: TestContext): void {
  if (operator === undefined) skip('rabbitmqctl of this broker cannot be reached');
}

/** A consumer whose every message goes round and round until the alarm is over. */
async function setup(
  server: PrivateServer,
  queue = ownName(),
  fate = { isOver: false, done: new Set<string>() },
) {
  const hands = await Hands.open(server.url);
  const consumer = await consume(
    {
      queue,
      url: server.url,
      topology: shared({ prefix: queue }),
      policy: fixed('50ms', { attempts: 1_000 }),
      waits: [],
    },
    ({ id }) => {
      if (!fate.isOver) throw new RetryableError('test.busy', 'again');
      fate.done.add(id);
    },
  );
  return { consumer, hands, queue, fate };
}

async function until(isTrue: () => boolean): Promise<void> {
  await expect.poll(isTrue).toBe(true);
}
