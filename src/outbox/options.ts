/**
 * options — the options of createOutbox: their table, their interfaces, their check and defaults.
 *
 * `npm run options` writes the interfaces that say so from the tables.
 */

import { checkNames } from '../core/limits.ts';
import {
  CLOCK_OPTION,
  DICE_OPTION,
  type Option,
  type OptionTable,
  readOptions,
} from '../core/option-table.ts';
import type { Duration } from '../core/duration.ts';
import {
  type BackoffFunction,
  BACKOFFS_OPTION,
  exponential,
  type RetryPolicy,
} from '../core/policy.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Logger } from '../ports/logger.ts';
import type { Tracer } from '../ports/tracer.ts';
import type { ContentCodec } from '../rabbit/publish/codecs.ts';
import { checkTracer } from '../engine/tracing.ts';
import type { PgPool } from '../stores/postgres/options.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import { systemClock, systemDice } from '../system/clock.ts';
import { createIdMaker } from '../system/ids.ts';
import { type EmitSettings, noBodies } from './message.ts';
import type { OutboxParts } from './parts.ts';

/** What every outbox takes, beside the place of its tables. */
const OUTBOX = {
  expires: {
    kind: 'duration',
    min: '1ms',
    type: 'duration',
    defaultText: 'never',
    about:
      'for messages without their own expiry: given up if they were not sent this long after ' +
      'their emit',
  },
  policies: {
    kind: 'code',
    type: 'policies by name',
    ts: 'Readonly<Record<string, RetryPolicy>>',
    defaultText: '`default`: exponential from 1s to 5m, 20 attempts',
    about:
      '[policies](../how-to/retry-policies.md) by name; `default` is for messages that name ' +
      "none. The relay's policies apply: [give both sides the same]" +
      '(../how-to/transactional-outbox.md#policies-the-relays-own-count)',
  },
  backoffs: BACKOFFS_OPTION,
  maxBytes: {
    kind: 'bytes',
    min: '1 bytes',
    max: '1 MiB',
    default: '1 MiB',
    about: 'the largest body',
  },
  encoders: {
    kind: 'code',
    type: 'a list of `{ contentType, encode, decode }`',
    ts: 'readonly ContentCodec[]',
    defaultText: 'JSON; texts and bytes as they are',
    about: 'for values with another `content-type` header, such as msgpack',
  },
  logger: { kind: 'code', type: 'a logger', ts: 'Logger', about: 'gets a line for every event' },
  tracing: {
    kind: 'code',
    type: 'a tracer',
    ts: 'Tracer',
    about: 'writes [spans](traces.md) of emits and of relays',
  },
  clock: CLOCK_OPTION,
  dice: DICE_OPTION,
} as const;

/** What every outbox takes. */
export const CREATE_OUTBOX_OPTIONS: Readonly<Record<keyof OutboxBase, Option>> = OUTBOX;
/** The schema of the tables in PostgreSQL, where none is named. */
export const SCHEMA_DEFAULT = 'outbox';

/** Where the tables of an outbox in PostgreSQL are. */
export const POSTGRES_OUTBOX_OPTIONS: Readonly<
  Record<Exclude<keyof PostgresOutboxBase, keyof OutboxBase>, Option>
> = {
  schema: {
    kind: 'text',
    type: 'a name',
    default: SCHEMA_DEFAULT,
    about: 'the schema of the tables; PostgreSQL only',
  },
  tables: {
    kind: 'text',
    type: 'text',
    defaultText: 'empty, in SQLite `outbox_`',
    about:
      'the prefix of the table names; in SQLite never empty, because the tables are beside yours',
  },
  listenUrl: {
    kind: 'text',
    type: 'a URL',
    secret: 'password',
    about:
      'a direct connection to the server, for relays with a `pool` or behind a pooler: they ' +
      'listen there for wake-ups; others listen at `url`. Without either, relays of other ' +
      'processes poll for new commits, every 50 ms to 1 s; those of the same outbox object are ' +
      'woken by `transaction()` and `wake()` at once in any case. PostgreSQL only',
  },
};

/** In which database it is: one of the three is required. */
export const OUTBOX_DATABASES: Readonly<Record<'pool' | 'url' | 'database', Option>> = {
  pool: {
    kind: 'code',
    type: 'a `pg.Pool`',
    defaultText: 'one of the three is required',
    about: 'your own `pg.Pool`; it stays open when the outbox closes',
  },
  url: {
    kind: 'text',
    type: '`postgres://…`',
    secret: 'password',
    about: 'the outbox opens its own pool',
  },
  database: {
    kind: 'code',
    type: 'a better-sqlite3 database',
    about: 'your own database; the relay opens the same file again',
  },
};

/** What every outbox takes. */
export interface OutboxBase {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * For messages without their own expiry: given up if they were not sent this long after their
   * emit. Default never.
   */
  readonly expires?: Duration;
  /**
   * Policies by name; `default` is for messages that name none. The relay's policies apply: give
   * both sides the same. Default `default`: exponential from 1s to 5m, 20 attempts.
   */
  readonly policies?: Readonly<Record<string, RetryPolicy>>;
  /** Delay functions for `custom` policies. */
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
  /** The largest body. 1 byte to 1 MiB; default 1 MiB. */
  readonly maxBytes?: number;
  /**
   * For values with another `content-type` header, such as msgpack. Default JSON; texts and bytes
   * as they are.
   */
  readonly encoders?: readonly ContentCodec[];
  /** Gets a line for every event. */
  readonly logger?: Logger;
  /** Writes spans of emits and of relays. */
  readonly tracing?: Tracer;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
  /** For tests. Default the system's. */
  readonly dice?: Dice;
}

/** Where the tables of an outbox in PostgreSQL are. */
export interface PostgresOutboxBase extends OutboxBase {
  // Written by `npm run options`: edit the table of options instead.
  /** The schema of the tables; PostgreSQL only. Default `outbox`. */
  readonly schema?: string;
  /**
   * The prefix of the table names; in SQLite never empty, because the tables are beside yours.
   * Default empty, in SQLite `outbox_`.
   */
  readonly tables?: string;
  /**
   * A direct connection to the server, for relays with a `pool` or behind a pooler: they listen
   * there for wake-ups; others listen at `url`. Without either, relays of other processes poll for
   * new commits, every 50 ms to 1 s; those of the same outbox object are woken by `transaction()`
   * and `wake()` at once in any case. PostgreSQL only.
   */
  readonly listenUrl?: string;
}

/** An outbox in a PostgreSQL database, over your own pool. */
export interface PoolOutboxOptions<Pool extends PgPool = PgPool> extends PostgresOutboxBase {
  /** A `pg.Pool` that you own: it stays open when the outbox closes. */
  readonly pool: Pool;
}

/** An outbox in a PostgreSQL database, over a pool of its own. */
export interface UrlOutboxOptions extends PostgresOutboxBase {
  /** `postgres://user:password@host:port/database`. */
  readonly url: string;
}

/** An outbox in the file of your own better-sqlite3 database. */
export interface DatabaseOutboxOptions<Database extends SqliteDatabase = SqliteDatabase>
  extends OutboxBase {
  readonly database: Database;
  /** What the names of the tables begin with; default `outbox_`. */
  readonly tables?: string;
}

/** Which SQL is wanted. */
export interface SqlOptions {
  /**
   * The version of the tables that are there, for SQL that brings them up to date; default 0, none.
   * It is the `value` of `version` in the table `meta`.
   */
  readonly from?: number;
}

/** What every outbox has, checked. */
interface OutboxSettings {
  readonly emit: EmitSettings;
  readonly parts: Pick<
    OutboxParts,
    'policies' | 'backoffs' | 'maxBytes' | 'makeBodies' | 'logger' | 'tracer' | 'clock' | 'dice'
  >;
}

/**
 * 1s 2s 4s … 5m, 20 attempts: about an hour. The default text of `policies` above says so. Also in
 * docs/how-to/transactional-outbox.md.
 */
const POLICY_DEFAULT: RetryPolicy = exponential({ first: '1s', max: '5m', attempts: 20 });

/** The version of the existing tables; the callers know which versions there are. */
export function versionFrom(options: SqlOptions): number {
  checkNames('outbox.sql', options, ['from']);
  return options.from ?? 0;
}

/** Checks the options that all outboxes have; `own` are those of one database only. */
export function outboxSettings(options: OutboxBase, own: OptionTable): OutboxSettings {
  const table = { ...own, ...OUTBOX };
  const { expiresMs, maxBytes } = readOptions({ what: 'createOutbox' }, options, table);
  const { backoffs = {}, encoders = [], logger } = options;
  const { clock = systemClock, dice = systemDice } = options;
  const policies = { default: POLICY_DEFAULT, ...options.policies };
  const tracer = checkTracer(options.tracing);
  return {
    emit: {
      expiresMs,
      maxBytes,
      policies: new Set(Object.keys(policies)),
      encoders,
      makeId: createIdMaker(dice),
    },
    parts: { policies, backoffs, maxBytes, makeBodies: noBodies, logger, tracer, clock, dice },
  };
}
