/**
 * notify — telling other processes that something may be due, and hearing of it from them.
 *
 * A NOTIFY takes a lock of the whole database when it commits, so it is never sent with a write: it
 * goes by itself, afterwards, at most every 20 ms. A store that is watched has one connection for
 * LISTEN: to `listenUrl`, otherwise to `url` unless that leads through a pool. Beside it, and
 * without it, the store polls: every 50 ms while others write, up to every second while they do
 * not, since no NOTIFY follows what a transaction of the caller inserts.
 *
 * Why: docs/decisions/0048-a-watched-store-listens.md
 */

import type { Clock } from '../../ports/clock.ts';
import { ARCHIVED_KEY, WAITING_KEYS } from '../shared/sql-row.ts';
import {
  type QueryRequest,
  loadPg,
  type PgListener,
  rowsOf,
  type Server,
  Sockets,
  TYPES,
} from './connection.ts';
import type { DueLowerBounds } from './claim.ts';
import type { CheckedOptions, PgAnswer } from './options.ts';

const TELL_EVERY_MS = 20;
const LOOK_MIN_MS = 50;
const LOOK_MAX_MS = 1_000;
const RECONNECT_MS = 1_000;
const NOTIFY_SQL = 'SELECT pg_notify($1, $2)';

/** The caller that wants to be woken. */
type Call = () => void;

/** What notifications need. */
interface NotificationOptions {
  readonly clock: Clock;
  /** Tells our own news from those of others. */
  readonly instance: string;
  readonly lowerBounds: DueLowerBounds;
}

/** The notifications of one open store, and the polling beside them. */
export class Notifications {
  readonly #options: CheckedOptions;
  readonly #clock: Clock;
  readonly #server: Server;
  readonly #instance: string;
  /** Our own writes, which are no news. */
  readonly writes: WriteTracker;
  readonly #calls = new Set<Call>();
  readonly #sockets: Sockets;
  #listener: PgListener | undefined;
  /** Whether there is a connection for LISTEN, or one is being made. */
  #listens = false;
  /** `url` leads through a pool, which does not pass notifications on. */
  #isPooled = false;
  #isOpen = false;
  #cancelLook: Call | undefined;
  #cancelTell: Call | undefined;
  #cancelReconnect: Call | undefined;
  #isTelling = false;
  #hasNews = false;
  #lookMs = LOOK_MIN_MS;

  constructor(
    options: CheckedOptions,
    server: Server,
    { clock, instance, lowerBounds }: NotificationOptions,
  ) {
    this.#options = options;
    this.#server = server;
    this.#clock = clock;
    this.#sockets = new Sockets(clock);
    this.#instance = instance;
    this.writes = new WriteTracker(options.names, lowerBounds);
  }

  async open(): Promise<void> {
    this.#isOpen = true;
    // What comes from here on is news to all that watch, also if that begins later.
    await this.#server.run('look at what is there', (ask) => this.writes.look(ask));
    this.#isPooled = false;
    this.#listens = this.#options.listenUrl !== undefined;
    if (!this.#listens) return;
    // Tried again and told as every other call: that server may be away for a moment, too.
    await this.#server.run('listen at "listenUrl"', () => this.#listen());
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    this.#listens = false;
    for (const cancel of [this.#cancelLook, this.#cancelTell, this.#cancelReconnect]) cancel?.();
    this.#calls.clear();
    const listener = this.#listener;
    this.#listener = undefined;
    // n.b. Before it is waited for: this is what ends one that lies behind a dead way.
    this.#sockets.ended();
    if (listener !== undefined) await end(listener);
  }

  watch(call: Call): Call {
    this.#calls.add(call);
    if (this.#calls.size === 1) this.#lookSoon(0);
    this.#listenAtUrl();
    return () => {
      this.#calls.delete(call);
      if (this.#calls.size === 0) this.#cancelLook?.();
    };
  }

  /** Others may want to know of what we have written. */
  notify(): void {
    this.#hasNews = true;
    if (this.#cancelTell === undefined && !this.#isTelling) void this.#send();
  }

  async #send(): Promise<void> {
    if (!this.#isOpen) return;
    const listener = this.#listener;
    this.#isTelling = true;
    this.#hasNews = false;
    let isTold = true;
    try {
      const news = [this.#options.names.channel, this.#instance];
      if (listener === undefined) {
        await this.#server.run('notify other processes', (ask) => ask(NOTIFY_SQL, news));
      } else await this.#query(listener, NOTIFY_SQL, news);
    } catch {
      // Others poll at least once a second; the connection is reopened by itself.
      isTold = false;
    }
    this.#isTelling = false;
    if (!this.#isOpen) return;
    this.#cancelTell = this.#clock.after(TELL_EVERY_MS, () => {
      this.#cancelTell = undefined;
      // What was lost with its connection is told by the pool, or by the next connection.
      this.#hasNews ||= !isTold && this.#listener !== listener;
      if (this.#hasNews) void this.#send();
    });
  }

  /** A connection that vanished silently is closed and replaced. */
  async #query(
    listener: PgListener,
    text: string,
    values: unknown[] = [],
  ): Promise<PgAnswer | PgAnswer[]> {
    const cancel = this.#clock.after(this.#options.statementTimeoutMs, () => void end(listener));
    try {
      return await listener.query({ text, values, rowMode: 'array', types: TYPES });
    } finally {
      cancel();
    }
  }

  /** Begins to listen at `url`, once: the caller of `watch` does not wait for it. */
  #listenAtUrl(): void {
    if (this.#listens || this.#isPooled || this.#options.url === undefined) return;
    this.#listens = true;
    this.#tryToListen({ isFirst: true });
  }

  async #listen(): Promise<void> {
    const { listenUrl, url = '', connectTimeoutMs, names } = this.#options;
    const { Client } = await loadPg();
    const listener = new Client({
      connectionString: listenUrl ?? url,
      connectionTimeoutMillis: connectTimeoutMs,
      keepAlive: true,
      application_name: 'respool listen',
      stream: this.#sockets.make,
    });
    listener.on('error', () => undefined);
    listener.on('end', () => this.#onEnd(listener));
    listener.on('notification', ({ payload }) => {
      if (payload !== this.#instance) this.#wake();
    });
    try {
      await listener.connect();
      if (listenUrl === undefined && (await this.#leadsThroughPool(listener))) {
        this.#isPooled = true;
        this.#listens = false;
        void end(listener);
        return;
      }
      await this.#query(listener, `LISTEN "${names.channel}"`);
    } catch (error) {
      // A replica accepts the connection and refuses LISTEN; only we can end it.
      void end(listener);
      throw error;
    }
    if (this.#isOpen) this.#listener = listener;
    else await end(listener);
  }

  /** A pool gives out process ids of its own, which are not those of the server. */
  async #leadsThroughPool(listener: PgListener): Promise<boolean> {
    const [[pid] = []] = rowsOf(await this.#query(listener, 'SELECT pg_backend_pid()'));
    return listener.processID !== undefined && listener.processID !== pid;
  }

  #onEnd(listener: PgListener): void {
    if (this.#listener !== listener || !this.#isOpen) return;
    this.#listener = undefined;
    this.#reconnectSoon();
  }

  #reconnectSoon(): void {
    this.#cancelReconnect = this.#clock.after(RECONNECT_MS, () => this.#tryToListen());
  }

  #tryToListen({ isFirst = false } = {}): void {
    this.#listen().then(
      () => {
        // Notifications may have been missed while not listening.
        if (!isFirst) this.#wake();
      },
      () => {
        if (this.#isOpen) this.#reconnectSoon();
      },
    );
  }

  #wake(): void {
    for (const call of this.#calls) call();
  }

  #lookSoon(ms: number): void {
    this.#cancelLook?.();
    this.#cancelLook = this.#clock.after(ms, () => void this.#look());
  }

  async #look(): Promise<void> {
    try {
      const isNews = await this.#server.run('look for what others wrote', (ask) =>
        this.writes.look(ask),
      );
      this.#lookMs = isNews ? LOOK_MIN_MS : Math.min(2 * this.#lookMs, LOOK_MAX_MS);
      if (isNews && this.#isOpen) this.#wake();
    } catch {
      // Anyone who uses the store hears of it there; the watch only goes on.
    }
    if (this.#isOpen && this.#calls.size > 0) this.#lookSoon(this.#lookMs);
  }
}

/**
 * Tells the writes of other processes from our own, by the sequences that inserts and releases of
 * order keys draw from, and by the first due row of each state.
 */
class WriteTracker {
  readonly #names: CheckedOptions['names'];
  readonly #lowerBounds: DueLowerBounds;
  /** Rows of our own inserts: sent, and answered. */
  #sent = 0;
  #answered = 0;
  /** Our own draws from the sequence of order keys. */
  #draws = 0;
  /** Whether we have changed what is due since the last look. */
  #hasWritten = false;
  /** What was due first has moved while we wrote: perhaps others moved it as well. */
  #isDoubtful = false;
  /** What the last look found: the least that others inserted and drew, and the first rows. */
  #last: { readonly inserts: number; readonly draws: number; readonly heads: string } | undefined;

  constructor(names: CheckedOptions['names'], lowerBounds: DueLowerBounds) {
    this.#names = names;
    this.#lowerBounds = lowerBounds;
  }

  /** An insert of this many rows is about to be sent. */
  beginInsert(rows: number): void {
    this.#sent += rows;
  }

  endInsert(rows: number): void {
    this.#answered += rows;
  }

  /** We draw from the sequence of order keys. */
  noteOrderKey(): void {
    this.#draws += 1;
  }

  /** We have changed what is due. */
  noteWrite(): void {
    this.#hasWritten = true;
  }

  /** Whether others have written something since the last look. */
  async look(ask: QueryRequest): Promise<boolean> {
    const hadWritten = this.#hasWritten || this.#sent !== this.#answered;
    this.#hasWritten = false;
    const [[inserted, found, drawn] = []] = await ask(lookSql(this.#names, this.#lowerBounds));
    // Of the numbers drawn so far at most `#sent` are ours, so at least the rest are of others.
    const inserts = Number(inserted) - this.#sent;
    const draws = Number(drawn) - this.#draws;
    const heads = String(found);
    const last = this.#last;
    const isForeign = last !== undefined && (inserts > last.inserts || draws > last.draws);
    const isMoved = last !== undefined && heads !== last.heads;
    this.#last = {
      inserts: Math.max(last?.inserts ?? inserts, inserts),
      draws: Math.max(last?.draws ?? draws, draws),
      heads,
    };
    // Our own writes move the first rows too: a move counts where we wrote nothing meanwhile.
    const isOurs = hadWritten || this.#hasWritten;
    const isDoubtful = isMoved || this.#isDoubtful;
    this.#isDoubtful = isDoubtful && isOurs;
    return isForeign || (isDoubtful && !isOurs);
  }
}

export function lookSql(
  { table, sequence, turns }: CheckedOptions['names'],
  lowerBounds: DueLowerBounds,
): string {
  const heads = WAITING_KEYS.map(
    (slot) => `(SELECT string_agg(e.due_at::text || e.id, ' ') FROM generate_series(0, 9) AS p(n)
  CROSS JOIN LATERAL (
    SELECT due_at, id FROM ${table.entries}
    WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.n::int2${lowerBounds.sql(slot)}
    ORDER BY due_at, id LIMIT 1
  ) e)`,
  );
  return `SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM ${sequence}),
  concat_ws('|', ${heads.join(', ')}),
  (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM ${turns})`;
}

async function end(listener: PgListener): Promise<void> {
  // What it still waited for fails, and the caller that waited for that hears of it.
  await listener.end().catch(() => undefined);
}
