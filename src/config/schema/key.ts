/**
 * key — what a key of a configuration is, and the checks of values that keys have in common.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { checkStore } from '../load/store-url.ts';

/** How a value is read from a text, and whether it can be. */
type Kind = 'text' | 'number' | 'boolean' | 'duration' | 'keep' | 'file' | 'json' | 'data' | 'code';

/** One key that holds a value. */
export interface KeyKind {
  /** With dots: `serve.port`. */
  readonly key: string;
  readonly kind: Kind;
  /** What it may be, for people. */
  readonly type: string;
  /** What it means, in one sentence of Markdown. */
  readonly about: string;
  readonly byDefault?: string | number | boolean;
  /** The default in words, where it depends on something. */
  readonly defaultText?: string;
  /** What the command line calls it, if it has it. */
  readonly flag?: string;
  readonly isSecret?: true;
  readonly check?: KeyCheck;
}

/** Throws when a value is not what it may be; `what` is the key. */
export type KeyCheck = (value: unknown, what: string) => unknown;

/** What is still a text that begins like JSON could not be read as such. */
export function jsonText(allowed: string): KeyCheck {
  return (value, what) => {
    const isBroken = typeof value === 'string' && /^\s*[[{]/.test(value);
    if (!isBroken && (typeof value === 'string' || typeof value === 'object')) return;
    const shown = isBroken ? 'broken JSON' : show(value);
    const text = `cannot use ${shown} as "${what}": allowed is ${allowed}`;
    throw new RespoolError('config.invalid', text);
  };
}

export function hostName(value: unknown, what: string): void {
  const fits = typeof value === 'string' && /^[A-Za-z0-9._:%[\]-]{1,255}$/.test(value);
  if (!fits) throw invalid(what, value, 'a host name or an IP address');
}

export function fileName(value: unknown, what: string): void {
  const fits = typeof value === 'string' && value !== '' && !value.includes('\0');
  if (!fits) throw invalid(what, value, 'the name of a file');
}

/** Whether it is the hash of a token, as a file keeps it, and not a token. */
export function isTokenHash(value: unknown): boolean {
  return typeof value === 'string' && /^sha256:[0-9a-f]{64}$/i.test(value);
}

export function tokenText(value: unknown, what: string): void {
  const isText = typeof value === 'string' && /^[\x21-\x7e]{1,512}$/.test(value);
  if (isText && (isTokenHash(value) || !/^sha256:/i.test(value))) return;
  // What was given may be most of a token: it is not shown.
  throw new RespoolError(
    'config.invalid',
    `cannot use (secret) as "${what}": allowed is 1 to 512 visible ASCII characters, or ` +
      '"sha256:" and 64 hex digits',
  );
}

/** Refuses what is no address of RabbitMQ, without showing it: it may hold a password. */
export function checkBrokerUrl(value: unknown, what: string): void {
  checkUrl(value, what, ['amqp:', 'amqps:'], 'amqp://user:password@host:5672/vhost');
}

export function checkManagementUrl(value: unknown, what: string): void {
  checkUrl(value, what, ['http:', 'https:'], 'http://user:password@host:15672');
}

function checkUrl(
  value: unknown,
  what: string,
  protocols: readonly string[],
  example: string,
): void {
  const url = typeof value === 'string' ? URL.parse(value) : null;
  if (url !== null && url.hostname !== '' && protocols.includes(url.protocol)) return;
  const shown = typeof value === 'string' ? 'this text' : show(value);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${shown} as "${what}": allowed is a URL like ${example}; ` +
      '"%", "/", "?", "#" and "@" in a password are written as %25, %2F, %3F, %23 and %40',
  );
}

export function anyText(value: unknown, what: string): void {
  if (typeof value === 'string' && value !== '') return;
  throw new RespoolError('config.invalid', `cannot use (secret) as "${what}": allowed is text`);
}

export function givenOrStore(value: unknown, what: string): void {
  const isGiven = typeof value === 'object' && value !== null && 'open' in value;
  if (!isGiven) checkStore(value, what);
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed}`,
  );
}
