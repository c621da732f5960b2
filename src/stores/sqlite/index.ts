/**
 * The SQLite store: entries, bodies, and `once` for handlers that write to a database of their own.
 */

export { sqliteBodies } from './body-store.ts';
export { sqlite } from './entry-store.ts';
export { type OnceOptions, once } from './once.ts';
export type { SqliteOptions } from './options.ts';
export { serviceAddress } from './service-address.ts';
