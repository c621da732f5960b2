/**
 * options — what may be said about a PostgreSQL store, with defaults and limits.
 */

import {
  DAY_MS,
  type Duration,
  DURATION_MAX_MS,
  durationMs,
  HOUR_MS,
  MINUTE_MS,
} from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber } from '../../core/limits.ts';
import type { Logger } from '../../ports/logger.ts';
import type { PgPool } from './client.ts';
import { type Names, namesOf } from './names.ts';

/** How a PostgreSQL store is made: with your own pool, or with a URL. */
export interface PostgresOptions {
  /** A `pg.Pool` that you own: it is used, and stays open when the store closes. */
  readonly pool?: PgPool;
  /** `postgres://user:password@host:port/database`: the store opens a pool of its own. */
  readonly url?: string;
  /** The schema of the tables; made if it is not there. Default `respool`. */
  readonly schema?: string;
  /** What the names of the tables begin with, such as `mail_`; default nothing. */
  readonly tables?: string;
  /** How many connections a pool of its own may have, 1 to 100; default 8. */
  readonly connections?: number;
  /**
   * A URL that leads straight to the server, not through pgbouncer: one connection of its own
   * listens there for what other processes write, and tells them of ours. Without it, the store
   * looks every 50 ms to 1 s.
   */
  readonly listenUrl?: string;
  /** Whether `open()` may make and change tables; default true. False: it refuses to need it. */
  readonly migrate?: boolean;
  /** How long to wait for a connection; default `'5s'`. */
  readonly connectTimeout?: Duration;
  /** How long a statement may take before its connection is given up; default `'8s'`. */
  readonly statementTimeout?: Duration;
  /**
   * How long a call is tried again while the server is away before it fails with
   * `store.unavailable`; default `'10s'`.
   */
  readonly retryFor?: Duration;
  /**
   * Keeps what was delivered in a table of its own, `sent`, with a part for each `partition` of
   * time; a part is dropped as a whole when all in it is older than `keep`. That is for messages
   * that would be archived: set `retention.delivered` of the spool to `{ archive: … }`. Default:
   * nothing is kept there.
   */
  readonly sent?: { readonly partition: Duration; readonly keep: Duration };
  /** Told when the store opens and the server may forget what it acknowledged; default nobody. */
  readonly logger?: Logger;
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

const NAMES = [
  'pool',
  'url',
  'schema',
  'tables',
  'connections',
  'listenUrl',
  'migrate',
  'connectTimeout',
  'statementTimeout',
  'retryFor',
  'logger',
  'sent',
] as const satisfies readonly (keyof PostgresOptions)[];

const CONNECTIONS_DEFAULT = 8;
const CONNECTIONS_MAX = 100;
/** The longest part of `sent`, and how many there may be. */
const PART_MAX_MS: number = 366 * DAY_MS;
const PARTS_MAX = 1_000;

export function checkOptions(what: string, options: PostgresOptions): CheckedOptions {
  checkNames(what, options, NAMES);
  const { pool, url, schema = 'respool', tables = '', migrate = true } = options;
  if ((pool === undefined) === (url === undefined)) {
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what}: give either "pool" (your own pg.Pool) or "url"`,
    );
  }
  if (pool !== undefined && typeof pool.connect !== 'function') {
    throw new RespoolError('config.invalid', `cannot make ${what}: "pool" is not a pg.Pool`);
  }
  if (typeof migrate !== 'boolean') {
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what}: "migrate" is neither true nor false`,
    );
  }
  const connections = options.connections ?? CONNECTIONS_DEFAULT;
  if (pool !== undefined && options.connections !== undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what}: "connections" is of a pool it opens; set "max" of your pool instead`,
    );
  }
  const span = (name: 'connectTimeout' | 'statementTimeout' | 'retryFor', byDefault: string) =>
    durationMs(options[name] ?? byDefault, name, { minMs: 1, maxMs: HOUR_MS });
  return {
    pool,
    url: checkUrl(what, 'url', url),
    listenUrl: checkUrl(what, 'listenUrl', options.listenUrl),
    names: namesOf(schema, tables),
    connections: checkNumber('connections', connections, { min: 1, max: CONNECTIONS_MAX }),
    migrate,
    connectTimeoutMs: span('connectTimeout', '5s'),
    statementTimeoutMs: span('statementTimeout', '8s'),
    retryForMs: span('retryFor', '10s'),
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
