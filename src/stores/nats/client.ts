/**
 * client — the package for NATS, loaded when a store is opened, and the little of it that is used.
 *
 * Only the connection is the package's. Requests to JetStream are made in stream.ts: with many of
 * them on their way, the package's own ways cost twice as much.
 */

import { RespoolError, show, textOf } from '../../core/errors.ts';
import { importPeer } from '../../system/peer.ts';

/** The headers of a message. */
export interface NatsHeaders {
  readonly code: number;
  readonly description: string;
  get(name: string): string;
  set(name: string, value: string): void;
}

/** A message that came in. */
export interface NatsMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly reply?: string;
  readonly headers?: NatsHeaders;
}

/** A subscription with a callback. */
export interface NatsSubscription {
  unsubscribe(): void;
}

/** The part of a connection of `@nats-io/transport-node` or `@nats-io/nats-core` we use. */
export interface NatsConnection {
  readonly info?: {
    readonly version: string;
    readonly server_id: string;
    readonly max_payload: number;
    readonly cluster?: string;
  };
  publish(
    subject: string,
    payload?: Uint8Array | string,
    options?: { readonly reply?: string; readonly headers?: never },
  ): void;
  subscribe(
    subject: string,
    options: { readonly callback: (error: Error | null, message: NatsMessage) => void },
  ): NatsSubscription;
  flush(): Promise<void>;
  close(): Promise<void>;
  isClosed(): boolean;
  status(): AsyncIterable<{ readonly type: string }> & { stop?(): void };
}

/** The package, as far as we use it. */
export interface NatsPackage {
  connect(options: object): Promise<NatsConnection>;
  headers(): NatsHeaders;
}

/** Loads `@nats-io/transport-node`. */
export async function loadNats(): Promise<NatsPackage> {
  const loaded = await importPeer('@nats-io/transport-node', 'the NATS store');
  return loaded as unknown as NatsPackage;
}

/**
 * How long the package waits for a server to greet it; its own 20 s is what a connection that broke
 * in the greeting would cost, as it does not notice that.
 */
const GREETING_MS = 4_000;
/** A connection that died without a word is noticed after three of these, not after minutes. */
const PING_EVERY_MS = 2_000;
const PINGS_UNANSWERED_MAX = 2;

/** Connects for ever: a connection that breaks is made again, whatever it takes. */
export async function connectTo(
  nats: NatsPackage,
  url: string,
  options: object,
): Promise<NatsConnection> {
  try {
    return await nats.connect({
      timeout: GREETING_MS,
      pingInterval: PING_EVERY_MS,
      maxPingOut: PINGS_UNANSWERED_MAX,
      ...credentialsOf(url),
      ...options,
      servers: url.split(',').map((one) => one.replace(/^([a-z]+:\/\/)?[^/]*@/i, '$1')),
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      reconnectJitter: 100,
    });
  } catch (error) {
    throw new RespoolError(
      'store.unavailable',
      `cannot connect to NATS at ${show(withoutSecrets(url))}: ${textOf(error)}; ` +
        'check that the server runs and that the credentials are right',
      { cause: error },
    );
  }
}

/** The package takes a user from its options only; alone in an address, a user is a token. */
function credentialsOf(url: string): object {
  const [, user, pass] = /^(?:[a-z]+:\/\/)?([^@/:,]*)(?::([^/,]*))?@/i.exec(url) ?? [];
  if (user === undefined) return {};
  if (pass === undefined) return { token: decodeURIComponent(user) };
  return { user: decodeURIComponent(user), pass: decodeURIComponent(pass) };
}

/** Addresses as they may be shown; what looks like a part of a password goes with it. */
function withoutSecrets(url: string): string {
  const parts = url.split(/,(?=[a-z]+:\/\/)/i);
  return parts.map((part) => part.replace(/^([a-z]+:\/\/)?.*@/is, '$1***@')).join(',');
}
