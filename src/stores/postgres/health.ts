/**
 * health — what slows a server down that keeps a queue, as it says itself.
 *
 * Rows that were removed or rewritten stay until no transaction can see them any more. One that is
 * held open for long makes every claim walk over them.
 */

import type { Names } from './names.ts';
import type { Ask } from './server.ts';

/** Numbers to watch; what is normal depends on the load. */
export interface PostgresHealth {
  /** Rows that are no more but take room, in the tables of entries and contents. */
  readonly deadRows: number;
  /** Rows that are there, by the server's estimate. */
  readonly liveRows: number;
  /**
   * How long the oldest transaction that our role may see is open, milliseconds; null: none. A
   * role in `pg_monitor` sees those of others.
   */
  readonly oldestTransactionMs: number | null;
  /** Callers in this process that wait for a connection of the pool. */
  readonly waitingForConnections: number;
}

export async function askHealth(
  ask: Ask,
  { table }: Names,
): Promise<Omit<PostgresHealth, 'waitingForConnections'>> {
  const [[deadRows, liveRows, oldestMs] = []] = await ask(
    `SELECT
  (SELECT coalesce(sum(n_dead_tup), 0)::int8 FROM pg_stat_all_tables WHERE relid = ANY(t.ids)),
  (SELECT coalesce(sum(n_live_tup), 0)::int8 FROM pg_stat_all_tables WHERE relid = ANY(t.ids)),
  (SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::int8
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL)
FROM (SELECT ARRAY[$1::regclass::oid, $2::regclass::oid] AS ids) t`,
    [table.entries, table.contents],
  );
  return {
    deadRows: Number(deadRows),
    liveRows: Number(liveRows),
    oldestTransactionMs: oldestMs === null || oldestMs === undefined ? null : Number(oldestMs),
  };
}
