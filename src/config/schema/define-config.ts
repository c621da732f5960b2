/**
 * define-config — what a configuration file may say. Types, and a function that gives them.
 *
 * Re-exported by src/index.ts, so it loads nothing; config/load/load-config.ts reads, checks and
 * fills in.
 */

import type { CategoryRule } from '../../core/category.ts';
import type { Duration } from '../../core/duration.ts';
import type {
  BackoffFunction,
  ExponentialOptions,
  LinearOptions,
  PolicyOptions,
  RetryPolicy,
} from '../../core/policy.ts';
import type { ReplayRuleConfig } from '../../dead-letters/rules/types.ts';
import type { ExecOptions, HttpOptions, ReadyHandler } from '../../deliver/index.ts';
import type { DestinationLimits } from '../../engine/handler-slots.ts';
import type { MetricAlias } from '../../observe/metrics/options.ts';
import type { CleanUp } from '../../outbox/types.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { Durability, EntryStore } from '../../ports/entry-store.ts';
import type { Handler, Middleware } from '../../ports/handler.ts';
import type { LogLevel } from '../../ports/logger.ts';
import type { Sink } from '../../ports/sink.ts';
import type { Transform } from '../../ports/transform.ts';
import type { GoqueueOptions } from '../../rabbit/compat/goqueue.ts';
import type { OutboxCompatOptions } from '../../rabbit/compat/outbox.ts';
import type { Compat } from '../../rabbit/compat/shared.ts';
import type { SpringOptions } from '../../rabbit/compat/spring.ts';
import type { Declare } from '../../rabbit/consume/options.ts';
import type { QueueType, TopologyStyle, UserBinding } from '../../rabbit/topology/model.ts';
import type { PerDelayOptions, SharedOptions } from '../../rabbit/topology/styles.ts';
import type { NatsBodyOptions, NatsEntryOptions } from '../../stores/nats/options.ts';
import type { PostgresOptions } from '../../stores/postgres/options.ts';
import type { S3Options } from '../../stores/s3/options.ts';
import type { CompressionCodec } from '../../transforms/compress.ts';
import type {
  CompressOptions,
  DecryptOptions,
  EncryptOptions,
  SealOptions,
} from '../../transforms/options.ts';

/** Gives a configuration its type; returns it as it is. */
export function defineConfig(config: Config): Config {
  return config;
}

/** A configuration; everything is optional. */
export interface Config {
  // Written by `npm run options`: edit the table of options instead.
  /** Where messages are stored; addresses below. Default `sqlite:./respool`. */
  readonly store?: string | StoreData;
  /** Where entries are stored, if separate from bodies; not together with `store`. */
  readonly entries?: string | EntriesData | EntryStore;
  /**
   * Where bodies above the inline limit are stored, if separate from entries; not together with
   * `store`.
   */
  readonly bodies?: string | BodiesData | BodyStore;
  /** Transforms of bodies before they are stored: compression, then encryption. */
  readonly transforms?: TransformConfig | readonly TransformConfig[];
  /**
   * Encrypts headers, destinations, notes and failures in the entry store; keys as for `encrypt`.
   */
  readonly seal?: SealOptions;
  /** Policies by name: `default` is for messages that name none, `notice` for bounce notices. */
  readonly policies?: Readonly<Record<string, PolicyConfig>>;
  /** Delay functions for `custom` policies; only in a program. */
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
  /** Handlers at once. 1 to 10,000; default the sum over routes and bounces, at least 10. */
  readonly concurrency?: number;
  /**
   * Handlers at once per destination. Default `{ '*': 5 }` if a route has several `urls`, else
   * none.
   */
  readonly destinationConcurrency?: DestinationLimits;
  /** How long a claim lasts without a heartbeat. 1s to 1d; default 60s. */
  readonly lease?: Duration;
  /**
   * `lazy`: verdicts are on disk with the next durable write or within 250 ms; `durable`: before
   * they count as settled. Default `lazy`.
   */
  readonly settle?: 'lazy' | 'durable';
  /** How long messages are kept after their end. */
  readonly retention?: {
    /** What happens to a delivered message. Default remove. */
    readonly delivered?: 'remove' | { readonly archive: Duration };
    /** What happens to a bounced message after its notice. Default keep. */
    readonly bounced?: 'keep' | { readonly archive: Duration };
    /** How long a soft removal can be undone. Up to 3650d; default 7d. */
    readonly removed?: Duration;
    /**
     * How long dedupe keys and ids of your own are known after delivery. Up to 3650d; default 24h.
     */
    readonly dedupeWindow?: Duration;
  };
  /** Sizes of messages. */
  readonly limits?: {
    /** The largest body. 0 to 1 TiB; default 64 MiB. */
    readonly bodyBytes?: number;
    /** Names and values of all headers of a message together. 0 to 1 MiB; default 32 KiB. */
    readonly headerBytes?: number;
    /**
     * Bodies up to this size are stored with their entry, if the store takes as much. 0 to 1 MiB;
     * default 16 KiB.
     */
    readonly inlineBodyBytes?: number;
  };
  /** How often the store is polled even without a wake-up. 10ms to 1h; default 30s. */
  readonly poll?: Duration;
  /**
   * What happens to topics without a handler in this process; if several processes can use the
   * store, messages are held only when they have been due for five minutes and no process handles
   * them. Default `hold`.
   */
  readonly unhandled?: 'hold' | 'leave';
  /** Refuse to open on stores that promise less. */
  readonly requireDurability?: Exclude<Durability, 'none'>;
  /** Periodic maintenance of the store. */
  readonly caretaker?: {
    /** How often expired messages and orphans are removed. 1s to 1d; default 1m. */
    readonly every?: Duration;
    /** How old a body without entry must be before it is removed. Default 24h. */
    readonly orphanGrace?: Duration;
  };
  /** Wrappers around every handler, the first outermost; only in a program. */
  readonly middleware?: readonly Middleware[];
  /** Which topics are delivered where, the first match first; see routes. */
  readonly routes?: readonly RouteConfig[];
  /** Where bounce notices are delivered; same format as routes. */
  readonly bounces?: readonly RouteConfig[];
  /** The broker of the consumers. */
  readonly rabbit?: RabbitConfig;
  /** Which RabbitMQ queues are consumed, and where their messages are delivered. */
  readonly consumers?: readonly ConsumerConfig[];
  /** The outbox in the database of an application, and its relay. */
  readonly outbox?: OutboxConfig;
  /** Categories of dead letters, and when they are replayed automatically. */
  readonly deadLetters?: DeadLettersConfig;
  /** The HTTP service. */
  readonly serve?: ServeConfig;
  /** What `/metrics` of the service reports. */
  readonly metrics?: MetricsConfig;
  /** Spans for OpenTelemetry. */
  readonly tracing?: TracingConfig;
  /** When receivers are notified, and how. */
  readonly alerts?: AlertsConfig;
  /** What the service prints. */
  readonly log?: LogConfig;
}

/** What is counted, and how finely. */
export interface MetricsConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** `false`: nothing is counted, and `/metrics` is 404. Default true. */
  readonly enabled?: boolean;
  /** Names of other systems for the same numbers, in addition. */
  readonly aliases?: readonly MetricAlias[];
  /** Topics with a label of their own; the others are `other`. 1 to 10,000; default 100. */
  readonly topicsMax?: number;
  /** The same for queues. 1 to 10,000; default 500. */
  readonly queuesMax?: number;
  /** Maximum age of counts of the store and depths of queues. 1s to 1h; default 15s. */
  readonly every?: Duration;
}

/** Whether spans are written. */
export interface TracingConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** Whether spans are written, by the SDK that you load. Default false. */
  readonly enabled?: boolean;
}

/** A broker. */
export interface RabbitConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** The broker of consumers without their own, and of `respool rabbit`. */
  readonly url?: string;
  /**
   * Its management API, for `respool rabbit`. Default the host of `rabbit.url`, port 15672, over
   * TLS 15671.
   */
  readonly managementUrl?: string;
  /** For `amqps:` and `https:`; files in PEM. */
  readonly tls?: {
    /** Additional trusted certificate authorities, in PEM. */
    readonly ca?: string;
    /** The client's private key in PEM, if the broker requires one. */
    readonly key?: string;
    /** The client's certificate in PEM. */
    readonly cert?: string;
    /** Of the private key; never a flag. */
    readonly passphrase?: string;
    /** The name in the broker's certificate, if it differs from the host. */
    readonly servername?: string;
    /** `false` trusts any certificate; for tests only. Default true. */
    readonly rejectUnauthorized?: boolean;
  };
}

/** A queue of RabbitMQ, and who delivers its messages. */
export interface ConsumerConfig {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Its broker; what follows the host is the virtual host, which must already exist (`rabbitmqctl
   * add_vhost shop`). Default `rabbit.url`.
   */
  readonly url?: string;
  /** The queue to consume; each queue of a broker only once. */
  readonly queue: string;
  /**
   * What leads into the queue. `key` is `#` by default; `type` (`topic` by default, `direct`,
   * `fanout`, `headers`) declares the exchange, `false` assumes that it exists.
   */
  readonly bindings?: readonly UserBinding[];
  /** How messages wait for their next attempt. Default `shared`. */
  readonly topology?: StyleConfig;
  /** The type of all queues that it declares. Default `quorum`. */
  readonly type?: QueueType;
  /**
   * When a message is retried: each delay has a wait queue. Default `default` if it is configured,
   * else `{ ladder: [5s, 30s, 2m, 10m, 1h] }`.
   */
  readonly policy?: PolicyConfig;
  /**
   * Deliveries that the broker sends ahead; what waits for a slot longer than 28m less `timeout` is
   * given back. 1 to 2,000; default 20.
   */
  readonly prefetch?: number;
  /** Handlers that run at once. 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /**
   * How long one attempt may take; the broker ends a consumer whose delivery takes 30 minutes. 1ms
   * to 25m; default 5m.
   */
  readonly timeout?: Duration;
  /**
   * Shares the queues with another system, by its names and headers; not together with `topology`.
   */
  readonly compat?: CompatConfig;
  /**
   * `apply` declares what is missing, `verify` only compares, `none` assumes that it exists; at
   * every connect. Default `apply`.
   */
  readonly declare?: Declare;
  /**
   * Additional waits with a queue of their own, besides those of the policy; others are rounded up.
   * Default `1m` and `1h`, if the policy waits less; with `compat` none.
   */
  readonly waits?: readonly Duration[];
  /** Consumers lost in a row with a message before it is parked. 0 to 1,000,000; default 10. */
  readonly maxLost?: number;
  /** Where messages are delivered. */
  readonly deliver: RouteConfig['deliver'];
}

/** An outbox, for `respool outbox` and for the relay of `respool serve`. */
export interface OutboxConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** The database of your application that contains the outbox. */
  readonly store: string;
  /** The schema of its tables. Default `outbox`. */
  readonly schema?: string;
  /** For several outboxes in one schema. Default none, in SQLite `outbox_`. */
  readonly tables?: string;
  /** A direct connection to the server, if `outbox.store` goes through a pooler. */
  readonly listenUrl?: string;
  /** How long after their emit messages without their own expiry are given up. */
  readonly expires?: Duration;
  /**
   * The policies that messages name; `default` is for those that name none, and if it is not named
   * here the default of the outbox applies. Programs that emit need the same. Default those of
   * `policies` but `default`.
   */
  readonly policies?: Readonly<Record<string, PolicyConfig>>;
  /** Sends on what is committed; default: nothing here does. */
  readonly relay?: RelayConfig;
}

/** Where a relay sends to, and how. */
export interface RelayConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** Where the relay sends to; see outbox. */
  readonly to: ExchangeTarget | { readonly spool: true } | RouteConfig['deliver'] | Sink;
  /**
   * Maximum messages in one send; to an exchange several sends are in flight at once, to a sink
   * one. 1 to 10,000; default 100.
   */
  readonly batch?: number;
  /**
   * Maximum messages in flight, or sent and not yet recorded as sent; a crash may resend up to this
   * many. 1 to 10,000; default 500.
   */
  readonly concurrency?: number;
  /**
   * When sent messages are removed: at once, never, at an age such as `7d`, or with `{ partition:
   * 1d, keep: 30d }` in partitions that are dropped as a whole (PostgreSQL). Messages with a
   * `dedupeKey` or an `id` of your own stay for at least 24 hours, in state `archived`, so that
   * duplicates are recognised. Default at once.
   */
  readonly cleanUp?: CleanUp;
  /** Only these routing keys. Default #. */
  readonly topics?: string | readonly string[];
  /**
   * For messages without their own expiry, counted from their emit or their `eta`. Default
   * `outbox.expires`.
   */
  readonly expires?: Duration;
  /** How long a claim lasts without a heartbeat. 1s to 1d; default 60s. */
  readonly lease?: Duration;
  /**
   * How often due messages are polled even without a wake-up, as a fallback. New commits are
   * noticed far sooner, see `listenUrl`; only a late commit behind a due message that this relay
   * does not take, such as one of a paused topic, may wait for this. 10ms to 1h; default 30s.
   */
  readonly poll?: Duration;
  /** The first pause after a target does not answer; doubles to 30s. 1ms to 1h; default 1s. */
  readonly pauseAfter?: Duration;
}

/** An exchange that a relay sends to. */
export interface ExchangeTarget {
  // Written by `npm run options`: edit the table of options instead.
  /** The broker, with `rabbit.tls`. Default `rabbit.url`. */
  readonly amqp?: string;
  /** The exchange; an empty name is the default one. */
  readonly exchange: string;
}

/** Entries and bodies on a server, with the options of both. */
type StoreData =
  | { readonly postgres: PostgresOptions }
  | { readonly nats: NatsEntryOptions & NatsBodyOptions };

/** Entries alone. */
type EntriesData = { readonly postgres: PostgresOptions } | { readonly nats: NatsEntryOptions };

/** Bodies alone. */
type BodiesData =
  | { readonly postgres: PostgresOptions }
  | { readonly nats: NatsBodyOptions }
  | { readonly s3: S3Options };

/** A transform, the name of a codec, or a transform as data. */
type TransformConfig =
  | Transform
  | CompressionCodec
  | ({ readonly compress: CompressionCodec } & CompressOptions)
  | { readonly encrypt: EncryptOptions }
  | { readonly decrypt: DecryptOptions };

/** The HTTP service. */
export interface ServeConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** The address the service listens on. Default `127.0.0.1`. */
  readonly host?: string;
  /** Its port. 0 to 65,535; 0 takes any free one; default 7,667. */
  readonly port?: number;
  /**
   * A token with all permissions; can also be set as `RESPOOL_TOKEN`. A file, including `.env`, may
   * contain only its hash, or take the token from a variable of the process that is not in `.env`:
   * `${NAME}`, in a program `process.env.NAME`; never a flag.
   */
  readonly token?: string;
  /**
   * More tokens: role `post`, `read`, `operate` or `admin`, and the SHA-256 of the token in hex.
   */
  readonly tokens?: readonly TokenConfig[];
  /** Files with the private key and the certificate; default no TLS. */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Additional names that requests may have in `Host`. */
  readonly hosts?: readonly string[];
  /** Whether a proxy in front terminates TLS and adds the client's address. Default false. */
  readonly behindProxy?: boolean;
  /** How long a stop waits for deliveries. 0s to 1h; default 10s. */
  readonly stopWithin?: Duration;
  /** What the service accepts at once. */
  readonly limits?: {
    /** Open connections. 1 to 100,000; default 1,000. */
    readonly connections?: number;
    /** Clients that follow events. 0 to 10,000; default 50. */
    readonly events?: number;
    /** For one address and token, not counting posts. 1 to 1,000,000; default 100. */
    readonly requestsPerSecond?: number;
    /** How long one request may take. 1s to 1d; default 5m. */
    readonly requestTimeout?: Duration;
  };
}

/** What the bearer of a token may do; the values are listed once more in items.ts (`ROLES`). */
export type Role = 'post' | 'read' | 'operate' | 'admin';

/** A token by its name, its rights and its SHA-256 in hex. */
export interface TokenConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** Unique. */
  readonly name: string;
  /** What the bearer may do. */
  readonly role: Role;
  /** The SHA-256 of the token in hex. */
  readonly sha256: string;
}

/** What is printed while the service runs. */
export interface LogConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** `auto`: pretty on a terminal, JSON elsewhere. Default `auto`. */
  readonly format?: 'pretty' | 'json' | 'auto';
  /** The lowest level that is printed. Default `info`. */
  readonly level?: LogLevel;
  /** Fields whose values are not printed. Default none besides those that are always hidden. */
  readonly redact?: readonly string[];
}

/** Who delivers a topic, and how. */
export interface RouteConfig {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Words, `*` for one word, `#` for any number; the first match wins; the same pattern twice is
   * refused.
   */
  readonly topic: string;
  /** Over HTTP, by a command; a command runs in the file's folder, or in `cwd` relative to it. */
  readonly deliver:
    | Handler
    | ReadyHandler
    | { readonly http: HttpOptions }
    | {
        readonly exec: readonly string[] | ({ readonly command: readonly string[] } & ExecOptions);
      };
  /** When a message is retried. Default `default`, for bounces `notice`. */
  readonly policy?: PolicyConfig;
  /** How many run at once. 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /** How long one attempt may take. 1ms to 1d; default 15m. */
  readonly timeout?: Duration;
}

/** A policy, its name, or its constructor as data: `{ exponential: { first: '5s' } }`. */
export type PolicyConfig = RetryPolicy | string | PolicyData;

/** A policy as data: the name of a constructor, what it takes, and its options. */
export type PolicyData =
  | (PolicyOptions & { readonly fixed: Duration | (PolicyOptions & { readonly delay: Duration }) })
  | (PolicyOptions & { readonly linear: LinearOptions })
  | (PolicyOptions & { readonly exponential: ExponentialOptions })
  | (LadderOptions & {
      readonly ladder:
        | readonly Duration[]
        | (LadderOptions & { readonly delays: readonly Duration[] });
    })
  | (PolicyOptions & { readonly postfix: PolicyOptions | null })
  | { readonly noRetry: Readonly<Record<string, never>> | null }
  | (PolicyOptions & { readonly custom: string; readonly rungs: readonly Duration[] })
  | { readonly custom: PolicyOptions & CustomOptions };

/** A ladder has as many attempts as it has rungs. */
type LadderOptions = Omit<PolicyOptions, 'attempts'>;

interface CustomOptions {
  readonly name: string;
  readonly rungs: readonly Duration[];
}

/** When a notification is sent, and how. */
export interface AlertsConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** How often the rules are evaluated. 1s to 1d; default 15s. */
  readonly every?: Duration;
  /** Who is notified. */
  readonly to?: Readonly<Record<string, ReceiverConfig>>;
  /** When receivers are notified, and what else is done. */
  readonly rules?: readonly AlertRuleConfig[];
}

/** Who is notified. */
type ReceiverConfig =
  | { readonly http: HttpOptions }
  | { readonly exec: readonly string[] | ({ readonly command: readonly string[] } & ExecOptions) }
  | { readonly log: 'error' | 'warn' | 'info' };

/** When to tell, whom, and what else to do. */
export interface AlertRuleConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** Unique; the audit record has `alert:` and the name. */
  readonly name: string;
  /** When it fires, such as `bounce rate > 5 % for 5m`. */
  readonly when: string;
  /** Who is notified. Default all. */
  readonly to?: string | readonly string[];
  /** `{ pause: topics, until }`, `{ hold: topics }`, `{ replay: rule }`: actions. */
  readonly then?: AlertActionConfig | readonly AlertActionConfig[];
}

/** What a rule does besides telling. */
type AlertActionConfig =
  /** Pauses these topics; resumed when the rule is resolved, unless `until: 'operator'`. */
  | { readonly pause: string; readonly until?: 'resolved' | 'operator' }
  /** Holds what waits of these topics. */
  | { readonly hold: string }
  /** Has a rule of `deadLetters.rules` replay when this rule is resolved. */
  | { readonly replay: string };

/** What a configuration may say of dead letters. */
export interface DeadLettersConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** Your own rules for categories of failures; they take precedence over the built-in ones. */
  readonly categories?: readonly CategoryRule[];
  /** When dead letters are replayed automatically. */
  readonly rules?: readonly ReplayRuleConfig[];
  /** A message that was replayed this many times is parked instead. 1 to 1,000; default 3. */
  readonly replaysMax?: number;
  /**
   * Where messages of a queue are parked; by default the parked queue of the consumer's topology.
   */
  readonly parkedQueue?: string;
}

/** Another system by its name, with its options, or made by a program. */
type CompatConfig =
  | Compat['name']
  | { readonly goqueue: GoqueueOptions | null }
  | { readonly spring: SpringOptions | null }
  | { readonly outbox: OutboxCompatOptions | null }
  | Compat;

/** A style by its name, with its options, or made by a program. */
type StyleConfig =
  | 'shared'
  | 'perDelay'
  | 'perAttempt'
  | { readonly shared: SharedOptions | null }
  | { readonly perDelay: PerDelayOptions | null }
  | { readonly perAttempt: Readonly<Record<string, never>> | null }
  | TopologyStyle;
