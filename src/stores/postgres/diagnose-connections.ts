/** diagnose-connections — whether the server, or a pool of ours, runs out of connections. */

import { fine, type StoreFinding, worthKnowing } from '../shared/finding.ts';
import type { CheckedOptions } from './options.ts';
import type { Ask } from './connection.ts';

/** From this share of its connections on, a server is nearly full. */
const CONNECTIONS_NOTE = 0.8;

/** How many connections the server has left. */
export async function examineConnections(
  ask: Ask,
  { connections, pool }: CheckedOptions,
): Promise<StoreFinding> {
  const [[used, max] = []] = await ask(
    `SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::int`,
  );
  const own = pool === undefined ? `, a process of ours may take ${connections}` : '';
  const text = `${String(used)} of ${String(max)} connections are taken${own}`;
  if (Number(used) < Number(max) * CONNECTIONS_NOTE) return fine('connections', text);
  const todo = 'raise max_connections, lower "connections" of the store, or use pgbouncer';
  return worthKnowing('connections', text, todo);
}

/**
 * Whether calls wait for a connection. A pool that we were given says how many. Of one in another
 * process the server tells how many of its connections are at work: where all are, calls wait.
 */
export async function examineWaiting(
  ask: Ask,
  { connections, pool }: CheckedOptions,
): Promise<StoreFinding> {
  const id = 'waiting';
  if (pool !== undefined) {
    const { waitingCount: waiting = 0 } = pool;
    if (waiting === 0) return fine(id, 'no call waits for a connection of the pool');
    const text = `${waiting} ${waiting === 1 ? 'call waits' : 'calls wait'} for a connection`;
    return worthKnowing(id, `${text} of the pool`, 'raise "max" of the pool');
  }
  const [[open, working] = []] = await ask(
    `SELECT count(*), count(*) FILTER (WHERE state <> 'idle') FROM pg_stat_activity
WHERE application_name = 'respool' AND datname = current_database()`,
  );
  const text = `${String(working)} of ${String(open)} connections of stores are at work`;
  const isFree = Number(working) < Number(open) || Number(open) < connections;
  if (isFree) return fine(id, `${text} now: no call has to wait for one`);
  const todo = 'if it is so again at the next look, raise "connections" of the store';
  return worthKnowing(id, `${text} now: further calls wait for one`, todo);
}
