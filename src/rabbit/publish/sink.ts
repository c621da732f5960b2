/**
 * sink — an exchange as the place where messages are sent on to, with confirms.
 *
 * The id becomes the message id, the topic the routing key, headers stay headers. What is not
 * confirmed is a transient failure: it may have got through, and is recognised by its id. It is
 * permanent where the message itself is at fault: its size, headers or key.
 */

import type { Duration } from '../../core/duration.ts';
import { isRespoolError, RespoolError } from '../../core/errors.ts';
import { classify, type Failure, failure } from '../../core/failure.ts';
import { CLOCK_OPTION, DICE_OPTION, type Option, readOptions } from '../../core/option-table.ts';
import { checkTracer, runInSendSpan, TRACING_OPTION } from '../../engine/tracing.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type { OutgoingMessage, Sink } from '../../ports/sink.ts';
import type { Tracer } from '../../ports/tracer.ts';
import { systemClock } from '../../system/clock.ts';
import { InFlight } from '../../system/wait.ts';
import type { AmqpConnection, Outgoing } from '../connection/amqp.ts';
import {
  BROKER_OPTIONS,
  connectionOf,
  exchangePlace,
  type RabbitConnection,
  type TlsOptions,
} from '../connection/connection.ts';
import { CONTENT_TYPE_BYTES } from './codecs.ts';
import type { ReconnectingConnection } from '../connection/reconnecting-connection.ts';
import {
  isNack,
  exchangeExists,
  missingExchange,
  ConfirmPublisher,
  CONFIRM_PUBLISHER_LIMITS,
} from './confirm-publisher.ts';
import { ConnectionGate } from './connection-gate.ts';
import { badKeyList, checkShort } from './message.ts';
import { CONFIRM_TIMEOUT } from './options.ts';

/** The options of a sink, in the order of its error texts. */
const SINK = {
  ...BROKER_OPTIONS,
  exchange: {
    kind: 'text',
    type: 'a name',
    required: true,
    about: "where it publishes; at `''` the key is the name of a queue",
  },
  key: {
    kind: 'code',
    type: 'text, or a function of the parcel',
    ts: 'string | ((parcel: OutgoingMessage) => string)',
    secret: false,
    defaultText: 'its topic',
    about: 'the routing key of a parcel',
  },
  confirmTimeout: CONFIRM_TIMEOUT,
  awayAfter: {
    kind: 'duration',
    min: '1ms',
    max: '1d',
    defaultText: 'they wait for it, as long as for a confirm',
    about: 'how long the broker may be down before parcels fail at once',
  },
  maxBytes: {
    kind: 'bytes',
    min: '1 bytes',
    max: '512 MiB',
    default: '16 MiB',
    about: 'the largest body; a larger one is a permanent failure',
  },
  tracing: TRACING_OPTION,
  clock: CLOCK_OPTION,
  dice: DICE_OPTION,
} as const;

/** Every option of `rabbitSink`. */
export const SINK_OPTIONS: Readonly<Record<keyof RabbitSinkOptions, Option>> = SINK;

/** Where parcels go. */
export interface RabbitSinkOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The broker; of a list one that answers. Either this or `connection`. */
  readonly url?: string | readonly string[];
  /** Shared with others, and left open. amqplib's own does not reconnect. */
  readonly connection?: RabbitConnection | AmqpConnection;
  /** For `amqps://`. Default Node's certificate authorities. */
  readonly tls?: TlsOptions;
  /** Where it publishes; at `''` the key is the name of a queue. */
  readonly exchange: string;
  /** The routing key of a parcel. Default its topic. */
  readonly key?: string | ((parcel: OutgoingMessage) => string);
  /** How long a message may take until its confirm. 1ms to 1d; default 30s. */
  readonly confirmTimeout?: Duration;
  /**
   * How long the broker may be down before parcels fail at once. 1ms to 1d; default they wait for
   * it, as long as for a confirm.
   */
  readonly awayAfter?: Duration;
  /** The largest body; a larger one is a permanent failure. 1 byte to 512 MiB; default 16 MiB. */
  readonly maxBytes?: number;
  /** Writes spans. */
  readonly tracing?: Tracer;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
  /** For tests. Default the system's. */
  readonly dice?: Dice;
}

/** An exchange as a sink. */
export interface RabbitSink extends Sink {
  /** Calls whenever the broker can be reached again; returns the way to stop. */
  onBack(call: () => void): () => void;
  /**
   * Connects before the first parcel, and goes on trying; an error says why it cannot be sent to.
   */
  reach(): Promise<void>;
  /** With `waits: false`, gives up what has no answer yet instead of waiting for it. */
  close(options?: { readonly waits?: boolean }): Promise<void>;
}

/** The parcels are in memory already, in the hands of the sender: nothing is saved here. */
const NO_LIMIT = {
  waitingMax: Number.POSITIVE_INFINITY,
  waitingMaxBytes: Number.POSITIVE_INFINITY,
};

/**
 * Makes a sink; it connects with the first parcel.
 *
 * @example
 * import { createOutbox } from 'respool/outbox';
 * import { createConnection, rabbitSink } from 'respool/rabbit';
 * const broker = createConnection({ url: 'amqp://localhost' });
 * const sink = rabbitSink({ connection: broker, exchange: 'events' });
 * const outbox = createOutbox({ url: 'postgres://localhost/shop' });
 * const relay = outbox.relay({ to: sink });
 */
export function rabbitSink(options: RabbitSinkOptions): RabbitSink {
  const { exchange, maxBytes, confirmTimeoutMs, stuckAfterMs, tracer } = settingsOf(options);
  const { key, clock = systemClock } = options;
  const { connection, isOwned } = connectionOf({ name: 'respool sink', ...options }, 'a sink');
  const limits = { ...CONFIRM_PUBLISHER_LIMITS, ...NO_LIMIT, confirmTimeoutMs };
  const { publishing } = connection;
  const publisher = new ConfirmPublisher(publishing, clock, limits);
  const gate = new ConnectionGate({
    connection: publishing,
    publisher,
    clock,
    limits,
    declare: undefined,
    stuckAfterMs,
  });
  const keyOf = typeof key === 'function' ? key : ({ topic }: OutgoingMessage) => key ?? topic;
  const inFlight = new InFlight();

  const publish = (parcel: OutgoingMessage, routingKey: string): Promise<void> => {
    const { id, headers } = parcel;
    const span = tracer?.send({ ...exchangePlace(exchange, routingKey), id, headers });
    const traced = span === undefined ? headers : { ...headers, ...span.headers };
    const outgoing = outgoingOf({ ...parcel, headers: traced }, exchange, routingKey);
    if (span === undefined) return gate.send(outgoing);
    return runInSendSpan(
      span,
      async () => gate.send(outgoing),
      () => ({ id }),
    );
  };
  const sendOne = async (parcel: OutgoingMessage): Promise<'confirmed' | Failure> => {
    const { length } = parcel.body;
    if (length > maxBytes) return tooLarge(length, maxBytes);
    // The broker would end the channel, and with it everything that is on its way.
    const bad = badKeyList(parcel.headers);
    if (bad !== undefined) return failure('permanent', 'message.invalid', bad);
    try {
      const routingKey = checkShort('key', keyOf(parcel));
      await publish(parcel, routingKey);
      return 'confirmed';
    } catch (error) {
      return failureOf(error, gate.isAway);
    }
  };
  const close = async (waits: boolean): Promise<void> => {
    isClosed = true;
    if (waits) await inFlight.idle();
    gate.close();
    await publisher.close({ waits });
    if (isOwned) await connection.close();
  };
  let isClosed = false;
  let closing: Promise<void> | undefined;
  return {
    name: `rabbit ${exchange}`,
    send(parcels) {
      if (isClosed) {
        const text = `cannot send to exchange "${exchange}": the sink is closed`;
        return Promise.reject(new RespoolError('engine.stopping', text));
      }
      return inFlight.track(Promise.all(parcels.map(sendOne)));
    },
    onBack: (call) =>
      publishing.on(({ kind }) => {
        if (kind === 'up' || kind === 'unblocked') call();
      }),
    reach: () => reach(publishing, exchange),
    close: ({ waits = true } = {}) => (closing ??= close(waits)),
  };
}

async function reach(publishing: ReconnectingConnection, exchange: string): Promise<void> {
  const connection = await publishing.tryConnect().catch((error: unknown) => {
    // Goes on, so that it is there when the first parcel comes; what no waiting fixes ends here.
    if (isRespoolError(error, 'broker.unavailable')) publishing.connected().catch(() => undefined);
    throw error;
  });
  if (exchange === '' || (await exchangeExists(connection, exchange)) !== false) return;
  throw missingExchange(exchange);
}

function settingsOf(options: RabbitSinkOptions): {
  readonly exchange: string;
  readonly maxBytes: number;
  readonly confirmTimeoutMs: number;
  readonly stuckAfterMs: number | undefined;
  readonly tracer: Tracer | undefined;
} {
  const { maxBytes, confirmTimeoutMs, awayAfterMs } = readOptions(
    { what: 'rabbitSink' },
    options,
    SINK,
  );
  return {
    exchange: checkShort('exchange', options.exchange, 'config.invalid'),
    maxBytes,
    confirmTimeoutMs,
    stuckAfterMs: awayAfterMs,
    tracer: checkTracer(options.tracing),
  };
}

/**
 * Why it was not confirmed. What only the queues of one message do, refuse it or not answer, has
 * codes of its own: others may go on.
 */
function failureOf(error: unknown, isAway: boolean): Failure {
  const said = classify(error);
  // It will not be another message the next time.
  if (isRespoolError(error, 'message.invalid')) {
    return failure('permanent', said.code, said.reason);
  }
  if (!isRespoolError(error, 'broker.unconfirmed')) return said;
  if (isNack(error.cause)) return failure('transient', 'broker.refused', said.reason);
  const isLate = error.cause === undefined && !isAway;
  return isLate ? failure('transient', 'broker.late', said.reason) : said;
}

/** The header that becomes a property, as HTTP and mail name it; outbox/message.ts writes it. */
const CONTENT_TYPE = 'content-type';

function outgoingOf(parcel: OutgoingMessage, exchange: string, key: string): Outgoing {
  const { id, headers, body, enqueuedAt } = parcel;
  return {
    exchange,
    key,
    content: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
    properties: {
      messageId: id,
      headers,
      contentType: headers[CONTENT_TYPE] ?? CONTENT_TYPE_BYTES,
      deliveryMode: 2,
      timestamp: Math.floor(enqueuedAt / 1_000),
    },
  };
}

function tooLarge(bytes: number, maxBytes: number): Failure {
  const reason = `the body has ${bytes} bytes, allowed are ${maxBytes} ("maxBytes")`;
  return failure('permanent', 'limit.exceeded', reason);
}
