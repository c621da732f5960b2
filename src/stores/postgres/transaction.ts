/**
 * transaction — how a transaction of several statements begins.
 *
 * A process that is stopped or cut off in the middle of one keeps its locks, and keeps the server
 * from cleaning up, for as long as its connection lives. So the server ends it by itself.
 */

/** How long a transaction of ours may wait for its next statement. */
const IDLE_MAX = '60s';

/** n.b. Several statements in one: without parameters, and what it gives back is of no use. */
export const BEGIN_SQL: string = `BEGIN;
SET LOCAL idle_in_transaction_session_timeout = '${IDLE_MAX}';`;
