/**
 * The outbox: emit in your own transaction, a relay that sends on what is committed, listeners on
 * the other side, and effects that happen once.
 */

export { type InboxPlace, migrateInbox } from './inbox.ts';
export { fromDrizzle, fromKnex, fromKysely, fromPrisma } from './tx.ts';
export { type ListenOptions, listen } from './listen.ts';
export { type Once, type OnceKey, type OnceOptions, once } from './once.ts';
export type {
  DatabaseOutboxOptions,
  PoolOutboxOptions,
  SqlOptions,
  UrlOutboxOptions,
} from './options.ts';
export { createOutbox, type OutboxOptions } from './outbox.ts';
export type { Outbox } from './postgres-outbox.ts';
export { Reject } from './listen.ts';
export type { Relay, RelayLoad } from './relay.ts';
export { type SinkSpool, spoolSink, type SpoolSinkOptions } from './spool-sink.ts';
export type { SqliteOutbox } from './sqlite-outbox.ts';
export { withTracking, tracking, trackingIds, trackingOf } from './tracking.ts';
export { type ClientOf, type TxClient, type TxPool, transaction } from './transaction.ts';
export type { AnyTx } from './tx.ts';
export type {
  CleanUp,
  EmitResult,
  EmitMessage,
  EmitOptions,
  RelayOptions,
  RelayTarget,
} from './types.ts';
export type { OutboxBase } from './options.ts';
