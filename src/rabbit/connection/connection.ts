/**
 * connection — two connections to one broker, to be shared by consumers and publishers; and how one
 * is opened with amqplib, which is loaded then.
 *
 * One consumes, one publishes: a broker under an alarm stops reading from all publishers, and
 * would no longer see the acks of that connection. How spans name an exchange and a queue, by the
 * conventions for RabbitMQ, is here too.
 */

import { type Duration, durationMs } from '../../core/duration.ts';
import { isRespoolError, RespoolError, show, textOf } from '../../core/errors.ts';
import {
  CLOCK_OPTION,
  DICE_OPTION,
  type Option,
  type OwnOption,
  readOptions,
} from '../../core/option-table.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type { Claim } from '../../ports/source.ts';
import type { TracedPlace } from '../../ports/tracer.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import type { AmqpConnection, AmqpMessage } from './amqp.ts';
import { ReconnectingConnection } from './reconnecting-connection.ts';
import { unescape } from 'node:querystring';
import { importPeer } from '../../system/peer.ts';

/** Keys and certificates; a configuration names the files of the first three. */
export const TLS_OPTIONS: Readonly<Record<keyof TlsOptions, Option>> = {
  ca: {
    kind: 'data',
    type: 'text or bytes, or a list',
    ts: 'string | Buffer | readonly (string | Buffer)[]',
    about: 'additional trusted certificate authorities, in PEM',
  },
  cert: {
    kind: 'data',
    type: 'text or bytes',
    ts: 'string | Buffer',
    about: "the client's certificate in PEM",
  },
  key: {
    kind: 'data',
    type: 'text or bytes',
    ts: 'string | Buffer',
    secret: true,
    about: "the client's private key in PEM, if the broker requires one",
  },
  passphrase: { kind: 'text', secret: true, about: 'of the private key; never a flag' },
  servername: {
    kind: 'text',
    type: 'a host name',
    about: "the name in the broker's certificate, if it differs from the host",
  },
  rejectUnauthorized: {
    kind: 'boolean',
    default: true,
    about: '`false` trusts any certificate; for tests only',
  },
};

/** Which broker a consumer, a publisher or a sink uses. */
export const BROKER_OPTIONS: Readonly<Record<'url' | 'connection' | 'tls', OwnOption>> = {
  url: {
    kind: 'data',
    type: '`amqp://…`, `amqps://…`, or a list',
    ts: 'string | readonly string[]',
    secret: 'password',
    about: 'the broker; of a list one that answers. Either this or `connection`',
  },
  connection: {
    kind: 'code',
    type: 'the result of `createConnection` or of amqplib',
    ts: 'RabbitConnection | AmqpConnection',
    about: "shared with others, and left open. amqplib's own does not reconnect",
  },
  tls: {
    kind: 'data',
    type: `\`{ ${Object.keys(TLS_OPTIONS).join(', ')} }\``,
    ts: 'TlsOptions',
    defaultText: "Node's certificate authorities",
    about: 'for `amqps://`',
  },
};

const CONNECTION = {
  url: {
    ...BROKER_OPTIONS.url,
    required: true,
    about: 'such as `amqp://user:password@host:5672/vhost`; of a list one that answers',
  },
  tls: BROKER_OPTIONS.tls,
  timeout: {
    kind: 'duration',
    min: '1ms',
    max: '5m',
    default: '10s',
    about: 'how long opening may take',
  },
  heartbeat: {
    kind: 'duration',
    min: '1s',
    max: '5m',
    default: '10s',
    about: 'the silence after which one side considers the other gone',
  },
  name: {
    kind: 'text',
    type: 'text',
    default: 'respool',
    about: 'shown by the broker, with `consuming` or `publishing` after it',
  },
  clock: CLOCK_OPTION,
  dice: DICE_OPTION,
} as const;

/** The options of a connection. */
export const CONNECTION_OPTIONS: Readonly<Record<keyof ConnectionOptions, Option>> = CONNECTION;

/** Where the broker is. */
export interface ConnectionOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Such as `amqp://user:password@host:5672/vhost`; of a list one that answers. */
  readonly url: string | readonly string[];
  /** For `amqps://`. Default Node's certificate authorities. */
  readonly tls?: TlsOptions;
  /** How long opening may take. 1ms to 5m; default 10s. */
  readonly timeout?: Duration;
  /** The silence after which one side considers the other gone. 1s to 5m; default 10s. */
  readonly heartbeat?: Duration;
  /** Shown by the broker, with `consuming` or `publishing` after it. Default `respool`. */
  readonly name?: string;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
  /** For tests. Default the system's. */
  readonly dice?: Dice;
}

/** Two connections to one broker; opened when they are first needed. */
export interface RabbitConnection extends AsyncDisposable {
  readonly consuming: ReconnectingConnection;
  readonly publishing: ReconnectingConnection;
  readonly isConnected: boolean;
  /** Ends both. Stop consumers and close publishers first. */
  close(): Promise<void>;
}

/**
 * What a consumer or publisher learns about its connection. Its names are also in `CHOICE` of
 * scripts/options/written.ts.
 */
export interface ConnectionChoice {
  readonly url?: string | readonly string[] | undefined;
  /** Made by `createConnection`, or amqplib's own, which does not come back when it is lost. */
  readonly connection?: RabbitConnection | AmqpConnection | undefined;
  readonly tls?: TlsOptions | undefined;
  readonly name?: string | undefined;
  readonly clock?: Clock | undefined;
  readonly dice?: Dice | undefined;
}

/** Two connections that several consumers and publishers may share. */
export function createConnection(options: ConnectionOptions): RabbitConnection {
  const { timeoutMs, heartbeatMs } = readOptions({ what: 'createConnection' }, options, CONNECTION);
  const { tls, name = CONNECTION.name.default, clock = systemClock, dice = systemDice } = options;
  const urls = typeof options.url === 'string' ? [options.url] : options.url;
  if (!Array.isArray(urls) || urls.length === 0 || urls.some((url) => typeof url !== 'string')) {
    throw noUrl(options.url);
  }
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
  const connectionFor = (duty: string): ReconnectingConnection => {
    const settings = { tls, timeoutMs, heartbeatMs, name: `${name} ${duty}` };
    return new ReconnectingConnection({
      clock,
      dice,
      isOwned: true,
      open: () => openAny(settings),
    });
  };
  return pairOf(connectionFor('consuming'), connectionFor('publishing'));
}

/** The connections that were chosen, and whether the caller has to close them at its end. */
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
    const options = { url, clock, dice, ...(name === undefined ? {} : { name }) };
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
  const reconnecting = new ReconnectingConnection({
    clock,
    dice,
    isOwned: false,
    open: () => Promise.resolve(given),
  });
  // Ours is the wrapper: its `close` leaves amqplib's connection open.
  return { connection: pairOf(reconnecting, reconnecting), isOwned: true };
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

/** How to reach a broker beyond its URL. */
interface ConnectOptions {
  /** What TLS needs beyond the machine's own authorities; for `amqps:` URLs. */
  readonly tls?: TlsOptions | undefined;
  /** How long a connection may take to open; default 10s. */
  readonly timeoutMs?: number;
  /** The silence after which a side takes the other for gone; default 10s. */
  readonly heartbeatMs?: number;
  /** The name that the broker shows for the connection. */
  readonly name?: string;
}

/** Keys and certificates, as `tls.connect` of Node takes them. */
export interface TlsOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Additional trusted certificate authorities, in PEM. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[];
  /** The client's certificate in PEM. */
  readonly cert?: string | Buffer;
  /** The client's private key in PEM, if the broker requires one. */
  readonly key?: string | Buffer;
  /** Of the private key; never a flag. */
  readonly passphrase?: string;
  /** The name in the broker's certificate, if it differs from the host. */
  readonly servername?: string;
  /** `false` trusts any certificate; for tests only. Default true. */
  readonly rejectUnauthorized?: boolean;
}

const CONNECT_TIMEOUT_MS: number = durationMs(CONNECTION.timeout.default, 'timeout');
const HEARTBEAT_MS: number = durationMs(CONNECTION.heartbeat.default, 'heartbeat');

interface AmqpPackage {
  connect(url: string, socket: object): Promise<AmqpConnection>;
  readonly credentials: { plain(username: string, password: string): object };
}

/** Opens a connection; `broker.unavailable` says why not, `peer.missing` what to install. */
export async function connectAmqp(
  url: string,
  { tls, timeoutMs = CONNECT_TIMEOUT_MS, heartbeatMs = HEARTBEAT_MS, name }: ConnectOptions = {},
): Promise<AmqpConnection> {
  const address = parsed(url);
  const amqplib = await loadAmqplib();
  if (!address.searchParams.has('heartbeat')) {
    address.searchParams.set('heartbeat', String(Math.max(1, Math.round(heartbeatMs / 1_000))));
  }
  const clientProperties = name === undefined ? {} : { connection_name: name };
  try {
    // n.b. amqplib itself would read a user and password in a URL as Latin-1.
    const credentials = amqplib.credentials.plain(userOf(url), passwordOf(address));
    const socket = { ...tls, timeout: timeoutMs, noDelay: true, clientProperties, credentials };
    return await amqplib.connect(address.href, socket);
  } catch (error) {
    throw new RespoolError(
      'broker.unavailable',
      `cannot connect to RabbitMQ at "${shownUrl(url)}": ${reasonOf(error, address)}`,
      { cause: error },
    );
  }
}

/**
 * A URL without user and password, for people to read. Stored, as `Broker.address`: in the keys of
 * `dlq watch` (cli/commands/dlq/sweep/watch.ts) and in `ReplaySource.broker`.
 */
export function shownUrl(url: string): string {
  try {
    const { protocol, host, pathname } = new URL(url);
    return `${protocol}//${host}${pathname === '/' ? '' : pathname}`;
  } catch {
    return '(not a URL)';
  }
}

/** The user that a URL names; default: guest. */
export function userOf(url: string): string {
  const { username } = parsed(url);
  return username === '' ? 'guest' : decodeURIComponent(username);
}

function passwordOf({ username, password }: URL): string {
  return username === '' && password === '' ? 'guest' : decodeURIComponent(password);
}

/** Says what to install, where it is missing, before anything needs it. */
export async function needAmqplib(): Promise<void> {
  await loadAmqplib();
}

async function loadAmqplib(): Promise<AmqpPackage> {
  const loaded = await importPeer('amqplib', 'RabbitMQ');
  // n.b. CommonJS: the functions may be on `default` only.
  const amqplib = (loaded['connect'] === undefined ? loaded['default'] : loaded) as AmqpPackage;
  return amqplib;
}

function parsed(url: string): URL {
  const address = URL.canParse(url) ? new URL(url) : undefined;
  if (address !== undefined && /^amqps?:$/.test(address.protocol)) return address;
  throw new RespoolError(
    'config.invalid',
    `cannot use "${shownUrl(url)}" as the URL of RabbitMQ: allowed is amqp:// or amqps://, ` +
      'such as amqp://user:password@host:5672/vhost',
  );
}

/** An attempt at several addresses fails with an error that has its reasons inside. */
function reasonOf(error: unknown, { pathname }: URL): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(textOf).join('; ');
  }
  const text = textOf(error);
  // n.b. amqplib drops the reason where the broker closes instead of opening the vhost.
  if (/Expected ConnectionOpenOk; got <ConnectionClose\b/.test(text)) {
    const vhost = unescape(pathname.slice(1)) || '/';
    return (
      `the broker refuses the vhost ${show(vhost)}: it is not there, the user may not use it, or ` +
      `it has as many connections as it may; to make it: rabbitmqctl add_vhost ${vhost}`
    );
  }
  if (/\bETIMEDOUT\b/.test(text)) {
    return (
      `${text}; check that the broker is well, and that this is its port of AMQP: 5672, or 5671 ` +
      'with TLS'
    );
  }
  if (/ACCESS.REFUSED/i.test(text)) return `${text}; check user, password and vhost`;
  return text;
}

/** Made by `createConnection`, or amqplib's own. */
export type AnyConnection = RabbitConnection | AmqpConnection;

/** The connection to ask over: that which consumes, of a pair. */
export async function amqpOf(connection: AnyConnection): Promise<AmqpConnection> {
  return 'consuming' in connection ? connection.consuming.tryConnect() : connection;
}

/** Where a message is published to. */
export function exchangePlace(
  exchange: string,
  routingKey: string,
  correlationId?: string,
): TracedPlace {
  const named = [exchange, routingKey].filter((name) => name !== '').join(':');
  // n.b. The conventions call the exchange without a name so.
  const destination = named === '' ? 'amq.default' : named;
  return { system: 'rabbitmq', destination, routingKey, ...conversation(correlationId) };
}

/** What is read of a claim of `consume/`, which is not imported here. */
interface ClaimOfQueue extends Claim {
  readonly envelope: Claim['envelope'] & { readonly queue: string };
  readonly past: { readonly routingKey: string };
  readonly message: AmqpMessage;
}

/** Where a message comes from. */
export function queuePlace(claim: Claim): TracedPlace {
  const { envelope, past, message } = claim as ClaimOfQueue;
  return {
    system: 'rabbitmq',
    destination: envelope.queue,
    routingKey: past.routingKey,
    ...conversation(message.properties.correlationId),
  };
}

function conversation(id: unknown): Pick<TracedPlace, 'conversationId'> {
  return typeof id === 'string' ? { conversationId: id } : {};
}
