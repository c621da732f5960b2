/**
 * store-url — `sqlite:./respool?synchronous=normal` taken apart. Pure; stores.ts makes the stores.
 */

import { RespoolError, show } from '../core/errors.ts';
import { maskUrls } from './secrets.ts';

/** A store's address, taken apart. */
export interface StoreUrl {
  readonly kind: 'sqlite' | 'file' | 'memory';
  /** As it was written; empty for memory. */
  readonly path: string;
  /** What follows the question mark, as texts. */
  readonly options: Readonly<Record<string, string>>;
}

const ALLOWED = 'sqlite:DIR, file:DIR or memory:';
const LATER = ['postgres', 'postgresql', 'nats', 's3'];

/** Takes a store's address apart; refuses what names no store of this release. */
export function parseStoreUrl(text: string, what: string): StoreUrl {
  const [, scheme = '', rest = ''] = /^([a-z][a-z0-9+.-]*):(.*)$/i.exec(text) ?? [];
  const kind = scheme.toLowerCase();
  if (LATER.includes(kind)) {
    throw refusal(what, text, `${ALLOWED}; ${kind} is not in this release`);
  }
  if (kind !== 'sqlite' && kind !== 'file' && kind !== 'memory') {
    throw refusal(what, text, ALLOWED);
  }
  const at = rest.indexOf('?');
  const path = at === -1 ? rest : rest.slice(0, at);
  const options = optionsOf(at === -1 ? '' : rest.slice(at + 1), what, text);
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

/** Refuses what is not a store's address. */
export function checkStoreText(value: unknown, what: string): void {
  if (typeof value !== 'string') throw refusal(what, value, ALLOWED);
  parseStoreUrl(value, what);
}

function optionsOf(query: string, what: string, text: string): Record<string, string> {
  const options: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(query)) {
    if (name in options) throw refusal(what, text, `every option once, "${name}" is there twice`);
    options[name] = value;
  }
  return options;
}

function refusal(what: string, value: unknown, allowed: string): RespoolError {
  const shown = typeof value === 'string' ? maskUrls(value) : value;
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(shown)} as "${what}": allowed is ${allowed}`,
  );
}
