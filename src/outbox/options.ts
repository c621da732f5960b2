/**
 * options — what createOutbox takes, checked at the door, with the defaults in one place.
 */

import { durationMs } from '../core/duration.ts';
import { checkNames, checkNumber } from '../core/limits.ts';
import { exponential, type RetryPolicy } from '../core/policy.ts';
import { checkTracer } from '../engine/tracing.ts';
import type { PgPool } from '../stores/postgres/options.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import { systemClock, systemDice } from '../system/clock.ts';
import { createIdMaker } from '../system/ids.ts';
import { type EmitSettings, noBodies } from './message.ts';
import type { OutboxParts } from './parts.ts';
import type { OutboxBase } from './types.ts';

/** Where the tables of an outbox in PostgreSQL are. */
interface PostgresPlace extends OutboxBase {
  /** The schema of the tables; default `outbox`. */
  readonly schema?: string;
  /** What the names of the tables begin with, such as `mail_`; default nothing. */
  readonly tables?: string;
  /**
   * A URL that leads straight to the server, not through pgbouncer: relays listen there for what is
   * told by `transaction()` and `wake()`. Without it those of other processes look for new commits
   * every 50 ms to 1 s; those of this outbox are told all the same.
   */
  readonly listenUrl?: string;
}

/** An outbox in a PostgreSQL database, over your own pool. */
export interface PoolOutboxOptions<Pool extends PgPool = PgPool> extends PostgresPlace {
  /** A `pg.Pool` that you own: it stays open when the outbox closes. */
  readonly pool: Pool;
}

/** An outbox in a PostgreSQL database, over a pool of its own. */
export interface UrlOutboxOptions extends PostgresPlace {
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
export interface OutboxSettings {
  readonly emit: EmitSettings;
  readonly parts: Pick<
    OutboxParts,
    'policies' | 'backoffs' | 'maxBytes' | 'makeBodies' | 'logger' | 'tracer' | 'clock' | 'dice'
  >;
}

const NAMES: readonly string[] = [
  'expires',
  'policies',
  'backoffs',
  'maxBytes',
  'encoders',
  'logger',
  'tracing',
  'clock',
  'dice',
] as const satisfies readonly (keyof OutboxBase)[];

/** What rides with an entry, in PostgreSQL and SQLite. */
const BODY_MAX_BYTES: number = 2 ** 20;

/** 1s 2s 4s … 5m, 20 attempts: about an hour. */
const POLICY_DEFAULT: RetryPolicy = exponential({ first: '1s', max: '5m', attempts: 20 });

/** The version that is there; whether it can be is up to who knows the versions. */
export function fromOf(options: SqlOptions): number {
  checkNames('outbox.sql', options, ['from']);
  return options.from ?? 0;
}

/** Checks what all outboxes take; `own` are the names of options beside. */
export function outboxSettings(options: OutboxBase, own: readonly string[]): OutboxSettings {
  checkNames('createOutbox', options, [...own, ...NAMES]);
  const { expires, backoffs = {}, encoders = [], logger } = options;
  const { clock = systemClock, dice = systemDice } = options;
  const policies = { default: POLICY_DEFAULT, ...options.policies };
  const tracer = checkTracer(options.tracing);
  const size = { min: 1, max: BODY_MAX_BYTES };
  const maxBytes = checkNumber('maxBytes', options.maxBytes ?? BODY_MAX_BYTES, size);
  return {
    emit: {
      expiresMs: expires === undefined ? undefined : durationMs(expires, 'expires', { minMs: 1 }),
      maxBytes,
      policies: new Set(Object.keys(policies)),
      encoders,
      makeId: createIdMaker(dice),
    },
    parts: { policies, backoffs, maxBytes, makeBodies: noBodies, logger, tracer, clock, dice },
  };
}
