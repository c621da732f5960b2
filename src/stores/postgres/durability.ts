/**
 * durability — what the server promises, and when lazy writes are on its disk.
 *
 *   lazy write ─▶ pending ─200 ms, or flush()─▶ a commit that waits for the disk ─▶ durable
 *
 * A server that crashed meanwhile has forgotten the last lazy writes and does not say so. But it
 * has also emptied an unlogged table, in which we left a mark: a flush that does not find the mark
 * knows that what was pending may be lost, and rejects.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Durability } from '../../ports/entry-store.ts';
import type { Logger } from '../../ports/logger.ts';
import type { Names } from './options.ts';
import { type QueryRequest, CONFIRM_SQL, type Server } from './connection.ts';

/**
 * Maximum wait of lazy writes for a flush, in ms; the promise is 250 ms. Also in docs/guarantees.md
 * and docs/reference/stores/postgres.md.
 */
const LAZY_MS = 200;

/** What the server says of itself. */
interface PromisedDurability {
  readonly durability: Durability;
  /** Whether commits would not wait for the disk unless they say so. */
  readonly isForced: boolean;
}

export async function readDurability(ask: QueryRequest): Promise<PromisedDurability> {
  const [row = []] = await ask(
    `SELECT current_setting('synchronous_commit'), current_setting('fsync'),
  current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
  current_setting('server_encoding')`,
  );
  const [commit, fsync, pages, standbys, encoding] = row.map(String);
  if (encoding !== 'UTF8') {
    throw new RespoolError(
      'config.invalid',
      `cannot open the store: the encoding of the database is ${encoding}, needed is UTF8; ` +
        'use another database',
    );
  }
  const isForced = commit === 'off';
  const isOnDisk = fsync === 'on' && pages === 'on';
  const waits = commit === 'on' || commit === 'remote_apply';
  const hasStandby = standbys !== '' && waits;
  return { durability: isOnDisk ? (hasStandby ? 'node-loss' : 'power-loss') : 'server', isForced };
}

/** Warns where a power cut may take what the server has acknowledged. */
export function warnOfPowerLoss(
  durability: Durability,
  { logger, names }: { readonly logger: Logger | undefined; readonly names: Names },
): void {
  if (durability !== 'server') return;
  logger?.warn(
    { store: 'postgres', schema: names.schema, durability },
    'PostgreSQL forgets in a power cut what it has acknowledged: fsync or full_page_writes is ' +
      'off; turn them on in postgresql.conf',
  );
}

/** The lazy writes of one opened store. */
export class LazyWrites {
  readonly #server: Server;
  readonly #clock: Clock;
  readonly #sql: ReturnType<typeof lazyWriteSql>;
  readonly #newMark: () => string;
  #mark = '';
  /** Lazy writes so far, and how many of them are durable. */
  #written = 0;
  #flushed = 0;
  /** Up to this one they may be lost, and not every flush that has to hear of it has. */
  #lostUpTo: number | undefined;
  #flushing: Promise<void> | undefined;
  #cancel: (() => void) | undefined;

  constructor(
    server: Server,
    names: Names,
    parts: { readonly clock: Clock; readonly newMark: () => string; readonly isForced: boolean },
  ) {
    this.#server = server;
    this.#clock = parts.clock;
    this.#newMark = parts.newMark;
    this.#sql = lazyWriteSql(names, parts.isForced);
  }

  /** Leaves the mark, or finds the one that is there. */
  async begin(ask: QueryRequest): Promise<void> {
    this.#mark = await this.#leaveMark(ask);
  }

  /** A lazy write is through. */
  note(): void {
    this.#written += 1;
    this.#cancel ??= this.#clock.after(LAZY_MS, () => {
      this.#cancel = undefined;
      // Its result is reported by the next flush; no caller waits for this one.
      void this.#share().catch(() => undefined);
    });
  }

  /** Resolves when every write noted before is durable. */
  async flush(): Promise<void> {
    const wanted = this.#written;
    while (this.#flushed < wanted && this.#lostUpTo === undefined) await this.#share();
    const lostUpTo = this.#lostUpTo;
    if (lostUpTo === undefined) return;
    // One that was called before the last of them was through does not speak for all of them.
    if (wanted >= lostUpTo) this.#lostUpTo = undefined;
    throw new RespoolError(
      'store.unavailable',
      'cannot say that what was written lazily is on the disk: the server crashed or another one ' +
        'took over meanwhile, and may have forgotten the last of it',
    );
  }

  /**
   * Makes what is pending durable; afterwards no timer is left. That a server crashed meanwhile is
   * no reason to fail: what it has forgotten comes again, and no body is removed for it.
   */
  async end(): Promise<void> {
    const wanted = this.#written;
    try {
      while (this.#flushed < wanted) await this.#share();
    } finally {
      this.#cancel?.();
      this.#cancel = undefined;
    }
  }

  #share(): Promise<void> {
    this.#flushing ??= this.#sync().finally(() => {
      this.#flushing = undefined;
    });
    return this.#flushing;
  }

  async #sync(): Promise<void> {
    const upTo = this.#written;
    if (upTo === this.#flushed) return;
    const mark = await this.#server.run('make lazy writes durable', async (ask) => {
      const [[found] = []] = await ask(this.#sql.sync);
      return found === this.#mark ? this.#mark : this.#leaveMark(ask);
    });
    // Also what came through while we asked: it may have been there before the crash.
    if (mark !== this.#mark) this.#lostUpTo = this.#written;
    this.#mark = mark;
    this.#flushed = upTo;
  }

  async #leaveMark(ask: QueryRequest): Promise<string> {
    const [[mark] = []] = await ask(this.#sql.mark, [this.#newMark()]);
    return String(mark);
  }
}

/** The statements that make lazy writes durable and leave the mark. */
export function lazyWriteSql(
  { table }: Names,
  isForced: boolean,
): Readonly<Record<'sync' | 'mark', string>> {
  const forced = isForced ? ", set_config('synchronous_commit', 'on', true)" : '';
  return {
    sync: CONFIRM_SQL.replace('SELECT', `SELECT (SELECT mark FROM ${table.crashes})${forced},`),
    // The second one finds the mark of the first.
    mark: `INSERT INTO ${table.crashes} (one, mark) VALUES (true, $1)
  ON CONFLICT (one) DO UPDATE SET one = true RETURNING mark`,
  };
}
