/**
 * amqp — the part of amqplib that we use, as structural types, so that its connection can be passed
 * in or loaded by client.ts; and how a channel is closed.
 */

/** A value in a table of headers or arguments, as amqplib reads and writes it. */
export type TableValue = unknown;
export type Table = Readonly<Record<string, TableValue>>;

/** The fourteen properties of an AMQP message; `expiration` is text in milliseconds. */
export interface Properties {
  readonly contentType?: string | undefined;
  readonly contentEncoding?: string | undefined;
  readonly headers?: Table | undefined;
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

export interface QueueOptions {
  readonly durable?: boolean;
  readonly exclusive?: boolean;
  readonly autoDelete?: boolean;
  readonly arguments?: Table;
}

export interface ExchangeOptions {
  readonly durable?: boolean;
  readonly internal?: boolean;
  readonly autoDelete?: boolean;
  readonly arguments?: Table;
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
  bindQueue(queue: string, exchange: string, key: string, args?: Table): Promise<unknown>;
  unbindQueue(queue: string, exchange: string, key: string, args?: Table): Promise<unknown>;
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
      readonly arguments?: Table;
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
