/**
 * diagnose-horizon — who keeps dead rows from being cleaned up: a transaction that is open for
 * long, one that was prepared and forgotten, a replication slot that nobody reads.
 */

import { danger, fine, type StoreFinding, worthKnowing } from '../shared/finding.ts';
import type { Ask } from './connection.ts';

/** How long a transaction may be open before it is worth a word, and before it is a danger. */
export interface HorizonSpans {
  readonly noteSeconds: number;
  readonly unsafeSeconds: number;
}

const SPANS: HorizonSpans = { noteSeconds: 5, unsafeSeconds: 60 };
/** A slot so many transactions behind holds back everything since. */
const SLOT_AGE_MAX = 1_000_000;

/**
 * Who holds back the cleaning here: whoever has a snapshot in this database. Of those in others
 * only one that has written does, since every snapshot is as old as the oldest of these.
 */
const HOLDS_BACK = '(datname = current_database() OR backend_xid IS NOT NULL)';

/** Looks for what is old. */
export async function examineHorizon(
  ask: Ask,
  spans: HorizonSpans = SPANS,
): Promise<StoreFinding[]> {
  const found = [
    ...(await examineTransactions(ask, spans)),
    ...(await examinePrepared(ask, spans)),
    ...(await examineSlots(ask)),
  ];
  const [[age] = []] = await ask(
    `SELECT max(greatest(age(backend_xmin), age(backend_xid))) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND ${HOLDS_BACK}`,
  );
  const behind = `${Number(age ?? 0).toLocaleString('en')} transactions`;
  const oldest = fine('oldest-xmin', `the oldest open snapshot is ${behind} back`);
  return found.length === 0 ? [oldest] : found;
}

/** A role that may not see the others' activity sees its own sessions only. */
async function examineTransactions(ask: Ask, spans: HorizonSpans): Promise<StoreFinding[]> {
  const rows = await ask(
    `SELECT pid, application_name, coalesce(usename, ''), state, coalesce(query_start::text, ''),
  extract(epoch FROM clock_timestamp() - xact_start)::float8,
  coalesce(greatest(age(backend_xmin), age(backend_xid)), 0)
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND ${HOLDS_BACK}
  AND xact_start < clock_timestamp() - make_interval(secs => $1)
ORDER BY xact_start LIMIT 3`,
    [spans.noteSeconds],
  );
  return rows.map(([pid, application, user, state, since, seconds, age]) => {
    const text =
      `process ${String(pid)} (application "${String(application)}", user "${String(user)}", ` +
      `${String(state)}, last query at ${String(since)}) has a transaction open for ` +
      `${Math.round(Number(seconds))} s: nothing that was removed since, ` +
      `${Number(age).toLocaleString('en')} transactions back, can be cleaned up`;
    const todo =
      `end it: SELECT pg_terminate_backend(${String(pid)}); and set ` +
      'idle_in_transaction_session_timeout';
    const isLong = Number(seconds) >= spans.unsafeSeconds;
    return isLong
      ? danger('oldest-xmin', text, todo)
      : worthKnowing('oldest-xmin', text, `${todo}, if it lasts`);
  });
}

async function examinePrepared(ask: Ask, spans: HorizonSpans): Promise<StoreFinding[]> {
  const rows = await ask(
    `SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
WHERE prepared < clock_timestamp() - make_interval(secs => $1) ORDER BY prepared LIMIT 3`,
    [spans.unsafeSeconds],
  );
  return rows.map(([gid, seconds]) =>
    danger(
      'prepared',
      `the transaction "${String(gid)}" was prepared ${Math.round(Number(seconds))} s ago and ` +
        'not ended: nothing that was removed since can be cleaned up',
      `COMMIT PREPARED or ROLLBACK PREPARED '${String(gid)}'`,
    ),
  );
}

async function examineSlots(ask: Ask): Promise<StoreFinding[]> {
  const rows = await ask(
    `SELECT slot_name, active, greatest(age(xmin), age(catalog_xmin)) FROM pg_replication_slots
WHERE greatest(age(xmin), age(catalog_xmin)) > $1 ORDER BY 3 DESC LIMIT 3`,
    [SLOT_AGE_MAX],
  );
  return rows.map(([name, isActive, age]) =>
    danger(
      'slots',
      `the replication slot "${String(name)}" (${isActive === true ? 'read' : 'not read'}) is ` +
        `${Number(age).toLocaleString('en')} transactions behind and keeps dead rows`,
      `let its standby catch up, or: SELECT pg_drop_replication_slot('${String(name)}')`,
    ),
  );
}
