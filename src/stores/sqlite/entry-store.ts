/**
 * sqlite — entries in one SQLite file, for one process or several on one machine.
 *
 * This side encodes, batches, waits and decodes; file.ts does the work, in the caller's thread or
 * in one of its own. All writes go through one line, so that one transaction carries acks, new
 * messages and the next claim.
 *
 *   insert  claim  commit  records ─▶ file-client (batches) ─▶ file-thread ─▶ file ─▶ transaction
 *   get  list  tally  nextDueAt ─▶ file-client ───────────▶ file-thread ─▶ file
 */

import type { Entry } from '../../core/entry.ts';
import { asError, assert, RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type {
  Change,
  CorruptEntry,
  Duplicate,
  EntryQuery,
  EntryStore,
  EntryStoreTraits,
  KeyHead,
  ListPage,
  ListQuery,
  TallyBy,
  TallyRow,
} from '../../ports/entry-store.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import { type CountPart, itemsOf, Operations } from '../shared/operations.ts';
import { type BrokenRow, decodeAll, INLINE_MAX_BYTES } from '../shared/sql-row.ts';
import { readHeadsMax } from '../shared/page.ts';
import type { AnyBatchItem, FileClient, FileParts } from './file-client.ts';
import type { InstancePlace, Instances } from './instances.ts';
import { changeItem } from './commit.ts';
import { checkStoreOptions, ENTRY_FILE, prepareFile, type SqliteOptions } from './options.ts';
import { type EntryReply, type EntryResult, type EntryTalk, tallyRows } from './protocol.ts';
import { createRecordStore } from './records.ts';
import { decodeRow, type EntryRow } from './row.ts';
import { createWithin, insertItem } from './insert.ts';

/**
 * Interval of checks for other processes' writes while there is a watcher. docs/guarantees.md and
 * docs/reference/sqlite.md promise 250 ms.
 */
const PROBE_MS = 100;

type Line = FileClient<EntryTalk>;

/** What exists while the store is open. */
interface Opened {
  readonly line: Line;
  readonly instances: Instances;
}

/** An entry store in a SQLite file. */
export interface SqliteStore extends EntryStore {
  /**
   * Inserts through your own better-sqlite3 database, in its open transaction: the messages are
   * there if you commit, and were never there if you do not. A duplicate is reported, not thrown.
   * Works without `open()` where the tables are there; all of them or none on an error.
   */
  insertWithin(
    database: SqliteDatabase,
    entries: readonly Entry[],
  ): readonly ('stored' | Duplicate)[];
  /** Tells those who watch this store that something may be due, as after your own commit. */
  wake(): void;
  keyHeads(max: number): Promise<readonly KeyHead[]>;
}

/**
 * An entry store in a SQLite file. Needs the package `better-sqlite3`, which comes with Respool.
 */
export function sqlite(options: SqliteOptions, parts: Partial<FileParts> = {}): SqliteStore {
  const stands = { clock: systemClock, dice: systemDice, ...parts };
  const operations = new Operations('entries', stands.clock);
  const all: FileParts = { measure: { operations, count: countPart }, ...stands };
  const checked = checkStoreOptions('the SQLite store', options);
  const instance = randomName(all.dice);
  const { tables, synchronous } = checked.settings;
  const watchers = new Map<() => void, () => void>();
  let opened: Opened | undefined;
  let closing: Promise<void> = Promise.resolve();

  function use(): Line {
    if (opened !== undefined) return opened.line;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the store in "${checked.path}": it is not open; call open() first`,
    );
  }

  return {
    name: 'sqlite',
    instance,
    traits: traitsOf(synchronous),
    async open() {
      // Its caller has learned why a close failed; the file was released anyway.
      await closing.catch(() => undefined);
      if (opened !== undefined) return;
      const path = await prepareFile(checked, ENTRY_FILE);
      // Loaded when it is needed: anyone who imports Respool may not open a store.
      const { openFileClient } = await import('./file-client.ts');
      const line = await openFileClient<EntryTalk>('entries', path, checked, all);
      opened = { line, instances: await joinInstances(line, { path, tables, instance }) };
    },
    close() {
      const present = opened;
      opened = undefined;
      for (const stop of watchers.keys()) stop();
      if (present !== undefined) closing = closeAll(present, instance);
      return closing;
    },
    ...createWrites(use),
    ...createReads(use, operations),
    async expireLost(now) {
      const line = use();
      return (await opened?.instances.expire((gone) => expire(line, gone, now))) ?? 0;
    },
    async announce(address) {
      use();
      await opened?.instances.announce(address);
    },
    watch(onDue) {
      const line = use();
      const stop = watch(all.clock, onDue, () => line.ask({ kind: 'dataVersion' }));
      watchers.set(stop, onDue);
      return () => {
        watchers.delete(stop);
        stop();
      };
    },
    insertWithin: createWithin(tables),
    wake() {
      for (const onDue of watchers.values()) onDue();
    },
    records: createRecordStore({
      write: async (op) => (await use().add([{ op }]))[0],
      ask: (request) => operations.time('read', itemsOf, async () => use().ask(request)),
    }),
    onOperation: operations.on,
  };
}

/** The parts of a batch that are counted: inserts, claims, commits, and all the rest. */
const countPart: CountPart<AnyBatchItem, unknown> = ({ op: { kind } }, result, add) => {
  const isDone = result !== undefined;
  if (kind === 'insert') add('insert', 1, isDone);
  else if (kind === 'change') add('commit', 1, isDone);
  else if (kind === 'claim') add('claim', itemsOf(result), isDone);
  else add('write', 1, isDone);
};

function traitsOf(synchronous: 'full' | 'normal'): EntryStoreTraits {
  return {
    processes: 'many',
    wakes: true,
    ordered: true,
    inlineMaxBytes: INLINE_MAX_BYTES,
    durability: synchronous === 'full' ? 'power-loss' : 'process',
  };
}

async function joinInstances(line: Line, place: InstancePlace): Promise<Instances> {
  try {
    const { openInstances } = await import('./instances.ts');
    return await openInstances(place);
  } catch (error) {
    await line.close();
    throw error;
  }
}

async function closeAll({ line, instances }: Opened, instance: string): Promise<void> {
  try {
    await line.flush();
    // What is still active stays so; the file of the lock tells others that its holder is gone.
    const keepFile = await line.ask({ kind: 'holdsAny', instance });
    await line.close();
    await instances.leave({ keepFile });
  } finally {
    // Both do nothing the second time.
    await instances.leave({ keepFile: true });
    await line.close();
  }
}

function createWrites(use: () => Line): Pick<EntryStore, 'insert' | 'claim' | 'commit' | 'flush'> {
  return {
    insert: (entries) => attempt(() => use().add(entries.map(insertItem), insertResults)),
    async claim(request) {
      const line = use();
      if (request.max <= 0) return [];
      const read = ([rows]: readonly EntryResult[]) =>
        decodeAll(rows as readonly EntryRow[], decodeRow);
      const { entries, broken } = await line.add([{ op: { kind: 'claim', request } }], read);
      // A row that stays where it is was leased by this claim, and is met again when that is over.
      if (broken.length > 0) await quarantine(line, broken).catch(() => undefined);
      return entries;
    },
    commit: (changes, { durable = true } = {}) =>
      attempt(() => {
        const items = changes.map((change) => changeItem(change, durable));
        return use().add(items, (results) => changeResults(results, changes));
      }),
    flush: async () => use().flush(),
  };
}

/** What is thrown on the way becomes a rejection, without the turns of an async function. */
function attempt<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(asError(error));
  }
}

function insertResults(results: readonly EntryResult[]): readonly ('stored' | Duplicate)[] {
  return results.map((result) => (typeof result === 'string' ? { duplicateOf: result } : 'stored'));
}

function changeResults(
  results: readonly EntryResult[],
  changes: readonly Change[],
): readonly ('done' | 'stale')[] {
  return results.map((result, index) => {
    if (typeof result !== 'object' || result === null || !('refused' in result)) {
      return result === true ? 'done' : 'stale';
    }
    throw new RespoolError(
      'message.duplicate',
      `cannot change "${changes[index]?.id}": ${result.refused}; choose another key`,
    );
  });
}

function createReads(
  use: () => Line,
  operations: Operations,
): Pick<SqliteStore, 'nextDueAt' | 'get' | 'list' | 'tally' | 'keyHeads'> {
  const read = <T>(work: (line: Line) => Promise<T>): Promise<T> => {
    const run = async (): Promise<T> => work(use());
    return operations.isHeard ? operations.time('read', itemsOf, run) : run();
  };
  return {
    nextDueAt: (filter) => read((line) => line.ask({ kind: 'nextDueAt', filter })),
    get: (id) =>
      read(async (line) => {
        const row = await line.ask({ kind: 'get', id });
        return row && readOne(line, row, id);
      }),
    list: (query) => read((line) => list(line, query)),
    tally: (by, query) => read((line) => tally(line, by, query)),
    // Aside: it passes over all that have a key.
    keyHeads: (max) =>
      read(async (line) => line.askAside({ kind: 'keyHeads', max: readHeadsMax(max) })),
  };
}

async function quarantine(line: Line, broken: readonly BrokenRow[]): Promise<void> {
  await line.add(broken.map(({ seq, reason }) => ({ op: { kind: 'quarantine', seq, reason } })));
}

async function readOne(line: Line, row: EntryReply, id: string): Promise<Entry> {
  const { entries, broken } = decodeAll('where' in row ? [] : [row], decodeRow);
  const [entry] = entries;
  if (entry !== undefined) return entry;
  await quarantine(line, broken);
  const reason = 'where' in row ? row.reason : broken[0]?.reason;
  throw new RespoolError(
    'store.corrupt',
    `cannot read entry "${id}": ${reason}; it is in quarantine, list() names it under "corrupt"`,
  );
}

async function list(line: Line, query: ListQuery): Promise<ListPage> {
  const mayBeLong = !line.hasAside;
  const page =
    (await line.ask({ kind: 'list', query, mayBeLong })) ??
    (await line.askAside({ kind: 'list', query, mayBeLong: true }));
  assert(page !== null, 'a list that may be long is answered');
  const { entries, broken } = decodeAll(page.rows, decodeRow);
  const met = [...page.broken, ...broken];
  await quarantine(line, met);
  const fresh: CorruptEntry[] = met.map(({ seq, id, reason }) => ({
    id,
    where: `entries row ${seq}`,
    reason,
  }));
  return {
    entries,
    corrupt: query.after === undefined ? [...fresh, ...page.corrupt] : [],
    ...(page.next === undefined ? {} : { next: page.next }),
  };
}

async function tally(line: Line, by: TallyBy, query: EntryQuery): Promise<readonly TallyRow[]> {
  const mayBeLong = !line.hasAside;
  const text =
    (await line.ask({ kind: 'tally', by, query, mayBeLong })) ??
    (await line.askAside({ kind: 'tally', by, query, mayBeLong: true }));
  assert(text !== null, 'a tally that may be long is answered');
  return tallyRows(text);
}

async function expire(line: Line, instance: string, now: number): Promise<number> {
  return Number((await line.add([{ op: { kind: 'expire', instance, now } }]))[0]);
}

/**
 * Looks at the data version again and again, and calls back when another connection has changed it.
 */
function watch(clock: Clock, onDue: () => void, probe: () => Promise<string>): () => void {
  let isOver = false;
  let cancel: () => void = () => undefined;
  let version: string | undefined;
  async function look(): Promise<void> {
    try {
      const present = await probe();
      if (version !== undefined && version !== present && !isOver) onDue();
      version = present;
    } catch {
      // Anyone who uses the store hears of it there; the watch only goes on.
    }
    if (!isOver) cancel = clock.after(PROBE_MS, () => void look());
  }
  void look();
  return () => {
    isOver = true;
    cancel();
  };
}
