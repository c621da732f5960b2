/**
 * postgres — entries in tables of a PostgreSQL database, for any number of processes on any number
 * of machines.
 *
 *   insert  commit ─▶ a batch queue each ─▶ one statement per batch
 *   claim ─▶ one statement, or a few where that finds too little
 *   get  list  tally  nextDueAt  records ─▶ one statement or a few
 *
 * Every statement is a transaction of its own, but for inserts that take several; all are unnamed
 * and leave nothing on their connection: a pgbouncer in transaction mode may stand before the
 * server.
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
import { InFlight } from '../../system/wait.ts';
import { type BatchLine, createBatchLine } from '../shared/batching.ts';
import { Lifetime } from '../shared/lifetime.ts';
import { itemsOf, Operations } from '../shared/operations.ts';
import { readHeadsMax } from '../shared/page.ts';
import { type BrokenRow, decodeAll, INLINE_MAX_BYTES, isActiveKey } from '../shared/sql-row.ts';
import { Claims, DueLowerBounds } from './claim.ts';
import { type ChangeResult, type ChangeRow, changeRow, Changes, refusal } from './commit.ts';
import { NOW_SQL, Server } from './connection.ts';
import { Tallies } from './count.ts';
import { warnOfPowerLoss, LazyWrites, readDurability } from './durability.ts';
import { insertWithin } from './insert-within.ts';
import {
  type InsertResult,
  Inserts,
  isKeyed,
  newRow,
  type NewRow,
  Receipts,
  sweepReceipts,
} from './insert.ts';
import { corruptEntry, entryOf, Lists } from './list.ts';
import { Notifications } from './notify.ts';
import {
  type CheckedOptions,
  checkStoreOptions,
  type Names,
  type PostgresOptions,
} from './options.ts';
import { findKeyHeads, OrderKeys } from './order-keys.ts';
import { createRecordStore } from './records.ts';
import { decodeRow } from './row.ts';
import { migrateSchema } from './schema.ts';
import {
  checkSentQuery,
  type SentPage,
  sentPage,
  SentPartitions,
  type SentQuery,
} from './sent-partitions.ts';

/** An entry store in PostgreSQL. */
export interface PostgresStore extends EntryStore {
  /**
   * Inserts within your own transaction, on its client: the messages exist if you commit and never
   * existed if you roll back; without an open transaction they are refused. A duplicate is reported
   * and fails nothing. Works without `open()` if the tables exist; an error of the server is passed
   * on unchanged.
   */
  insertWithin(
    transaction: SqlTx,
    entries: readonly Entry[],
  ): Promise<readonly ('stored' | Duplicate)[]>;
  keyHeads(max: number): Promise<readonly KeyHead[]>;
  /** Delivered messages in the table `sent`; only with the option of that name. */
  sentPage(query: SentQuery): Promise<SentPage>;
}

/** What a store stands on; tests replace them. */
export interface PostgresParts {
  readonly clock: Clock;
  readonly dice: Dice;
  /** Up to how many entries are counted one by one. */
  readonly countMax?: number;
}

/** The state of an open store. */
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
  readonly notifications: Notifications;
  readonly orderKeys: OrderKeys;
  readonly sent: SentPartitions;
  readonly operations: Operations;
  readonly durability: Durability;
  /** Calls that close() waits for, beside the batch queues. */
  readonly calls: InFlight;
}

/** An entry store in a PostgreSQL database. Needs the package `pg` when it is given a URL. */
export function postgres(
  options: PostgresOptions,
  parts: Partial<PostgresParts> = {},
): PostgresStore {
  const all: PostgresParts = { clock: systemClock, dice: systemDice, ...parts };
  const checked = checkStoreOptions('the PostgreSQL store', options);
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
    watch: (onDue) => use().notifications.watch(onDue),
    records: operations.records(
      createRecordStore({
        use: () => use().server,
        names: checked.names,
        newToken: () => randomName(all.dice),
        onWrite: () => life.opened?.notifications.notify(),
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
    /** Known once open() has asked the server. */
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
  const lowerBounds = new DueLowerBounds(names, clock);
  const notifications = new Notifications(options, server, { clock, instance });
  const orderKeys = new OrderKeys(names);
  const sent = new SentPartitions(server, options, clock);
  try {
    const { durability, isForced, lazy } = await server.run('open the store', async (ask) => {
      await migrateSchema(ask, names, options.migrate);
      const promise = await readDurability(ask);
      const newMark = () => randomName(dice);
      const lazyWrites = new LazyWrites(server, names, { clock, newMark, ...promise });
      await lazyWrites.begin(ask);
      await sweepReceipts(ask, names);
      await orderKeys.learn(ask);
      return { ...promise, lazy: lazyWrites };
    });
    warnOfPowerLoss(durability, options);
    await notifications.open();
    await sent.open();
    // Not the instance, which stays when a store is opened again: receipts start over then.
    const node = randomName(dice);
    const inserts = new Inserts(names, node, isForced);
    const receipts = new Receipts(server, names, node);
    const changes = new Changes(names, {
      isForced,
      orderKeys,
      keepsSent: options.sent !== undefined,
      writes: notifications.writes,
    });
    return {
      server,
      names,
      inserts,
      receipts,
      changes,
      lazy,
      notifications,
      durability,
      orderKeys,
      sent,
      operations,
      claims: new Claims(names, clock, { orderKeys, lowerBounds }),
      lists: new Lists(names),
      tallies: new Tallies(names, clock, countMax),
      ...createBatches({
        server,
        inserts,
        receipts,
        changes,
        lazy,
        notifications,
        orderKeys,
        operations,
      }),
      calls: new InFlight(),
    };
  } catch (error) {
    await sent.close();
    await notifications.close();
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
    // A receipt that is left behind does no harm, and is removed after a day.
    await opened.receipts.end().catch(() => undefined);
  } finally {
    await opened.sent.close();
    await opened.notifications.close();
    await opened.server.close();
  }
}

/** Runs a call that close() waits for. */
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
        const { server, claims, operations } = opened;
        if (request.max <= 0) return [];
        const rows = await operations.time('claim', itemsOf, () =>
          server.run('claim entries', (ask, isUnknown) => claims.claim(ask, request, isUnknown)),
        );
        const { entries, broken } = decodeAll(rows, decodeRow);
        // A row that could not be moved is leased by this claim, and is found again afterwards.
        await quarantine(opened, broken).catch(() => undefined);
        return entries;
      }),
    commit: (changes, { durable = true } = {}) =>
      attempt(() => {
        const { commitLine, heartbeatLine } = use();
        if (changes.length === 0) return Promise.resolve([]);
        const rows = changes.map((change) => changeRow(change, durable));
        const line = rows.every(isHeartbeat) ? heartbeatLine : commitLine;
        return line.add(rows, (results) =>
          results.map((result, at) => outcomeOf(result, changes[at])),
        );
      }),
    async flush() {
      // Commits that have resolved are counted; others were not committed before this call.
      await use().lazy.flush();
    },
  };
}

/** Whether a change only extends the lease of an entry. */
function isHeartbeat({ isDurable, status, envelope }: ChangeRow): boolean {
  return !isDurable && envelope === undefined && status !== null && isActiveKey(status.slot);
}

function outcomeOf(result: ChangeResult, change: Change | undefined): 'done' | 'stale' {
  if (typeof result === 'string') return result;
  throw refusal(change?.id ?? '', result.refused);
}

/** Turns an exception into a rejection, without the extra ticks of an async function. */
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
        return server.run('look for the first of keys', (ask) => findKeyHeads(ask, names, most));
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
          throw corruptEntry(id, reason);
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
  const keys = await server.run('quarantine damaged entries', (ask) =>
    changes.quarantine(ask, broken),
  );
  await letNextGo(opened, new Set(keys));
}

async function askTime(server: Server): Promise<number> {
  const [row] = await server.run('ask for the time', (ask) => ask(NOW_SQL));
  return Number(row?.[0]);
}

// Batching: inserts and commits of different calls share one statement.

/**
 * The most rows of different calls in one statement. Also in docs/reference/stores/postgres.md, as
 * the next two.
 */
const BATCH_MAX = 1_000;
/** Batches on their way at once, each on a connection of its own. */
const INSERTS_MAX = 2;
/**
 * One at a time: several compete for the processors with the claims, which all wait for. Beside it
 * goes one of heartbeats, which must not wait for a verdict that meets a lock.
 */
const COMMITS_MAX = 1;

/** The batch queues of one opened store. */
interface Batches {
  readonly insertLine: BatchLine<NewRow, InsertResult>;
  readonly commitLine: BatchLine<ChangeRow, ChangeResult>;
  readonly heartbeatLine: BatchLine<ChangeRow, ChangeResult>;
}

/** What writing a batch needs of an opened store. */
type Writing = Pick<
  Opened,
  | 'server'
  | 'inserts'
  | 'receipts'
  | 'changes'
  | 'lazy'
  | 'notifications'
  | 'orderKeys'
  | 'operations'
>;

function createBatches(parts: Writing): Batches {
  const commits = { batchMax: BATCH_MAX, inFlightMax: COMMITS_MAX };
  const insert = (rows: readonly NewRow[]) => insertRows(parts, rows);
  const commit = (rows: readonly ChangeRow[]) => commitRows(parts, rows);
  const { operations } = parts;
  return {
    insertLine: createBatchLine(operations.line('insert', insert), {
      batchMax: BATCH_MAX,
      inFlightMax: INSERTS_MAX,
    }),
    commitLine: createBatchLine(operations.line('commit', commit), commits),
    heartbeatLine: createBatchLine(operations.line('heartbeat', commit), commits),
  };
}

async function insertRows(
  { server, inserts, receipts, notifications, orderKeys }: Writing,
  rows: readonly NewRow[],
): Promise<readonly InsertResult[]> {
  const receipt = receipts.next();
  let isDoubtful = false;
  if (rows.some(isKeyed)) orderKeys.note();
  const results = await notifications.writes.counted(rows.length, () =>
    server.run('insert entries', (ask, isUnknown) => {
      isDoubtful = isUnknown;
      return inserts.insert(ask, rows, { receipt, isUnknown });
    }),
  );
  // A receipt that stays is removed after a day.
  if (!isDoubtful) void receipts.answered(receipt).catch(() => undefined);
  // Entries inserted as active are already being delivered.
  if (rows.some(({ status }) => !isActiveKey(status.slot))) notifications.notify();
  return results;
}

async function commitRows(
  parts: Writing,
  rows: readonly ChangeRow[],
): Promise<readonly ChangeResult[]> {
  const { server, changes, lazy, notifications } = parts;
  const ended = new Set<string>();
  const results = await server.run('change entries', (ask, isUnknown) =>
    changes.change(ask, rows, isUnknown, ended),
  );
  if (rows.every(({ isDurable }) => !isDurable)) lazy.note();
  if (rows.some(({ status }) => status !== null && !isActiveKey(status.slot)))
    notifications.notify();
  await letNextGo(parts, ended);
  return results;
}

/** After the first message of a key has ended: makes the next one due and notifies others. */
async function letNextGo(
  { server, orderKeys, notifications }: Pick<Writing, 'server' | 'orderKeys' | 'notifications'>,
  ended: ReadonlySet<string>,
): Promise<void> {
  if (ended.size === 0) return;
  try {
    const count = await notifications.writes.counted(
      1,
      () => server.run('let the next of a key go', (ask) => orderKeys.letGo(ask, [...ended])),
      (released) => released > 0,
    );
    if (count > 0) notifications.notify();
  } catch {
    // The end is committed. A message that still waits behind it is found at its due time.
  }
}
