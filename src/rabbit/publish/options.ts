/**
 * options — what `createPublisher` takes, checked, with its defaults. The options of `rabbitSink`:
 * sink.ts.
 */

import type { Duration } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import {
  CLOCK_OPTION,
  DICE_OPTION,
  type Option,
  type OptionValues,
  readOptions,
} from '../../core/option-table.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import { checkTracer, TRACING_OPTION } from '../../engine/tracing.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type { Tracer } from '../../ports/tracer.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import type { AmqpConnection, AmqpTable } from '../connection/amqp.ts';
import {
  BROKER_OPTIONS,
  type RabbitConnection,
  type TlsOptions,
} from '../connection/connection.ts';
import { type ContentCodec, type Encode, encodersOf } from './codecs.ts';
import type { FallbackSpool } from './fallback.ts';
import type { ConfirmPublisherLimits } from './confirm-publisher.ts';
import { checkShort, type PublishMiddleware } from './message.ts';

/** How long a publisher or a sink waits for the broker. */
export const CONFIRM_TIMEOUT = {
  kind: 'duration',
  min: '1ms',
  max: '1d',
  default: '30s',
  about: 'how long a message may take until its confirm',
} as const;

/** The options of every publisher, in the order of its error texts. */
const PUBLISHER = {
  ...BROKER_OPTIONS,
  exchange: {
    kind: 'text',
    type: 'a name',
    defaultText: "`''`",
    about: "for messages without their own; at `''` the key is the name of a queue",
  },
  exchangeType: {
    kind: 'choice',
    choices: ['topic', 'direct', 'fanout', 'headers'],
    ts: 'ExchangeType',
    default: 'topic',
    about: 'the type that the exchange is declared with, see `declare`',
  },
  declare: {
    kind: 'boolean',
    default: false,
    about: 'declares the exchange, durable, on every connect and when it is missing',
  },
  id: {
    kind: 'text',
    type: 'text',
    about: 'the publisher: header `publisher-id`, name of the connection',
  },
  appId: { kind: 'text', type: 'text', defaultText: '`id`', about: "AMQP's property of that name" },
  headers: {
    kind: 'data',
    type: 'a table',
    ts: 'AmqpTable',
    about: 'for every message; its own take precedence',
  },
  contentType: {
    kind: 'text',
    type: 'a media type',
    defaultText: '`application/json`, for bytes `application/octet-stream`',
    about: 'for messages without their own',
  },
  encoders: {
    kind: 'code',
    type: 'a list of `{ contentType, encode, decode }`',
    ts: 'readonly ContentCodec[]',
    defaultText: 'JSON, text, bytes',
    about: 'codecs by content type',
  },
  persistent: {
    kind: 'boolean',
    default: true,
    about: 'whether messages survive a restart of the broker',
  },
  priority: { kind: 'number', min: 0, max: 255, about: 'for messages without their own' },
  confirmTimeout: CONFIRM_TIMEOUT,
  window: {
    kind: 'number',
    min: 1,
    max: 100_000,
    default: 1_000,
    about: 'messages in flight at once',
  },
  waitingMax: {
    kind: 'number',
    min: 1,
    max: 10_000_000,
    default: 10_000,
    about: 'messages that wait in memory for the broker, at most',
  },
  waitingMaxBytes: {
    kind: 'bytes',
    min: '1 bytes',
    max: '16 GiB',
    default: '64 MiB',
    about: 'the same in bytes',
  },
  maxBytes: {
    kind: 'bytes',
    min: '1 bytes',
    max: '512 MiB',
    default: '16 MiB',
    about: 'the largest body; RabbitMQ 4 accepts no more unless configured',
  },
  middleware: {
    kind: 'code',
    type: 'a list of functions',
    ts: 'readonly PublishMiddleware[]',
    about: 'wrappers around every publish; the first is the outermost',
  },
  envelope: {
    kind: 'choice',
    choices: ['goqueue'],
    about: 'bodies and headers in the format of that system',
  },
  fallback: {
    kind: 'code',
    type: 'a spool',
    ts: 'FallbackSpool',
    about: 'stores messages while the broker is down, and forwards them later',
  },
  fallbackAfter: {
    kind: 'duration',
    min: '0s',
    max: '1d',
    default: '2s',
    about: 'how long the broker may be down before the fallback is used',
  },
  fallbackTopic: {
    kind: 'text',
    type: 'a word',
    default: 'rabbit',
    about: 'the first word of the topics that the fallback uses',
  },
  fallbackPolicy: {
    kind: 'code',
    type: 'a policy or its name',
    ts: 'RetryPolicy | string',
    defaultText: "the spool's",
    about: 'for forwarded messages that no queue takes, or that close their channel',
  },
  tracing: TRACING_OPTION,
  clock: CLOCK_OPTION,
  dice: DICE_OPTION,
} as const;

/** Every option of `createPublisher`. */
export const PUBLISHER_OPTIONS: Readonly<Record<keyof PublisherOptions, Option>> = PUBLISHER;

/** How a publisher reaches its broker, and what its messages have in common. */
export interface PublisherOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The broker; of a list one that answers. Either this or `connection`. */
  readonly url?: string | readonly string[];
  /** Shared with others, and left open. amqplib's own does not reconnect. */
  readonly connection?: RabbitConnection | AmqpConnection;
  /** For `amqps://`. Default Node's certificate authorities. */
  readonly tls?: TlsOptions;
  /** For messages without their own; at `''` the key is the name of a queue. Default `''`. */
  readonly exchange?: string;
  /** The type that the exchange is declared with, see `declare`. Default `topic`. */
  readonly exchangeType?: ExchangeType;
  /** Declares the exchange, durable, on every connect and when it is missing. Default false. */
  readonly declare?: boolean;
  /** The publisher: header `publisher-id`, name of the connection. */
  readonly id?: string;
  /** AMQP's property of that name. Default `id`. */
  readonly appId?: string;
  /** For every message; its own take precedence. */
  readonly headers?: AmqpTable;
  /**
   * For messages without their own. Default `application/json`, for bytes
   * `application/octet-stream`.
   */
  readonly contentType?: string;
  /** Codecs by content type. Default JSON, text, bytes. */
  readonly encoders?: readonly ContentCodec[];
  /** Whether messages survive a restart of the broker. Default true. */
  readonly persistent?: boolean;
  /** For messages without their own. 0 to 255. */
  readonly priority?: number;
  /** How long a message may take until its confirm. 1ms to 1d; default 30s. */
  readonly confirmTimeout?: Duration;
  /** Messages in flight at once. 1 to 100,000; default 1,000. */
  readonly window?: number;
  /** Messages that wait in memory for the broker, at most. 1 to 10,000,000; default 10,000. */
  readonly waitingMax?: number;
  /** The same in bytes. 1 byte to 16 GiB; default 64 MiB. */
  readonly waitingMaxBytes?: number;
  /**
   * The largest body; RabbitMQ 4 accepts no more unless configured. 1 byte to 512 MiB; default 16
   * MiB.
   */
  readonly maxBytes?: number;
  /** Wrappers around every publish; the first is the outermost. */
  readonly middleware?: readonly PublishMiddleware[];
  /** Bodies and headers in the format of that system. */
  readonly envelope?: 'goqueue';
  /** Stores messages while the broker is down, and forwards them later. */
  readonly fallback?: FallbackSpool;
  /** How long the broker may be down before the fallback is used. 0s to 1d; default 2s. */
  readonly fallbackAfter?: Duration;
  /** The first word of the topics that the fallback uses. Default `rabbit`. */
  readonly fallbackTopic?: string;
  /**
   * For forwarded messages that no queue takes, or that close their channel. Default the spool's.
   */
  readonly fallbackPolicy?: RetryPolicy | string;
  /** Writes spans. */
  readonly tracing?: Tracer;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
  /** For tests. Default the system's. */
  readonly dice?: Dice;
}

/** What an exchange routes by. */
export type ExchangeType = 'topic' | 'direct' | 'fanout' | 'headers';

/** The options, complete. */
export interface PublisherSettings {
  readonly exchange: string;
  /** The type that the exchange is declared with; undefined: it is not. */
  readonly declareAs: ExchangeType | undefined;
  readonly id: string | undefined;
  readonly appId: string | undefined;
  readonly headers: AmqpTable;
  readonly contentType: string | undefined;
  readonly encode: Encode;
  readonly deliveryMode: 1 | 2;
  readonly priority: number | undefined;
  readonly limits: ConfirmPublisherLimits;
  readonly maxBytes: number;
  readonly middleware: readonly PublishMiddleware[];
  readonly envelope: 'goqueue' | undefined;
  readonly fallback: FallbackSpool | undefined;
  readonly fallbackAfterMs: number;
  readonly fallbackTopic: string;
  readonly fallbackPolicy: RetryPolicy | string | undefined;
  readonly tracer: Tracer | undefined;
  readonly clock: Clock;
  readonly dice: Dice;
}

/** Refuses what cannot be meant; nothing is opened yet. */
export function publisherSettingsOf(options: PublisherOptions): PublisherSettings {
  if (typeof options !== 'object' || options === null)
    throw invalid('options', options, 'an object');
  const values = readOptions({ what: 'createPublisher' }, options, PUBLISHER);
  const { id, contentType, middleware = [], fallback } = options;
  if (!Array.isArray(middleware) || middleware.some((one) => typeof one !== 'function')) {
    throw invalid('middleware', middleware, 'a list of functions (publication, next)');
  }
  checkFallback(fallback);
  return {
    exchange: options.exchange === undefined ? '' : checkName('exchange', options.exchange),
    declareAs: declareOf(options, values),
    id: id === undefined ? undefined : checkName('id', id),
    appId: options.appId === undefined ? id : checkName('appId', options.appId),
    headers: checkTable(options.headers),
    contentType: contentType === undefined ? undefined : checkName('contentType', contentType),
    encode: encodersOf(options.encoders),
    deliveryMode: values.persistent ? 2 : 1,
    priority: values.priority,
    limits: {
      confirmTimeoutMs: values.confirmTimeoutMs,
      windowMax: values.window,
      waitingMax: values.waitingMax,
      waitingMaxBytes: values.waitingMaxBytes,
    },
    maxBytes: values.maxBytes,
    middleware,
    envelope: values.envelope,
    fallback,
    fallbackAfterMs: values.fallbackAfterMs,
    fallbackTopic: checkWord(options.fallbackTopic ?? PUBLISHER.fallbackTopic.default),
    fallbackPolicy: options.fallbackPolicy,
    tracer: checkTracer(options.tracing),
    clock: options.clock ?? systemClock,
    dice: options.dice ?? systemDice,
  };
}

function declareOf(
  { exchange }: PublisherOptions,
  { declare, exchangeType: type }: Pick<OptionValues<typeof PUBLISHER>, 'declare' | 'exchangeType'>,
): ExchangeType | undefined {
  if (!declare) return undefined;
  if (exchange !== undefined && exchange !== '') return type;
  throw new RespoolError(
    'config.invalid',
    'cannot declare the exchange "": it is the broker’s own; name an "exchange"',
  );
}

function checkFallback(fallback: FallbackSpool | undefined): void {
  if (fallback === undefined) return;
  const { enqueue, handle } = (fallback ?? {}) as Partial<Record<keyof FallbackSpool, unknown>>;
  if (typeof enqueue === 'function' && typeof handle === 'function') return;
  throw invalid('fallback', fallback, 'a spool, as createSpool gives it');
}

function checkTable(headers: AmqpTable = {}): AmqpTable {
  if (typeof headers === 'object' && headers !== null && !Array.isArray(headers)) return headers;
  throw invalid('headers', headers, 'an object of names to values');
}

function checkName(what: string, value: unknown): string {
  return checkShort(what, value, 'config.invalid');
}

function checkWord(word: string): string {
  if (typeof word === 'string' && /^[A-Za-z0-9_-]{1,50}$/.test(word)) return word;
  throw invalid('fallbackTopic', word, '1 to 50 of A-Z a-z 0-9 _ -');
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  const text = `cannot use ${show(value)} as "${what}" of createPublisher: allowed is ${allowed}`;
  return new RespoolError('config.invalid', text);
}
