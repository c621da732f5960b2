/**
 * deadletters-run — one round of either side: a dead queue is filled, everything in it is moved to
 * a quorum queue, and both are taken away.
 *
 * The clock of both runs from the order to the end, with the connections that they open.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect } from 'amqplib';
import { createSpool } from 'respool';
import { planReplay, runReplay } from 'respool/dead-letters';
import { createQueueLetters } from '../src/rabbit/queues/queue-letters.ts';
import { sweepQueue } from '../src/rabbit/queues/sweep.ts';
import { createManagement } from '../src/rabbit/management/management.ts';
import type { Sample } from './measure.ts';
import type { Broker } from './rabbit-broker.ts';

/** Where it happens. */
export interface Place {
  readonly broker: Broker;
  readonly managementUrl: string;
}

/** What one round is about. */
export interface Errand {
  readonly type: 'quorum' | 'classic';
  readonly inFlight: number;
  /** All of them are moved. */
  readonly count: number;
}

interface Road {
  readonly dead: string;
  readonly target: string;
}

/** What a careful person would write by hand. */
export function bareMove({ broker }: Place, errand: Errand): Promise<Sample> {
  return timed(broker, errand, async ({ dead, target }) => async () => {
    const consuming = await connect(broker.url, { noDelay: true });
    const publishing = await connect(broker.url, { noDelay: true });
    const channel = await consuming.createChannel();
    const outgoing = await publishing.createConfirmChannel();
    await channel.prefetch(errand.inFlight);
    let moved = 0;
    await new Promise<void>((resolve, reject) => {
      const move = (message: Parameters<typeof channel.ack>[0] | null): void => {
        if (message === null) return;
        const { messageId, timestamp } = message.properties;
        const headers = { ...message.properties.headers, from: dead };
        const options = { persistent: true, mandatory: true, messageId, timestamp, headers };
        outgoing.publish('', target, message.content, options, (error: Error | null) => {
          if (error !== null) reject(error);
          channel.ack(message);
          moved += 1;
          if (moved === errand.count) resolve();
        });
      };
      channel.consume(dead, move).catch(reject);
    });
    await consuming.close();
    await publishing.close();
  });
}

/** A sweep that finds everything over its limit. */
export async function ourSweep({ broker, managementUrl }: Place, errand: Errand): Promise<Sample> {
  const management = createManagement({ url: managementUrl });
  try {
    return await timed(broker, errand, async ({ dead, target }) => async () => {
      const { url } = broker;
      const window = errand.inFlight;
      const { error } = await sweepQueue({ url, management, queue: dead, target, window });
      if (error !== undefined) throw new Error(error);
    });
  } finally {
    await management.close();
  }
}

/** A replay that is planned already, on record in SQLite, without canaries. */
export async function ourReplay({ broker, managementUrl }: Place, errand: Errand): Promise<Sample> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-bench-'));
  const spool = createSpool({ path: folder });
  const operator = spool.operator({ by: 'bench' });
  const management = createManagement({ url: managementUrl });
  try {
    return await timed(broker, errand, async ({ dead }) => {
      const letters = createQueueLetters({ url: broker.url, management, queue: dead });
      const source = { kind: 'queue', queue: dead, broker: 'bench' } as const;
      const options = { window: errand.inFlight, canary: 0 };
      const { id } = await planReplay(operator, letters, source, options);
      return async () => {
        const { state, because } = await runReplay(operator, letters, id);
        if (state !== 'done') throw new Error(`the replay is ${state}: ${because}`);
        await letters.close();
      };
    });
  } finally {
    await management.close();
    await spool.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function timed(
  broker: Broker,
  { type, count }: Errand,
  prepare: (road: Road) => Promise<() => Promise<void>>,
): Promise<Sample> {
  const plan = broker.plan(type);
  await broker.lay(plan, 0);
  const { channel } = await broker.hands();
  const road = { dead: plan.dead.key, target: `${plan.queue}.target` };
  const args = { 'x-queue-type': 'quorum' };
  await channel.assertQueue(road.target, { durable: true, arguments: args });
  await broker.fill(road.dead, count, headersOf(road.target));
  const work = await prepare(road);
  const beganAt = performance.now();
  await work();
  const tookMs = performance.now() - beganAt;
  const { messageCount } = await channel.checkQueue(road.target);
  if (messageCount !== count) throw new Error(`${messageCount} of ${count} were moved`);
  await channel.deleteQueue(road.target);
  await broker.remove(plan);
  return { value: (count * 1_000) / tookMs };
}

/** As a message has them that failed five times in our handlers, and was given up. */
function headersOf(home: string): Readonly<Record<string, unknown>> {
  const at = 1_790_000_000_000;
  return {
    tenant: 'acme',
    'respool-attempts': 5,
    'respool-lost': 0,
    'respool-exchange': '',
    'respool-routing-key': home,
    'respool-queue': home,
    'respool-first-at': at,
    'respool-first-failed-at': at + 1,
    'respool-last-failed-at': at + 60_000,
    'respool-code': 'http.503',
    'respool-reason': 'the other side answered 503',
    'respool-permanence': 'transient',
    'respool-ended': 'bounced',
    'respool-ended-code': 'attempts.exhausted',
    'respool-ended-reason': 'no attempt is left',
    'respool-ended-at': at + 60_001,
    'respool-ended-by': 'consumer',
  };
}
