/** options — what `createPublisher` takes, checked, with its defaults. */

import { DAY_MS, type Duration, durationMs, SECOND_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import { checkTracer } from '../../engine/tracing.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type { Tracer } from '../../ports/tracer.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import type { AmqpConnection, Table } from '../connection/amqp.ts';
import type { TlsOptions } from '../connection/client.ts';
import {
  CONTENT_TYPE_BYTES,
  CONTENT_TYPE_DEFAULT,
  type Codec,
  type Encode,
  encodersOf,
} from './codecs.ts';
import type { RabbitConnection } from '../connection/connection.ts';
import type { FallbackSpool } from './fallback.ts';
import { CONFIRM_PUBLISHER_LIMITS, type ConfirmPublisherLimits } from './confirm-publisher.ts';
import { checkShort, type PublishMiddleware } from './message.ts';

/** How a publisher reaches its broker, and what its messages have in common. */
export interface PublisherOptions {
  /** Such as `amqp://user:password@host:5672/vhost`, or several; this or `connection`. */
  readonly url?: string | readonly string[];
  /** Made by `createConnection`, or amqplib's own, which does not come back when it is lost. */
  readonly connection?: RabbitConnection | AmqpConnection;
  readonly tls?: TlsOptions;
  /** Where messages go that do not say; default `''`, where the key is the name of a queue. */
  readonly exchange?: string;
  /** Of what type the exchange is declared; default `topic`. */
  readonly exchangeType?: ExchangeType;
  /** Whether it is declared (durable) on every connect and when it is missing; default false. */
  readonly declare?: boolean;
  /** Who publishes: header `publisher-id`, and the name of the connection. */
  readonly id?: string;
  /** The application, as AMQP's own property; default: `id`. */
  readonly appId?: string;
  /** Headers of every message; a message's own come on top. */
  readonly headers?: Table;
  /** Default `application/json`; bytes that say nothing else are `application/octet-stream`. */
  readonly contentType?: string;
  /** Codecs for content types besides JSON, text and bytes. */
  readonly encoders?: readonly Codec[];
  /** Whether messages outlive a restart of the broker; default true. */
  readonly persistent?: boolean;
  /** 0 to 255; default: none. */
  readonly priority?: number;
  /** How long a message may take until its confirm; default 30s. */
  readonly confirmTimeout?: Duration;
  /** Messages on their way at once, 1 to 100,000; default 1,000. */
  readonly window?: number;
  /** Messages that wait in memory for the broker, at most; default 10,000. */
  readonly waitingMax?: number;
  /** The same in bytes; default 64 MiB. */
  readonly waitingMaxBytes?: number;
  /** The largest body; default 16 MiB, which is what RabbitMQ 4 takes unless it is told more. */
  readonly maxBytes?: number;
  /** Wrapped around every publish; the first of the list is the outermost. */
  readonly middleware?: readonly PublishMiddleware[];
  /** Writes bodies and headers as consumers of that library read them; default: bodies alone. */
  readonly envelope?: 'goqueue';
  /** A spool that keeps messages while the broker cannot be reached, and forwards them later. */
  readonly fallback?: FallbackSpool;
  /** How long a broker that is away or blocked is waited for; default 2s, 0: not at all. */
  readonly fallbackAfter?: Duration;
  /** The first word of the topics that the fallback uses; default `rabbit`. */
  readonly fallbackTopic?: string;
  /** For what no queue takes, or what ends its channel; default: the spool's own policy. */
  readonly fallbackPolicy?: RetryPolicy | string;
  /** Writes spans, as `await openTelemetry()` of `respool/observe` does; default none. */
  readonly tracing?: Tracer;
  readonly clock?: Clock;
  readonly dice?: Dice;
}

const EXCHANGE_TYPES = ['topic', 'direct', 'fanout', 'headers'] as const;

/** What an exchange routes by. */
export type ExchangeType = (typeof EXCHANGE_TYPES)[number];

/** The options, complete. */
export interface PublisherSettings {
  readonly exchange: string;
  /** The type that the exchange is declared with; undefined: it is not. */
  readonly declareAs: ExchangeType | undefined;
  readonly id: string | undefined;
  readonly appId: string | undefined;
  readonly headers: Table;
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

const NAMES = [
  'url',
  'connection',
  'tls',
  'exchange',
  'exchangeType',
  'declare',
  'id',
  'appId',
  'headers',
  'contentType',
  'encoders',
  'persistent',
  'priority',
  'confirmTimeout',
  'window',
  'waitingMax',
  'waitingMaxBytes',
  'maxBytes',
  'middleware',
  'envelope',
  'fallback',
  'fallbackAfter',
  'fallbackTopic',
  'fallbackPolicy',
  'tracing',
  'clock',
  'dice',
];

const MAX_BYTES: number = 16 * 2 ** 20;
const MAX_BYTES_CAP: number = 512 * 2 ** 20;
const WAITING_CAP_BYTES: number = 16 * 2 ** 30;
const FALLBACK_AFTER_MS: number = 2 * SECOND_MS;

/** Refuses what cannot be meant; nothing is opened yet. */
export function settingsOf(options: PublisherOptions): PublisherSettings {
  if (typeof options !== 'object' || options === null)
    throw invalid('options', options, 'an object');
  checkNames('createPublisher', options, NAMES);
  const { id, contentType, middleware = [], fallback, envelope } = options;
  if (!Array.isArray(middleware) || middleware.some((one) => typeof one !== 'function')) {
    throw invalid('middleware', middleware, 'a list of functions (publication, next)');
  }
  if (envelope !== undefined) checkOneOf('envelope', envelope, ['goqueue']);
  checkFallback(fallback);
  return {
    exchange: options.exchange === undefined ? '' : checkName('exchange', options.exchange),
    declareAs: declareOf(options),
    id: id === undefined ? undefined : checkName('id', id),
    appId: options.appId === undefined ? id : checkName('appId', options.appId),
    headers: checkTable(options.headers),
    contentType: contentType === undefined ? undefined : checkName('contentType', contentType),
    encode: encodersOf(options.encoders),
    deliveryMode: options.persistent === false ? 1 : 2,
    priority:
      options.priority === undefined
        ? undefined
        : checkNumber('priority', options.priority, { min: 0, max: 255 }),
    limits: limitsOf(options),
    maxBytes: checkNumber('maxBytes', options.maxBytes ?? MAX_BYTES, {
      min: 1,
      max: MAX_BYTES_CAP,
    }),
    middleware,
    envelope,
    fallback,
    fallbackAfterMs: durationMs(options.fallbackAfter ?? FALLBACK_AFTER_MS, 'fallbackAfter', {
      minMs: 0,
      maxMs: DAY_MS,
    }),
    fallbackTopic: checkWord(options.fallbackTopic ?? 'rabbit'),
    fallbackPolicy: options.fallbackPolicy,
    tracer: checkTracer(options.tracing),
    clock: options.clock ?? systemClock,
    dice: options.dice ?? systemDice,
  };
}

/** The content type of a body, by what the message and the publisher say. */
export function contentTypeOf(
  body: unknown,
  own: string | undefined,
  common: string | undefined,
): string {
  const isBytes = body instanceof Uint8Array;
  return own ?? common ?? (isBytes ? CONTENT_TYPE_BYTES : CONTENT_TYPE_DEFAULT);
}

function limitsOf(options: PublisherOptions): ConfirmPublisherLimits {
  const { confirmTimeout, window, waitingMax, waitingMaxBytes } = options;
  return {
    confirmTimeoutMs: durationMs(
      confirmTimeout ?? CONFIRM_PUBLISHER_LIMITS.confirmTimeoutMs,
      'confirmTimeout',
      { minMs: 1, maxMs: DAY_MS },
    ),
    windowMax: checkNumber('window', window ?? CONFIRM_PUBLISHER_LIMITS.windowMax, {
      min: 1,
      max: 100_000,
    }),
    waitingMax: checkNumber('waitingMax', waitingMax ?? CONFIRM_PUBLISHER_LIMITS.waitingMax, {
      min: 1,
      max: 10_000_000,
    }),
    waitingMaxBytes: checkNumber(
      'waitingMaxBytes',
      waitingMaxBytes ?? CONFIRM_PUBLISHER_LIMITS.waitingMaxBytes,
      { min: 1, max: WAITING_CAP_BYTES },
    ),
  };
}

function declareOf({
  declare,
  exchange,
  exchangeType,
}: PublisherOptions): ExchangeType | undefined {
  const type = checkOneOf('exchangeType', exchangeType ?? 'topic', EXCHANGE_TYPES);
  if (declare !== true) return undefined;
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

function checkTable(headers: Table = {}): Table {
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
