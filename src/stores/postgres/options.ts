/**
 * options — the options of a PostgreSQL store with defaults and limits, the identifiers that follow
 * from them, and what a pool of the user's own has to have.
 */

import {
  DAY_MS,
  type Duration,
  DURATION_MAX_MS,
  durationMs,
  MINUTE_MS,
} from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import type { Logger } from '../../ports/logger.ts';

const POSTGRES = {
  pool: {
    kind: 'code',
    type: 'pg.Pool',
    ts: 'PgPool',
    about: 'your own `pg.Pool`; it stays open when the store closes',
  },
  url: {
    kind: 'text',
    type: '`postgres://…`',
    secret: 'password',
    about:
      'instead of `pool`: `postgres://user:password@host/database`; the store opens its own pool',
  },
  schema: {
    kind: 'text',
    type: '1 to 63 of `a-z 0-9 _`',
    default: 'respool',
    inUrl: true,
    about: 'the schema of the tables; created if it does not exist',
  },
  tables: {
    kind: 'text',
    type: 'up to 40 of `a-z 0-9 _`',
    inUrl: true,
    about: 'the prefix of the table names, such as `mail_`',
  },
  connections: {
    kind: 'number',
    min: 1,
    max: 100,
    default: 8,
    inUrl: true,
    about: "maximum connections of the store's own pool",
  },
  listenUrl: {
    kind: 'text',
    type: '`postgres://…`',
    secret: 'password',
    inUrl: true,
    about:
      'a URL of the server itself, for one LISTEN connection (entries only), where `url` leads ' +
      'through a pooler or you give a `pool`; without it such a store polls every 50 ms to 1 s',
  },
  migrate: {
    kind: 'boolean',
    default: true,
    inUrl: true,
    about: 'false: `open()` creates and changes no tables, and refuses if it would have to',
  },
  connectTimeout: {
    kind: 'duration',
    min: '1ms',
    max: '1h',
    default: '5s',
    inUrl: true,
    about: 'how long to wait for a connection',
  },
  statementTimeout: {
    kind: 'duration',
    min: '1ms',
    max: '1h',
    default: '8s',
    inUrl: true,
    about:
      'how long a statement may take before its connection is given up and the call is tried ' +
      "again on another; less than `retryFor`, so that work resumes within 10 s of a server's " +
      'return',
  },
  retryFor: {
    kind: 'duration',
    min: '1ms',
    max: '1h',
    default: '10s',
    inUrl: true,
    about: 'how long a call is retried while the server is down, before `store.unavailable`',
  },
  logger: {
    kind: 'code',
    type: 'Logger',
    ts: 'Logger',
    about:
      'gets a warning when the store opens and a power cut may lose what the server ' +
      'acknowledged: `fsync` or `full_page_writes` is off',
  },
  sent: {
    kind: 'data',
    type: '`{ partition, keep }`, both durations',
    ts: '{ readonly partition: Duration; readonly keep: Duration }',
    schema: 'partitions',
    about:
      'keeps delivered messages in a table with partitions of this length, each dropped as a ' +
      'whole after `keep` ([Sent messages](#sent-messages)); entries only',
  },
} as const;

/** Every option of `postgres()`; `postgresBodies()` takes the same. */
export const POSTGRES_OPTIONS: Readonly<Record<keyof PostgresOptions, Option>> = POSTGRES;

/** How a PostgreSQL store is made: with your own pool, or with a URL. */
export interface PostgresOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Your own `pg.Pool`; it stays open when the store closes. */
  readonly pool?: PgPool;
  /** Instead of `pool`: `postgres://user:password@host/database`; the store opens its own pool. */
  readonly url?: string;
  /** The schema of the tables; created if it does not exist. Default `respool`. */
  readonly schema?: string;
  /** The prefix of the table names, such as `mail_`. */
  readonly tables?: string;
  /** Maximum connections of the store's own pool. 1 to 100; default 8. */
  readonly connections?: number;
  /**
   * A URL of the server itself, for one LISTEN connection (entries only), where `url` leads through
   * a pooler or you give a `pool`; without it such a store polls every 50 ms to 1 s.
   */
  readonly listenUrl?: string;
  /**
   * False: `open()` creates and changes no tables, and refuses if it would have to. Default true.
   */
  readonly migrate?: boolean;
  /** How long to wait for a connection. 1ms to 1h; default 5s. */
  readonly connectTimeout?: Duration;
  /**
   * How long a statement may take before its connection is given up and the call is tried again on
   * another; less than `retryFor`, so that work resumes within 10 s of a server's return. 1ms to
   * 1h; default 8s.
   */
  readonly statementTimeout?: Duration;
  /**
   * How long a call is retried while the server is down, before `store.unavailable`. 1ms to 1h;
   * default 10s.
   */
  readonly retryFor?: Duration;
  /**
   * Gets a warning when the store opens and a power cut may lose what the server acknowledged:
   * `fsync` or `full_page_writes` is off.
   */
  readonly logger?: Logger;
  /**
   * Keeps delivered messages in a table with partitions of this length, each dropped as a whole
   * after `keep` (Sent messages); entries only.
   */
  readonly sent?: { readonly partition: Duration; readonly keep: Duration };
}

/** Options, checked, with defaults. */
export interface CheckedOptions {
  readonly pool: PgPool | undefined;
  readonly url: string | undefined;
  readonly listenUrl: string | undefined;
  readonly names: Names;
  readonly connections: number;
  readonly migrate: boolean;
  readonly connectTimeoutMs: number;
  readonly statementTimeoutMs: number;
  readonly retryForMs: number;
  readonly logger: Logger | undefined;
  readonly sent: { readonly partMs: number; readonly keepMs: number } | undefined;
}

/**
 * The longest part of `sent`, and how many there may be. Also in docs/reference/stores/postgres.md.
 */
const PART_MAX_MS: number = 366 * DAY_MS;
const PARTS_MAX = 1_000;

export function checkStoreOptions(what: string, options: PostgresOptions): CheckedOptions {
  const values = readOptions({ what }, options, POSTGRES);
  const { pool, url, schema = POSTGRES.schema.default, tables = '' } = options;
  if ((pool === undefined) === (url === undefined)) {
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what}: give either "pool" (your own pg.Pool) or "url"`,
    );
  }
  if (pool !== undefined && typeof pool.connect !== 'function') {
    throw new RespoolError('config.invalid', `cannot make ${what}: "pool" is not a pg.Pool`);
  }
  if (pool !== undefined && options.connections !== undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what}: "connections" is of a pool it opens; set "max" of your pool instead`,
    );
  }
  return {
    ...values,
    pool,
    url: checkUrl(what, 'url', url),
    listenUrl: checkUrl(what, 'listenUrl', options.listenUrl),
    names: namesOf(schema, tables),
    logger: options.logger,
    sent: checkSent(options.sent),
  };
}

function checkSent(sending: PostgresOptions['sent']): CheckedOptions['sent'] {
  if (sending === undefined) return undefined;
  checkNames('"sent"', sending, ['partition', 'keep']);
  const partMs = durationMs(sending.partition, 'sent.partition', {
    minMs: MINUTE_MS,
    maxMs: PART_MAX_MS,
  });
  const keepMs = durationMs(sending.keep, 'sent.keep', {
    minMs: MINUTE_MS,
    maxMs: DURATION_MAX_MS,
  });
  if (keepMs <= PARTS_MAX * partMs) return { partMs, keepMs };
  throw new RespoolError(
    'config.invalid',
    `cannot keep sent messages for ${show(sending.keep)} in parts of ` +
      `${show(sending.partition)}: that is more than ${PARTS_MAX} parts; make "partition" longer`,
  );
}

/** n.b. The text never shows what was given: a URL may hold a password. */
function checkUrl(what: string, name: string, url: unknown): string | undefined {
  if (url === undefined) return undefined;
  if (typeof url === 'string' && /^postgres(?:ql)?:\/\/./.test(url)) return url;
  throw new RespoolError(
    'config.invalid',
    `cannot make ${what}: "${name}" is not a URL like postgres://user@host/database`,
  );
}

// Identifiers of a store: checked once, always quoted, always with their schema.
//
// Nothing relies on `search_path`: another role, or a pool between us and the server, may have set
// it to anything.

/** A valid schema name or table prefix. */
const NAME = /^[a-z_][a-z0-9_]{0,62}$/;
/** Leaves room for the longest name behind it: PostgreSQL cuts what is longer than 63. */
const PREFIX_MAX_CHARS = 40;

const TABLES = [
  'meta',
  'entries',
  'contents',
  'receipts',
  'quarantine',
  'log_heads',
  'logs',
  'maps',
  'bodies',
  'chunks',
  'crashes',
  'sent',
  'sent_default',
] as const;

/** A table, by what it holds. */
export type Table = (typeof TABLES)[number];

/** The tables of a store as quoted identifiers. */
export interface Names {
  readonly schema: string;
  readonly prefix: string;
  readonly quotedSchema: string;
  /** `"schema"."prefix_table"`. */
  readonly table: Readonly<Record<Table, string>>;
  readonly sequence: string;
  /** Counts what has to do with order keys; untouched where there never was one. */
  readonly turns: string;
  /** `"prefix_name"`, for an index, which takes its schema from its table. */
  readonly index: (name: string) => string;
  /** The channel of NOTIFY; not quoted. */
  readonly channel: string;
  /** The key of the lock around migrations. */
  readonly lockKey: string;
}

export function namesOf(schema: string, prefix: string): Names {
  checkName('schema', schema, 63);
  if (prefix !== '') checkName('tables', prefix, PREFIX_MAX_CHARS);
  const inSchema = (name: string): string => `${quoted(schema)}.${quoted(prefix + name)}`;
  return {
    schema,
    prefix,
    quotedSchema: quoted(schema),
    table: Object.fromEntries(TABLES.map((name) => [name, inSchema(name)])) as Names['table'],
    sequence: inSchema('entries_seq'),
    turns: inSchema('turns'),
    index: (name) => quoted(prefix + name),
    // A channel is a name too, and must not be longer than one.
    channel: `respool_${fold(`${schema}.${prefix}`)}`,
    lockKey: `respool:${schema}.${prefix}`,
  };
}

function checkName(what: string, name: unknown, maxChars: number): void {
  if (typeof name === 'string' && NAME.test(name) && name.length <= maxChars) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(name)} as "${what}" of the PostgreSQL store: allowed are 1 to ${maxChars} ` +
      'of a-z 0-9 _, not starting with a digit',
  );
}

/** Quotes even what was checked: a name may be a word of SQL, such as `user`. */
function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** A short number for a text, the same everywhere (FNV-1a). */
function fold(text: string): string {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return (hash >>> 0).toString(16).padStart(8, '0');
}

// The part of node-postgres that a pool must have, typed structurally: a pool of the user's own
// fits.

/** A statement as we send it: always unnamed, rows as arrays, with our own value parsers. */
export interface PgQuery {
  readonly text: string;
  readonly values?: unknown[];
  readonly rowMode: 'array';
  readonly types: PgTypes;
}

/** Value parsers. */
export interface PgTypes {
  getTypeParser(oid: number, format?: string): (value: string) => never;
}

/** Runs statements. */
export interface PgQueryable {
  /** An answer for each statement, where the text has several. */
  query(query: PgQuery): Promise<PgAnswer | PgAnswer[]>;
}

/** The answer to a statement. */
export interface PgAnswer {
  readonly rows: unknown[][];
}

/** Emits errors. */
export interface PgEmitter {
  on(event: 'error', listener: (error: Error) => void): unknown;
}

/** A connection of a pool. */
export interface PgClient extends PgQueryable {
  /** With an error the connection is closed instead of used again. */
  release(error?: Error | boolean): void;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'notice', listener: (notice: { readonly code?: string | undefined }) => void): unknown;
}

/** A pool of connections, as `new pg.Pool()` makes it. */
export interface PgPool {
  /** How many wait for a connection, where the pool can tell. */
  readonly waitingCount?: number;
  connect(): Promise<PgClient>;
  end(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'connect', listener: (client: PgEmitter) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'connect', listener: (client: PgEmitter) => void): unknown;
}
