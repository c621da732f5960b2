/**
 * The SQLite store: entries, bodies, its tables as SQL, and `once` for handlers that write to a
 * database of their own.
 */

export { sqliteBodies } from './body-store.ts';
export { type SqliteStore, sqlite } from './entry-store.ts';
export {
  migrateSqlite,
  sqliteSchema,
  type SqliteSchemaOptions,
  type SqliteSqlOptions,
} from './schema.ts';
export { type SqliteOnceOptions, once } from './once.ts';
export type { SqliteOptions } from './options.ts';
