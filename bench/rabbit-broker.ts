/** rabbit-broker — queues for one run each, filled beforehand, and taken away afterwards. */

import { randomBytes } from 'node:crypto';
import { type ChannelModel, type ConfirmChannel, connect } from 'amqplib';
import { fixed } from 'respool';
import { perDelay, type QueuePlan } from 'respool/rabbit';
import type { Sample } from './measure.ts';

/** What one run is about. */
export interface Errand {
  readonly type: 'quorum' | 'classic';
  /** Deliveries sent ahead, or messages on their way. */
  readonly inFlight: number;
  readonly forMs: number;
}

export const BODY: Buffer = Buffer.alloc(1_024, 'x');

/** Longer than any run. */
const WAIT_MS = 3_600_000;

/** How many messages keep one run busy, as far as earlier runs tell. */
const FIRST_RATE: Readonly<Record<number, number>> = { 1: 800, 100: 10_000, 1_000: 15_000 };

/** The broker of a bench. */
export class Broker {
  readonly url: string;
  #filled = 0;
  #hands: Promise<{ connection: ChannelModel; channel: ConfirmChannel }> | undefined;

  constructor(url: string) {
    this.url = url;
  }

  /** Enough for the time, whichever is quicker. */
  countFor({ inFlight, forMs }: Errand): number {
    return Math.ceil(((FIRST_RATE[inFlight] ?? 1_000) * forMs) / 1_000);
  }

  /** The name of a queue, its wait queue and so on: the same for everybody. */
  plan(type: Errand['type']): QueuePlan {
    return perDelay().plan({
      queue: `bench-${randomBytes(6).toString('hex')}`,
      type,
      policy: fixed(WAIT_MS),
      extraWaitsMs: [],
      bindings: [],
      durable: true,
      exclusive: false,
      autoDelete: false,
      queueArguments: {},
    });
  }

  /** Declares a plan, and puts this many messages into its queue. */
  async lay({ queue, topology }: QueuePlan, count: number): Promise<void> {
    const { channel } = await this.hands();
    for (const { name, type, ...options } of topology.exchanges) {
      await channel.assertExchange(name, type, options);
    }
    for (const { name, ...options } of topology.queues) await channel.assertQueue(name, options);
    for (const { queue: to, exchange, key, arguments: args } of topology.bindings) {
      await channel.bindQueue(to, exchange, key, args);
    }
    await this.fill(queue, count);
  }

  async fill(
    name: string,
    count: number,
    headers?: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const { channel } = await this.hands();
    for (let at = 0; at < count; at += 1) {
      this.#filled += 1;
      const messageId = `0198${this.#filled.toString(16).padStart(12, '0')}`;
      channel.sendToQueue(name, BODY, { persistent: true, messageId, headers });
      if (at % 500 === 499) await channel.waitForConfirms();
    }
    await channel.waitForConfirms();
  }

  async remove({ topology }: QueuePlan): Promise<void> {
    const { channel } = await this.hands();
    for (const { name } of topology.queues) await channel.deleteQueue(name);
    for (const { name } of topology.exchanges) await channel.deleteExchange(name);
  }

  async end(): Promise<void> {
    await (await this.#hands)?.connection.close();
  }

  hands(): Promise<{ connection: ChannelModel; channel: ConfirmChannel }> {
    this.#hands ??= connect(this.url).then(async (connection) => {
      // The end of the broker must not hide why it ended.
      connection.on('error', () => undefined);
      return { connection, channel: await connection.createConfirmChannel() };
    });
    return this.#hands;
  }
}

/** Counts to a number, and tells how fast it got there: from the first on. */
export class Count {
  readonly #wanted: number;
  #seen = 0;
  #beganAt = 0;
  #done: (sample: Sample) => void = () => undefined;
  readonly sample: Promise<Sample> = new Promise((resolve) => {
    this.#done = resolve;
  });

  constructor(wanted: number) {
    this.#wanted = wanted;
  }

  /** Another one; true when it was the last. */
  tick(): boolean {
    if (this.#seen === 0) this.#beganAt = performance.now();
    this.#seen += 1;
    if (this.#seen !== this.#wanted) return false;
    this.#done({ value: (this.#wanted - 1) / ((performance.now() - this.#beganAt) / 1_000) });
    return true;
  }
}

/** Keeps this many calls on their way for a time; how many ended per second. */
export async function inFlight(
  { inFlight: count, forMs }: Errand,
  call: () => Promise<unknown>,
): Promise<Sample> {
  let done = 0;
  const beganAt = performance.now();
  const line = async (): Promise<void> => {
    while (performance.now() - beganAt < forMs) {
      await call();
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: count }, line));
  return { value: done / ((performance.now() - beganAt) / 1_000) };
}
