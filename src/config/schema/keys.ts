/**
 * keys — the keys of a configuration in one list, made from the table in options.ts.
 *
 * Reading, checking, editing and printing go by this list. A key's range is checked by the table,
 * below OPTIONAL_GROUPS by who reads the group; CHECKS has what a table cannot say.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { checkOneOf } from '../../core/limits.ts';
import {
  checkBoolean,
  checkOption,
  defaultOf,
  type Option,
  type OptionTable,
  typeText,
} from '../../core/option-table.ts';
import { METRIC_ALIASES } from '../../observe/metrics/options.ts';
import { configError } from '../load/config-errors.ts';
import { checkQueueName } from '../load/dead-letters.ts';
import { checkStore } from '../load/store-url.ts';
import { CONFIG_KEYS } from './options.ts';

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
  readonly secret?: Option['secret'];
  readonly check?: KeyCheck;
}

/** Throws when a value is not what it may be; `what` is the key. */
type KeyCheck = (value: unknown, what: string) => unknown;

/** Groups whose ranges and defaults apply only where something below them is set. */
const OPTIONAL_GROUPS = ['outbox.', 'rabbit.'];

/** Checks by the owners of keys. */
const CHECKS: Readonly<Record<string, KeyCheck>> = {
  store: checkStore,
  entries: checkGivenOrStore,
  bodies: checkGivenOrStore,
  transforms: jsonCheck('a codec such as zstd, or JSON, a list of transforms; [] takes them away'),
  seal: jsonCheck('{ keys, primary }'),
  'rabbit.url': checkBrokerUrl,
  'rabbit.managementUrl': checkManagementUrl,
  'rabbit.tls.passphrase': checkSecretText,
  'rabbit.tls.servername': checkHostName,
  'rabbit.tls.rejectUnauthorized': (value, what) => checkBoolean(what, value),
  'outbox.listenUrl': checkListenUrl,
  'outbox.relay.to': checkWholeJson,
  'outbox.relay.cleanUp': checkWholeJson,
  'outbox.relay.topics': checkWholeJson,
  'deadLetters.parkedQueue': checkQueueName,
  'serve.host': checkHostName,
  'serve.token': checkTokenText,
  'metrics.aliases': checkAliases,
  'log.redact': checkNameList,
};

/** How a text is read where the kind of an option does not say so itself. */
const KINDS: Readonly<Partial<Record<Option['kind'], KeyKind['kind']>>> = {
  bytes: 'number',
  numbers: 'number',
  choice: 'text',
};

/** Every key, in the order of printing. */
export const KEYS: readonly KeyKind[] = keysOf(CONFIG_KEYS, '');

/** The keys of a table, those of groups with the name of the group before them. */
export function keysOf(table: OptionTable, prefix: string): KeyKind[] {
  return Object.entries(table).flatMap(([name, option]) => {
    const key = `${prefix}${name}`;
    return option.kind === 'group' ? keysOf(option.options, `${key}.`) : [keyKindOf(key, option)];
  });
}

function keyKindOf(key: string, option: Exclude<Option, { readonly kind: 'group' }>): KeyKind {
  const { kind, flag, secret, defaultText } = option;
  const isOptional = OPTIONAL_GROUPS.some((group) => key.startsWith(group));
  const byDefault = defaultOf(option) as KeyKind['byDefault'];
  const words =
    defaultText ?? (isOptional && byDefault !== undefined ? `\`${byDefault}\`` : undefined);
  const check = CHECKS[key] ?? checkOf(option, isOptional);
  return {
    key,
    kind: KINDS[kind] ?? (kind as KeyKind['kind']),
    type: typeText(option),
    about: option.about,
    ...(words !== undefined || byDefault === undefined ? {} : { byDefault }),
    ...(words === undefined ? {} : { defaultText: words }),
    ...(flag === undefined ? {} : { flag }),
    ...(secret === undefined ? {} : { secret }),
    ...(check === undefined ? {} : { check }),
  };
}

function checkOf(option: Option, isOptional: boolean): KeyCheck | undefined {
  if (option.kind === 'file') return checkFileName;
  return isOptional ? undefined : (value, what) => checkOption(what, value, option);
}

function checkAliases(value: unknown, what: string): void {
  if (!Array.isArray(value))
    throw configError(what, value, `a list of ${METRIC_ALIASES.join(' and ')}`);
  for (const one of value) checkOneOf(what, one, METRIC_ALIASES);
}

/** n.b. What was given is not shown: it may hold a password. */
function checkListenUrl(value: unknown, what: string): void {
  if (typeof value === 'string' && /^postgres(?:ql)?:\/\/./.test(value)) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use this as "${what}": allowed is a URL that leads straight to the server, like ` +
      'postgres://user:password@host/database',
  );
}

/** What is still a text that begins like JSON could not be read; the rest is checked later. */
function checkWholeJson(value: unknown, what: string): void {
  if (typeof value !== 'string' || !/^\s*[[{]/.test(value)) return;
  throw new RespoolError('config.invalid', `cannot use broken JSON as "${what}"`);
}

function checkNameList(value: unknown, what: string): void {
  const isName = (one: unknown): boolean => typeof one === 'string' && one.trim() !== '';
  if (Array.isArray(value) && value.every(isName)) return;
  throw configError(what, value, 'a list of names');
}

/** The keys with this kind of secret. */
export function keysWith(secret: 'password' | 'keys'): readonly string[] {
  return KEYS.filter((one) => one.secret === secret).map(({ key }) => key);
}

const BY_NAME: ReadonlyMap<string, KeyKind> = new Map(KEYS.map((key) => [key.key, key]));

/** The key of this name, or undefined. */
export function configKeyOf(name: string): KeyKind | undefined {
  return BY_NAME.get(name);
}

/** Whether the key can be said in one text, so by a flag or the environment. */
export function isScalar({ kind }: KeyKind): boolean {
  return kind !== 'data' && kind !== 'code';
}

/** `limits.bodyBytes` → `RESPOOL_LIMITS_BODY_BYTES`. */
export function environmentName(key: string): string {
  const snake = key.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).replaceAll('.', '_');
  return `RESPOOL_${snake.toUpperCase()}`;
}

/** A value as a text says it; what does not fit stays a text, for the check to refuse. */
export function valueOfText({ kind }: Pick<KeyKind, 'kind'>, text: string): unknown {
  const trimmed = text.trim();
  if (kind === 'number' || kind === 'duration') {
    return /^-?\d+(?:\.\d+)?$/.test(trimmed) ? Number(trimmed) : text;
  }
  if (kind === 'boolean') {
    if (trimmed === 'true' || trimmed === '1') return true;
    return trimmed === 'false' || trimmed === '0' ? false : text;
  }
  if (kind === 'json' && /^[[{]/.test(trimmed)) return jsonOf(trimmed);
  const archived = kind === 'keep' ? /^archive:(.+)$/.exec(trimmed)?.[1] : undefined;
  return archived === undefined ? text : { archive: archived };
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // The check refuses it, and does not show what may hold a key.
    return text;
  }
}

/** What is still a text that begins like JSON could not be read as such. */
function jsonCheck(allowed: string): KeyCheck {
  return (value, what) => {
    const isBroken = typeof value === 'string' && /^\s*[[{]/.test(value);
    if (!isBroken && (typeof value === 'string' || typeof value === 'object')) return;
    const shown = isBroken ? 'broken JSON' : show(value);
    const text = `cannot use ${shown} as "${what}": allowed is ${allowed}`;
    throw new RespoolError('config.invalid', text);
  };
}

export function checkHostName(value: unknown, what: string): void {
  const fits = typeof value === 'string' && /^[A-Za-z0-9._:%[\]-]{1,255}$/.test(value);
  if (!fits) throw invalid(what, value, 'a host name or an IP address');
}

function checkFileName(value: unknown, what: string): void {
  const fits = typeof value === 'string' && value !== '' && !value.includes('\0');
  if (!fits) throw invalid(what, value, 'the name of a file');
}

/** Whether it is the hash of a token, as a file keeps it, and not a token. */
export function isTokenHash(value: unknown): boolean {
  return typeof value === 'string' && /^sha256:[0-9a-f]{64}$/i.test(value);
}

function checkTokenText(value: unknown, what: string): void {
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

function checkManagementUrl(value: unknown, what: string): void {
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

function checkSecretText(value: unknown, what: string): void {
  if (typeof value === 'string' && value !== '') return;
  throw new RespoolError('config.invalid', `cannot use (secret) as "${what}": allowed is text`);
}

function checkGivenOrStore(value: unknown, what: string): void {
  const isGiven = typeof value === 'object' && value !== null && 'open' in value;
  if (!isGiven) checkStore(value, what);
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed}`,
  );
}
