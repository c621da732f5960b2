/**
 * postgres-outbox — an outbox in a PostgreSQL database (`Outbox`): emits in the caller's
 * transaction. Also its connection pool (`OutboxPool`), and the clock of the server (`ServerTime`).
 *
 *   emit ─(caller's connection)─▶ entries      transaction ─▶ emits … commit ─▶ wake ─▶ NOTIFY
 *
 * Promise: an emit opens no connection and sends no NOTIFY, so a rollback leaves nothing behind.
 */

import { type Millis, MINUTE_MS } from '../core/duration.ts';
import { RespoolError, show } from '../core/errors.ts';
import { checkList } from '../core/limits.ts';
import type { OptionTable } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import type { SqlTx } from '../ports/sql.ts';
import type { Spool } from '../spool/spool.ts';
import { loadPg, Sockets } from '../stores/postgres/connection.ts';
import { postgres, type PostgresStore } from '../stores/postgres/entry-store.ts';
import { askTransaction, insertWithin, type TxHabit } from '../stores/postgres/insert-within.ts';
import { type Names, namesOf, type PgPool } from '../stores/postgres/options.ts';
import { postgresSchema } from '../stores/postgres/schema.ts';
import { systemClock } from '../system/clock.ts';
import {
  type GuardedTx,
  guardedTxOf,
  type ErrorEmitter,
  transaction,
  type TxClient,
  type TxPool,
} from './transaction.ts';
import {
  deleteExpiredKeys,
  type InboxTable,
  migrateInbox,
  postgresInboxSql,
  postgresTable,
} from './inbox.ts';
import {
  checkEmitOptions,
  emittedOf,
  Messages,
  type CapturedMessage,
  type TracedEmits,
  traceEmit,
  traceEmits,
} from './message.ts';
import {
  versionFrom,
  OUTBOX_DATABASES,
  outboxSettings,
  type PoolOutboxOptions,
  POSTGRES_OUTBOX_OPTIONS,
  SCHEMA_DEFAULT,
  type SqlOptions,
  type UrlOutboxOptions,
} from './options.ts';
import { type OutboxParts, type RelayStoreOptions, spoolOf } from './parts.ts';
import { createRelay, type Relay } from './relay.ts';
import {
  withTableAdvice,
  areTablesMissing,
  explainMissingTables,
  type MissingTables,
  MIGRATE_ADVICE,
} from './table-errors.ts';
import { type AnyTx, isOneTransaction, sqlTxOf, type TxMutex, TxMutexes } from './tx.ts';
import type { EmitMessage, EmitOptions, EmitResult, RelayOptions } from './types.ts';
import { OutboxWake } from './wake.ts';

// The pool of an outbox: the user's, or one of its own that is opened when it is needed.

const CONNECT_TIMEOUT_MS = 5_000;
const CONNECTIONS_MAX = 8;

/** Where the connections come from. */
type PoolPlace = { readonly pool: PgPool } | { readonly url: string };

/** Connections for transactions, wake-ups and migrations. */
class OutboxPool {
  readonly #place: PoolPlace;
  readonly #sockets = new Sockets(systemClock);
  #opening: Promise<PgPool> | undefined;
  #isEnded = false;

  constructor(place: PoolPlace) {
    this.#place = place;
  }

  async get(): Promise<TxPool> {
    if (this.#isEnded) {
      throw new RespoolError('store.unavailable', 'cannot use the outbox: it was closed');
    }
    if ('pool' in this.#place) return this.#place.pool as unknown as TxPool;
    this.#opening ??= openPool(this.#place.url, this.#sockets);
    return (await this.#opening) as unknown as TxPool;
  }

  /** One or a few statements on a connection, in no transaction. */
  async withConnection<T>(work: (client: TxClient) => Promise<T>): Promise<T> {
    const client = await (await this.get()).connect();
    const connection: ErrorEmitter = client as ErrorEmitter;
    let lost: Error | undefined;
    // A connection that breaks says so by an event, too, which without a listener ends the process.
    const onError = (error: Error): void => {
      lost = error;
    };
    connection.on?.('error', onError);
    try {
      return await work(client);
    } catch (error) {
      // Whatever was wrong: a new connection costs little, a broken one in the pool costs much.
      lost ??= error as Error;
      throw error;
    } finally {
      connection.removeListener?.('error', onError);
      client.release(lost);
    }
  }

  /** Ends a pool of our own; the user's stays. */
  async end(): Promise<void> {
    this.#isEnded = true;
    const opening = this.#opening;
    this.#opening = undefined;
    await (await opening)?.end();
    this.#sockets.ended();
  }
}

async function openPool(url: string, sockets: Sockets): Promise<PgPool> {
  const { Pool } = await loadPg();
  const pool = new Pool({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    application_name: 'respool outbox',
    max: CONNECTIONS_MAX,
    stream: sockets.make,
  });
  // An idle connection that breaks is replaced; without a listener it would end the process.
  pool.on('error', () => undefined);
  // So would one that the server ends at once, before the waiting caller can listen.
  pool.on('connect', (client) => {
    client.on('error', () => undefined);
  });
  return pool;
}

// The time of the database server, read in the transaction of an emit.
//
// The relay uses the server's clock. Otherwise every message that is emitted on a machine whose
// clock is ahead would wait for the difference. Read once a minute; in between, it is local time
// plus the measured difference.

/** Wall and monotonic time apart by more than this since it was asked: the clock was set. */
const JUMP_MS = 2_000;
/** An answer that took longer is inexact: it is used only if there is no other yet. */
const TRUSTED_MS = 1_000;

/** The time of a server, from local time and a measured difference. */
export class ServerTime {
  readonly #clock: Clock;
  /** Server time less wall time. */
  #offsetMs: number | undefined;
  #askedWall = 0;
  #askedMonotonic = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  now(): Millis {
    return Math.floor(this.#clock.now() + (this.#offsetMs ?? 0));
  }

  /** Whether the server should be asked again. */
  get isStale(): boolean {
    if (this.#offsetMs === undefined) return true;
    const passedMs = this.#clock.monotonic() - this.#askedMonotonic;
    const wallMs = this.#clock.now() - this.#askedWall;
    return passedMs >= MINUTE_MS || Math.abs(wallMs - passedMs) > JUMP_MS;
  }

  /** Measures the difference; `ask` reads the time from the server. */
  async measure(ask: () => Promise<Millis>): Promise<void> {
    const before = this.#clock.now();
    const started = this.#clock.monotonic();
    const serverNow = await ask();
    const tookMs = this.#clock.monotonic() - started;
    this.#askedWall = this.#clock.now();
    this.#askedMonotonic = this.#clock.monotonic();
    const isJumped = Math.abs(this.#askedWall - before - tookMs) > JUMP_MS;
    const isTrusted = tookMs <= TRUSTED_MS && !isJumped;
    if (!Number.isFinite(serverNow)) return;
    if (this.#offsetMs !== undefined && !isTrusted) return;
    // It was right at some moment of the round trip; the middle is wrong by at most half of it.
    this.#offsetMs = serverNow - (this.#askedWall - tookMs / 2);
  }
}

const { pool, url } = OUTBOX_DATABASES;
const OPTIONS: OptionTable = { pool, url, ...POSTGRES_OUTBOX_OPTIONS };

/** Shared by all outboxes: emits of several may be in one transaction. */
const TX_MUTEXES = new TxMutexes();
/** The payload of our NOTIFY; stores ignore notifications with their own name. */
const NOTIFY_SENDER = 'outbox';

/** An outbox in PostgreSQL. */
export class Outbox<Tx = TxClient> implements AsyncDisposable {
  readonly #pool: OutboxPool;
  readonly #names: Names;
  readonly #inbox: InboxTable;
  readonly #missingTables: MissingTables;
  readonly #messages: Messages;
  readonly #time: ServerTime;
  readonly #habit: TxHabit = { isFirst: false };
  readonly #wake: OutboxWake;
  readonly #parts: OutboxParts;
  readonly #makeStore: (options?: RelayStoreOptions & { readonly migrate?: true }) => PostgresStore;
  #spool: Spool | undefined;

  /** @internal Use createOutbox. */
  constructor(options: PoolOutboxOptions | UrlOutboxOptions) {
    const { emit, parts } = outboxSettings(options, OPTIONS);
    const { schema = SCHEMA_DEFAULT, tables = '', listenUrl } = options;
    const { clock, dice, logger } = parts;
    const from: PoolPlace =
      (options as Partial<PoolOutboxOptions>).pool === undefined
        ? { url: (options as UrlOutboxOptions).url }
        : { pool: (options as PoolOutboxOptions).pool };
    this.#names = namesOf(schema, tables);
    this.#inbox = postgresTable({ schema, table: `${tables}inbox` });
    const prefix = tables === '' ? '' : `, "${tables}…"`;
    this.#missingTables = { place: `schema "${schema}"${prefix}`, advice: MIGRATE_ADVICE };
    this.#makeStore = ({ migrate = false, partition } = {}) => {
      const place = { ...from, schema, tables, migrate };
      const listen = listenUrl === undefined || migrate ? {} : { listenUrl };
      const logs = logger === undefined ? {} : { logger };
      const sent = partition === undefined ? {} : { sent: partition };
      return postgres({ ...place, ...listen, ...logs, ...sent }, { clock, dice });
    };
    // Refuses invalid names now, not at the first emit.
    this.#makeStore();
    this.#pool = new OutboxPool(from);
    this.#messages = new Messages(emit);
    this.#time = new ServerTime(clock);
    this.#wake = new OutboxWake({ notify: () => this.#notify(), clock, logger });
    const name = `the outbox in schema "${schema}"`;
    this.#parts = {
      ...parts,
      name,
      makeStore: (own) =>
        this.#wake.withWake(withTableAdvice(this.#makeStore(own), name, this.#missingTables)),
      deleteExpiredKeys: () => this.#deleteExpiredKeys(),
    };
  }

  /**
   * Puts a message into the outbox, in your transaction: it is sent if that commits, and was never
   * there if not. A duplicate is reported, not thrown.
   */
  async emit(
    tx: AnyTx,
    routingKey: string,
    body?: unknown,
    options: EmitOptions = {},
  ): Promise<EmitResult> {
    const own = this.#messages.capture({ ...checkEmitOptions(options), routingKey, body });
    const traced = traceEmit(this.#parts.tracer, own);
    const [emitted] = await this.#emit(tx, [own], `emit ${show(routingKey)}`, traced);
    return emitted as EmitResult;
  }

  /** The same for many, in their order; all are checked before any is written. */
  async emitMany(tx: AnyTx, messages: readonly EmitMessage[]): Promise<readonly EmitResult[]> {
    checkList('messages', messages, 'a list of messages; for one alone use emit()');
    const own = messages.map((message) => this.#messages.capture(message));
    const traced = traceEmits(this.#parts.tracer, own);
    return this.#emit(tx, own, `emit ${own.length} messages`, traced);
  }

  /** Runs `fn` in a transaction of the pool, and tells relays once it is committed. */
  async transaction<T>(fn: (tx: Tx) => Promise<T> | T): Promise<T> {
    const value = await transaction(await this.#pool.get(), (tx) => fn(tx as Tx));
    void this.wake();
    return value;
  }

  /**
   * Tells relays that something was committed, after a transaction of your own: those of this
   * process at once, others by NOTIFY on another connection. Never fails: they look for themselves.
   */
  wake(): Promise<void> {
    return this.#wake.wake();
  }

  /** Makes the tables, or brings them up to date, under a lock; nothing else ever does. */
  async migrate(): Promise<void> {
    const store = this.#makeStore({ migrate: true });
    await store.open();
    await store.close();
    const { schema, table } = this.#inbox;
    await migrateInbox(await this.#pool.get(), { schema, table });
  }

  /**
   * What `migrate()` runs on an empty database, or on tables of the version `from`, as SQL to read
   * or to keep.
   */
  sql(options: SqlOptions = {}): string {
    const from = versionFrom(options);
    const { schema, prefix: tables } = this.#names;
    const inbox = postgresInboxSql(this.#inbox, from > 0);
    return `${postgresSchema({ schema, tables, from })}\n${inbox}`;
  }

  /** Makes a relay, which sends on what is committed; nothing happens before its `start()`. */
  relay(options: RelayOptions): Relay {
    return createRelay(this.#parts, options);
  }

  /** A spool over the same messages: list, hold, retry, bounce, remove … */
  get spool(): Spool {
    this.#spool ??= spoolOf(this.#parts);
    return this.#spool;
  }

  /** Ends what the outbox opened itself; relays are stopped by the caller that made them. */
  async close(): Promise<void> {
    await this.#wake.idle();
    try {
      await this.#spool?.stop();
    } finally {
      await this.#pool.end();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** n.b. As in #insert: nothing is awaited before the insert has begun. */
  async #emit(
    tx: AnyTx,
    own: readonly CapturedMessage[],
    doing: string,
    traced: TracedEmits | undefined,
  ): Promise<readonly EmitResult[]> {
    if (traced === undefined) return this.#insert(tx, own, doing);
    try {
      const emitted = await this.#insert(tx, traced.own, doing);
      traced.end(emitted);
      return emitted;
    } catch (error) {
      traced.fail(error);
      throw error;
    }
  }

  /** n.b. Nothing is awaited before the first statement, or the transaction might end before it. */
  #insert(
    anyTx: AnyTx,
    own: readonly CapturedMessage[],
    doing: string,
  ): Promise<readonly EmitResult[]> {
    const tx = sqlTxOf(anyTx, doing);
    const guarded = guardedTxOf(anyTx);
    guarded?.check(doing);
    if (own.length === 0) return Promise.resolve([]);
    const isKept = guarded !== undefined || isOneTransaction(anyTx);
    const inserting = TX_MUTEXES.run(anyTx, isKept, (mutex) =>
      this.#insertNow(tx, own, doing, mutex, guarded),
    );
    void guarded?.inFlight.track(inserting);
    return inserting;
  }

  async #insertNow(
    tx: SqlTx,
    own: readonly CapturedMessage[],
    doing: string,
    mutex: TxMutex,
    guarded: GuardedTx | undefined,
  ): Promise<readonly EmitResult[]> {
    try {
      if (this.#time.isStale) {
        await this.#time.measure(async () => {
          const { xid, time } = await askTransaction(tx);
          mutex.xid ??= xid;
          return time;
        });
      }
      const now = this.#time.now();
      const entries = own.map((message) => this.#messages.entry(message, now));
      const isSure = () => guarded?.isSure === true;
      const within = { doing, xid: mutex.xid, isSure, habit: this.#habit };
      const { results, xid } = await insertWithin(this.#names, tx, entries, within);
      mutex.xid = xid;
      return entries.map((entry, at) => emittedOf(entry, results[at]));
    } catch (error) {
      throw explainMissingTables(error, doing, this.#missingTables);
    }
  }

  async #notify(): Promise<void> {
    const values = [this.#names.channel, NOTIFY_SENDER];
    await this.#pool.withConnection((client) => client.query('SELECT pg_notify($1, $2)', values));
  }

  async #deleteExpiredKeys(): Promise<number> {
    try {
      return await this.#pool.withConnection((client) => deleteExpiredKeys(client, this.#inbox));
    } catch (error) {
      // Without an inbox there is nothing to delete.
      if (areTablesMissing(error)) return 0;
      throw error;
    }
  }
}
