/**
 * options — every key of a configuration, stated once, as plain data.
 *
 * From these tables follow the checks and defaults of loading, the names in the environment, the
 * flags of `respool serve`, the types in define-config.ts, docs/reference/config.md and
 * respool.schema.json; `npm run options` writes the last three. No key is read again while a
 * service runs: a change takes effect with its next start.
 */

import { PORT_MAX, REPLAY_RANGES } from '../../core/limits.ts';
import type { OptionTable } from '../../core/option-table.ts';
import { PRETTY_OPTIONS } from '../../observe/logs/pretty.ts';
import { METRICS_OPTIONS } from '../../observe/metrics/options.ts';
import { RELAY_OPTIONS } from '../../outbox/types.ts';
import { TLS_OPTIONS } from '../../rabbit/connection/connection.ts';
import { SPOOL_OPTIONS } from '../../spool/options.ts';

/** Keys of the broker. */
const RABBIT_KEYS: OptionTable = {
  url: {
    kind: 'text',
    type: '`amqp://…` or `amqps://…`',
    defaultText: 'none',
    secret: 'password',
    about: 'the broker of [consumers](#consumers) without their own, and of `respool rabbit`',
  },
  managementUrl: {
    kind: 'text',
    type: '`http://…` or `https://…`',
    defaultText: 'the host of `rabbit.url`, port 15672, over TLS 15671',
    secret: 'password',
    about: 'its management API, for `respool rabbit`',
  },
  tls: {
    kind: 'group',
    about: 'for `amqps:` and `https:`; files in PEM',
    options: {
      ca: { kind: 'file', about: TLS_OPTIONS.ca.about },
      key: { kind: 'file', secret: false, about: TLS_OPTIONS.key.about },
      cert: { kind: 'file', about: TLS_OPTIONS.cert.about },
      passphrase: TLS_OPTIONS.passphrase,
      servername: TLS_OPTIONS.servername,
      rejectUnauthorized: TLS_OPTIONS.rejectUnauthorized,
    },
  },
};

const EXPIRES_ABOUT = 'how long after their emit messages without their own expiry are given up';

/** An exchange as the target of a relay. */
export const EXCHANGE_TARGET_KEYS: OptionTable = {
  amqp: {
    kind: 'text',
    type: '`amqp://…` or `amqps://…`',
    defaultText: '`rabbit.url`',
    secret: 'password',
    about: 'the broker, with `rabbit.tls`',
  },
  exchange: {
    kind: 'text',
    type: 'a name',
    required: true,
    about: 'the exchange; an empty name is the default one',
  },
};

/** Keys of the relay of an outbox. */
export const RELAY_KEYS: OptionTable = {
  to: {
    kind: 'json',
    type: '`{ amqp, exchange }`, `{ spool: true }`, or a handler as in routes',
    ts: "ExchangeTarget | { readonly spool: true } | RouteConfig['deliver'] | Sink",
    schema: 'relayTarget',
    required: true,
    secret: 'password',
    about: 'where the relay sends to; see [outbox](#outbox)',
  },
  batch: RELAY_OPTIONS.batch,
  concurrency: RELAY_OPTIONS.concurrency,
  cleanUp: {
    ...RELAY_OPTIONS.cleanUp,
    type: '`at once`, `never`, a duration, or `{ partition, keep }`',
  },
  topics: {
    ...RELAY_OPTIONS.topics,
    type: 'a pattern, several with commas, or a list of them',
  },
  expires: { ...RELAY_OPTIONS.expires, defaultText: '`outbox.expires`' },
  lease: RELAY_OPTIONS.lease,
  poll: RELAY_OPTIONS.poll,
  pauseAfter: RELAY_OPTIONS.pauseAfter,
};

/** Keys of the outbox. */
export const OUTBOX_KEYS: OptionTable = {
  store: {
    kind: 'text',
    type: '`postgres://…` or `sqlite:FILE`',
    required: true,
    secret: 'password',
    about: 'the database of your application that contains the [outbox](#outbox)',
  },
  schema: {
    kind: 'text',
    type: 'a name; PostgreSQL only',
    default: 'outbox',
    about: 'the schema of its tables',
  },
  tables: {
    kind: 'text',
    type: 'what names of tables begin with',
    defaultText: 'none, in SQLite `outbox_`',
    about: 'for several outboxes in one schema',
  },
  listenUrl: {
    kind: 'text',
    type: '`postgres://…`',
    secret: 'password',
    about: 'a direct connection to the server, if `outbox.store` goes through a pooler',
  },
  expires: { kind: 'duration', min: '1ms', type: 'duration', about: EXPIRES_ABOUT },
  policies: {
    kind: 'data',
    type: 'policies, or their names, by name',
    ts: 'Readonly<Record<string, PolicyConfig>>',
    schema: 'policies',
    defaultText: 'those of `policies` but `default`',
    about:
      'the policies that messages name; `default` is for those that name none, and if it is not ' +
      'named here the [default of the outbox](outbox.md#options-of-createoutbox) applies. ' +
      'Programs that emit need ' +
      '[the same](../how-to/transactional-outbox.md#policies-the-relays-own-count)',
  },
  relay: {
    kind: 'group',
    ts: 'RelayConfig',
    about: 'sends on what is committed; default: nothing here does',
    options: RELAY_KEYS,
  },
};

/** Keys of dead letters. */
const DEAD_LETTERS_KEYS: OptionTable = {
  categories: {
    kind: 'data',
    type: 'a list of [categories](#dead-letters)',
    ts: 'readonly CategoryRule[]',
    schema: 'categories',
    about: 'your own rules for categories of failures; they take precedence over the built-in ones',
  },
  rules: {
    kind: 'data',
    type: 'a list of [rules](#dead-letters)',
    ts: 'readonly ReplayRuleConfig[]',
    schema: 'replayRules',
    about: 'when dead letters are replayed automatically',
  },
  replaysMax: {
    kind: 'number',
    ...REPLAY_RANGES.replaysMax,
    default: 3,
    about: 'a message that was replayed this many times is parked instead',
  },
  parkedQueue: {
    kind: 'text',
    type: 'the name of a queue',
    about:
      "where messages of a queue are parked; by default the parked queue of the consumer's " +
      'topology',
  },
};

/** Keys of the HTTP service. */
const SERVE_KEYS: OptionTable = {
  host: {
    kind: 'text',
    type: 'a name or an address',
    default: '127.0.0.1',
    flag: '--host',
    about: 'the address the service listens on',
  },
  port: {
    kind: 'number',
    min: 0,
    max: PORT_MAX,
    type: '0 to 65,535; 0 takes any free one',
    default: 7667,
    flag: '--port',
    about: 'its port',
  },
  token: {
    kind: 'text',
    type: '`sha256:` and 64 hex digits; in the environment also the token itself',
    defaultText: 'none',
    secret: true,
    about:
      'a token with all permissions; can also be set as `RESPOOL_TOKEN`. A file, including ' +
      '`.env`, may contain only its hash, or take the token from a variable of the process that ' +
      'is not in `.env`: `${NAME}`, in a program `process.env.NAME`; never a flag',
  },
  tokens: {
    kind: 'data',
    type: 'a list of `{ name, role, sha256 }`',
    ts: 'readonly TokenConfig[]',
    schema: 'tokens',
    secret: false,
    about:
      'more tokens: role `post`, `read`, `operate` or `admin`, and the SHA-256 of the token in hex',
  },
  tls: {
    kind: 'group',
    ts: '{ readonly key: string; readonly cert: string }',
    about: 'files with the private key and the certificate; default no TLS',
    options: {
      key: {
        kind: 'file',
        flag: '--tls-key',
        secret: false,
        about: 'the private key in PEM; needs `serve.tls.cert` too',
      },
      cert: { kind: 'file', flag: '--tls-cert', about: 'the certificate in PEM' },
    },
  },
  hosts: {
    kind: 'data',
    type: 'a list of host names',
    ts: 'readonly string[]',
    schema: 'textList',
    about: 'additional names that requests may have in `Host`',
  },
  behindProxy: {
    kind: 'boolean',
    default: false,
    flag: '--behind-proxy',
    about: "whether a proxy in front terminates TLS and adds the client's address",
  },
  stopWithin: {
    kind: 'duration',
    min: '0s',
    max: '1h',
    default: '10s',
    flag: '--stop-within',
    about: 'how long a stop waits for deliveries',
  },
  limits: {
    kind: 'group',
    about: 'what the service accepts at once',
    options: {
      connections: {
        kind: 'number',
        min: 1,
        max: 100_000,
        default: 1_000,
        about: 'open connections',
      },
      events: {
        kind: 'number',
        min: 0,
        max: 10_000,
        default: 50,
        about: 'clients that follow events',
      },
      requestsPerSecond: {
        kind: 'number',
        min: 1,
        max: 1_000_000,
        default: 100,
        about: 'for one address and token, not counting posts',
      },
      requestTimeout: {
        kind: 'duration',
        min: '1s',
        max: '1d',
        default: '5m',
        about: 'how long one request may take',
      },
    },
  },
};

/** Keys of metrics. */
const METRICS_KEYS: OptionTable = {
  enabled: {
    kind: 'boolean',
    default: true,
    about: '`false`: nothing is counted, and [`/metrics`](metrics.md) is 404',
  },
  aliases: METRICS_OPTIONS.aliases,
  topicsMax: METRICS_OPTIONS.topicsMax,
  queuesMax: METRICS_OPTIONS.queuesMax,
  every: METRICS_OPTIONS.every,
};

/** Keys of alerts. */
const ALERTS_KEYS: OptionTable = {
  every: {
    kind: 'duration',
    min: '1s',
    max: '1d',
    default: '15s',
    about: 'how often the rules are evaluated',
  },
  to: {
    kind: 'data',
    type: '[receivers](#alerts) by name',
    ts: 'Readonly<Record<string, ReceiverConfig>>',
    schema: 'receivers',
    about: 'who is notified',
  },
  rules: {
    kind: 'data',
    type: 'a list of [rules](#alerts)',
    ts: 'readonly AlertRuleConfig[]',
    schema: 'alertRules',
    about: 'when receivers are notified, and what else is done',
  },
};

/** Keys of the log. */
const LOG_KEYS: OptionTable = {
  format: {
    kind: 'choice',
    choices: ['pretty', 'json', 'auto'],
    default: 'auto',
    flag: '--log-format',
    about: '`auto`: pretty on a terminal, JSON elsewhere',
  },
  level: {
    ...PRETTY_OPTIONS.level,
    flag: '--log-level',
    about: 'the lowest level that is printed',
  },
  redact: {
    kind: 'data',
    type: 'a list of names of fields',
    ts: 'readonly string[]',
    schema: 'textList',
    defaultText: 'none besides those that are always hidden',
    about: 'fields whose values are [not printed](logs.md#what-is-hidden)',
  },
};

/** What an unset `store`, `entries` or `bodies` means; the folder as `path` of spool/options.ts. */
export const STORE_DEFAULTS = {
  store: 'sqlite:./respool',
  entries: 'sqlite:./respool',
  bodies: 'file:./respool/bodies',
} as const;

/** Keys of a configuration, in the order of printing. */
export const CONFIG_KEYS: OptionTable = {
  store: {
    kind: 'text',
    type: '`sqlite:DIR`, `file:DIR`, `memory:`, `postgres://…` or `nats://…`',
    ts: 'string | StoreData',
    schema: 'store',
    secret: 'password',
    default: STORE_DEFAULTS.store,
    flag: '--store',
    about: 'where messages are stored; [addresses](#stores) below',
  },
  entries: {
    kind: 'text',
    type: 'as `store`, or an entry store',
    ts: 'string | EntriesData | EntryStore',
    schema: 'entries',
    secret: 'password',
    flag: '--entries',
    about: 'where entries are stored, if separate from bodies; not together with `store`',
  },
  bodies: {
    kind: 'text',
    type: 'as `store`, `s3://…`, or a body store',
    ts: 'string | BodiesData | BodyStore',
    schema: 'bodies',
    secret: 'password',
    flag: '--bodies',
    about:
      'where bodies above the inline limit are stored, if separate from entries; not together ' +
      'with `store`',
  },
  transforms: {
    kind: 'json',
    type: 'a codec such as `zstd`, or a list of [transforms](#transforms)',
    ts: 'TransformConfig | readonly TransformConfig[]',
    schema: 'transforms',
    secret: 'keys',
    defaultText: 'none',
    about: 'transforms of bodies before they are stored: compression, then encryption',
  },
  seal: {
    kind: 'json',
    type: '`{ keys, primary }`',
    ts: 'SealOptions',
    schema: 'seal',
    secret: 'keys',
    defaultText: 'none',
    about:
      'encrypts headers, destinations, notes and failures in the entry store; keys as for ' +
      '`encrypt`',
  },
  policies: {
    kind: 'data',
    type: 'policies by name',
    ts: 'Readonly<Record<string, PolicyConfig>>',
    schema: 'policies',
    about:
      '[policies](#policies) by name: `default` is for messages that name none, `notice` for ' +
      'bounce notices',
  },
  backoffs: {
    ...SPOOL_OPTIONS.backoffs,
    about: `${SPOOL_OPTIONS.backoffs.about}; only in a program`,
  },
  concurrency: {
    ...SPOOL_OPTIONS.concurrency,
    defaultText: 'the sum over routes and bounces, at least 10',
    flag: '--concurrency',
  },
  destinationConcurrency: {
    ...SPOOL_OPTIONS.destinationConcurrency,
    defaultText: "`{ '*': 5 }` if a route has several `urls`, else none",
  },
  lease: SPOOL_OPTIONS.lease,
  settle: SPOOL_OPTIONS.settle,
  retention: SPOOL_OPTIONS.retention,
  limits: SPOOL_OPTIONS.limits,
  poll: SPOOL_OPTIONS.poll,
  unhandled: SPOOL_OPTIONS.unhandled,
  requireDurability: SPOOL_OPTIONS.requireDurability,
  caretaker: SPOOL_OPTIONS.caretaker,
  middleware: {
    ...SPOOL_OPTIONS.middleware,
    about: `${SPOOL_OPTIONS.middleware.about}; only in a program`,
  },
  routes: {
    kind: 'data',
    type: 'a list of routes',
    ts: 'readonly RouteConfig[]',
    schema: 'routes',
    about: 'which topics are delivered where, the first match first; see [routes](#routes)',
  },
  bounces: {
    kind: 'data',
    type: 'a list of routes',
    ts: 'readonly RouteConfig[]',
    schema: 'routes',
    about: 'where bounce notices are delivered; same format as routes',
  },
  rabbit: {
    kind: 'group',
    ts: 'RabbitConfig',
    about: 'the broker of the consumers',
    options: RABBIT_KEYS,
  },
  consumers: {
    kind: 'data',
    type: 'a list of [consumers](#consumers)',
    ts: 'readonly ConsumerConfig[]',
    schema: 'consumers',
    about: 'which RabbitMQ queues are consumed, and where their messages are delivered',
  },
  outbox: {
    kind: 'group',
    ts: 'OutboxConfig',
    about: 'the outbox in the database of an application, and its relay',
    options: OUTBOX_KEYS,
  },
  deadLetters: {
    kind: 'group',
    ts: 'DeadLettersConfig',
    about: 'categories of dead letters, and when they are replayed automatically',
    options: DEAD_LETTERS_KEYS,
  },
  serve: { kind: 'group', ts: 'ServeConfig', about: 'the HTTP service', options: SERVE_KEYS },
  metrics: {
    kind: 'group',
    ts: 'MetricsConfig',
    about: 'what `/metrics` of the service reports',
    options: METRICS_KEYS,
  },
  tracing: {
    kind: 'group',
    ts: 'TracingConfig',
    about: 'spans for OpenTelemetry',
    options: {
      enabled: {
        kind: 'boolean',
        default: false,
        about:
          'whether [spans](traces.md) are written, by the ' +
          '[SDK that you load](../how-to/tracing.md#in-the-service)',
      },
    },
  },
  alerts: {
    kind: 'group',
    ts: 'AlertsConfig',
    about: 'when receivers are notified, and how',
    options: ALERTS_KEYS,
  },
  log: { kind: 'group', ts: 'LogConfig', about: 'what the service prints', options: LOG_KEYS },
};
