/**
 * transaction — how a transaction of several statements begins.
 *
 * A process that is stopped or cut off in the middle of one keeps its locks, and keeps the server
 * from cleaning up, for as long as its connection lives. So the server ends it by itself.
 */

/**
 * How long a transaction at work may wait for its next statement. What it has locked is passed over
 * by every claim meanwhile, and work has to go on within 10 s of whatever cut its process off.
 */
const IDLE_MAX = '5s';

/** The same where the tables are made: its SQL may also be typed in by hand. */
const SCHEMA_IDLE_MAX = '60s';

/** n.b. Several statements in one: without parameters, and what it gives back is of no use. */
export const BEGIN_SQL: string = beginSql(IDLE_MAX);

export const SCHEMA_BEGIN_SQL: string = beginSql(SCHEMA_IDLE_MAX);

function beginSql(idleMax: string): string {
  return `BEGIN;
SET LOCAL idle_in_transaction_session_timeout = '${idleMax}';`;
}
