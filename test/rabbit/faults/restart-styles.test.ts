/** Every style of topology, on both types of queue, with a crash of the broker while messages wait. */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ladder, RetryableError } from 'respool';
import {
  type Consumer,
  createManagement,
  perAttempt,
  perDelay,
  type QueueType,
  shared,
  type TopologyStyle,
} from 'respool/rabbit';
import { isLongRun } from '../../long.ts';
import { type PrivateServer, privateServer, skipReason } from '../../services/index.ts';
import { consume, Hands, ownName, Tray } from '../ground.ts';
import { until } from '../until.ts';
import { YOUNG_MS } from './runs.ts';

const TIMEOUT_MS = 600_000;
const MESSAGES = 10;
/** Longer than the broker takes to be killed. */
const WAIT_MS = 3_000;
const reason = isLongRun ? skipReason('rabbitmq') : 'see npm run test:rabbit';
const skipped = reason === undefined ? '' : ` (skipped: ${reason})`;

const STYLES: readonly ((name: string) => TopologyStyle)[] = [
  (name) => shared({ prefix: name }),
  () => perDelay(),
  (name) => perDelay({ by: 'exchange', exchange: `${name}-ex` }),
  () => perAttempt(),
];
const TYPES: readonly QueueType[] = ['quorum', 'classic'];

interface Line {
  readonly type: QueueType;
  readonly consumer: Consumer;
  readonly failed: Tray<string>;
  readonly done: Tray<string>;
}

describe.skipIf(reason !== undefined)(`with a rabbitmq of its own${skipped}`, () => {
  let server: PrivateServer;
  beforeAll(async () => {
    server = await privateServer('rabbitmq');
  }, TIMEOUT_MS);
  afterAll(() => server.stop());

  test(
    'what waits in any style and type of queue is there after a crash of the broker',
    async () => {
      const lines: Line[] = [];
      for (const type of TYPES) {
        for (const style of STYLES) lines.push(await lineOf(server, type, style));
      }
      await sleep(YOUNG_MS);
      const hands = await Hands.open(server.url);
      for (const { consumer } of lines) {
        for (let at = 0; at < MESSAGES; at += 1) {
          await hands.publish('', consumer.queue, {}, { messageId: `m${at}` });
        }
      }
      for (const { failed, consumer } of lines) {
        await failed.until(MESSAGES);
        // Their retries are confirmed, not only decided.
        await expect.poll(() => consumer.load.publishing).toBe(0);
      }
      await server.kill();
      await server.restart();
      for (const line of lines) {
        const { done } = line;
        // The broker tells nobody when it has found a queue again.
        await until(async () => {
          const there = new Set(done.items).size + (await lying(server, line));
          return there < MESSAGES ? undefined : there;
        });
        // n.b. Retries of quorum queues can be three minutes late; those of classic ones are not.
        if (line.type === 'classic') await done.until(MESSAGES);
      }
      // A queue may take a moment to find its leader again.
      const connected = (): boolean[] => lines.map(({ consumer }) => consumer.isConnected);
      await expect.poll(connected).not.toContain(false);
    },
    TIMEOUT_MS,
  );
});

async function lineOf(
  server: PrivateServer,
  type: QueueType,
  style: (name: string) => TopologyStyle,
): Promise<Line> {
  const queue = ownName();
  const failed = new Tray<string>();
  const done = new Tray<string>();
  const consumer = await consume(
    {
      url: server.url,
      queue,
      type,
      topology: style(queue),
      policy: ladder([WAIT_MS, WAIT_MS, WAIT_MS]),
      waits: [],
    },
    ({ id, attempt }) => {
      if (attempt > 1) {
        done.add(id);
        return;
      }
      failed.add(id);
      throw new RetryableError('test.busy', 'again');
    },
  );
  return { type, consumer, failed, done };
}

/** What lies in the queues of a line, as the broker tells. */
async function lying({ managementUrl = '' }: PrivateServer, { consumer }: Line): Promise<number> {
  await using management = createManagement({ url: managementUrl });
  const names = new Set(consumer.plan.topology.queues.map(({ name }) => name));
  // n.b. Right after a start the management API may not answer yet.
  const all = await management.queues().catch(() => []);
  return all
    .filter(({ name }) => names.has(name))
    .reduce((sum, { raw }) => sum + Number(raw['messages'] ?? 0), 0);
}
