/**
 * notify — telling other processes that something may be due, and hearing of it from them.
 *
 * A NOTIFY takes a lock of the whole database when it commits, so it is never sent with a write: it
 * goes by itself, afterwards, at most every 20 ms. A store that is watched has one connection for
 * LISTEN: to `listenUrl`, otherwise to `url` unless that leads through a pool. Beside it, and
 * without it, the store polls: every 50 ms while others write or our own writes hide whether they
 * do, up to every second while they do not, since no NOTIFY follows what a transaction of the
 * caller inserts. A look reads one sequence, from which every write draws that makes something due.
 *
 * Why: docs/decisions/0048-a-watched-store-listens.md
 */

import type { Clock } from '../../ports/clock.ts';
import { Sleeper } from '../../system/wait.ts';
import {
  type QueryRequest,
  loadPg,
  type PgListener,
  rowsOf,
  type Server,
  Sockets,
  TYPES,
} from './connection.ts';
import type { CheckedOptions, Names, PgAnswer } from './options.ts';

/**
 * Minimum interval of notifications. Also in docs/reference/stores/postgres.md and decisions 0030
 * and 0048; test/stores/postgres/notify.test.ts counts on it.
 */
const TELL_EVERY_MS = 20;
// "50 ms to 1 s" in the texts of options.ts, diagnose.ts and outbox/options.ts. Also in
// docs/performance.md, docs/reference/outbox.md, docs/reference/stores/postgres.md and decision
// 0048; test/stores/postgres/polling.test.ts repeats every pause between the two.
const LOOK_MIN_MS = 50;
const LOOK_MAX_MS = 1_000;
/**
 * How long a look waits for a moment when none of our own writes is on its way. Also in decision
 * 0048, and in the "50 to 90 ms" of docs/reference/stores/postgres.md.
 */
const IDLE_WAIT_MS = 40;
/**
 * After this many unsure looks in a row, which take about a second, it wakes. Also in decision
 * 0048; test/stores/postgres/polling.test.ts expects ten.
 */
const UNSURE_MAX = 10;
/**
 * Pause before a lost connection for LISTEN is made again. Also in
 * docs/reference/stores/postgres.md; test/stores/postgres/notify.test.ts holds the timer of this
 * length.
 */
const RECONNECT_MS = 1_000;
const NOTIFY_SQL = 'SELECT pg_notify($1, $2)';

/** The caller that wants to be woken. */
type Call = () => void;

/** What notifications need. */
interface NotificationOptions {
  readonly clock: Clock;
  /** Tells our own news from those of others. */
  readonly instance: string;
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
  /** Looks in a row that were unsure. */
  #unsure = 0;
  /** The last look failed. */
  #wasAway = false;

  constructor(options: CheckedOptions, server: Server, { clock, instance }: NotificationOptions) {
    this.#options = options;
    this.#server = server;
    this.#clock = clock;
    this.#sockets = new Sockets(clock);
    this.#instance = instance;
    this.writes = new WriteTracker(options.names, clock);
  }

  async open(): Promise<void> {
    this.#isOpen = true;
    // What comes from here on is news to all that watch, even if they begin to watch later.
    await this.#server.run('look at what is there', (ask) => this.writes.look(ask));
    this.#isPooled = false;
    this.#listens = this.#options.listenUrl !== undefined;
    if (!this.#listens) return;
    // Tried again and reported like every other call: that server may be away for a moment, too.
    await this.#server.run('listen at "listenUrl"', () => this.#listen());
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    this.#listens = false;
    for (const cancel of [this.#cancelLook, this.#cancelTell, this.#cancelReconnect]) cancel?.();
    this.#calls.clear();
    const listener = this.#listener;
    this.#listener = undefined;
    // n.b. Before waiting for it: this is what ends a connection whose network path is dead.
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
    await this.writes.idle();
    try {
      const found = await this.#server.run('look for what others wrote', (ask) =>
        this.writes.look(ask),
      );
      this.#unsure = found === 'unsure' ? this.#unsure + 1 : 0;
      // What waits for the server must hear that it is back, also if nothing was written.
      const isNews = found === 'news' || this.#unsure === UNSURE_MAX || this.#wasAway;
      this.#wasAway = false;
      this.#lookMs =
        isNews || found === 'unsure' ? LOOK_MIN_MS : Math.min(2 * this.#lookMs, LOOK_MAX_MS);
      if (isNews) this.#unsure = 0;
      if (isNews && this.#isOpen) this.#wake();
    } catch {
      // Anyone who uses the store hears of it there; the watch only goes on.
      this.#wasAway = true;
    }
    if (this.#isOpen && this.#calls.size > 0) this.#lookSoon(this.#lookMs);
  }
}

/** What a look found; unsure: all that was drawn may be of our own writes on their way, or not. */
type Finding = 'news' | 'unsure' | 'nothing';

/** How the name of a prepared transaction begins, which has no session. */
const PREPARED = '-1/';

/**
 * Tells the writes of other processes from our own, by the sequence of entries: an insert draws a
 * number for each row, and a change that makes something due draws one.
 *
 * Others have drawn at least the numbers that our writes cannot account for, and at most those that
 * our answered writes did not draw. If the least has grown, others have written; if the most is not
 * above what is known, they have not. A number is seen before the transaction that drew it is
 * committed. So the end of a transaction that was open when news was seen is news as well.
 */
export class WriteTracker {
  readonly #sql: string;
  /** Numbers that our own writes draw: of those that were sent, and of those that were answered. */
  #sent = 0;
  #answered = 0;
  /** Sleeps until none of them is on its way. */
  readonly #idle: Sleeper;
  /** The least that others have drawn, which is no news any more. */
  #known: number | undefined;
  /** Transactions that may have drawn some of it, and have not ended yet. */
  #open: ReadonlySet<string> = new Set();

  constructor(names: Names, clock: Clock) {
    this.#sql = lookSql(names);
    this.#idle = new Sleeper(clock);
  }

  /**
   * Runs a write of our own that draws this many numbers, or none if `hasDrawn` says so. If it
   * fails, they count as drawn by others: whether it has drawn them is unknown, and a needless
   * wake-up does no harm.
   */
  async counted<T>(
    numbers: number,
    write: () => Promise<T>,
    hasDrawn: (result: T) => boolean = () => true,
  ): Promise<T> {
    this.#sent += numbers;
    let isDrawn = false;
    try {
      const result = await write();
      isDrawn = hasDrawn(result);
      return result;
    } finally {
      if (isDrawn) this.#answered += numbers;
      else this.#sent -= numbers;
      if (this.#sent === this.#answered) this.#idle.wake();
    }
  }

  /** Waits for a moment when none of our own is on its way, but not for long. */
  async idle(): Promise<void> {
    if (this.#sent !== this.#answered) await this.#idle.sleep(IDLE_WAIT_MS);
  }

  /** Whether others have written something since the last look. */
  async look(ask: QueryRequest): Promise<Finding> {
    const [known, sent, answered] = [this.#known, this.#sent, this.#answered];
    const accountedFor = known === undefined ? -1 : known + sent;
    const isWaiting = this.#open.size > 0;
    const [[number, writing] = []] = await ask(this.#sql, [accountedFor, isWaiting]);
    // Another look was quicker, and its answer may be of a later time.
    if (this.#known !== known) return 'unsure';
    const drawn = Number(number);
    // n.b. Also those that failed meanwhile: more than was accounted for is only then news.
    const [least, most] = [drawn - Math.max(sent, this.#sent), drawn - answered];
    const open = new Set(typeof writing === 'string' ? writing.split(' ') : []);
    const hasEnded = [...this.#open].some((one) => !open.has(one));
    // After a failover they may have drawn fewer.
    if (known === undefined || least > known || most < known) {
      this.#known = least;
      this.#open = open;
      return known === undefined ? 'nothing' : 'news';
    }
    // n.b. Not those that began later: they drew nothing that is known yet, and may be our own. One
    // that is waited for has another name once it is prepared.
    const stays = (one: string): boolean => this.#open.has(one) || one.startsWith(PREPARED);
    this.#open = new Set([...open].filter(stays));
    if (hasEnded) return 'news';
    return most > known ? 'unsure' : 'nothing';
  }
}

/**
 * The last number drawn; and, if it is more than `$1` or if `$2` is true, the transactions that are
 * writing entries. n.b. In this order: what ends in between has been committed by then.
 */
export function lookSql({ sequence, table }: Names): string {
  return `SELECT n, CASE WHEN n > $1::int8 OR $2::boolean THEN (
  SELECT string_agg(virtualtransaction, ' ') FROM pg_locks
  WHERE relation = '${table.entries}'::regclass AND mode = 'RowExclusiveLock' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) END FROM (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS n FROM ${sequence}) s`;
}

async function end(listener: PgListener): Promise<void> {
  // What it still waited for fails, and the caller that waited for that hears of it.
  await listener.end().catch(() => undefined);
}
