/**
 * destination — where requests may go: only to URLs in the options, which are checked when the
 * handler is made, and only to public addresses unless the options allow the host.
 */

import { isIP, isIPv4, isIPv6 } from 'node:net';
import { RespoolError, show } from '../../core/errors.ts';
import { checkTexts, invalidOption } from '../option-checks.ts';
import { hideBrokenUrl, hideUrl } from '../../core/redact.ts';

/** Resolves a host name to all its addresses. */
export type Resolve = (
  hostname: string,
) => Promise<readonly { readonly address: string; readonly family: number }[]>;

/** A host resolves to an address that is not public. */
export class AddressRefused extends Error {
  override readonly name = 'AddressRefused';

  constructor(hostname: string, address: string, why: string) {
    const where = hostname === address ? `"${hostname}"` : `"${hostname}" (${address})`;
    super(
      `no request to ${where}: the address is not public (${why}); if that is intended, ` +
        `name the host in the option "allow": ['${hostname}']`,
    );
  }
}

/** The hosts, with or without a port, that need no public address. */
export class AllowList {
  readonly #hosts: ReadonlySet<string>;
  /** As written in the option. */
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

/** An entry of `allow` in normal form: `host`, or `host port`. */
function hostOf(entry: string): string | undefined {
  if (isIPv6(entry)) return hostOf(`[${entry}]`);
  const [, name = '', port] = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?$/i.exec(entry) ?? [];
  if (name === '' || !URL.canParse(`http://${name}`)) return undefined;
  const host = new URL(`http://${name}`).hostname.replace(/^\[(.*)\]$/, '$1');
  return port === undefined ? host : `${host} ${Number(port)}`;
}

/** Refuses a URL that is invalid or not allowed. */
export function checkUrl(what: string, value: unknown, allow: AllowList): URL {
  if (typeof value !== 'string' || value.length > URL_MAX_CHARS || !URL.canParse(value)) {
    throw invalidOption(
      what,
      typeof value === 'string' ? hideBrokenUrl(value) : value,
      URL_ALLOWED,
    );
  }
  const url = new URL(value);
  if (url.username !== '' || url.password !== '') {
    // The value is not shown: it contains a password.
    throw new RespoolError(
      'config.invalid',
      `cannot use a URL with user or password as "${what}": allowed is ${URL_ALLOWED}; ` +
        'give them as a header in "headers"',
    );
  }
  const isHttp = url.protocol === 'http:' || url.protocol === 'https:';
  if (!isHttp || value.includes('#') || url.hostname === '') {
    throw invalidOption(what, hideUrl(url), URL_ALLOWED);
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const why = literalRefusal(host);
  if (why !== undefined && !allow.has(host, portOf(url))) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(url.origin)} as "${what}": "${host}" is not public (${why}); ` +
        `if that is intended, name it in the option "allow": ['${host}']`,
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

/** Why a host is refused without resolving it: an address, or a name of this machine. */
function literalRefusal(host: string): string | undefined {
  if (isIP(host) !== 0) return whyRefused(host);
  return /(?:^|\.)localhost\.?$/.test(host) ? 'loopback' : undefined;
}

// Which network addresses are public.
//
// Pure. Promise: every address that is not certainly public is refused, including one embedded in
// an IPv6 address that a gateway would translate.

/** IPv4 ranges that are not public: prefix, its length in bits, and what it is. */
const REFUSED_V4: readonly (readonly [start: string, bits: number, what: string])[] = [
  ['0.0.0.0', 8, 'unspecified'],
  ['10.0.0.0', 8, 'private'],
  ['100.64.0.0', 10, 'shared by a carrier'],
  ['127.0.0.0', 8, 'loopback'],
  // Serves credentials to machines of a cloud, and is in no reserved range.
  ['168.63.129.16', 32, 'cloud metadata'],
  ['169.254.0.0', 16, 'link-local'],
  ['172.16.0.0', 12, 'private'],
  ['192.0.0.0', 24, 'reserved'],
  ['192.0.2.0', 24, 'documentation'],
  ['192.88.99.0', 24, 'reserved'],
  ['192.168.0.0', 16, 'private'],
  ['198.18.0.0', 15, 'benchmarking'],
  ['198.51.100.0', 24, 'documentation'],
  ['203.0.113.0', 24, 'documentation'],
  ['224.0.0.0', 4, 'multicast'],
  ['255.255.255.255', 32, 'broadcast'],
  ['240.0.0.0', 4, 'reserved'],
];

/**
 * The same for IPv6. Outside of 2000::/3 nothing is public but some of EMBEDDING_V6, and rows here
 * only name why; those inside of it (2001::, 2001:db8::, 3fff::) refuse.
 */
const REFUSED_V6: typeof REFUSED_V4 = [
  ['::', 128, 'unspecified'],
  ['::1', 128, 'loopback'],
  ['fc00::', 7, 'private'],
  ['fe80::', 10, 'link-local'],
  ['fec0::', 10, 'private'],
  ['ff00::', 8, 'multicast'],
  ['2001::', 23, 'reserved'],
  ['2001:db8::', 32, 'documentation'],
  ['3fff::', 20, 'documentation'],
];

/** IPv6 ranges that embed an IPv4 address: prefix, length in bits, offset of the address. */
const EMBEDDING_V6: readonly (readonly [start: string, bits: number, at: number])[] = [
  ['::ffff:0:0', 96, 12],
  ['64:ff9b::', 96, 12],
  ['2002::', 16, 2],
];

/** Why an address is refused; undefined for a public one. */
export function whyRefused(address: string): string | undefined {
  const bytes = bytesOf(address);
  if (bytes === undefined) return 'not an address';
  if (bytes.length === 4) return rangeOf(REFUSED_V4, bytes);
  const embedding = EMBEDDING_V6.find(([start, bits]) => beginsWith(bytes, start, bits));
  if (embedding !== undefined)
    return rangeOf(REFUSED_V4, bytes.slice(embedding[2], embedding[2] + 4));
  const why = rangeOf(REFUSED_V6, bytes);
  return why ?? (beginsWith(bytes, '2000::', 3) ? undefined : 'reserved');
}

function rangeOf(list: typeof REFUSED_V4, bytes: readonly number[]): string | undefined {
  return list.find(([start, bits]) => beginsWith(bytes, start, bits))?.[2];
}

function beginsWith(bytes: readonly number[], start: string, bits: number): boolean {
  const wanted = bytesOf(start) ?? [];
  return wanted.every((byte, at) => {
    const count = Math.min(8, Math.max(0, bits - at * 8));
    return byte >> (8 - count) === (bytes[at] ?? 0) >> (8 - count);
  });
}

/** The 4 or 16 bytes of an address as resolvers and URLs write it. */
function bytesOf(address: string): number[] | undefined {
  if (isIPv4(address)) return address.split('.').map(Number);
  // A zone names an interface of this machine: such an address is never public.
  if (!isIPv6(address) || address.includes('%')) return undefined;
  const [head = '', tail] = address.split('::');
  const before = groupsOf(head);
  const after = tail === undefined ? [] : groupsOf(tail);
  const gap = Array.from({ length: 16 - before.length - after.length }, () => 0);
  return [...before, ...gap, ...after];
}

function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (group.includes('.')) return group.split('.').map(Number);
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}
