/** migrate — what it refuses before anything is changed, because messages would be lost. */

import { expect, test } from 'vitest';
import {
  type Compat,
  goqueue,
  type MigrateOptions,
  migrateTopology,
  outbox,
  type QueuePlan,
  spring,
} from 'respool/rabbit';
import { ladder } from 'respool';
import { withService } from '../../services/index.ts';
import { oldAndNew, waitName } from './migrate-plans.ts';
import { type Bench, bodies, freshName, openBench, orderOf } from './setup.ts';
import type { Table } from '../amqp.ts';

const TWENTY: readonly string[] = Array.from({ length: 20 }, (_, at) => `m${at}`);
const HOUR_MS = 3_600_000;

function planOf(compat: Compat, queue: string, exchange = `${queue}.shop`): QueuePlan {
  const bindings = [{ exchange, key: 'order.#' }];
  return compat.style.plan(orderOf(queue, { policy: ladder(['1h']), bindings, type: 'classic' }));
}

/** The migration is refused with this text, and the new queue is not even declared. */
async function expectRefused(
  bench: Bench,
  { next, ...options }: Pick<MigrateOptions, 'from' | 'unrelated'> & { next: QueuePlan },
  text: RegExp,
): Promise<void> {
  const { connection, management } = bench;
  bench.alsoRemove(next.topology);
  for (const dryRun of [true, false]) {
    await expect(
      migrateTopology({ connection, management, to: next, dryRun, ...options }),
    ).rejects.toMatchObject({ code: 'topology.mismatch', message: expect.stringMatching(text) });
  }
  expect(await bench.depth(next.queue)).toBeUndefined();
}

async function declareQueue(bench: Bench, name: string, args: Table): Promise<void> {
  const channel = await bench.connection.createChannel();
  bench.alsoRemove({ queues: [{ ...QUEUE, name }] });
  await channel.assertQueue(name, { durable: true, arguments: args });
  await channel.close();
}

const QUEUE = {
  role: 'wait',
  durable: true,
  exclusive: false,
  autoDelete: false,
  arguments: {},
} as const;

withService('rabbitmq', () => {
  test.concurrent('an outbox fleet whose exchange has another name, with 20 messages that wait', async () => {
    await using bench = await openBench();
    const queue = freshName('fleet');
    const exchange = `${queue}.shop`;
    const fleet = planOf(outbox({ exchange }), queue);
    const wait = waitName(fleet, HOUR_MS);
    await bench.declare(fleet);
    await bench.publish(wait, TWENTY);
    const { next } = oldAndNew(queue);
    const from = planOf(outbox(), queue).topology;
    const text = new RegExp(
      `old queue "${queue}" is not as described: "x-dead-letter-exchange" is ${exchange}.dlx ` +
        'there, outbox.dlx wanted; describe the old topology as it is',
    );
    await expectRefused(bench, { from, next, unrelated: ['*'] }, text);
    expect((await bodies(bench, wait, 20)).toSorted()).toEqual(TWENTY.toSorted());
  });

  test.concurrent('a fleet of Spring whose return exchange has another name', async () => {
    await using bench = await openBench();
    const queue = freshName('spring');
    const names = {
      waitExchange: `${queue}.w`,
      returnExchange: `${queue}.back`,
      waitQueuePrefix: `${queue}.w.`,
      deadLetterExchange: false as const,
    };
    const fleet = planOf(spring(names), queue);
    const wait = waitName(fleet, HOUR_MS);
    await bench.declare(fleet);
    await bench.publish(wait, TWENTY, { headers: { 'return-to': queue } });
    const { next } = oldAndNew(queue);
    const from = planOf(spring({ deadLetterExchange: false }), queue).topology;
    const text = /is bound to the exchange ".*\.back" by the key "", which is not in its desc/;
    await expectRefused(bench, { from, next, unrelated: ['*'] }, text);
    expect(await bodies(bench, wait, 20)).toHaveLength(20);
  });

  test.concurrent('a fleet of GoQueue with more levels than are described', async () => {
    await using bench = await openBench();
    const queue = freshName('levels');
    const fleet = planOf(goqueue({ maxRetries: 3 }), queue);
    const level = `${queue}__retry.3`;
    await bench.declare(fleet);
    await bench.publish(level, TWENTY, { expiration: '3600000' });
    const { next } = oldAndNew(queue);
    const from = planOf(goqueue({ maxRetries: 1 }), queue).topology;
    const text = new RegExp(
      `queue "${queue}__retry.\\d", which is not in the old .* the old queue "${queue}"`,
    );
    await expectRefused(bench, { from, next, unrelated: ['*'] }, text);
    expect(await bodies(bench, level, 20)).toHaveLength(20);
  });

  test.concurrent.each<[string, (queue: string) => Table]>([
    ['by its key', (queue) => ({ 'x-dead-letter-routing-key': queue })],
    ['into the dead queue', (queue) => ({ 'x-dead-letter-routing-key': `${queue}.dlq` })],
    ['by the key of each message', () => ({})],
  ])('an unknown queue that leads back through the default exchange, %s', async (_, more) => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('default'));
    const stray = `${old.queue}.later`;
    await bench.declare(old);
    await declareQueue(bench, stray, { 'x-dead-letter-exchange': '', ...more(old.queue) });
    await bench.publish(stray, TWENTY);
    // n.b. The last case may name a queue of another test, which may lead there just as well.
    const text = /cannot migrate: the queue ".*", which is not in the old topology/;
    await expectRefused(bench, { from: old.topology, next }, text);
    expect(await bodies(bench, stray, 20)).toHaveLength(20);
  });

  test.concurrent('an unknown queue that leads back by a policy', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('policy'));
    const stray = `${old.queue}.later`;
    await bench.declare(old);
    await declareQueue(bench, stray, {});
    const policy = {
      name: stray,
      pattern: `^${stray}$`,
      definition: { 'dead-letter-exchange': '', 'dead-letter-routing-key': old.queue },
      priority: 1,
    };
    bench.alsoRemove({ policies: [policy] });
    await bench.management.putPolicy(policy);
    await bench.publish(stray, TWENTY);
    const text = new RegExp(
      `queue "${stray}", which is .* dead-letters to the old queue "${old.queue}"`,
    );
    await expectRefused(bench, { from: old.topology, next, unrelated: ['*'] }, text);
    expect(await bodies(bench, stray, 20)).toHaveLength(20);
  });

  test.concurrent('an unknown exchange whose alternate leads into an old queue', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('alternate'));
    await bench.declare(old);
    const [inner] = old.topology.exchanges.filter(({ name }) => name.endsWith('.unrouted'));
    const front = `${old.queue}.front`;
    const options = { durable: true, internal: false, autoDelete: false };
    const spec = { ...options, name: front, type: 'topic' as const, arguments: {} };
    bench.alsoRemove({ exchanges: [spec] });
    const channel = await bench.connection.createChannel();
    await channel.assertExchange(front, 'topic', {
      arguments: { 'alternate-exchange': inner?.name },
    });
    await channel.close();
    const text = new RegExp(`the exchange "${front}", which is not in the old topology, passes`);
    await expectRefused(bench, { from: old.topology, next, unrelated: ['*'] }, text);
  });

  test.concurrent('a main queue that has another binding than its description', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('bound'));
    await bench.declare(old);
    const channel = await bench.connection.createChannel();
    await channel.bindQueue(old.queue, 'amq.topic', `${old.queue}.mine`);
    await channel.close();
    const text = /is bound to the exchange "amq.topic" by the key ".*mine".* --binding amq.topic:/;
    await expectRefused(bench, { from: old.topology, next, unrelated: ['*'] }, text);
  });

  test.concurrent('queues that are vouched for, or empty, stop nothing', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('vouched'));
    const stray = `${old.queue}.other`;
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    await declareQueue(bench, stray, { 'x-dead-letter-exchange': '' });
    await bench.publish(stray, ['theirs']);
    const { connection, management } = bench;
    const options = { connection, management, from: old.topology, to: next, unrelated: ['*'] };
    expect(await migrateTopology(options)).toMatchObject({ isDone: true, todo: [] });
    expect(await bodies(bench, stray, 1)).toEqual(['theirs']);
  });
});
