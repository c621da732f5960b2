/**
 * options — what may be said about a PostgreSQL store, with defaults and limits.
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
import type { PgPool } from './client.ts';
import { type Names, namesOf } from './names.ts';

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
    inUrl: true,
    about:
      'a URL of the server itself, not of pgbouncer, for one LISTEN connection (entries only); ' +
      'without it the store polls every 50 ms to 1 s',
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
   * A URL of the server itself, not of pgbouncer, for one LISTEN connection (entries only); without
   * it the store polls every 50 ms to 1 s.
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

/** The longest part of `sent`, and how many there may be. */
const PART_MAX_MS: number = 366 * DAY_MS;
const PARTS_MAX = 1_000;

export function checkOptions(what: string, options: PostgresOptions): CheckedOptions {
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

function checkSent(sent: PostgresOptions['sent']): CheckedOptions['sent'] {
  if (sent === undefined) return undefined;
  checkNames('"sent"', sent, ['partition', 'keep']);
  const partMs = durationMs(sent.partition, 'sent.partition', {
    minMs: MINUTE_MS,
    maxMs: PART_MAX_MS,
  });
  const keepMs = durationMs(sent.keep, 'sent.keep', { minMs: MINUTE_MS, maxMs: DURATION_MAX_MS });
  if (keepMs <= PARTS_MAX * partMs) return { partMs, keepMs };
  throw new RespoolError(
    'config.invalid',
    `cannot keep sent messages for ${show(sent.keep)} in parts of ${show(sent.partition)}: that ` +
      `is more than ${PARTS_MAX} parts; make "partition" longer`,
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
