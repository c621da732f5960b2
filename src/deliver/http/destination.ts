/**
 * destination — where requests may go: URLs from the options only, checked when they are given,
 * and hosts that may be private because the options name them.
 */

import { isIP, isIPv6 } from 'node:net';
import { RespoolError, show } from '../../core/errors.ts';
import { whyRefused } from './address.ts';
import { hideBrokenUrl, hideUrl } from '../redact.ts';
import { checkTexts, refused } from '../option-checks.ts';

/** All addresses of a name. */
export type Resolve = (
  hostname: string,
) => Promise<readonly { readonly address: string; readonly family: number }[]>;

/** A name leads to an address that requests must not go to. */
export class AddressRefused extends Error {
  override readonly name = 'AddressRefused';

  constructor(hostname: string, address: string, why: string) {
    const where = hostname === address ? `"${hostname}"` : `"${hostname}" (${address})`;
    super(
      `no request to ${where}: the address is not public (${why}); if that is meant, ` +
        `name the host in the option "allow": ['${hostname}']`,
    );
  }
}

/** Hosts, or hosts with a port, that may have addresses that are not public. */
export class AllowList {
  readonly #hosts: ReadonlySet<string>;
  /** As given, for those who ask. */
  readonly entries: readonly string[];

  constructor(allow: unknown) {
    this.entries = checkTexts('allow', allow, ALLOW_ALLOWED, (text) => hostOf(text) !== undefined);
    this.#hosts = new Set(this.entries.map((text) => hostOf(text) ?? ''));
  }

  has(hostname: string, port: number): boolean {
    const host = hostname.toLowerCase().replace(/^\[(.*)\]$/, '$1');
    return this.#hosts.has(host) || this.#hosts.has(`${host} ${port}`);
  }
}

const ALLOW_ALLOWED =
  "exact host names or addresses, with a port if you like, such as 'localhost' or '10.0.0.5:8080'";

/** An entry of `allow` as it is compared: `host`, or `host port`. */
function hostOf(entry: string): string | undefined {
  if (isIPv6(entry)) return hostOf(`[${entry}]`);
  const [, name = '', port] = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?$/i.exec(entry) ?? [];
  if (name === '' || !URL.canParse(`http://${name}`)) return undefined;
  const host = new URL(`http://${name}`).hostname.replace(/^\[(.*)\]$/, '$1');
  return port === undefined ? host : `${host} ${Number(port)}`;
}

/** Refuses a URL that requests must not or cannot go to. */
export function checkUrl(what: string, value: unknown, allow: AllowList): URL {
  if (typeof value !== 'string' || value.length > URL_MAX_CHARS || !URL.canParse(value)) {
    throw refused(what, typeof value === 'string' ? hideBrokenUrl(value) : value, URL_ALLOWED);
  }
  const url = new URL(value);
  if (url.username !== '' || url.password !== '') {
    // The value is not named: it carries a password.
    throw new RespoolError(
      'config.invalid',
      `cannot use a URL with user or password as "${what}": allowed is ${URL_ALLOWED}; ` +
        'give them as a header in "headers"',
    );
  }
  const isHttp = url.protocol === 'http:' || url.protocol === 'https:';
  if (!isHttp || value.includes('#') || url.hostname === '') {
    throw refused(what, hideUrl(url), URL_ALLOWED);
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const why = literalRefusal(host);
  if (why !== undefined && !allow.has(host, portOf(url))) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(url.origin)} as "${what}": "${host}" is not public (${why}); ` +
        `if that is meant, name it in the option "allow": ['${host}']`,
    );
  }
  return url;
}

const URL_MAX_CHARS = 8_192;
const URL_ALLOWED = "an 'http://' or 'https://' URL without user, password and fragment";

/** The port that a request to the URL goes to. */
function portOf(url: URL): number {
  return Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
}

/** What is known without asking a resolver: addresses, and names that always mean this machine. */
function literalRefusal(host: string): string | undefined {
  if (isIP(host) !== 0) return whyRefused(host);
  return /(?:^|\.)localhost\.?$/.test(host) ? 'loopback' : undefined;
}
