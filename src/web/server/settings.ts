/**
 * settings — the settings of the service, already checked by the configuration, and the addresses
 * where it refuses to listen.
 */

import type { Duration } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';

/** What the bearer of a token may do: `Role` in config/schema/define-config.ts. */
export type TokenRole = 'post' | 'read' | 'operate' | 'admin';

/** A token by its name, its rights and its SHA-256 in hex. */
interface ServeToken {
  readonly name: string;
  readonly role: TokenRole;
  readonly sha256: string;
}

/** How the service listens and whom it serves. */
export interface ServeSettings {
  readonly host: string;
  /** 0 takes any free one. */
  readonly port: number;
  /** A token with every right: itself, or `sha256:` and its SHA-256 in hex. */
  readonly token?: string | undefined;
  readonly tokens?: readonly ServeToken[] | undefined;
  /** Files with the private key and the certificate. */
  readonly tls?: { readonly key: string; readonly cert: string } | undefined;
  /** Host names that requests may carry besides the obvious ones. */
  readonly hosts?: readonly string[] | undefined;
  /** A proxy in front speaks TLS and names the client. */
  readonly behindProxy?: boolean | undefined;
  /** How long a stop waits for requests on their way. */
  readonly stopWithin: Duration;
  readonly limits: {
    /** Open connections. */
    readonly connections: number;
    /** Clients that listen to events. */
    readonly events: number;
    /** Requests a second for one address and token; posting a message does not count. */
    readonly requestsPerSecond: number;
    /** How long one request may take to come in. */
    readonly requestTimeout: Duration;
  };
}

/** Refuses an address where strangers could reach the service unprotected. */
export function checkListen(settings: ServeSettings): void {
  const { host, tls, behindProxy = false } = settings;
  if (isLoopback(host)) return;
  if (!hasTokens(settings)) {
    throw new RespoolError(
      'config.invalid',
      `cannot listen on "${host}" without a token: anyone who reaches it could do everything; ` +
        'set serve.token or serve.tokens, or listen on 127.0.0.1',
    );
  }
  if (tls !== undefined || behindProxy) return;
  throw new RespoolError(
    'config.invalid',
    `cannot listen on "${host}" without TLS: tokens would travel in plain text; set serve.tls ` +
      'to a key and a certificate, or serve.behindProxy when a proxy in front speaks TLS',
  );
}

/** Whether callers must show a token. */
export function hasTokens({ token, tokens = [] }: ServeSettings): boolean {
  return token !== undefined || tokens.length > 0;
}

/** An address that only this machine can reach. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return name === 'localhost' || name === '::1' || /^127(?:\.\d{1,3}){3}$/.test(name);
}
