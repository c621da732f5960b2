/**
 * define-config — what a configuration file may say. Types, and a function that gives them.
 *
 * Re-exported by the front door, so it loads nothing; config/load/load-config.ts reads, checks and
 * fills in.
 */

import type { Duration } from '../../core/duration.ts';
import type { exponential, linear, PolicyOptions, RetryPolicy } from '../../core/policy.ts';
import type { ExecOptions, HttpOptions, ReadyHandler } from '../../deliver/index.ts';
import type { RelayOptions } from '../../outbox/types.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import type { Handler } from '../../ports/handler.ts';
import type { Sink } from '../../ports/sink.ts';
import type { Transform } from '../../ports/transform.ts';
import type { SpoolOptions } from '../../spool/options.ts';
import type { QueueType, UserBinding } from '../../rabbit/topology/model.ts';
import type { NatsBodyOptions, NatsEntryOptions } from '../../stores/nats/options.ts';
import type { PostgresOptions } from '../../stores/postgres/options.ts';
import type { S3Options } from '../../stores/s3/options.ts';
import type {
  CompressionCodec,
  CompressOptions,
  DecryptOptions,
  EncryptOptions,
} from '../../transforms/index.ts';
import type { SealOptions } from '../../transforms/seal.ts';
import type { AlertsConfig } from '../load/alerts.ts';
import type { CompatConfig } from '../load/compat.ts';
import type { DeadLettersConfig } from '../load/dead-letters.ts';
import type { StyleConfig } from '../load/topology-style.ts';

/** Gives a configuration its type; returns it as it is. */
export function defineConfig(config: Config): Config {
  return config;
}

/** What `createSpool` takes that a configuration may say too. */
type SpoolConfig = Pick<
  SpoolOptions,
  | 'backoffs'
  | 'caretaker'
  | 'concurrency'
  | 'destinationConcurrency'
  | 'lease'
  | 'limits'
  | 'middleware'
  | 'poll'
  | 'requireDurability'
  | 'retention'
  | 'settle'
  | 'unhandled'
>;

/** A configuration; everything is optional. */
export interface Config extends SpoolConfig {
  /**
   * Where messages are kept: `sqlite:DIR` (default `sqlite:./respool`), `file:DIR`, `memory:`,
   * `postgres://…`, `nats://…`, or the last two as data: `{ postgres: { url, schema } }`.
   */
  readonly store?: string | StoreData;
  /** Where entries are kept, apart from bodies; not together with `store`. */
  readonly entries?: string | EntriesData | EntryStore;
  /** Where bodies are kept, apart from entries, also `s3://…`; not together with `store`. */
  readonly bodies?: string | BodiesData | BodyStore;
  /**
   * What is done to bodies before they are kept, in this order: compression, then encryption;
   * default nothing. Transforms, or data: `zstd`, `{ encrypt: { keys: { k1: 'env:K1' } } }`.
   */
  readonly transforms?: TransformConfig | readonly TransformConfig[];
  /** Keys that seal headers, notes and failures in the entry store; default not sealed. */
  readonly seal?: SealOptions;
  /** Policies by name; `default` serves every message that names none, `notice` the notices. */
  readonly policies?: Readonly<Record<string, PolicyConfig>>;
  /** Who delivers which topics; the first match wins. */
  readonly routes?: readonly RouteConfig[];
  /** Who is told when a message of these topics bounces. */
  readonly bounces?: readonly RouteConfig[];
  /** The broker of the consumers. */
  readonly rabbit?: RabbitConfig;
  /** Which queues of RabbitMQ are consumed, and by whom. */
  readonly consumers?: readonly ConsumerConfig[];
  /** The outbox in the database of an application, and who sends on what is in it. */
  readonly outbox?: OutboxConfig;
  /** Categories of dead letters, and when they are replayed without anybody asking. */
  readonly deadLetters?: DeadLettersConfig;
  readonly serve?: ServeConfig;
  /** What `/metrics` of the service tells. */
  readonly metrics?: MetricsConfig;
  /** Spans for OpenTelemetry. */
  readonly tracing?: TracingConfig;
  /** When somebody is told, and how. */
  readonly alerts?: AlertsConfig;
  readonly log?: LogConfig;
}

/** What is counted, and how finely. */
export interface MetricsConfig {
  /** False: nothing is counted, and there is no `/metrics`. Default true. */
  readonly enabled?: boolean;
  /** Names that other systems know, beside our own: `goqueue`, `outbox`; default none. */
  readonly aliases?: readonly ('goqueue' | 'outbox')[];
  /** Topics with labels of their own, 1 to 10,000; default 100. The others are `other`. */
  readonly topicsMax?: number;
  /** The same for queues; default 500. */
  readonly queuesMax?: number;
  /** How old counts of states and depths of queues may be, 1s to 1h; default 15s. */
  readonly every?: Duration;
}

/** Whether spans are written. */
export interface TracingConfig {
  /** True: with `@opentelemetry/api`, whose SDK the process sets up itself; default false. */
  readonly enabled?: boolean;
}

/** A broker. */
export interface RabbitConfig {
  /** `amqp://user:password@host:5672/vhost`; for consumers that name none. */
  readonly url?: string;
  /** `http://user:password@host:15672`; default: the host of `url`, port 15672, over TLS 15671. */
  readonly managementUrl?: string;
  /** For `amqps:` and `https:`; files in PEM. */
  readonly tls?: {
    /** Authorities that are trusted besides those that Node trusts. */
    readonly ca?: string;
    readonly key?: string;
    readonly cert?: string;
    readonly passphrase?: string;
    readonly servername?: string;
    /** `false` trusts any certificate; for tests only. Default true. */
    readonly rejectUnauthorized?: boolean;
  };
}

/** A queue of RabbitMQ, and who delivers its messages. */
export interface ConsumerConfig {
  /** Default `rabbit.url`. */
  readonly url?: string;
  readonly queue: string;
  /** Exchanges that lead into the queue; default none. */
  readonly bindings?: readonly UserBinding[];
  /** `shared` (default), `perDelay` or `perAttempt`, one with options, or a style. */
  readonly topology?: StyleConfig;
  /** Default `quorum`. */
  readonly type?: QueueType;
  /** A policy, or the name of one; default: the policy `default`, or 5s to 1h in 6 attempts. */
  readonly policy?: PolicyConfig;
  /** How many the broker sends ahead, 1 to 2,000; default 20. */
  readonly prefetch?: number;
  /** How many run at once, 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /** How long one attempt may take, 1ms to 25m; default 5m. */
  readonly timeout?: Duration;
  /** Shares the queues with another system: `goqueue`, `spring`, `outbox`; default none. */
  readonly compat?: CompatConfig;
  /** What is done about the topology at the start: `apply` (default), `verify` or `none`. */
  readonly declare?: 'apply' | 'verify' | 'none';
  /** Waits that have a queue beside those of the policy; default 1m and 1h. */
  readonly waits?: readonly Duration[];
  /** After this many lost consumers a message is parked, 0 to 1,000,000; default 10. */
  readonly maxLost?: number;
  /** As for routes. */
  readonly deliver: RouteConfig['deliver'];
}

/** An outbox, for `respool outbox` and for the relay of `respool serve`. */
export interface OutboxConfig {
  /** The database of the application: `postgres://…` or `sqlite:FILE`. */
  readonly store: string;
  /** PostgreSQL only; default `outbox`. */
  readonly schema?: string;
  /** What the names of tables begin with; default nothing, in SQLite `outbox_`. */
  readonly tables?: string;
  /** A URL that leads straight to the server, where `store` leads to a pooler; PostgreSQL only. */
  readonly listenUrl?: string;
  /** For messages that do not say when they expire; default: they never do. */
  readonly expires?: Duration;
  /** Policies, or names of policies, by the names that messages have; over those of `policies`. */
  readonly policies?: Readonly<Record<string, PolicyConfig>>;
  /** Sends on what is committed; default: nobody here does. */
  readonly relay?: RelayConfig;
}

/** Where a relay sends to, and how. */
export interface RelayConfig extends Omit<RelayOptions, 'to' | 'middleware'> {
  /** An exchange, at `rabbit.url` by default; the spool of this configuration; or as for routes. */
  readonly to:
    | { readonly amqp?: string; readonly exchange: string }
    | { readonly spool: true }
    | RouteConfig['deliver']
    | Sink;
}

/** Entries and bodies on a server, with the options of both. */
export type StoreData =
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
export type TransformConfig =
  | Transform
  | CompressionCodec
  | ({ readonly compress: CompressionCodec } & CompressOptions)
  | { readonly encrypt: EncryptOptions }
  | { readonly decrypt: DecryptOptions };

/** The HTTP service. */
export interface ServeConfig {
  /** Default `127.0.0.1`. */
  readonly host?: string;
  /** 0 to 65,535, 0 takes any free one; default 7667. */
  readonly port?: number;
  /** A token with every right, as `sha256:` and its SHA-256 in hex; default none. */
  readonly token?: string;
  /** More tokens, each by its SHA-256. */
  readonly tokens?: readonly TokenConfig[];
  /** Files with the private key and the certificate; default no TLS. */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Host names that requests may carry besides the obvious ones. */
  readonly hosts?: readonly string[];
  /** Whether a proxy in front speaks TLS and names the client; default false. */
  readonly behindProxy?: boolean;
  /** How long a stop waits for deliveries, 0s to 1h; default `10s`. */
  readonly stopWithin?: Duration;
  readonly limits?: {
    /** Open connections; default 1,000. */
    readonly connections?: number;
    /** Clients that listen to events; default 50. */
    readonly events?: number;
    /** Requests a second for one address and token, posting apart; default 100. */
    readonly requestsPerSecond?: number;
    /** How long one request may take, 1s to 1d; default `5m`. */
    readonly requestTimeout?: Duration;
  };
}

/** What the bearer of a token may do. */
export type Role = 'post' | 'read' | 'operate' | 'admin';

/** A token by its name, its rights and its SHA-256 in hex. */
export interface TokenConfig {
  readonly name: string;
  readonly role: Role;
  readonly sha256: string;
}

/** What is printed while the service runs. */
export interface LogConfig {
  /** `auto` (default): pretty on a terminal, JSON elsewhere. */
  readonly format?: 'pretty' | 'json' | 'auto';
  /** Default `info`. */
  readonly level?: 'error' | 'warn' | 'info' | 'debug';
  /** Fields whose values are never printed, beside those of secrets; default none. */
  readonly redact?: readonly string[];
}

/** Who delivers a topic, and how. */
export interface RouteConfig {
  /** Words, `*` for one word, `#` for any number. */
  readonly topic: string;
  /** A handler, or the options of a ready-made one. */
  readonly deliver:
    | Handler
    | ReadyHandler
    | { readonly http: HttpOptions }
    | {
        readonly exec: readonly string[] | ({ readonly command: readonly string[] } & ExecOptions);
      };
  /** A policy, or the name of one; default: the policy `default`, for bounces `notice`. */
  readonly policy?: PolicyConfig;
  /** How many run at once, 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /** How long one attempt may take, 1ms to 1d; default 15m. */
  readonly timeout?: Duration;
}

/** A policy, its name, or its constructor as data: `{ exponential: { first: '5s' } }`. */
export type PolicyConfig = RetryPolicy | string | PolicyData;

/** A policy as data: the name of a constructor, what it takes, and its options. */
export type PolicyData =
  | (PolicyOptions & { readonly fixed: Duration | (PolicyOptions & { readonly delay: Duration }) })
  | (PolicyOptions & { readonly linear: Parameters<typeof linear>[0] })
  | (PolicyOptions & { readonly exponential: Parameters<typeof exponential>[0] })
  | (LadderOptions & {
      readonly ladder:
        | readonly Duration[]
        | (LadderOptions & { readonly delays: readonly Duration[] });
    })
  | (PolicyOptions & { readonly postfix: PolicyOptions | null })
  | { readonly noRetry: Readonly<Record<string, never>> | null }
  | (PolicyOptions & { readonly custom: string; readonly rungs: readonly Duration[] })
  | { readonly custom: PolicyOptions & CustomParts };

/** A ladder has as many attempts as it has rungs. */
type LadderOptions = Omit<PolicyOptions, 'attempts'>;

interface CustomParts {
  readonly name: string;
  readonly rungs: readonly Duration[];
}
