/**
 * amqp — the part of amqplib that we use, as structural types, so that its connection can be passed
 * in or loaded by connection.ts; and channels: how they are opened and closed, and how questions
 * are asked on throw-away ones, since a refusal closes the channel that asked.
 */

import { RespoolError, textOf } from '../../core/errors.ts';

/** A value in a table of headers or arguments, as amqplib reads and writes it. */
type TableValue = unknown;
export type AmqpTable = Readonly<Record<string, TableValue>>;

/** The fourteen properties of an AMQP message; `expiration` is text in milliseconds. */
export interface Properties {
  readonly contentType?: string | undefined;
  readonly contentEncoding?: string | undefined;
  readonly headers?: AmqpTable | undefined;
  readonly deliveryMode?: number | undefined;
  readonly priority?: number | undefined;
  readonly correlationId?: string | undefined;
  readonly replyTo?: string | undefined;
  readonly expiration?: string | undefined;
  readonly messageId?: string | undefined;
  readonly timestamp?: number | undefined;
  readonly type?: string | undefined;
  readonly userId?: string | undefined;
  readonly appId?: string | undefined;
  readonly clusterId?: string | undefined;
}

/** A message as it is delivered or returned. */
export interface AmqpMessage {
  readonly content: Buffer;
  readonly fields: {
    readonly deliveryTag: number;
    readonly redelivered: boolean;
    readonly exchange: string;
    readonly routingKey: string;
    readonly consumerTag?: string;
  };
  readonly properties: Properties;
}

/** A message to publish. */
export interface Outgoing {
  readonly exchange: string;
  readonly key: string;
  readonly content: Buffer;
  readonly properties: Properties;
}

interface Emitter {
  // oxlint-disable-next-line typescript/no-explicit-any -- an event brings what it brings.
  on(event: string, listener: (...args: any[]) => void): unknown;
  // oxlint-disable-next-line typescript/no-explicit-any -- as above.
  off?(event: string, listener: (...args: any[]) => void): unknown;
}

interface QueueOptions {
  readonly durable?: boolean;
  readonly exclusive?: boolean;
  readonly autoDelete?: boolean;
  readonly arguments?: AmqpTable;
}

interface ExchangeOptions {
  readonly durable?: boolean;
  readonly internal?: boolean;
  readonly autoDelete?: boolean;
  readonly arguments?: AmqpTable;
}

export interface QueueState {
  readonly queue: string;
  readonly messageCount: number;
  readonly consumerCount: number;
}

/** A channel. n.b. Any refusal by the broker closes it. */
export interface AmqpChannel extends Emitter {
  close(): Promise<void>;
  assertQueue(queue: string, options?: QueueOptions): Promise<QueueState>;
  checkQueue(queue: string): Promise<QueueState>;
  /** n.b. The conditions are for classic queues: with a quorum queue they end the connection. */
  deleteQueue(
    queue: string,
    options?: { readonly ifEmpty?: boolean; readonly ifUnused?: boolean },
  ): Promise<{ readonly messageCount: number }>;
  bindQueue(queue: string, exchange: string, key: string, args?: AmqpTable): Promise<unknown>;
  unbindQueue(queue: string, exchange: string, key: string, args?: AmqpTable): Promise<unknown>;
  assertExchange(exchange: string, type: string, options?: ExchangeOptions): Promise<unknown>;
  checkExchange(exchange: string): Promise<unknown>;
  deleteExchange(exchange: string, options?: { readonly ifUnused?: boolean }): Promise<unknown>;
  consume(
    queue: string,
    onMessage: (message: AmqpMessage | null) => void,
    options?: {
      readonly consumerTag?: string;
      readonly exclusive?: boolean;
      readonly priority?: number;
      readonly arguments?: AmqpTable;
    },
  ): Promise<{ readonly consumerTag: string }>;
  cancel(consumerTag: string): Promise<unknown>;
  prefetch(count: number): Promise<unknown>;
  ack(message: AmqpMessage, allUpTo?: boolean): void;
  nack(message: AmqpMessage, allUpTo?: boolean, requeue?: boolean): void;
}

/** A channel on which the broker confirms what is published. */
export interface AmqpConfirmChannel extends AmqpChannel {
  publish(
    exchange: string,
    key: string,
    content: Buffer,
    /** Properties, and whether the broker must have a queue for it. */
    options: object,
    onConfirm: (error: unknown) => void,
  ): boolean;
}

/** A connection, as `connect` of amqplib gives it. */
export interface AmqpConnection extends Emitter {
  readonly connection?: {
    readonly serverProperties?: Readonly<Record<string, unknown>>;
    readonly stream?: { destroy(error?: Error): unknown };
  };
  createChannel(): Promise<AmqpChannel>;
  createConfirmChannel(): Promise<AmqpConfirmChannel>;
  close(): Promise<void>;
}

/**
 * What AMQP keeps in a short string: names, routing keys, most properties; bytes of UTF-8. Also in
 * docs/reference/rabbit.md.
 */
export const SHORT_MAX_BYTES = 255;

/** How long a broker may take to answer a close, in milliseconds. */
export const CLOSE_TIMEOUT_MS = 3_000;

/**
 * Closes a channel. n.b. The promise of amqplib never settles when the connection ends before the
 * broker's answer; the channel's own event does.
 */
export function closeChannel(channel: AmqpChannel): Promise<void> {
  return new Promise((resolve) => {
    channel.on('close', () => resolve());
    try {
      channel.close().then(resolve, () => resolve());
    } catch {
      // It is closed already.
      resolve();
    }
  });
}

/** A channel whose end does not end the process. */
export async function openChannel(connection: AmqpConnection): Promise<AmqpChannel> {
  try {
    const channel = await connection.createChannel();
    channel.on('error', () => undefined);
    return channel;
  } catch (error) {
    const text = `cannot open a channel to RabbitMQ: ${textOf(error)}; connect again`;
    throw new RespoolError('broker.unavailable', text, { cause: error });
  }
}

/** The code of a refusal by the broker, such as 404; undefined: it is something else. */
export function refusalCode(error: unknown): number | undefined {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'number' ? code : undefined;
}

/** The version of the broker, as it said when the connection was opened. */
export function versionOf(connection: AmqpConnection | undefined): string | undefined {
  const version = connection?.connection?.serverProperties?.['version'];
  return typeof version === 'string' ? version : undefined;
}

/** What a passive declare says; undefined: there is no such thing. */
export type PassiveQueue<T> = { readonly found: T | undefined } | { readonly problem: string };

/** Depth and consumers by a passive declare, which costs no delivery and changes nothing. */
export async function passiveQueues(
  connection: AmqpConnection,
  names: readonly string[],
): Promise<ReadonlyMap<string, PassiveQueue<QueueState>>> {
  return passively(connection, names, (channel, name) => channel.checkQueue(name));
}

export async function passiveExchanges(
  connection: AmqpConnection,
  names: readonly string[],
): Promise<ReadonlyMap<string, PassiveQueue<unknown>>> {
  return passively(connection, names, (channel, name) => channel.checkExchange(name));
}

async function passively<T>(
  connection: AmqpConnection,
  names: readonly string[],
  ask: (channel: AmqpChannel, name: string) => Promise<T>,
): Promise<ReadonlyMap<string, PassiveQueue<T>>> {
  const answers = new Map<string, PassiveQueue<T>>();
  let channel: AmqpChannel | undefined;
  for (const name of names) {
    channel ??= await openChannel(connection);
    try {
      answers.set(name, { found: await ask(channel, name) });
    } catch (error) {
      // A refusal closed the channel; the next question gets a new one.
      channel = undefined;
      const isMissing = refusalCode(error) === 404;
      answers.set(name, isMissing ? { found: undefined } : { problem: textOf(error) });
    }
  }
  if (channel !== undefined) await closeChannel(channel);
  return answers;
}

/**
 * Channels at once. 100 new quorum queues: 1.4 to 1.7 s on one, 0.5 s on eight; 100 that are there
 * already: 0.04 s on eight or less (RabbitMQ 3.10.8, 2 cores, 2026-11-16). Also in
 * docs/reference/rabbit.md.
 */
const LANES_MAX = 8;

/**
 * Asks many small questions on channels that may be lost, at most eight side by side: amqplib sends
 * the next question of a channel only when the last is answered. After a refusal the lane goes on
 * with a new channel, unless `onRefusal` throws: then no further item is begun.
 */
export async function onParallelChannels<T>(
  connection: AmqpConnection,
  items: readonly T[],
  work: (channel: AmqpChannel, item: T) => Promise<void>,
  onRefusal: (error: unknown, item: T) => void,
): Promise<void> {
  let taken = 0;
  let isStopped = false;
  const lane = async (): Promise<void> => {
    let channel: AmqpChannel | undefined;
    while (!isStopped && taken < items.length) {
      const item = items[taken] as T;
      taken += 1;
      try {
        channel ??= await openChannel(connection);
        await work(channel, item);
      } catch (error) {
        await discard(channel);
        channel = undefined;
        try {
          onRefusal(error, item);
        } catch (stop) {
          isStopped = true;
          throw stop;
        }
      }
    }
    await discard(channel);
  };
  const lanes = Array.from({ length: Math.min(LANES_MAX, items.length) }, lane);
  // All of them are awaited first: nothing is on its way any more when this is over.
  for (const end of await Promise.allSettled(lanes)) {
    if (end.status === 'rejected') throw end.reason;
  }
}

async function discard(channel: AmqpChannel | undefined): Promise<void> {
  // n.b. A refusal has closed it already.
  if (channel !== undefined) await closeChannel(channel);
}
