/**
 * keys — the keys of a configuration in one list, made from the table in options.ts.
 *
 * Reading, checking, editing and printing go by this list. A key's range is checked by the table;
 * CHECKS has what a table cannot say.
 */

import { RespoolError } from '../../core/errors.ts';
import { checkOneOf } from '../../core/limits.ts';
import {
  checkBoolean,
  checkOption,
  defaultOf,
  type Option,
  type OptionTable,
  typeText,
} from '../../core/option-table.ts';
import { METRIC_ALIASES } from '../../observe/metrics/types.ts';
import { configError } from '../load/config-errors.ts';
import { checkQueueName } from '../load/dead-letters.ts';
import { checkStore } from '../load/store-url.ts';
import {
  anyText,
  checkBrokerUrl,
  checkManagementUrl,
  fileName,
  givenOrStore,
  hostName,
  jsonText,
  type KeyCheck,
  type KeyKind,
  tokenText,
} from './key.ts';
import { CONFIG_KEYS } from './options.ts';

/** Groups whose ranges and defaults apply only where something below them is set. */
const OPTIONAL_GROUPS = ['outbox.', 'rabbit.'];

/** Checks by the owners of keys. */
const CHECKS: Readonly<Record<string, KeyCheck>> = {
  store: checkStore,
  entries: givenOrStore,
  bodies: givenOrStore,
  transforms: jsonText('a codec such as zstd, or JSON, a list of transforms; [] takes them away'),
  seal: jsonText('{ keys, primary }'),
  'rabbit.url': checkBrokerUrl,
  'rabbit.managementUrl': checkManagementUrl,
  'rabbit.tls.passphrase': anyText,
  'rabbit.tls.servername': hostName,
  'rabbit.tls.rejectUnauthorized': (value, what) => checkBoolean(what, value),
  'outbox.listenUrl': checkListenUrl,
  'outbox.relay.to': wholeJson,
  'outbox.relay.cleanUp': wholeJson,
  'outbox.relay.topics': wholeJson,
  'deadLetters.parkedQueue': checkQueueName,
  'serve.host': hostName,
  'serve.token': tokenText,
  'metrics.aliases': aliases,
  'log.redact': names,
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
    ...(secret === undefined ? {} : { isSecret: secret }),
    ...(check === undefined ? {} : { check }),
  };
}

function checkOf(option: Option, isOptional: boolean): KeyCheck | undefined {
  if (option.kind === 'file') return fileName;
  return isOptional ? undefined : (value, what) => checkOption(what, value, option);
}

function aliases(value: unknown, what: string): void {
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
function wholeJson(value: unknown, what: string): void {
  if (typeof value !== 'string' || !/^\s*[[{]/.test(value)) return;
  throw new RespoolError('config.invalid', `cannot use broken JSON as "${what}"`);
}

function names(value: unknown, what: string): void {
  const isName = (one: unknown): boolean => typeof one === 'string' && one.trim() !== '';
  if (Array.isArray(value) && value.every(isName)) return;
  throw configError(what, value, 'a list of names');
}

const BY_NAME: ReadonlyMap<string, KeyKind> = new Map(KEYS.map((key) => [key.key, key]));

/** The key of this name, or undefined. */
export function keyOf(name: string): KeyKind | undefined {
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
