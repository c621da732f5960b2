/**
 * diagnose — what a PostgreSQL server is like for a spool: its version, settings that decide what a
 * commit is worth, standbys, notifications, connections, what keeps dead rows from being vacuumed,
 * and our tables. Asked by the doctor.
 *
 * Promise: only reads. Nothing is made, no schema is needed, and a replica is reported, not
 * refused.
 */

import { asError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import { danger, type Diagnosis, fine, type StoreFinding, noteFinding } from '../shared/finding.ts';
import {
  type QueryRequest,
  loadPg,
  NOW_SQL,
  type PgConfig,
  rowsOf,
  Sockets,
  TYPES,
  APPLICATION_NAME,
} from './connection.ts';
import { readDurability } from './durability.ts';
import { storeError } from './errors.ts';
import {
  type CheckedOptions,
  checkStoreOptions,
  type Names,
  type PostgresOptions,
  type PgClient,
  type PgPool,
} from './options.ts';
import { SCHEMA_VERSION } from './schema.ts';

/** Clocks that are kept by NTP differ by less. Also in docs/reference/stores/postgres.md. */
const CLOCK_APART_MS = 2_000;
/** A notification comes within this, or not at all. */
const NOTICE_MS = 1_000;

/** Looks at the server of a store. */
export async function diagnosePostgres(
  postgresOptions: PostgresOptions,
  parts: { readonly clock?: Clock; readonly spans?: HorizonSpans } = {},
): Promise<Diagnosis> {
  const options = checkStoreOptions('the PostgreSQL store', postgresOptions);
  const { clock = systemClock, spans } = parts;
  return withClient(options, (client) => examine(client, options, { clock, spans }));
}

/** Whether there are tables of a store; makes none. */
export async function hasTables(postgresOptions: PostgresOptions): Promise<boolean> {
  const options = checkStoreOptions('the PostgreSQL store', postgresOptions);
  return withClient(options, async (client) => {
    const [[isThere] = []] = await asking(client)('SELECT to_regclass($1) IS NOT NULL', [
      options.names.table.meta,
    ]);
    return isThere === true;
  });
}

async function withClient<T>(
  options: CheckedOptions,
  work: (client: PgClient) => Promise<T>,
): Promise<T> {
  const sockets = new Sockets(systemClock);
  const pool = options.pool ?? (await ownPool(options, sockets));
  const ignore = (): void => undefined;
  pool.on('error', ignore);
  try {
    const client = await pool.connect();
    client.on('error', ignore);
    let ended: Error | undefined;
    try {
      return await work(client);
    } catch (error) {
      ended = asError(error);
      throw error;
    } finally {
      client.release(ended);
    }
  } catch (error) {
    throw storeError(error, 'look at the server');
  } finally {
    pool.removeListener('error', ignore);
    // n.b. A pool that is ending still emits errors of connections that break meanwhile.
    pool.on('error', ignore);
    if (options.pool === undefined) await pool.end();
    sockets.ended();
  }
}

async function examine(
  client: PgClient,
  options: CheckedOptions,
  { clock, spans }: { readonly clock: Clock; readonly spans: HorizonSpans | undefined },
): Promise<Diagnosis> {
  const ask = asking(client);
  const [[version, isReplica, pid] = []] = await ask(
    "SELECT current_setting('server_version'), pg_is_in_recovery(), pg_backend_pid()",
  );
  // A pooler gives out process ids of its own, which are not those of the server.
  const told: unknown = Reflect.get(client, 'processID');
  const isPooled = typeof told === 'number' && told !== pid;
  const promise = await readDurability(ask);
  const tables = await examineTables(ask, options.names);
  const findings = [
    fine('version', `PostgreSQL ${String(version)}`),
    primary(isReplica === true),
    await examineClock(ask, clock),
    ...(await examineSettings(ask)),
    ...(await examineStandbys(ask)),
    await examineConnections(ask, options),
    await examineWaiting(ask, options),
    pooled(isPooled, options),
    await examineListening(ask, { options, isPooled, clock }),
    ...tables.findings,
    ...(await examineHorizon(ask, spans)),
  ];
  return { durability: promise.durability, isThere: tables.isThere, findings };
}

function asking(client: PgClient): QueryRequest {
  return async (text, values = []) => {
    const query = { text, values: [...values], rowMode: 'array' as const, types: TYPES };
    return rowsOf(await client.query(query));
  };
}

function primary(isReplica: boolean): StoreFinding {
  if (!isReplica) return fine('primary', 'it is the primary, and takes writes');
  const text = 'it is a replica, which takes no writes: the store does not open here';
  return danger('primary', text, 'let the address lead to the primary');
}

/** Due times go by the server's clock; what people read and log goes by their own. */
async function examineClock(ask: QueryRequest, clock: Clock): Promise<StoreFinding> {
  const [[at] = []] = await ask(NOW_SQL);
  const apartMs = Math.abs(Number(at) - clock.now());
  if (apartMs <= CLOCK_APART_MS) return fine('clock', 'its clock and ours agree');
  const text =
    `its clock and ours are ${Math.round(apartMs / 1_000)} s apart: messages are due by the ` +
    "server's";
  return noteFinding('clock', text, 'run NTP on both machines');
}

async function examineSettings(ask: QueryRequest): Promise<StoreFinding[]> {
  const [row = []] = await ask(
    `SELECT current_setting('synchronous_commit'), current_setting('fsync'),
  current_setting('full_page_writes')`,
  );
  const [commit = '', fsync, pages] = row.map(String);
  const findings = [
    commit === 'off'
      ? noteFinding(
          'synchronous-commit',
          'synchronous_commit is off: the store turns it on for what it has to keep',
          'ALTER ROLE … SET synchronous_commit = on spares it a statement',
        )
      : fine('synchronous-commit', `synchronous_commit is ${commit}`),
  ];
  const todo = (name: string): string =>
    `ALTER SYSTEM SET ${name} = on; SELECT pg_reload_conf(); until then a power cut can take ` +
    'everything, and leave a database that does not start';
  findings.push(
    fsync === 'on'
      ? fine('fsync', 'fsync is on')
      : danger('fsync', 'fsync is off: nothing waits for the disk', todo('fsync')),
    pages === 'on'
      ? fine('full-page-writes', 'full_page_writes is on')
      : danger(
          'full-page-writes',
          'full_page_writes is off: a page that a power cut tears stays torn',
          todo('full_page_writes'),
        ),
  );
  return findings;
}

async function examineStandbys(ask: QueryRequest): Promise<StoreFinding[]> {
  const id = 'standbys';
  const [[names, count] = []] = await ask(
    `SELECT current_setting('synchronous_standby_names'),
  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`,
  );
  if (names === '') {
    return [fine(id, 'no synchronous standby: what is acknowledged is on this machine alone')];
  }
  if (Number(count) > 0) return [fine(id, `${String(count)} synchronous standby connected`)];
  const text =
    `no synchronous standby is seen, though synchronous_standby_names is "${String(names)}": ` +
    'every write waits until one is there';
  const todo =
    'start a standby, or empty synchronous_standby_names; a role without pg_monitor ' +
    'does not see them';
  return [noteFinding(id, text, todo)];
}

/** Whether a pooler stands before the server, and LISTEN has a way past it. */
function pooled(isPooled: boolean, { listenUrl }: CheckedOptions): StoreFinding {
  if (!isPooled) return fine('pooler', 'connections lead straight to the server');
  const text = 'a pool such as pgbouncer stands between us and the server';
  if (listenUrl !== undefined) return fine('pooler', text);
  const todo = 'give "listenUrl", an address that leads straight to the server, for quick wake-ups';
  return noteFinding('pooler', text, todo);
}

/** Whether what one connection tells reaches another one that listens. */
async function examineListening(
  ask: QueryRequest,
  {
    options,
    isPooled,
    clock,
  }: { readonly options: CheckedOptions; readonly isPooled: boolean; readonly clock: Clock },
): Promise<StoreFinding> {
  const id = 'listen';
  const { url, names } = options;
  const listenUrl = options.listenUrl ?? (isPooled ? undefined : url);
  if (listenUrl === undefined) {
    const whose = isPooled ? 'connections lead through a pool' : 'the pool is your own';
    const text = `${whose}, no "listenUrl": other processes' writes are polled every 50 ms to 1 s`;
    return noteFinding(
      id,
      text,
      'give "listenUrl", an address of the server itself, to be woken at once',
    );
  }
  const { Client } = await loadPg();
  const sockets = new Sockets(clock);
  const client = new Client(configOf(options, listenUrl, sockets));
  client.on('error', () => undefined);
  // n.b. Not the store's own channel: a process that listens there would take it for news.
  const channel = `${names.channel}_doctor`;
  const heard = Promise.withResolvers<boolean>();
  const cancel = clock.after(options.connectTimeoutMs + NOTICE_MS, () => heard.resolve(false));
  client.on('notification', () => heard.resolve(true));
  try {
    await client.connect();
    await client.query({ text: `LISTEN ${channel}`, values: [], rowMode: 'array', types: TYPES });
    await ask(`SELECT pg_notify($1, '')`, [channel]);
    clock.after(NOTICE_MS, () => heard.resolve(false));
    if (await heard.promise) return fine(id, 'other processes are woken at once by new messages');
    return danger(
      id,
      'NOTIFY does not arrive through "listenUrl": it leads through a pool, or to ' +
        'another server',
      'let "listenUrl" lead straight to the server',
    );
  } catch (error) {
    const text = `"listenUrl" cannot be used: ${textOf(error)}`;
    return danger(id, text, 'fix it, or remove it: a store does not open with it');
  } finally {
    cancel();
    sockets.ended();
    await client.end().catch(() => undefined);
  }
}

async function ownPool(options: CheckedOptions, sockets: Sockets): Promise<PgPool> {
  const { Pool } = await loadPg();
  return new Pool({ ...configOf(options, options.url ?? '', sockets), max: 1 });
}

function configOf({ connectTimeoutMs }: CheckedOptions, url: string, sockets: Sockets): PgConfig {
  return {
    connectionString: url,
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    application_name: 'respool doctor',
    stream: sockets.make,
  };
}

// Whether the server, or our own pool, runs out of connections.

/**
 * From this share of its connections on, a server is nearly full. Also in
 * docs/reference/stores/postgres.md.
 */
const CONNECTIONS_NOTE = 0.8;

/** How many connections the server has left. */
async function examineConnections(
  ask: QueryRequest,
  { connections, pool }: CheckedOptions,
): Promise<StoreFinding> {
  const [[used, max] = []] = await ask(
    `SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::int`,
  );
  const own = pool === undefined ? `, one process may use ${connections}` : '';
  const text = `${String(used)} of ${String(max)} connections are taken${own}`;
  if (Number(used) < Number(max) * CONNECTIONS_NOTE) return fine('connections', text);
  const todo = 'raise max_connections, lower "connections" of the store, or use pgbouncer';
  return noteFinding('connections', text, todo);
}

/**
 * Whether calls wait for a connection. A pool that we were given says how many. Of one in another
 * process the server tells how many of its connections are at work: where all are, calls wait.
 */
export async function examineWaiting(
  ask: QueryRequest,
  { connections, pool }: CheckedOptions,
): Promise<StoreFinding> {
  const id = 'waiting';
  if (pool !== undefined) {
    const { waitingCount: waiting = 0 } = pool;
    if (waiting === 0) return fine(id, 'no call waits for a connection of the pool');
    const text = `${waiting} ${waiting === 1 ? 'call waits' : 'calls wait'} for a connection`;
    return noteFinding(id, `${text} of the pool`, 'raise "max" of the pool');
  }
  const [[open, working] = []] = await ask(
    `SELECT count(*), count(*) FILTER (WHERE state <> 'idle') FROM pg_stat_activity
WHERE application_name = '${APPLICATION_NAME}' AND datname = current_database()`,
  );
  const text = `${String(working)} of ${String(open)} connections of stores are at work`;
  const isFree = Number(working) < Number(open) || Number(open) < connections;
  if (isFree) return fine(id, `${text} now: no call has to wait for one`);
  const todo = 'if it is so again at the next look, raise "connections" of the store';
  return noteFinding(id, `${text} now: further calls wait for one`, todo);
}

// What keeps dead rows from being vacuumed: a transaction that is open for
// long, one that was prepared and forgotten, a replication slot without a reader.

/** How long a transaction may be open before it is reported, and before it is unsafe. */
interface HorizonSpans {
  readonly noteSeconds: number;
  readonly unsafeSeconds: number;
}

/** Also in docs/reference/stores/postgres.md. */
const SPANS: HorizonSpans = { noteSeconds: 5, unsafeSeconds: 60 };
/** A slot this many transactions behind holds back everything since. */
const SLOT_AGE_MAX = 1_000_000;

/**
 * The transactions that hold back vacuum here: all with a snapshot in this database. Of those in
 * other databases only one that has written does: every snapshot is as old as the oldest of these.
 */
const HOLDS_BACK = '(datname = current_database() OR backend_xid IS NOT NULL)';

/** Looks for what is old. */
async function examineHorizon(
  ask: QueryRequest,
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
async function examineTransactions(
  ask: QueryRequest,
  spans: HorizonSpans,
): Promise<StoreFinding[]> {
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
      : noteFinding('oldest-xmin', text, `${todo}, if it lasts`);
  });
}

async function examinePrepared(ask: QueryRequest, spans: HorizonSpans): Promise<StoreFinding[]> {
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

async function examineSlots(ask: QueryRequest): Promise<StoreFinding[]> {
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

// Our tables: which version, how many dead rows, whether they are vacuumed.

/** Tables whose rows come and go: those with `BUSY` in schema.ts, without receipts. */
const BUSY = ['entries', 'contents', 'bodies', 'chunks'] as const;
/**
 * Minimum number of dead rows worth reporting. Also in docs/reference/stores/postgres.md, as the
 * next one.
 */
const DEAD_MIN = 20_000;
/** Minimum number of dead rows for each living one that is worth reporting. */
const DEAD_PER_LIVE = 2;

/** What was found of the tables. */
interface TablesFound {
  readonly isThere: boolean;
  readonly findings: readonly StoreFinding[];
}

/** Looks at the tables of a store, which need not be there. */
async function examineTables(ask: QueryRequest, names: Names): Promise<TablesFound> {
  const [[isThere, autovacuum] = []] = await ask(
    "SELECT to_regclass($1) IS NOT NULL, current_setting('autovacuum')",
    [names.table.meta],
  );
  const vacuum = autovacuum === 'on' ? [] : [noAutovacuumFinding()];
  if (isThere !== true) {
    const text = `no tables in schema "${names.schema}" yet; they are made when a store opens`;
    return { isThere: false, findings: [noteFinding('tables', text), ...vacuum] };
  }
  const tables = BUSY.map((name) => names.table[name]);
  // Also read by position in `deadRowsFinding`.
  const rows = await ask(
    `SELECT t.name, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0),
  coalesce('autovacuum_enabled=false' = ANY(c.reloptions)
    OR 'autovacuum_enabled=off' = ANY(c.reloptions), false)
FROM unnest($1::text[]) WITH ORDINALITY AS t(name, at)
JOIN pg_class c ON c.oid = to_regclass(t.name)
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
ORDER BY t.at`,
    [tables],
  );
  const findings = [
    await versionFinding(ask, names),
    ...vacuum,
    ...rows.flatMap(([name, , , isOff]) =>
      isOff === true ? [switchedOffFinding(String(name))] : [],
    ),
    deadRowsFinding(rows),
  ];
  return { isThere: true, findings };
}

async function versionFinding(ask: QueryRequest, names: Names): Promise<StoreFinding> {
  const [[found] = []] = await ask(`SELECT value FROM ${names.table.meta} WHERE key = 'version'`);
  const text = `tables of version ${String(found)} in schema "${names.schema}"`;
  if (found === SCHEMA_VERSION) return fine('tables', text);
  if (Number(found) < SCHEMA_VERSION) {
    const todo = 'they are brought up to date when a store opens; take a backup before';
    return noteFinding('tables', `${text}, this program writes ${SCHEMA_VERSION}`, todo);
  }
  return danger('tables', `${text}, which is newer than this program`, 'use the newer Respool');
}

function noAutovacuumFinding(): StoreFinding {
  return danger(
    'autovacuum',
    'autovacuum is off: rows of delivered messages are never cleaned up, and claims get slower',
    'ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()',
  );
}

function switchedOffFinding(table: string): StoreFinding {
  const todo = `ALTER TABLE ${table} RESET (autovacuum_enabled)`;
  return danger('autovacuum', `autovacuum is switched off for ${table}`, todo);
}

function deadRowsFinding(rows: readonly (readonly unknown[])[]): StoreFinding {
  const id = 'dead-rows';
  const dead = rows.reduce((sum, row) => sum + Number(row[2]), 0);
  const live = rows.reduce((sum, row) => sum + Number(row[1]), 0);
  const text = `${countText(dead)} dead rows beside ${countText(live)} living ones`;
  if (dead < DEAD_MIN || dead < live * DEAD_PER_LIVE) return fine(id, text);
  const todo =
    'see whether a transaction is open for long, below; VACUUM (ANALYZE) the tables if none is';
  return noteFinding(id, text, todo);
}

function countText(rows: number): string {
  return rows.toLocaleString('en');
}
