/**
 * The PostgreSQL store: entries, bodies, and its tables as SQL.
 */

export { postgresBodies } from './body-store.ts';
export { type PostgresStore, postgres } from './entry-store.ts';
export type { PostgresOptions } from './options.ts';
export type { SentMessage, SentPage, SentQuery } from './sent-partitions.ts';
export { type PostgresSchemaOptions, postgresSchema } from './schema.ts';
