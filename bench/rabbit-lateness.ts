/**
 * rabbit-lateness — how much later than asked a message comes back from its wait queue, for every
 * style and type of queue, beside the same wait queue used by hand.
 */

import { randomBytes } from 'node:crypto';
import { connect } from 'amqplib';
import { fixed, RetryableError } from 'respool';
import { createConsumer, perAttempt, perDelay, type QueuePlan, shared } from 'respool/rabbit';
import { type BenchCase, percentile, type Sample } from './measure.ts';
import { BODY, type Broker, type Errand } from './rabbit-broker.ts';

const WAIT_MS = 1_000;
const MESSAGES = 1_000;
/** Spread over this many parts of a second: retries do not come all at once. */
const PARTS = 20;

type StyleName = 'shared' | 'perDelay' | 'perAttempt';

/** One case for each style and type. */
export function latenessCases(broker: Broker): BenchCase[] {
  const styles: readonly StyleName[] = ['shared', 'perDelay', 'perAttempt'];
  return (['quorum', 'classic'] as const).flatMap((type) =>
    styles.map((style) => ({
      bench: 'rabbit',
      name: `${type} lateness ${style}, p99`,
      unit: 'ms',
      against: 'bare',
      forMs: WAIT_MS,
      rounds: 3,
      ours: () => ourLateness(broker, planOf(style, type)),
      theirs: () => bareLateness(broker, planOf(style, type)),
    })),
  );
}

function planOf(style: StyleName, type: Errand['type']): QueuePlan {
  const queue = `bench-${randomBytes(6).toString('hex')}`;
  const styles = { shared: () => shared({ prefix: queue }), perDelay, perAttempt };
  return styles[style]().plan({
    queue,
    type,
    policy: fixed(WAIT_MS, { attempts: 2 }),
    extraWaitsMs: [],
    bindings: [],
    durable: true,
    exclusive: false,
    autoDelete: false,
    queueArguments: {},
  });
}

/** A handler fails once and notes when; then it sees how long that was ago. */
async function ourLateness(broker: Broker, plan: QueuePlan): Promise<Sample> {
  await broker.lay(plan, 0);
  const failedAt = new Map<string, number>();
  const lateMs: number[] = [];
  let finish = (): void => undefined;
  const done = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const consumer = createConsumer(
    {
      url: broker.url,
      queue: plan.queue,
      type: plan.type,
      topology: { name: 'as planned', plan: () => plan },
      policy: fixed(WAIT_MS, { attempts: 2 }),
      prefetch: 200,
      concurrency: 200,
    },
    ({ id, attempt }) => {
      if (attempt === 1) {
        failedAt.set(id, performance.now());
        throw new RetryableError('later', 'not now');
      }
      lateMs.push(performance.now() - (failedAt.get(id) ?? 0) - WAIT_MS);
      if (lateMs.length === MESSAGES) finish();
    },
  );
  await consumer.start();
  await spread((count) => broker.fill(plan.queue, count));
  await done;
  await consumer.stop();
  await broker.remove(plan);
  return sampleOf(lateMs);
}

async function bareLateness(broker: Broker, plan: QueuePlan): Promise<Sample> {
  await broker.lay(plan, 0);
  const connection = await connect(broker.url, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  const road = plan.wait({ delayMs: WAIT_MS, attempt: 1, routingKey: plan.queue });
  const lateMs: number[] = [];
  let finish = (): void => undefined;
  const done = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const sentAt: number[] = [];
  await channel.consume(plan.queue, (message) => {
    if (message === null) return;
    channel.ack(message);
    lateMs.push(performance.now() - (sentAt[Number(message.properties.messageId)] ?? 0) - WAIT_MS);
    if (lateMs.length === MESSAGES) finish();
  });
  await spread(async (count) => {
    for (let at = 0; at < count; at += 1) {
      const messageId = String(sentAt.push(performance.now()) - 1);
      const options = { persistent: true, messageId, headers: road.headers };
      channel.publish(road.exchange, road.key, BODY, options);
    }
    await channel.waitForConfirms();
  });
  await done;
  await connection.close();
  await broker.remove(plan);
  return sampleOf(lateMs);
}

async function spread(send: (count: number) => Promise<void>): Promise<void> {
  for (let part = 0; part < PARTS; part += 1) {
    await send(MESSAGES / PARTS);
    await new Promise((resolve) => setTimeout(resolve, 1_000 / PARTS));
  }
}

function sampleOf(lateMs: number[]): Sample {
  if (Math.min(...lateMs) < 0) throw new Error('a message came back too early');
  const p99Ms = percentile(lateMs, 0.99);
  return { value: p99Ms, p50Ms: percentile(lateMs, 0.5), p99Ms };
}
