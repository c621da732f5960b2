/**
 * connection — runs work on a connection of the pool, and retries it where that is safe; the only
 * file that loads `pg`.
 *
 * Promise: no connection is kept between two pieces of work, none is used again after trouble on
 * it, and none leads to a replica. Work that is run again learns whether its first try may
 * have happened (`isUnknown`), and has to look before it writes a second time.
 *
 * Also here: sockets that close soon after they were ended, how a transaction of several statements
 * begins, and how values are read.
 */

import { Socket } from 'node:net';
import { asError, RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { importPeer } from '../../system/peer.ts';
import { backoffMs, Sleeper, withTimeout } from '../../system/wait.ts';
import { LostConnection, storeError, troubleOf } from './errors.ts';
import type {
  CheckedOptions,
  PgAnswer,
  PgClient,
  PgPool,
  PgQueryable,
  PgEmitter,
  PgTypes,
} from './options.ts';

// Sockets that close soon after they were ended.
//
// A socket of Node waits for the other side to end as well. If a router dropped the connection, or
// the server froze, that never happens, and the socket keeps a stopped process alive: for a quarter
// of an hour, or for good.

/**
 * How long the other side may take to end a connection that we have ended, in milliseconds.
 * test/stores/postgres/notify.test.ts holds the timer of this length.
 */
const ANSWER_MAX_MS = 2_000;

/** The sockets of one pool or one connection. */
export class Sockets {
  readonly #clock: Clock;
  readonly #open = new Set<Socket>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Makes a socket; what node-postgres calls for each connection. */
  readonly make = (): Socket => {
    const socket = new Socket();
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    socket.once('finish', () => this.#dropSoon([socket]));
    return socket;
  };

  /**
   * All of them were ended by their user. n.b. Under TLS a socket does not emit `finish`: the TLS
   * socket around it does.
   */
  ended(): void {
    this.#dropSoon([...this.#open]);
  }

  #dropSoon(sockets: readonly Socket[]): void {
    const left = new Set(sockets);
    if (left.size === 0) return;
    const cancel = this.#clock.after(ANSWER_MAX_MS, () => {
      for (const socket of left) socket.destroy();
    });
    for (const socket of sockets) {
      socket.once('close', () => {
        left.delete(socket);
        if (left.size === 0) cancel();
      });
    }
  }
}

/** One statement on the present connection; its rows. */
export type QueryRequest = (text: string, values?: readonly unknown[]) => Promise<unknown[][]>;

/** What is done on a connection. */
export type TransactionWork<T> = (ask: QueryRequest, isUnknown: boolean) => Promise<T>;

/** What the server calls a connection of a store; diagnose.ts counts them by it. */
export const APPLICATION_NAME = 'respool';

/** Pauses between two tries, doubled up to the second of them. */
const PAUSE = { firstMs: 20, maxMs: 1_000 };

/** What is known about a connection. */
interface Known {
  /** It was asked whether it leads to a primary. */
  isChecked: boolean;
  /** A warning came: a wait for a synchronous standby may have been cut short. */
  isWarned: boolean;
}

/** The way to one server. */
export class Server {
  readonly #options: CheckedOptions;
  readonly #clock: Clock;
  readonly #known = new WeakMap<object, Known>();
  readonly #onPoolError = (): void => {
    // An idle connection went away. The next call gets another one; nothing was lost.
  };
  /**
   * n.b. Here, and not when we get the client: a server that ends a connection as soon as it is
   * made emits the error before the caller can listen, and that would end the process.
   */
  readonly #onConnect = (client: PgEmitter): void => {
    client.on('error', () => undefined);
  };
  readonly #sockets: Sockets;
  #pool: PgPool | undefined;
  #isClosed = false;
  /** Ends the pauses of those who try again. */
  readonly #sleeper: Sleeper;

  constructor(options: CheckedOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
    this.#sockets = new Sockets(clock);
    this.#sleeper = new Sleeper(clock);
  }

  async open(): Promise<void> {
    const { pool, url, connections, connectTimeoutMs } = this.#options;
    this.#isClosed = false;
    if (pool !== undefined || url === undefined) this.#pool = pool;
    else {
      const { Pool } = await loadPg();
      this.#pool = new Pool({
        connectionString: url,
        max: connections,
        connectionTimeoutMillis: connectTimeoutMs,
        keepAlive: true,
        application_name: APPLICATION_NAME,
        stream: this.#sockets.make,
      });
    }
    this.#pool?.on('error', this.#onPoolError);
    this.#pool?.on('connect', this.#onConnect);
  }

  /** Ends a pool of our own; one that was given stays as it is. */
  async close(): Promise<void> {
    const pool = this.#pool;
    this.#isClosed = true;
    this.#pool = undefined;
    this.#sleeper.wake();
    if (this.#options.pool !== undefined) {
      pool?.removeListener('error', this.#onPoolError);
      pool?.removeListener('connect', this.#onConnect);
      return;
    }
    // n.b. A pool that is ending still emits errors of its connections: the listener stays.
    await pool?.end();
    this.#sockets.ended();
  }

  /** Runs work on a connection; again while the server is away, up to `retryFor`. */
  async run<T>(doing: string, work: TransactionWork<T>): Promise<T> {
    const startedAt = this.#clock.monotonic();
    let isUnknown = false;
    for (let failures = 0; ; failures += 1) {
      const pauseMs = backoffMs(PAUSE, failures);
      const tried = { isSent: false };
      try {
        return await this.#once(work, isUnknown, tried);
      } catch (error) {
        const trouble = troubleOf(error);
        const isLate = this.#clock.monotonic() - startedAt + pauseMs > this.#options.retryForMs;
        const helps = trouble === 'again' || trouble === 'lost';
        // Also where this statement was certainly rolled back: one before it may have happened.
        isUnknown ||= tried.isSent;
        if (!helps || isLate || this.#isClosed) throw storeError(error, doing);
      }
      await this.#sleeper.sleep(pauseMs);
    }
  }

  async #once<T>(
    work: TransactionWork<T>,
    isUnknown: boolean,
    tried: { isSent: boolean },
  ): Promise<T> {
    const client = await this.#take();
    const known = this.#knownOf(client);
    let ended: Error | boolean | undefined;
    try {
      await this.#checkPrimary(client, known);
      known.isWarned = false;
      const result = await work((text, values) => {
        tried.isSent = true;
        return this.#ask(client, text, values);
      }, isUnknown);
      // The commit may be on this server alone, which only a later commit that waits can tell.
      if (known.isWarned) await this.#confirm(client, known);
      return result;
    } catch (error) {
      // After an error the connection may be in a transaction, or in the middle of an answer.
      ended = asError(error);
      throw error;
    } finally {
      client.release(ended);
    }
  }

  async #confirm(client: PgClient, item: Known): Promise<void> {
    item.isWarned = false;
    await this.#ask(client, CONFIRM_SQL);
    if (!item.isWarned) return;
    throw new LostConnection('a wait for synchronous replication was cancelled');
  }

  async #checkPrimary(client: PgClient, item: Known): Promise<void> {
    if (item.isChecked) return;
    const [[isReplica] = []] = await this.#ask(client, 'SELECT pg_is_in_recovery()');
    if (isReplica === true) {
      throw new LostConnection('this server is a replica, which takes no writes');
    }
    item.isChecked = true;
  }

  #knownOf(client: PgClient): Known {
    const found = this.#known.get(client);
    if (found !== undefined) return found;
    const known: Known = { isChecked: false, isWarned: false };
    this.#known.set(client, known);
    // The statement that is on its way fails with the same error; without this it ends the process.
    client.on('error', () => undefined);
    client.on('notice', ({ code }) => {
      if (code === '01000') known.isWarned = true;
    });
    return known;
  }

  #ask(client: PgClient, text: string, values?: readonly unknown[]): Promise<unknown[][]> {
    const query = { text, rowMode: 'array' as const, types: TYPES };
    const asked = client.query(values === undefined ? query : { ...query, values: [...values] });
    const { statementTimeoutMs } = this.#options;
    return this.#within(asked.then(rowsOf), statementTimeoutMs, 'the server did not answer');
  }

  async #take(): Promise<PgClient> {
    const pool = this.#pool;
    if (pool === undefined) {
      throw new RespoolError('store.unavailable', 'cannot use the store: it is not open');
    }
    let isLate = false;
    const connecting = pool.connect().then((client) => {
      if (isLate) client.release();
      return client;
    });
    const { connectTimeoutMs } = this.#options;
    try {
      // Recognised by `NO_CONNECTION` of errors.ts.
      return await this.#within(connecting, connectTimeoutMs, 'there was no connection');
    } catch (error) {
      isLate = true;
      throw error;
    }
  }

  /** Fails after a time; what comes later is ignored. */
  #within<T>(work: Promise<T>, ms: number, text: string): Promise<T> {
    return withTimeout(this.#clock, ms, work, () => {
      throw new LostConnection(`${text} within ${ms} ms`);
    });
  }
}

/** The server's time. */
export const NOW_SQL = 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8';

/**
 * A commit that waits for the disk and for the standbys, and writes nothing that is read.
 * `lazyWriteSql` of durability.ts adds columns after its SELECT.
 */
export const CONFIRM_SQL = "SELECT pg_logical_emit_message(true, 'respool', '')::text";

// How a transaction of several statements begins.
//
// A process that is stopped or cut off in the middle of one keeps its locks, and keeps the server
// from cleaning up, for as long as its connection lives. So the server ends it by itself.

/**
 * How long a transaction at work may wait for its next statement. What it has locked is passed over
 * by every claim meanwhile, and work has to go on within 10 s of its process being cut off. Also in
 * docs/reference/stores/postgres.md.
 */
const IDLE_MAX = '5s';

/**
 * The same where the tables are made: its SQL may also be typed in by hand. Also in
 * docs/reference/stores/postgres.md.
 */
const SCHEMA_IDLE_MAX = '60s';

/** n.b. Several statements in one message: no parameters, no answer. */
export const BEGIN_SQL: string = beginSql(IDLE_MAX);

export const SCHEMA_BEGIN_SQL: string = beginSql(SCHEMA_IDLE_MAX);

function beginSql(idleMax: string): string {
  return `BEGIN;
SET LOCAL idle_in_transaction_session_timeout = '${idleMax}';`;
}

// The package `pg`: loaded when a store with a URL is opened, never at import.

/** Of several statements in one, what the last of them gave. */
export function rowsOf(answer: PgAnswer | PgAnswer[]): unknown[][] {
  return (Array.isArray(answer) ? answer.at(-1) : answer)?.rows ?? [];
}

/** A connection of its own, for LISTEN. */
export interface PgListener extends PgQueryable {
  /** The process id of the server's side, as the server gave it on connecting. */
  readonly processID?: number;
  connect(): Promise<unknown>;
  end(): Promise<void>;
  on(event: 'error' | 'end', listener: (error?: Error) => void): unknown;
  on(
    event: 'notification',
    listener: (message: { readonly payload?: string | undefined }) => void,
  ): unknown;
}

/** How connections are opened. */
export interface PgConfig {
  readonly connectionString: string;
  readonly connectionTimeoutMillis: number;
  readonly keepAlive: boolean;
  readonly application_name: string;
  readonly max?: number;
  /** Makes the socket of a connection. */
  readonly stream: () => Socket;
}

/** The package, as far as we need it. */
interface PgPackage {
  readonly Pool: new (config: PgConfig) => PgPool;
  readonly Client: new (config: PgConfig) => PgListener;
}

export async function loadPg(): Promise<PgPackage> {
  const loaded = await importPeer('pg', 'the PostgreSQL store');
  const { default: pg = loaded } = loaded as { readonly default?: unknown };
  return pg as PgPackage;
}

/** Values as we want them, whatever parsers the program has set for its own queries. */
export const TYPES: PgTypes = {
  getTypeParser: (oid) => (READERS.get(oid) ?? asText) as (value: string) => never,
};

const asText = (value: string): string => value;

const READERS: ReadonlyMap<number, (value: string) => unknown> = new Map<
  number,
  (value: string) => unknown
>([
  [16, (value) => value === 't'],
  [17, readBytes],
  [20, Number],
  [21, Number],
  [23, Number],
  [701, Number],
]);

/** Both forms of `bytea_output`: hex, and the older one with escapes. */
export function readBytes(value: string): Uint8Array {
  if (value.startsWith('\\x')) return Buffer.from(value.slice(2), 'hex');
  const bytes: number[] = [];
  for (let at = 0; at < value.length; at += 1) {
    if (value[at] !== '\\') bytes.push(value.charCodeAt(at));
    else if (value[at + 1] === '\\') {
      bytes.push(0x5c);
      at += 1;
    } else {
      bytes.push(Number.parseInt(value.slice(at + 1, at + 4), 8));
      at += 3;
    }
  }
  return Uint8Array.from(bytes);
}
