/**
 * postgres — entries in tables of a PostgreSQL database, for any number of processes on any number
 * of machines.
 *
 *   insert  commit ─▶ a line each (batches) ─▶ one statement per batch
 *   claim           ─▶ one statement each
 *   get  list  tally  nextDueAt  records ─▶ one statement or a few
 *
 * Every statement is a transaction of its own, unnamed, and leaves nothing on its connection: a
 * pgbouncer in transaction mode may stand in between.
 */

import type { Entry } from '../../core/entry.ts';
import { asError, RespoolError, textOf } from '../../core/errors.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type {
  Change,
  Duplicate,
  Durability,
  EntryStore,
  EntryStoreTraits,
  KeyHead,
} from '../../ports/entry-store.ts';
import type { SqlTx } from '../../ports/sql.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { InFlight } from '../../system/in-flight.ts';
import { Lifetime } from '../shared/lifetime.ts';
import { itemsOf, Operations } from '../shared/operations.ts';
import { readHeadsMax } from '../shared/page.ts';
import { type BrokenRow, decodeAll, INLINE_MAX_BYTES, isActiveKey } from '../shared/sql-row.ts';
import { type ChangeRow, changeRow } from './commit-sql.ts';
import { type ChangeResult, Changes, refusal } from './commit.ts';
import { Claims } from './claim.ts';
import { LazyWrites, readDurability, durabilityText } from './durability.ts';
import { DueLowerBounds } from './due-lower-bound.ts';
import { Inserts, newRow } from './insert.ts';
import { createBatches, type Batches, letNextGo } from './batches.ts';
import { corrupted, entryOf, Lists } from './list.ts';
import { migrate } from './schema.ts';
import type { Names } from './names.ts';
import { type CheckedOptions, checkOptions, type PostgresOptions } from './options.ts';
import { keyHeads, OrderKeyTurns } from './order-keys.ts';
import { Receipts, sweepReceipts } from './receipts.ts';
import { createRecordStore } from './records.ts';
import { decodeRow } from './row.ts';
import {
  checkSentQuery,
  type SentPage,
  SentPartitions,
  type SentQuery,
  sentPage,
} from './sent-partitions.ts';
import { NOW_SQL, Server } from './connection.ts';
import { Tallies } from './count.ts';
import { Notifications } from './notify.ts';
import { insertWithin } from './insert-within.ts';

/** An entry store in PostgreSQL. */
export interface PostgresStore extends EntryStore {
  /**
   * Inserts in your own transaction, on its client: the messages are there if you commit, and
   * were never there if you do not; where there is none they are refused. A duplicate is told and
   * fails nothing. Works without `open()` where the tables are there; an error of the server comes
   * as it is.
   */
  insertWithin(
    transaction: SqlTx,
    entries: readonly Entry[],
  ): Promise<readonly ('stored' | Duplicate)[]>;
  keyHeads(max: number): Promise<readonly KeyHead[]>;
  /** What was delivered and is kept in the table `sent`; only with the option of that name. */
  sentPage(query: SentQuery): Promise<SentPage>;
}

/** What a store stands on; others than the real ones are for tests. */
export interface PostgresParts {
  readonly clock: Clock;
  readonly dice: Dice;
  /** Up to how many entries are counted one by one. */
  readonly countMax?: number;
}

/** What is there while the store is open. */
interface Opened extends Batches {
  readonly server: Server;
  readonly names: Names;
  readonly inserts: Inserts;
  readonly receipts: Receipts;
  readonly claims: Claims;
  readonly changes: Changes;
  readonly lists: Lists;
  readonly tallies: Tallies;
  readonly lazy: LazyWrites;
  readonly wakes: Notifications;
  readonly turns: OrderKeyTurns;
  readonly sent: SentPartitions;
  readonly operations: Operations;
  readonly durability: Durability;
  /** What close() has to wait for beside the lines. */
  readonly calls: InFlight;
}

/** An entry store in a PostgreSQL database. Needs the package `pg` when it is given a URL. */
export function postgres(
  options: PostgresOptions,
  parts: Partial<PostgresParts> = {},
): PostgresStore {
  const all: PostgresParts = { clock: systemClock, dice: systemDice, ...parts };
  const checked = checkOptions('the PostgreSQL store', options);
  const instance = randomName(all.dice);
  const operations = new Operations('entries', all.clock);
  let durability: Durability = 'power-loss';
  const life = new Lifetime(async () => {
    const opened = await openAll(checked, { ...all, operations }, instance);
    ({ durability } = opened);
    return opened;
  }, closeAll);

  function use(): Opened {
    if (life.opened !== undefined) return life.opened;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the store in schema "${checked.names.schema}": it is not open; call open() first`,
    );
  }

  return {
    name: 'postgres',
    instance,
    traits: traitsOf(() => durability),
    open: () => life.open(),
    close: () => life.close(),
    now: () => busy(use, ({ server }) => askTime(server)),
    ...createWrites(use),
    ...operations.reads(createReads(use)),
    async insertWithin(transaction, entries) {
      const doing = `insert ${entries.length} messages within a transaction`;
      return (await insertWithin(checked.names, transaction, entries, { doing })).results;
    },
    watch: (onDue) => use().wakes.watch(onDue),
    records: operations.records(
      createRecordStore({
        use: () => use().server,
        names: checked.names,
        newToken: () => randomName(all.dice),
        onWrite: () => life.opened?.wakes.tell(),
      }),
    ),
    onOperation: operations.on,
  };
}

function traitsOf(durability: () => Durability): EntryStoreTraits {
  return {
    processes: 'many',
    wakes: true,
    ordered: true,
    inlineMaxBytes: INLINE_MAX_BYTES,
    /** What the server promises is known once it was asked, by open(). */
    get durability() {
      return durability();
    },
  };
}

async function openAll(
  options: CheckedOptions,
  { clock, dice, countMax, operations }: PostgresParts & Pick<Opened, 'operations'>,
  instance: string,
): Promise<Opened> {
  const { names } = options;
  const server = new Server(options, clock);
  await server.open();
  const floors = new DueLowerBounds(names, clock);
  const wakes = new Notifications(options, server, { clock, instance, floors });
  const turns = new OrderKeyTurns(names);
  const sent = new SentPartitions(server, options, clock);
  try {
    const { durability, isForced, lazy } = await server.run('open the store', async (ask) => {
      await migrate(ask, names, options.migrate);
      const promise = await readDurability(ask);
      const newMark = () => randomName(dice);
      const lazyWrites = new LazyWrites(server, names, { clock, newMark, ...promise });
      await lazyWrites.begin(ask);
      await sweepReceipts(ask, names);
      await turns.learn(ask);
      return { ...promise, lazy: lazyWrites };
    });
    durabilityText(durability, options);
    await wakes.open();
    await sent.open();
    // Not the instance, which stays when a store is opened again: receipts are numbered anew.
    const node = randomName(dice);
    const inserts = new Inserts(names, node, isForced);
    const receipts = new Receipts(server, names, node);
    const changes = new Changes(names, { isForced, turns, keepsSent: options.sent !== undefined });
    return {
      server,
      names,
      inserts,
      receipts,
      changes,
      lazy,
      wakes,
      durability,
      turns,
      sent,
      operations,
      claims: new Claims(names, clock, { turns, floors }),
      lists: new Lists(names),
      tallies: new Tallies(names, clock, countMax),
      ...createBatches({ server, inserts, receipts, changes, lazy, wakes, turns, operations }),
      calls: new InFlight(),
    };
  } catch (error) {
    await sent.close();
    await wakes.close();
    await server.close();
    throw error;
  }
}

async function closeAll(opened: Opened): Promise<void> {
  try {
    const { insertLine, commitLine, heartbeatLine } = opened;
    await Promise.all([insertLine, commitLine, heartbeatLine].map((line) => line.idle()));
    await opened.calls.idle();
    await opened.lazy.end();
    // One that stays harms nobody, and is removed after a day.
    await opened.receipts.end().catch(() => undefined);
  } finally {
    await opened.sent.close();
    await opened.wakes.close();
    await opened.server.close();
  }
}

/** Runs a question that close() waits for. */
async function busy<T>(use: () => Opened, work: (opened: Opened) => Promise<T>): Promise<T> {
  const opened = use();
  return opened.calls.track(work(opened));
}

function createWrites(
  use: () => Opened,
): Pick<EntryStore, 'insert' | 'claim' | 'commit' | 'flush'> {
  return {
    insert: (entries) =>
      attempt(() => {
        const { insertLine } = use();
        return entries.length === 0 ? Promise.resolve([]) : insertLine.add(entries.map(newRow));
      }),
    claim: (request) =>
      busy(use, async (opened) => {
        const { server, claims, wakes, operations } = opened;
        if (request.max <= 0) return [];
        const rows = await operations.time('claim', itemsOf, () =>
          server.run('claim entries', (ask, isUnknown) => claims.claim(ask, request, isUnknown)),
        );
        if (rows.length > 0) wakes.noteWrite();
        const { entries, broken } = decodeAll(rows, decodeRow);
        // A row that stays is leased by this claim, and is met again when that is over.
        await quarantine(opened, broken).catch(() => undefined);
        return entries;
      }),
    commit: (changes, { durable = true } = {}) =>
      attempt(() => {
        const { commitLine, heartbeatLine } = use();
        if (changes.length === 0) return Promise.resolve([]);
        const rows = changes.map((change) => changeRow(change, durable));
        const line = rows.every(isHeartbeat) ? heartbeatLine : commitLine;
        return line.add(rows, (results) => results.map((result, at) => told(result, changes[at])));
      }),
    async flush() {
      // What has resolved is noted already; what has not was not committed before.
      await use().lazy.flush();
    },
  };
}

/** Whether a change only keeps an entry for longer. */
function isHeartbeat({ isDurable, status, envelope }: ChangeRow): boolean {
  return !isDurable && envelope === undefined && status !== null && isActiveKey(status.slot);
}

function told(result: ChangeResult, change: Change | undefined): 'done' | 'stale' {
  if (typeof result === 'string') return result;
  throw refusal(change?.id ?? '', result.refused);
}

/** What is thrown on the way becomes a rejection, without the turns of an async function. */
function attempt<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(asError(error));
  }
}

function createReads(
  use: () => Opened,
): Pick<PostgresStore, 'nextDueAt' | 'get' | 'list' | 'tally' | 'keyHeads' | 'sentPage'> {
  return {
    sentPage: (query) =>
      busy(use, async ({ server, names }) => {
        const checked = checkSentQuery(query);
        return server.run('read sent messages', (ask) => sentPage(ask, names, checked));
      }),
    keyHeads: (max) =>
      busy(use, async ({ server, names }) => {
        const most = readHeadsMax(max);
        return server.run('look for the first of keys', (ask) => keyHeads(ask, names, most));
      }),
    nextDueAt: (filter) =>
      busy(use, ({ server, claims }) =>
        server.run('look for what is due next', (ask) => claims.nextDueAt(ask, filter)),
      ),
    get: (id) =>
      busy(use, async (opened) => {
        const { server, lists } = opened;
        const row = await server.run('read an entry', (ask) => lists.get(ask, id));
        if (row === undefined) return undefined;
        try {
          return entryOf(row, id);
        } catch (error) {
          if (error instanceof RespoolError || 'where' in row) throw error;
          const reason = textOf(error);
          await quarantine(opened, [{ seq: row[0], id, reason }]);
          throw corrupted(id, reason);
        }
      }),
    list: (query) =>
      busy(use, async (opened) => {
        const { server, lists } = opened;
        const { page, broken } = await server.run('list entries', (ask) => lists.list(ask, query));
        await quarantine(opened, broken);
        return page;
      }),
    tally: (by, query) =>
      busy(use, ({ server, tallies }) =>
        server.run('count entries', (ask) => tallies.tally(ask, by, query)),
      ),
  };
}

async function quarantine(opened: Opened, broken: readonly BrokenRow[]): Promise<void> {
  if (broken.length === 0) return;
  const { server, changes } = opened;
  const keys = await server.run('put damaged entries aside', (ask) =>
    changes.quarantine(ask, broken),
  );
  await letNextGo(opened, new Set(keys));
}

async function askTime(server: Server): Promise<number> {
  const [row] = await server.run('ask for the time', (ask) => ask(NOW_SQL));
  return Number(row?.[0]);
}
