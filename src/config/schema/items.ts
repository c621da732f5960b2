/**
 * items — the keys of what a configuration lists: routes, consumers, rules and tokens. Plain data,
 * with the same uses as the table of options.ts.
 */

import { CATEGORIES } from '../../core/category.ts';
import { REPLAY_RANGES } from '../../core/limits.ts';
import type { OptionTable } from '../../core/option-table.ts';
import { CONSUMER_OPTIONS } from '../../rabbit/consume/options.ts';
import { HANDLE_OPTIONS } from '../../spool/handle.ts';

/** Keys of one route, and of one bounce. */
export const ROUTE_KEYS: OptionTable = {
  topic: {
    kind: 'text',
    type: 'a pattern',
    required: true,
    about:
      'words, `*` for one word, `#` for any number; the first match wins; the same pattern ' +
      'twice is refused',
  },
  deliver: {
    kind: 'data',
    type:
      '`{ http: options }`, `{ exec: [command, …] }`, `{ exec: { command, …options } }` or a ' +
      'handler',
    ts:
      '| Handler | ReadyHandler | { readonly http: HttpOptions } | { readonly exec: ' +
      'readonly string[] | ({ readonly command: readonly string[] } & ExecOptions) }',
    schema: 'deliver',
    required: true,
    about:
      '[over HTTP](../how-to/deliver-over-http.md), [by a command](../how-to/run-a-command.md); ' +
      "a command runs in the file's folder, or in `cwd` relative to it",
  },
  policy: {
    kind: 'data',
    type: 'a name of `policies`, or a policy',
    ts: 'PolicyConfig',
    schema: 'policy',
    defaultText: '`default`, for bounces `notice`',
    about: 'when a message is retried',
  },
  concurrency: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 10,
    about: 'how many run at once',
  },
  timeout: HANDLE_OPTIONS.timeout,
};

/** Keys of one consumer. */
export const CONSUMER_KEYS: OptionTable = {
  url: {
    kind: 'text',
    type: '`amqp://…` or `amqps://…`',
    defaultText: '`rabbit.url`',
    secret: 'password',
    about:
      'its broker; what follows the host is the virtual host, which must already exist ' +
      '(`rabbitmqctl add_vhost shop`)',
  },
  queue: {
    kind: 'text',
    type: 'a name',
    required: true,
    about: 'the queue to consume; each queue of a broker only once',
  },
  bindings: {
    kind: 'data',
    type: 'a list of `{ exchange, key, type, arguments }`',
    ts: 'readonly UserBinding[]',
    schema: 'bindings',
    about:
      'what leads into the queue. `key` is `#` by default; `type` (`topic` by default, `direct`, ' +
      '`fanout`, `headers`) declares the exchange, `false` assumes that it exists',
  },
  topology: {
    kind: 'data',
    type:
      '`shared`, `perDelay` or `perAttempt`; `{ shared: { prefix } }`, ' +
      '`{ perDelay: { by, exchange } }`; or a style',
    ts: 'StyleConfig',
    schema: 'topology',
    defaultText: '`shared`',
    about: 'how messages wait for their next attempt',
  },
  type: CONSUMER_OPTIONS.type,
  policy: {
    kind: 'data',
    type: 'a name of `policies`, or a policy',
    ts: 'PolicyConfig',
    schema: 'policy',
    defaultText: '`default` if it is configured, else `{ ladder: [5s, 30s, 2m, 10m, 1h] }`',
    about: 'when a message is retried: each delay has a wait queue',
  },
  prefetch: CONSUMER_OPTIONS.prefetch,
  concurrency: CONSUMER_OPTIONS.concurrency,
  timeout: CONSUMER_OPTIONS.timeout,
  compat: {
    kind: 'data',
    type:
      '`goqueue`, `spring` or `outbox`; `{ goqueue: { maxRetries } }`, `{ spring: options }`, ' +
      '`{ outbox: { exchange } }`; or what their functions return',
    ts: 'CompatConfig',
    schema: 'compat',
    about:
      'shares the queues with another system, by its names and headers; not together with ' +
      '`topology`',
  },
  declare: CONSUMER_OPTIONS.declare,
  waits: {
    kind: 'data',
    type: 'a list of up to 64 durations',
    ts: 'readonly Duration[]',
    schema: 'durations',
    defaultText: '`1m` and `1h`, if the policy waits less; with `compat` none',
    about:
      'additional waits with a queue of their own, besides those of the policy; others are ' +
      'rounded up',
  },
  maxLost: CONSUMER_OPTIONS.maxLost,
  deliver: {
    kind: 'data',
    type: 'as in [routes](#routes)',
    ts: "RouteConfig['deliver']",
    schema: 'deliver',
    required: true,
    about: 'where messages are delivered',
  },
};

/** The conditions of a rule that replays dead letters. */
export const REPLAY_WHEN_KEYS: OptionTable = {
  group: { kind: 'text', about: 'a group, as `respool dlq groups` shows it' },
  category: {
    kind: 'choice',
    choices: CATEGORIES,
    ts: 'Category',
    about: 'a category, such as `network`',
  },
  code: { kind: 'text', about: 'the code of the last failure' },
  topic: { kind: 'text', about: 'a topic or pattern' },
  queue: { kind: 'text', about: 'dead queues by name, with `*` and `?`; default: the spool' },
  olderThan: { kind: 'duration', about: 'died longer ago than this' },
};

/** Keys of one rule that replays dead letters. */
export const REPLAY_RULE_KEYS: OptionTable = {
  name: {
    kind: 'text',
    type: '1 to 64 letters, digits, `.`, `_`, `-`',
    required: true,
    about: 'unique; the audit record has `rule:` and the name',
  },
  when: {
    kind: 'group',
    type: `\`{ ${Object.keys(REPLAY_WHEN_KEYS).join(', ')} }\``,
    required: true,
    about:
      'which letters: all given conditions must match. `queue` names dead queues, `*` and `?` ' +
      'allowed; without it, the bounced messages of the spool',
    options: REPLAY_WHEN_KEYS,
  },
  healthy: {
    kind: 'data',
    type: '`consumers` or `{ http: url }`',
    ts: "'consumers' | { readonly http: string }",
    schema: 'healthy',
    defaultText: 'for queues `consumers`; for the spool: the topic is not paused',
    about:
      'when the destination is healthy: its queue exists and is consumed, or a GET of the URL ' +
      'answers 2xx',
  },
  every: {
    kind: 'duration',
    min: '1s',
    max: '1d',
    default: '5m',
    about: 'the time between two rounds; after a stopped round twice as long each time, up to 1h',
  },
  rate: { kind: 'number', ...REPLAY_RANGES.rate, default: 10, about: 'messages per second' },
  times: {
    kind: 'number',
    ...REPLAY_RANGES.replaysMax,
    defaultText: '`deadLetters.replaysMax`',
    about: 'a message that was replayed this many times is parked',
  },
  max: { kind: 'number', min: 1, max: 5_000, default: 1_000, about: 'messages per round' },
  canary: {
    kind: 'number',
    min: 0,
    max: 1_000,
    default: 1,
    about:
      'letters to send first; the rest follows only when they are delivered ' +
      '([canaries](dead-letters.md#canaries))',
  },
};

/** Keys of one alert rule. */
export const ALERT_RULE_KEYS: OptionTable = {
  name: {
    kind: 'text',
    type: '1 to 64 letters, digits, `.`, `_`, `-`',
    required: true,
    about: 'unique; the audit record has `alert:` and the name',
  },
  when: {
    kind: 'text',
    type: '[a condition](alerts.md#conditions)',
    required: true,
    about: 'when it fires, such as `bounce rate > 5 % for 5m`',
  },
  to: {
    kind: 'data',
    type: 'the name of a receiver, or a list of them',
    ts: 'string | readonly string[]',
    schema: 'texts',
    defaultText: 'all',
    about: 'who is notified',
  },
  // oxlint-disable-next-line unicorn/no-thenable -- The key of the configuration; it holds data.
  then: {
    kind: 'data',
    type: 'an action, or a list of them',
    ts: 'AlertActionConfig | readonly AlertActionConfig[]',
    schema: 'alertActions',
    about:
      '`{ pause: topics, until }`, `{ hold: topics }`, `{ replay: rule }`: ' +
      '[actions](alerts.md#actions)',
  },
};

/**
 * The values of `Role` in define-config.ts, which loads nothing, and of `TokenRole` in web/; what
 * each includes is in GIVES of web/server/request-gate.ts.
 */
export const ROLES = ['post', 'read', 'operate', 'admin'] as const;

/** Keys of one token of the service. */
export const TOKEN_KEYS: OptionTable = {
  name: { kind: 'text', type: '1 to 255 characters', required: true, about: 'unique' },
  role: {
    kind: 'choice',
    choices: ROLES,
    ts: 'Role',
    required: true,
    about: 'what the bearer may do',
  },
  sha256: {
    kind: 'text',
    type: '64 hex digits',
    required: true,
    secret: true,
    about: 'the SHA-256 of the token in hex',
  },
};
