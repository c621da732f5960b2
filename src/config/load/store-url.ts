/**
 * store-url — `sqlite:./respool?synchronous=normal` taken apart. Pure; config/open/stores.ts makes
 * the stores.
 *
 * A store on a server may also be said as data: `{ postgres: { url, schema } }`.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { isPlainObject } from '../../core/limits.ts';
import { redactUrls } from '../../core/redact.ts';
import { checkKeys } from './config-errors.ts';

/** Which store. */
export type StoreKind = 'sqlite' | 'file' | 'memory' | ServerKind;

/** Stores that another process keeps. */
type ServerKind = (typeof SERVER_KINDS)[number];

/** A store's address, taken apart. */
export interface StoreUrl {
  readonly kind: StoreKind;
  /** The folder as it was written; empty for memory and servers. */
  readonly path: string;
  /** The address of the server, without what follows the question mark. */
  readonly url?: string;
  /** What follows the question mark, as texts; of data, as it is. */
  readonly options: Readonly<Record<string, unknown>>;
  /** Whether it was said as data: names are checked by the store itself. */
  readonly isData?: true;
}

const SERVER_KINDS = ['postgres', 'nats', 's3'] as const;
const SCHEMES: Readonly<Record<string, StoreKind>> = {
  sqlite: 'sqlite',
  file: 'file',
  memory: 'memory',
  postgres: 'postgres',
  postgresql: 'postgres',
  nats: 'nats',
  s3: 's3',
};
const EXAMPLES: Readonly<Record<ServerKind, string>> = {
  postgres: 'postgres://host/database',
  nats: 'nats://host:4222',
  s3: 's3://bucket/prefix',
};

/** Takes a store's address or data apart; refuses what names no store. */
export function parseStore(value: unknown, what: string): StoreUrl {
  const parsed = typeof value === 'string' ? parseText(value, what) : parseData(value, what);
  if (parsed.kind === 's3' && what !== 'bodies') {
    throw new RespoolError(
      'config.invalid',
      `cannot use an address of S3 as "${what}": it keeps bodies only; name it as "bodies", and ` +
        'another store as "entries", such as sqlite:./respool',
    );
  }
  return parsed;
}

/** Refuses what is not a store's address, nor its data. */
export function checkStore(value: unknown, what: string): void {
  parseStore(value, what);
}

/** Whether it is a store on a server, said as data. */
export function isStoreData(value: unknown): value is Readonly<Record<string, unknown>> {
  return isPlainObject(value) && SERVER_KINDS.some((kind) => Object.hasOwn(value, kind));
}

function parseText(text: string, what: string): StoreUrl {
  const [, scheme = '', rest = ''] = /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(text) ?? [];
  const kind = Object.hasOwn(SCHEMES, scheme.toLowerCase())
    ? SCHEMES[scheme.toLowerCase()]
    : undefined;
  if (kind === undefined) {
    const isPath = scheme === '' && what !== 'bodies';
    const hint = isPath ? '; a folder is written with its kind before it, sqlite:./respool' : '';
    throw refusal(what, text, `${allowedAs(what)}${hint}`);
  }
  const at = rest.indexOf('?');
  const path = at === -1 ? rest : rest.slice(0, at);
  const options = optionsOf(at === -1 ? '' : rest.slice(at + 1), what, text);
  if (kind === 'postgres' || kind === 'nats' || kind === 's3') {
    return { kind, path: '', url: serverUrl(kind, path, what), options };
  }
  if (kind === 'memory') {
    if (path !== '') throw refusal(what, text, 'memory: with nothing after it');
    return { kind, path, options };
  }
  // Two slashes would make the next word the name of a machine.
  if (path === '' || path.includes('\0') || /^\/\/[^/]/.test(path)) {
    throw refusal(what, text, `${kind}: and a folder, such as ${kind}:./respool`);
  }
  return { kind, path, options };
}

function parseData(value: unknown, what: string): StoreUrl {
  if (!isPlainObject(value)) throw refusal(what, value, allowedAs(what));
  checkKeys(what, value, SERVER_KINDS);
  const [kind, ...others] = SERVER_KINDS.filter((one) => value[one] !== undefined);
  const options = kind === undefined ? undefined : value[kind];
  if (kind === undefined || others.length > 0 || !isPlainObject(options)) {
    throw refusal(what, 'this data', 'one of { postgres }, { nats } or { s3 } with its options');
  }
  const url = typeof options['url'] === 'string' ? { url: options['url'] } : {};
  return { kind, path: '', ...url, options, isData: true };
}

/** n.b. What is wrong with an address is not shown: a password may be in any part of it. */
function serverUrl(kind: ServerKind, path: string, what: string): string {
  const url = `${kind}:${path}`;
  const parts = kind === 'nats' ? url.split(',') : [url];
  const isWhole = parts.every((part) => {
    const whole = part.includes('://') ? part : `nats://${part}`;
    return URL.canParse(whole) && (kind === 'postgres' || new URL(whole).hostname !== '');
  });
  if (path.startsWith('//') && path.length > 2 && isWhole) return url;
  throw new RespoolError(
    'config.invalid',
    `cannot use this address of ${kind} as "${what}": allowed is one like ${EXAMPLES[kind]}; ` +
      'write "%2F" for a slash in a password, "%3F" for a question mark, "%23" for a hash',
  );
}

function optionsOf(query: string, what: string, text: string): Record<string, string> {
  const options: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(query)) {
    if (name in options) throw refusal(what, text, `every option once, "${name}" is there twice`);
    options[name] = value;
  }
  return options;
}

function allowedAs(what: string): string {
  const last = what === 'bodies' ? ', nats://… or s3://…' : ' or nats://…';
  return `sqlite:DIR, file:DIR, memory:, postgres://…${last}`;
}

function refusal(what: string, value: unknown, allowed: string): RespoolError {
  const shown = typeof value === 'string' ? redactUrls(value) : value;
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(shown)} as "${what}": allowed is ${allowed}`,
  );
}
