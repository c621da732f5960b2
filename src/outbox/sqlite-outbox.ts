/**
 * sqlite-outbox — an outbox in a better-sqlite3 database of the user's (`SqliteOutbox`).
 *
 * Emits are synchronous, on the user's own handle and in its transaction. Relays open the same file
 * again, here or in another process on this machine.
 */

import { RespoolError, show } from '../core/errors.ts';
import { checkList } from '../core/limits.ts';
import type { OptionTable } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Spool } from '../spool/spool.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import { sqlite } from '../stores/sqlite/entry-store.ts';
import { checkTables, migrateSqlite, sqliteSchema } from '../stores/sqlite/schema.ts';
import { createWithin, type InsertWithin } from '../stores/sqlite/insert.ts';
import { deleteExpiredSqliteKeys, sqliteInboxSql, sqliteTable } from './inbox.ts';
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
  withTableAdvice,
  areTablesMissing,
  explainMissingTables,
  type MissingTables,
  MIGRATE_ADVICE,
} from './table-errors.ts';
import {
  type DatabaseOutboxOptions,
  versionFrom,
  OUTBOX_DATABASES,
  outboxSettings,
  POSTGRES_OUTBOX_OPTIONS,
  type SqlOptions,
} from './options.ts';
import { type OutboxParts, type RelayStoreOptions, spoolOf } from './parts.ts';
import { createRelay, type Relay } from './relay.ts';
import {
  type EmitMessage,
  type EmitOptions,
  type EmitResult,
  type RelayOptions,
  describeType,
} from './types.ts';
import { withinSqlite } from './transaction.ts';
import { isSqlite } from './tx.ts';
import { OutboxWake } from './wake.ts';

const { database } = OUTBOX_DATABASES;
const OPTIONS: OptionTable = { database, tables: POSTGRES_OUTBOX_OPTIONS.tables };
const JOURNAL = 'journal_mode = WAL';

/** An outbox in SQLite. */
export class SqliteOutbox<Database extends SqliteDatabase = SqliteDatabase>
  implements AsyncDisposable
{
  readonly #database: Database;
  readonly #tables: string;
  readonly #inbox: string;
  readonly #missingTables: MissingTables;
  readonly #clock: Clock;
  readonly #messages: Messages;
  readonly #insertWithin: InsertWithin;
  readonly #wake: OutboxWake;
  readonly #parts: OutboxParts;
  #spool: Spool | undefined;

  /** @internal Use createOutbox. */
  constructor(options: DatabaseOutboxOptions<Database>) {
    const { emit, parts } = outboxSettings(options, OPTIONS);
    const { database, tables = 'outbox_' } = options;
    if (!isSqlite(database)) {
      const given = describeType(database);
      throw new RespoolError(
        'config.invalid',
        `cannot make an outbox over ${given}: "database" is no better-sqlite3 database`,
      );
    }
    if (tables === '') {
      throw new RespoolError(
        'config.invalid',
        'cannot make an outbox with "" as "tables": its tables would be called like yours in the ' +
          'same file; allowed is what their names begin with, such as "outbox_"',
      );
    }
    const { clock, logger } = parts;
    this.#database = database;
    this.#tables = checkTables(tables);
    this.#inbox = sqliteTable({ table: `${tables}inbox` });
    this.#missingTables = { place: `"${tables}…"`, advice: MIGRATE_ADVICE };
    this.#clock = clock;
    this.#messages = new Messages(emit);
    this.#insertWithin = createWithin(tables);
    // Other processes poll the file, ten times a second.
    this.#wake = new OutboxWake({ notify: () => Promise.resolve(), clock, logger });
    const name = `the outbox "${tables}" in ${show(fileOf(database))}`;
    this.#parts = {
      ...parts,
      name,
      makeStore: (own) =>
        this.#wake.withWake(withTableAdvice(this.#makeStore(own), name, this.#missingTables)),
      deleteExpiredKeys: () => Promise.resolve(this.#deleteExpiredKeys()),
    };
  }

  /**
   * Puts a message into the outbox, in the open transaction of the database: it is sent if that
   * commits, and was never there if not. A duplicate is reported, not thrown.
   */
  emit(
    database: SqliteDatabase,
    routingKey: string,
    body?: unknown,
    options: EmitOptions = {},
  ): EmitResult {
    const own = this.#messages.capture({ ...checkEmitOptions(options), routingKey, body });
    const traced = traceEmit(this.#parts.tracer, own);
    const [emitted] = this.#emit(database, [own], `emit ${show(routingKey)}`, traced);
    return emitted as EmitResult;
  }

  /** The same for many, in their order; all are checked before any is written. */
  emitMany(database: SqliteDatabase, messages: readonly EmitMessage[]): readonly EmitResult[] {
    checkList('messages', messages, 'a list of messages; for one alone use emit()');
    const own = messages.map((message) => this.#messages.capture(message));
    const traced = traceEmits(this.#parts.tracer, own);
    return this.#emit(database, own, `emit ${own.length} messages`, traced);
  }

  /** Runs `fn` in a transaction, and tells relays of this process once it is committed. */
  transaction<T>(fn: (database: Database) => T): T {
    const value = withinSqlite(this.#database, 'do a transaction', () => fn(this.#database));
    this.wake();
    return value;
  }

  /** Tells relays of this process that something was committed; others look for themselves. */
  wake(): void {
    void this.#wake.wake();
  }

  /**
   * Makes the tables, or brings them up to date, and gives the file the write-ahead log that relays
   * need beside your handle, for good; nothing else ever does.
   */
  migrate(): void {
    // n.b. Not possible in a transaction; a relay then says what is missing.
    if (!this.#database.inTransaction) this.#database.pragma(JOURNAL);
    withinSqlite(this.#database, 'make the tables of an outbox', () => {
      migrateSqlite(this.#database, { tables: this.#tables });
      this.#database.exec(sqliteInboxSql(this.#inbox));
    });
  }

  /**
   * What `migrate()` runs on a database without our tables, or with those of the version `from`, as
   * SQL to read or to keep.
   */
  sql(options: SqlOptions = {}): string {
    const tables = sqliteSchema({ tables: this.#tables, from: versionFrom(options) });
    return `PRAGMA ${JOURNAL};\n${tables}\n${sqliteInboxSql(this.#inbox)}`;
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

  /** Ends what the outbox opened itself; the database stays open, relays are stopped by you. */
  async close(): Promise<void> {
    await this.#wake.idle();
    await this.#spool?.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #emit(
    database: SqliteDatabase,
    own: readonly CapturedMessage[],
    doing: string,
    traced: TracedEmits | undefined,
  ): EmitResult[] {
    if (traced === undefined) return this.#insert(database, own, doing);
    try {
      const emitted = this.#insert(database, traced.own, doing);
      traced.end(emitted);
      return emitted;
    } catch (error) {
      traced.fail(error);
      throw error;
    }
  }

  #insert(database: SqliteDatabase, own: readonly CapturedMessage[], doing: string): EmitResult[] {
    if (!isSqlite(database)) {
      throw new RespoolError(
        'config.invalid',
        `cannot ${doing}: the first argument is no better-sqlite3 database; give the one whose ` +
          'transaction this belongs to',
      );
    }
    const now = this.#clock.now();
    const entries = own.map((message) => this.#messages.entry(message, now));
    try {
      const results = this.#insertWithin(database, entries);
      return entries.map((entry, at) => emittedOf(entry, results[at]));
    } catch (error) {
      throw explainMissingTables(error, doing, this.#missingTables);
    }
  }

  #makeStore({ partition }: RelayStoreOptions = {}): EntryStore {
    if (partition !== undefined) {
      throw new RespoolError(
        'config.invalid',
        'cannot keep sent messages in partitions: only PostgreSQL has them; give "cleanUp" an age',
      );
    }
    const path = fileOf(this.#database);
    if (path === ':memory:') {
      throw new RespoolError(
        'config.invalid',
        'cannot look into an outbox in ":memory:": a relay, and "spool" of the outbox, open the ' +
          'same file again, and there is none; give a database in a file',
      );
    }
    const { clock, dice } = this.#parts;
    return sqlite({ path, tables: this.#tables, migrate: false }, { clock, dice });
  }

  #deleteExpiredKeys(): number {
    // In a transaction of the user's it would be rolled back with it.
    if (!this.#database.open || this.#database.inTransaction) return 0;
    try {
      return deleteExpiredSqliteKeys(this.#database, this.#inbox, this.#clock.now());
    } catch (error) {
      // Without an inbox there is nothing to delete.
      if (areTablesMissing(error)) return 0;
      throw error;
    }
  }
}

/** The path of the database file; `:memory:` if it has none. */
function fileOf(database: SqliteDatabase): string {
  const name: unknown = Reflect.get(database, 'name');
  return typeof name === 'string' && name !== '' ? name : ':memory:';
}
