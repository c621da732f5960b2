/**
 * connection — two connections to one broker, to be shared by consumers and publishers.
 *
 * One consumes, one publishes: a broker under an alarm stops reading from all publishers, and
 * would no longer see the acks of that connection.
 */

import { type Duration, durationMs, MINUTE_MS } from '../../core/duration.ts';
import { isRespoolError, RespoolError, show, textOf } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import type { AmqpConnection } from './amqp.ts';
import {
  CONNECT_TIMEOUT_MS,
  connectAmqp,
  type ConnectOptions,
  HEARTBEAT_MS,
  type TlsOptions,
} from './client.ts';
import { ReconnectingConnection } from './reconnecting-connection.ts';

/** Where the broker is. */
export interface ConnectionOptions {
  /** Such as `amqp://user:password@host:5672/vhost`; of several, one that answers. */
  readonly url: string | readonly string[];
  readonly tls?: TlsOptions;
  /** How long a connection may take to open, 1ms to 5m; default 10s. */
  readonly timeout?: Duration;
  /** The silence after which a side takes the other for gone, 1s to 5m; default 10s. */
  readonly heartbeat?: Duration;
  /** The name that the broker shows; default `respool`. */
  readonly name?: string;
  readonly clock?: Clock;
  readonly dice?: Dice;
}

/** Two links to one broker; opened when they are first needed. */
export interface RabbitConnection extends AsyncDisposable {
  readonly consuming: ReconnectingConnection;
  readonly publishing: ReconnectingConnection;
  readonly isConnected: boolean;
  /** Ends both. Stop consumers and close publishers first. */
  close(): Promise<void>;
}

/** What a consumer or publisher is told of its connection. */
export interface ConnectionChoice {
  readonly url?: string | readonly string[] | undefined;
  /** Made by `createConnection`, or amqplib's own, which does not come back when it is lost. */
  readonly connection?: RabbitConnection | AmqpConnection | undefined;
  readonly tls?: TlsOptions | undefined;
  readonly name?: string | undefined;
  readonly clock?: Clock | undefined;
  readonly dice?: Dice | undefined;
}

const NAMES = ['url', 'tls', 'timeout', 'heartbeat', 'name', 'clock', 'dice'];
const SPAN = { minMs: 1, maxMs: 5 * MINUTE_MS };

/** Two connections that several consumers and publishers may share. */
export function createConnection(options: ConnectionOptions): RabbitConnection {
  checkNames('createConnection', options, NAMES);
  const { tls, name = 'respool', clock = systemClock, dice = systemDice } = options;
  const urls = typeof options.url === 'string' ? [options.url] : options.url;
  if (!Array.isArray(urls) || urls.length === 0 || urls.some((url) => typeof url !== 'string')) {
    throw noUrl(options.url);
  }
  const timeoutMs = durationMs(options.timeout ?? CONNECT_TIMEOUT_MS, 'timeout', SPAN);
  const heartbeatMs = durationMs(options.heartbeat ?? HEARTBEAT_MS, 'heartbeat', {
    minMs: 1_000,
    maxMs: SPAN.maxMs,
  });
  // The next connection begins with the one that answered last.
  let at = 0;
  const openAny = async (settings: ConnectOptions): Promise<AmqpConnection> => {
    const failures: unknown[] = [];
    while (failures.length < urls.length) {
      try {
        return await connectAmqp(String(urls[at % urls.length]), settings);
      } catch (error) {
        failures.push(error);
        at += 1;
      }
    }
    throw failures.length === 1 ? failures[0] : noneAnswers(failures);
  };
  const linkOf = (duty: string): ReconnectingConnection => {
    const settings = { tls, timeoutMs, heartbeatMs, name: `${name} ${duty}` };
    return new ReconnectingConnection({
      clock,
      dice,
      isOwned: true,
      open: () => openAny(settings),
    });
  };
  return pairOf(linkOf('consuming'), linkOf('publishing'));
}

/** The links that were chosen, and whether they are ours to close. */
export function connectionOf(
  choice: ConnectionChoice,
  what: string,
): { readonly connection: RabbitConnection; readonly isOwned: boolean } {
  const { url, connection, tls, name, clock = systemClock, dice = systemDice } = choice;
  if ((url === undefined) === (connection === undefined)) {
    throw new RespoolError(
      'config.invalid',
      `cannot create ${what}: give either "url" or "connection"`,
    );
  }
  if (url !== undefined) {
    const options = { url, clock, dice, name: name ?? 'respool' };
    return {
      connection: createConnection(tls === undefined ? options : { ...options, tls }),
      isOwned: true,
    };
  }
  if (isOurs(connection)) return { connection, isOwned: false };
  const given = connection as AmqpConnection;
  if (typeof given.createConfirmChannel !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(connection)} as "connection" of ${what}: allowed is what ` +
        'createConnection() or connect() of amqplib returns',
    );
  }
  const link = new ReconnectingConnection({
    clock,
    dice,
    isOwned: false,
    open: () => Promise.resolve(given),
  });
  return { connection: pairOf(link, link), isOwned: true };
}

function isOurs(connection: unknown): connection is RabbitConnection {
  return (
    (connection as { publishing?: unknown } | null)?.publishing instanceof ReconnectingConnection
  );
}

function pairOf(
  consuming: ReconnectingConnection,
  publishing: ReconnectingConnection,
): RabbitConnection {
  const close = async (): Promise<void> => {
    await Promise.all([consuming.close(), publishing.close()]);
  };
  return {
    consuming,
    publishing,
    get isConnected() {
      return consuming.isUp && publishing.isUp;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** What each of several brokers said; what no waiting fixes comes first. */
function noneAnswers(failures: readonly unknown[]): unknown {
  const lasting = failures.find((error) => !isRespoolError(error, 'broker.unavailable'));
  if (lasting !== undefined) return lasting;
  const text = failures.map(textOf).join('; ');
  return new RespoolError('broker.unavailable', text, { cause: failures.at(-1) });
}

function noUrl(url: unknown): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${url === undefined ? 'nothing' : 'what was given'} as "url": allowed is ` +
      'amqp:// or amqps://, or a list of them',
  );
}
