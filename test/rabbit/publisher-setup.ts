/**
 * publisher-setup — an exchange and a queue of one test, what arrived there, and a publisher.
 */
import { randomUUID } from 'node:crypto';
import { createServer, connect as dial, type Server, type Socket } from 'node:net';
import { connect, type ChannelModel, type ConsumeMessage } from 'amqplib';
import { onTestFinished } from 'vitest';
import { createPublisher, type Publisher, type PublisherOptions } from 'respool/rabbit';
import type { Clock } from 'respool';
import { holdTimers, systemClock } from '../time.ts';

/** A `fallbackAfter`; no other timer of a publisher has this length. */
const FALLBACK_AFTER_MS = 53;
/** A `confirmTimeout` in milliseconds; no other timer of a sink has this length. */
const CONFIRM_TIMEOUT_MS = 3_600_000;

/** The broker's side of a test. */
export interface BrokerWorld {
  readonly url: string;
  /** A topic exchange; the queue takes everything that is published to `q.#`. */
  readonly exchange: string;
  readonly queue: string;
  readonly connection: ChannelModel;
  /** What arrived so far; waits until there are as many. */
  readonly arrived: (count: number) => Promise<readonly ConsumeMessage[]>;
  /** Everything that was consumed until now. */
  readonly messages: readonly ConsumeMessage[];
  readonly dispose: () => Promise<void>;
}

/** Declares an exchange and a queue, and consumes the queue. */
export async function brokerWorld(
  url: string,
  queueArguments: Readonly<Record<string, unknown>> = {},
): Promise<BrokerWorld> {
  const prefix = `publisher-${randomUUID().slice(0, 8)}`;
  const exchange = `${prefix}.exchange`;
  const queue = `${prefix}.queue`;
  const connection = await connect(url);
  connection.on('error', () => undefined);
  const channel = await connection.createChannel();
  channel.on('error', () => undefined);
  await channel.assertExchange(exchange, 'topic', { durable: true });
  await channel.assertQueue(queue, { durable: true, arguments: queueArguments });
  await channel.bindQueue(queue, exchange, 'q.#');
  const messages: ConsumeMessage[] = [];
  let listeners: (() => void)[] = [];
  await channel.consume(
    queue,
    (message) => {
      if (message === null) return;
      messages.push(message);
      for (const tell of listeners) tell();
    },
    { noAck: true },
  );
  const arrived = (count: number): Promise<readonly ConsumeMessage[]> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (messages.length < count) return;
        listeners = listeners.filter((one) => one !== look);
        resolve(messages);
      };
      listeners.push(look);
      look();
    });
  const dispose = async (): Promise<void> => {
    try {
      await channel.deleteQueue(queue);
      await channel.deleteExchange(exchange);
      await connection.close();
    } catch {
      // The broker of this test is gone, and everything with it.
    }
  };
  return { url, exchange, queue, connection, arrived, messages, dispose };
}

/** The broker's side and a publisher, both gone when the test is. */
export async function setup(
  url: string,
  options: PublisherOptions = {},
): Promise<BrokerWorld & { readonly publisher: Publisher }> {
  const world = await brokerWorld(url);
  onTestFinished(world.dispose);
  const choice = options.connection === undefined ? { url } : {};
  const publisher = createPublisher({ ...choice, exchange: world.exchange, ...options });
  onTestFinished(() => publisher.close());
  return { ...world, publisher };
}

/** A way to the broker that can be cut and mended. */
export async function openRoad(url: string): Promise<{
  readonly url: string;
  readonly cut: () => Promise<void>;
  readonly recover: () => Promise<void>;
}> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  let server: Server | undefined;
  const listen = (port: number): Promise<number> =>
    new Promise((resolve, reject) => {
      const opened = createServer((near) => {
        const far = dial(Number(target.port), target.hostname);
        for (const socket of [near, far]) {
          sockets.add(socket);
          socket.on('error', () => undefined);
          socket.on('close', () => {
            near.destroy();
            far.destroy();
            sockets.delete(socket);
          });
        }
        near.pipe(far).pipe(near);
      });
      server = opened;
      opened.on('error', reject);
      opened.listen(port, '127.0.0.1', () => {
        resolve((opened.address() as { readonly port: number }).port);
      });
    });
  const port = await listen(0);
  const road = new URL(url);
  road.port = String(port);
  return {
    url: road.href,
    cut: () =>
      new Promise((resolve) => {
        server?.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
    recover: async () => void (await listen(port)),
  };
}

/**
 * What a publisher with a fallback takes: its time runs once the test says that the broker is away.
 * On a busy machine the first connection may need as long, and that is no outage.
 */
export function fallbackTimes(): {
  readonly options: { readonly fallbackAfter: number; readonly clock: Clock };
  readonly begin: () => void;
} {
  const { clock, release } = holdTimers(FALLBACK_AFTER_MS);
  return { options: { fallbackAfter: FALLBACK_AFTER_MS, clock }, begin: release };
}

/**
 * A `confirmTimeout` that ends only while the test says that the broker is away, and then soon: a
 * busy machine may need longer for a confirm than any limit that a test would wait for.
 */
export function confirmTimes(): {
  readonly options: { readonly confirmTimeout: number; readonly clock: Clock };
  readonly setAway: (isAway: boolean) => void;
} {
  let isAway = false;
  let aheadMs = 0;
  const after: Clock['after'] = (ms, call) => {
    if (ms !== CONFIRM_TIMEOUT_MS) return systemClock.after(ms, call);
    if (!isAway) return () => undefined;
    return systemClock.after(50, () => {
      aheadMs += ms;
      call();
    });
  };
  const monotonic = (): number => systemClock.monotonic() + aheadMs;
  return {
    options: { confirmTimeout: CONFIRM_TIMEOUT_MS, clock: { ...systemClock, after, monotonic } },
    setAway: (is) => {
      isAway = is;
    },
  };
}
