/**
 * keys — every key of a configuration, with its type, default, environment name and flag.
 *
 * The one table that reading, checking, printing and docs/reference/config.md go by. What the spool
 * itself checks (spool/options.ts) has no check here.
 */

import { DAY_MS, HOUR_MS, SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { checkOneOf } from '../../core/limits.ts';
import { METRIC_ALIASES } from '../../observe/metrics/types.ts';
import { configError } from '../load/config-errors.ts';
import { checkQueueName, REPLAYS_MAX_DEFAULT } from '../load/dead-letters.ts';
import { checkStore } from '../load/store-url.ts';
import {
  anyText,
  checkBrokerUrl,
  checkManagementUrl,
  fileName,
  givenOrStore,
  hostName,
  jsonText,
  type KeyKind,
  range,
  durationKey,
  tokenText,
  trueOrFalse,
} from './key.ts';

// The keys of metrics, traces and alerts; a part of keys.ts.

/** Every key of what is to be seen, in the order of printing. */
const OBSERVE_KEYS: readonly KeyKind[] = [
  {
    key: 'metrics.enabled',
    kind: 'boolean',
    type: '`true` or `false`',
    byDefault: true,
    check: trueOrFalse,
  },
  {
    key: 'metrics.aliases',
    kind: 'data',
    type: 'a list of `goqueue` and `outbox`',
    defaultText: 'none',
    check: aliases,
  },
  {
    key: 'metrics.topicsMax',
    kind: 'number',
    type: '1 to 10,000',
    byDefault: 100,
    check: range(1, 10_000),
  },
  {
    key: 'metrics.queuesMax',
    kind: 'number',
    type: '1 to 10,000',
    byDefault: 500,
    check: range(1, 10_000),
  },
  {
    key: 'metrics.every',
    kind: 'duration',
    type: 'duration, 1s to 1h',
    byDefault: '15s',
    check: durationKey(SECOND_MS, HOUR_MS),
  },
  {
    key: 'tracing.enabled',
    kind: 'boolean',
    type: '`true` or `false`',
    byDefault: false,
    check: trueOrFalse,
  },
  {
    key: 'alerts.every',
    kind: 'duration',
    type: 'duration, 1s to 1d',
    byDefault: '15s',
    check: durationKey(SECOND_MS, DAY_MS),
  },
  { key: 'alerts.to', kind: 'data', type: '[receivers](#alerts) by name' },
  { key: 'alerts.rules', kind: 'data', type: 'a list of [rules](#alerts)' },
];

function aliases(value: unknown, what: string): void {
  if (!Array.isArray(value))
    throw configError(what, value, `a list of ${METRIC_ALIASES.join(' and ')}`);
  for (const one of value) checkOneOf(what, one, METRIC_ALIASES);
}

// The keys of the outbox and of its relay; a part of keys.ts.
//
// None has a default here: a configuration that says nothing of an outbox has none.

const DURATION = 'duration';

/** Every key below `outbox`, in the order of printing. */
const OUTBOX_KEYS: readonly KeyKind[] = [
  {
    key: 'outbox.store',
    kind: 'text',
    type: '`postgres://…` or `sqlite:FILE`',
  },
  {
    key: 'outbox.schema',
    kind: 'text',
    type: 'a name; PostgreSQL only',
    defaultText: '`outbox`',
  },
  {
    key: 'outbox.tables',
    kind: 'text',
    type: 'what names of tables begin with',
    defaultText: 'none, in SQLite `outbox_`',
  },
  {
    key: 'outbox.listenUrl',
    kind: 'text',
    type: '`postgres://…`',
    check: checkListenUrl,
  },
  { key: 'outbox.expires', kind: 'duration', type: DURATION },
  {
    key: 'outbox.policies',
    kind: 'data',
    type: 'policies, or their names, by name',
    defaultText: 'those of `policies`',
  },
  {
    key: 'outbox.relay.to',
    kind: 'json',
    type: '`{ amqp, exchange }`, `{ spool: true }`, or a handler as in routes',
    check: wholeJson,
  },
  {
    key: 'outbox.relay.batch',
    kind: 'number',
    type: '1 to 10,000',
    defaultText: '100',
  },
  {
    key: 'outbox.relay.concurrency',
    kind: 'number',
    type: '1 to 10,000',
    defaultText: '500',
  },
  {
    key: 'outbox.relay.cleanUp',
    kind: 'json',
    type: '`at once`, `never`, a duration, or `{ partition, keep }`',
    defaultText: '`at once`',
    check: wholeJson,
  },
  {
    key: 'outbox.relay.topics',
    kind: 'json',
    type: 'a pattern, several with commas, or a list of them',
    defaultText: '`#`',
    check: wholeJson,
  },
  {
    key: 'outbox.relay.expires',
    kind: 'duration',
    type: DURATION,
    defaultText: '`outbox.expires`',
  },
  {
    key: 'outbox.relay.lease',
    kind: 'duration',
    type: `${DURATION}, 1s to 1d`,
    defaultText: '60s',
  },
  {
    key: 'outbox.relay.poll',
    kind: 'duration',
    type: `${DURATION}, 10ms to 1h`,
    defaultText: '30s',
  },
  {
    key: 'outbox.relay.pauseAfter',
    kind: 'duration',
    type: `${DURATION}, 1ms to 1h`,
    defaultText: '1s',
  },
];

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

/** Every key, in the order of printing. */
export const KEYS: readonly KeyKind[] = [
  {
    key: 'store',
    kind: 'text',
    type: '`sqlite:DIR`, `file:DIR`, `memory:`, `postgres://…` or `nats://…`',
    byDefault: 'sqlite:./respool',
    flag: '--store',
    check: checkStore,
  },
  {
    key: 'entries',
    kind: 'text',
    type: 'the same, or an entry store',
    flag: '--entries',
    check: givenOrStore,
  },
  {
    key: 'bodies',
    kind: 'text',
    type: 'the same, `s3://…`, or a body store',
    flag: '--bodies',
    check: givenOrStore,
  },
  {
    key: 'transforms',
    kind: 'json',
    type: 'a codec such as `zstd`, or a list of [transforms](#transforms)',
    defaultText: 'none',
    check: jsonText('a codec such as zstd, or JSON, a list of transforms; [] takes them away'),
  },
  {
    key: 'seal',
    kind: 'json',
    type: '`{ keys, primary }`',
    defaultText: 'none',
    check: jsonText('{ keys, primary }'),
  },
  { key: 'policies', kind: 'data', type: 'policies by name' },
  { key: 'backoffs', kind: 'code', type: 'functions by name' },
  {
    key: 'concurrency',
    kind: 'number',
    type: '1 to 10,000',
    defaultText: 'the sum over routes and bounces, at least 10',
    flag: '--concurrency',
  },
  {
    key: 'destinationConcurrency',
    kind: 'number',
    type: "1 to 10,000, or numbers by destination with `'*'` for the rest",
    defaultText: "`{ '*': 5 }` if a route has several `urls`, else none",
  },
  { key: 'lease', kind: 'duration', type: `${DURATION}, 1s to 1d`, byDefault: '60s' },
  { key: 'settle', kind: 'text', type: '`lazy` or `durable`', byDefault: 'lazy' },
  {
    key: 'retention.delivered',
    kind: 'keep',
    type: '`remove` or `{ archive: duration }`',
    byDefault: 'remove',
  },
  {
    key: 'retention.bounced',
    kind: 'keep',
    type: '`keep` or `{ archive: duration }`',
    byDefault: 'keep',
  },
  { key: 'retention.removed', kind: 'duration', type: `${DURATION}, up to 3650d`, byDefault: '7d' },
  {
    key: 'retention.dedupeWindow',
    kind: 'duration',
    type: `${DURATION}, up to 3650d`,
    byDefault: '24h',
  },
  { key: 'limits.bodyBytes', kind: 'number', type: '0 to 1 TiB', byDefault: 64 * 2 ** 20 },
  { key: 'limits.headerBytes', kind: 'number', type: '0 to 1 MiB', byDefault: 32 * 2 ** 10 },
  { key: 'limits.inlineBodyBytes', kind: 'number', type: '0 to 1 MiB', byDefault: 16 * 2 ** 10 },
  { key: 'poll', kind: 'duration', type: `${DURATION}, 10ms to 1h`, byDefault: '30s' },
  { key: 'unhandled', kind: 'text', type: '`hold` or `leave`', byDefault: 'hold' },
  {
    key: 'requireDurability',
    kind: 'text',
    type: '`process`, `server`, `power-loss` or `node-loss`',
    defaultText: 'none',
  },
  { key: 'caretaker.every', kind: 'duration', type: `${DURATION}, 1s to 1d`, byDefault: '1m' },
  { key: 'caretaker.orphanGrace', kind: 'duration', type: DURATION, byDefault: '24h' },
  { key: 'middleware', kind: 'code', type: 'a list of functions' },
  { key: 'routes', kind: 'data', type: 'a list of routes' },
  { key: 'bounces', kind: 'data', type: 'a list of routes' },
  {
    key: 'rabbit.url',
    kind: 'text',
    type: '`amqp://…` or `amqps://…`',
    defaultText: 'none',
    check: checkBrokerUrl,
  },
  {
    key: 'rabbit.managementUrl',
    kind: 'text',
    type: '`http://…` or `https://…`',
    defaultText: 'the host of `rabbit.url`, port 15672, over TLS 15671',
    check: checkManagementUrl,
  },
  { key: 'rabbit.tls.ca', kind: 'file', type: 'a file', check: fileName },
  { key: 'rabbit.tls.key', kind: 'file', type: 'a file', check: fileName },
  { key: 'rabbit.tls.cert', kind: 'file', type: 'a file', check: fileName },
  { key: 'rabbit.tls.passphrase', kind: 'text', type: 'text', isSecret: true, check: anyText },
  { key: 'rabbit.tls.servername', kind: 'text', type: 'a host name', check: hostName },
  {
    key: 'rabbit.tls.rejectUnauthorized',
    kind: 'boolean',
    type: '`true` or `false`',
    defaultText: '`true`',
    check: trueOrFalse,
  },
  { key: 'consumers', kind: 'data', type: 'a list of [consumers](#consumers)' },
  ...OUTBOX_KEYS,
  {
    key: 'deadLetters.categories',
    kind: 'data',
    type: 'a list of [categories](#dead-letters)',
  },
  { key: 'deadLetters.rules', kind: 'data', type: 'a list of [rules](#dead-letters)' },
  {
    key: 'deadLetters.replaysMax',
    kind: 'number',
    type: '1 to 1,000',
    byDefault: REPLAYS_MAX_DEFAULT,
    check: range(1, 1_000),
  },
  {
    key: 'deadLetters.parkedQueue',
    kind: 'text',
    type: 'the name of a queue',
    check: checkQueueName,
  },
  {
    key: 'serve.host',
    kind: 'text',
    type: 'a name or an address',
    byDefault: '127.0.0.1',
    flag: '--host',
    check: hostName,
  },
  {
    key: 'serve.port',
    kind: 'number',
    type: '0 to 65,535; 0 takes any free one',
    byDefault: 7667,
    flag: '--port',
    check: range(0, 65_535),
  },
  {
    key: 'serve.token',
    kind: 'text',
    type: '`sha256:` and 64 hex digits; in the environment also the token itself',
    defaultText: 'none',
    isSecret: true,
    check: tokenText,
  },
  { key: 'serve.tokens', kind: 'data', type: 'a list of `{ name, role, sha256 }`' },
  { key: 'serve.tls.key', kind: 'file', type: 'a file', flag: '--tls-key', check: fileName },
  { key: 'serve.tls.cert', kind: 'file', type: 'a file', flag: '--tls-cert', check: fileName },
  { key: 'serve.hosts', kind: 'data', type: 'a list of host names' },
  {
    key: 'serve.behindProxy',
    kind: 'boolean',
    type: '`true` or `false`',
    byDefault: false,
    flag: '--behind-proxy',
    check: trueOrFalse,
  },
  {
    key: 'serve.stopWithin',
    kind: 'duration',
    type: `${DURATION}, 0s to 1h`,
    byDefault: '10s',
    flag: '--stop-within',
    check: durationKey(0, HOUR_MS),
  },
  {
    key: 'serve.limits.connections',
    kind: 'number',
    type: '1 to 100,000',
    byDefault: 1_000,
    check: range(1, 100_000),
  },
  {
    key: 'serve.limits.events',
    kind: 'number',
    type: '0 to 10,000',
    byDefault: 50,
    check: range(0, 10_000),
  },
  {
    key: 'serve.limits.requestsPerSecond',
    kind: 'number',
    type: '1 to 1,000,000',
    byDefault: 100,
    check: range(1, 1_000_000),
  },
  {
    key: 'serve.limits.requestTimeout',
    kind: 'duration',
    type: `${DURATION}, 1s to 1d`,
    byDefault: '5m',
    check: durationKey(SECOND_MS, DAY_MS),
  },
  ...OBSERVE_KEYS,
  {
    key: 'log.format',
    kind: 'text',
    type: '`pretty`, `json` or `auto`',
    byDefault: 'auto',
    flag: '--log-format',
    check: (value, what) => checkOneOf(what, value, ['pretty', 'json', 'auto']),
  },
  {
    key: 'log.level',
    kind: 'text',
    type: '`error`, `warn`, `info` or `debug`',
    byDefault: 'info',
    flag: '--log-level',
    check: (value, what) => checkOneOf(what, value, ['error', 'warn', 'info', 'debug']),
  },
  {
    key: 'log.redact',
    kind: 'data',
    type: 'a list of names of fields',
    defaultText: 'none besides those that are always hidden',
    check: names,
  },
];

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
