/**
 * diagnose — what a PostgreSQL server is like for a spool: versions, settings that decide what a
 * commit is worth, and what keeps dead rows alive. Asked by the doctor.
 *
 * Promise: only reads. Nothing is made, no schema is needed, and a replica is told, not refused.
 */

import { asError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import {
  danger,
  type Diagnosis,
  fine,
  type StoreFinding,
  worthKnowing,
} from '../shared/finding.ts';
import { loadPg, type PgClient, type PgConfig, type PgPool, rowsOf, TYPES } from './client.ts';
import { examineConnections, examineWaiting } from './diagnose-connections.ts';
import { examineHorizon, type HorizonSpans } from './diagnose-horizon.ts';
import { examineTables } from './diagnose-tables.ts';
import { readPromise } from './durability.ts';
import { storeError } from './errors.ts';
import { type CheckedOptions, checkOptions, type PostgresOptions } from './options.ts';
import { type Ask, NOW_SQL } from './connection.ts';
import { Sockets } from './sockets.ts';

/** Clocks that are kept by NTP differ by less. */
const CLOCK_APART_MS = 2_000;
/** A notification comes within this, or not at all. */
const NOTICE_MS = 1_000;

/** Looks at the server of a store. */
export async function diagnosePostgres(
  given: PostgresOptions,
  parts: { readonly clock?: Clock; readonly spans?: HorizonSpans } = {},
): Promise<Diagnosis> {
  const options = checkOptions('the PostgreSQL store', given);
  const { clock = systemClock, spans } = parts;
  return withClient(options, (client) => examine(client, options, { clock, spans }));
}

/** Whether there are tables of a store; makes none. */
export async function hasTables(given: PostgresOptions): Promise<boolean> {
  const options = checkOptions('the PostgreSQL store', given);
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
    // n.b. A pool that ends still speaks of connections that break meanwhile.
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
  const promise = await readPromise(ask);
  const tables = await examineTables(ask, options.names);
  const findings = [
    fine('version', `PostgreSQL ${String(version)}`),
    primary(isReplica === true),
    await examineClock(ask, clock),
    ...(await examineSettings(ask)),
    ...(await examineStandbys(ask)),
    await examineConnections(ask, options),
    await examineWaiting(ask, options),
    pooled(client, pid, options),
    await examineListening(ask, options, clock),
    ...tables.findings,
    ...(await examineHorizon(ask, spans)),
  ];
  return { durability: promise.durability, isThere: tables.isThere, findings };
}

function asking(client: PgClient): Ask {
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

/** Due times go by the server's clock, what people read and log by their own. */
async function examineClock(ask: Ask, clock: Clock): Promise<StoreFinding> {
  const [[at] = []] = await ask(NOW_SQL);
  const apartMs = Math.abs(Number(at) - clock.now());
  if (apartMs <= CLOCK_APART_MS) return fine('clock', 'its clock and ours agree');
  const text =
    `its clock and ours are ${Math.round(apartMs / 1_000)} s apart: messages are due by the ` +
    "server's";
  return worthKnowing('clock', text, 'run NTP on both machines');
}

async function examineSettings(ask: Ask): Promise<StoreFinding[]> {
  const [row = []] = await ask(
    `SELECT current_setting('synchronous_commit'), current_setting('fsync'),
  current_setting('full_page_writes')`,
  );
  const [commit = '', fsync, pages] = row.map(String);
  const findings = [
    commit === 'off'
      ? worthKnowing(
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

async function examineStandbys(ask: Ask): Promise<StoreFinding[]> {
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
  return [worthKnowing(id, text, todo)];
}

/**
 * A pool in between gives out process ids of its own, which are not those of the server.
 */
function pooled(client: PgClient, pid: unknown, { listenUrl }: CheckedOptions): StoreFinding {
  const told: unknown = Reflect.get(client, 'processID');
  if (typeof told !== 'number' || told === pid) {
    return fine('pooler', 'connections lead straight to the server');
  }
  const text = 'a pool such as pgbouncer stands between us and the server';
  if (listenUrl !== undefined) return fine('pooler', text);
  const todo = 'give "listenUrl", an address that leads straight to the server, for quick wake-ups';
  return worthKnowing('pooler', text, todo);
}

/** Whether what one connection tells reaches another one that listens. */
async function examineListening(
  ask: Ask,
  options: CheckedOptions,
  clock: Clock,
): Promise<StoreFinding> {
  const id = 'listen';
  const { listenUrl, names } = options;
  if (listenUrl === undefined) {
    const text = 'no "listenUrl": what other processes write is looked for every 50 ms to 1 s';
    return worthKnowing(id, text, 'give "listenUrl", usually the same address, to be told at once');
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
    if (await heard.promise) return fine(id, 'other processes are told of new messages at once');
    return danger(
      id,
      'what is told by NOTIFY does not come through "listenUrl": it leads through a pool, or to ' +
        'another server',
      'let "listenUrl" lead straight to the server',
    );
  } catch (error) {
    const text = `"listenUrl" cannot be used: ${textOf(error)}`;
    return danger(id, text, 'mend it, or take it out: a store does not open with it');
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
