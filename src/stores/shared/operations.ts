/**
 * operations — reports to listeners what a store did at its disk or server.
 *
 *   call or batch ─▶ time() line() mixed() stream() ─▶ the work itself ─▶ reported, once it is over
 *
 * Promise: without a listener the work is called as it is and no clock is read; a listener costs
 * two reads of the clock per batch, and cannot make an operation fail.
 *
 * Also here: what every record store checks of its calls, and the text that it keeps of a value.
 */

import { checkKey, checkNumber } from '../../core/limits.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { Clock } from '../../ports/clock.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import type {
  HearOperation,
  StoreOperation,
  StoreOperationName,
} from '../../ports/store-operation.ts';
import type { RunBatch } from './batching.ts';

/** Adds to what a batch is reported to contain. */
type AddPart = (name: StoreOperationName, items: number, isDone: boolean) => void;

/** Says what one item of a mixed batch was; without a result the whole batch has failed. */
export type CountPart<Item, Result> = (
  item: Item,
  result: Result | undefined,
  add: AddPart,
) => void;

type Parts = Map<StoreOperationName, number>;

type Calls = Readonly<Record<string, (...value: never[]) => Promise<unknown>>>;

/** The writing calls of an entry store. */
type Writes = Pick<EntryStore, 'insert' | 'claim' | 'commit'>;

/** The calls of a body store that are reported. */
type BodyCalls = Pick<BodyStore, 'put' | 'get' | 'remove'>;

/** The operations of one store, and who hears of them. */
export class Operations {
  readonly #store: StoreOperation['store'];
  readonly #clock: Pick<Clock, 'monotonic'>;
  #hearers: readonly { readonly hear: HearOperation }[] = [];
  /** Whether anyone listens; a field, since it is asked for with every batch. */
  isHeard = false;

  constructor(store: StoreOperation['store'], clock: Pick<Clock, 'monotonic'>) {
    this.#store = store;
    this.#clock = clock;
  }

  /** As `onOperation` of a store; what is on its way already is not reported. */
  readonly on = (hear: HearOperation): (() => void) => {
    // A separate object: a listener added twice is called twice, and each is removed by itself.
    const hearer = { hear };
    this.#hearers = [...this.#hearers, hearer];
    this.isHeard = true;
    return () => {
      this.#hearers = this.#hearers.filter((other) => other !== hearer);
      this.isHeard = this.#hearers.length > 0;
    };
  };

  /** Does it, and reports how long it took; a function counts the items of the result. */
  time<T>(
    name: StoreOperationName,
    items: number | ((result: T) => number),
    run: () => Promise<T>,
  ): Promise<T> {
    return this.isHeard ? this.#time(name, items, run) : run();
  }

  /** The way of a line whose batches are all of one kind. */
  line<Item, Result>(
    name: StoreOperationName,
    run: RunBatch<Item, Result>,
  ): RunBatch<Item, Result> {
    return (items, isPart) =>
      this.isHeard ? this.#time(name, items.length, () => run(items, isPart)) : run(items, isPart);
  }

  /** For a line on which several kinds go together: reports one operation per kind in a batch. */
  mixed<Item, Result>(
    run: RunBatch<Item, Result>,
    count: CountPart<Item, Result>,
  ): RunBatch<Item, Result> {
    return (items, isPart) =>
      this.isHeard ? this.#mixed(items, () => run(items, isPart), count) : run(items, isPart);
  }

  /** A body that is read; over with its last byte, or when its reader goes away. */
  stream<T>(name: StoreOperationName, source: AsyncIterable<T>): AsyncIterable<T> {
    return this.isHeard ? this.#stream(name, source) : source;
  }

  /** The same calls, reported as `insert`, `claim` and `commit`. */
  writes({ insert, claim, commit }: Writes): Writes {
    return {
      insert: (entries) =>
        this.isHeard
          ? this.#time('insert', entries.length, () => insert(entries))
          : insert(entries),
      claim: (request) =>
        this.isHeard ? this.#time('claim', itemsOf, () => claim(request)) : claim(request),
      commit: (changes, how) =>
        this.isHeard
          ? this.#time('commit', changes.length, () => commit(changes, how))
          : commit(changes, how),
    };
  }

  /** The same calls, each reported as `read`. */
  reads<Reads extends object>(reads: Reads): Reads {
    const reported = Object.entries(reads as Calls).map(([call, read]) => [
      call,
      (...value: never[]) => this.time('read', itemsOf, () => read(...value)),
    ]);
    return Object.fromEntries(reported) as Reads;
  }

  /** The same calls, reported as `put`, `get` and `remove`. */
  bodies({ put, get, remove }: BodyCalls): BodyCalls {
    return {
      put: (ref, stream) => this.time('put', 1, () => put(ref, stream)),
      get: (ref) => this.stream('get', get(ref)),
      remove: (refs) => this.time('remove', refs.length, () => remove(refs)),
    };
  }

  /** The same record store, its calls checked, and reported as `read` and `write`. */
  records(records: RecordStore): RecordStore {
    const checked = checkedRecords(records);
    const write = <T>(run: () => Promise<T>): Promise<T> => this.time('write', 1, run);
    return {
      append: (kind, record) => write(() => checked.append(kind, record)),
      trim: (kind, upTo) => write(() => checked.trim(kind, upTo)),
      put: (kind, key, value, revision) => write(() => checked.put(kind, key, value, revision)),
      remove: (kind, key) => write(() => checked.remove(kind, key)),
      ...this.reads<Pick<RecordStore, 'read' | 'get' | 'list'>>({
        read: (kind, after, max) => checked.read(kind, after, max),
        get: (kind, key) => checked.get(kind, key),
        list: (kind) => checked.list(kind),
      }),
    };
  }

  async #time<T>(
    name: StoreOperationName,
    items: number | ((result: T) => number),
    run: () => Promise<T>,
  ): Promise<T> {
    const beganAt = this.#clock.monotonic();
    let result: T;
    try {
      result = await run();
    } catch (error) {
      const tookMs = this.#clock.monotonic() - beganAt;
      this.#tell(name, typeof items === 'number' ? items : 0, { tookMs, isDone: false });
      throw error;
    }
    const tookMs = this.#clock.monotonic() - beganAt;
    const count = typeof items === 'number' ? items : items(result);
    this.#tell(name, count, { tookMs, isDone: true });
    return result;
  }

  async #mixed<Item, Result>(
    items: readonly Item[],
    run: () => Promise<readonly Result[]>,
    count: CountPart<Item, Result>,
  ): Promise<readonly Result[]> {
    const beganAt = this.#clock.monotonic();
    let results: readonly Result[] = [];
    try {
      results = await run();
      return results;
    } finally {
      const tookMs = this.#clock.monotonic() - beganAt;
      const done: Parts = new Map();
      const failed: Parts = new Map();
      const add: AddPart = (name, count, isDone) => {
        const parts = isDone ? done : failed;
        parts.set(name, (parts.get(name) ?? 0) + count);
      };
      for (const [at, item] of items.entries()) count(item, results[at], add);
      for (const [name, held] of done) this.#tell(name, held, { tookMs, isDone: true });
      for (const [name, held] of failed) this.#tell(name, held, { tookMs, isDone: false });
    }
  }

  async *#stream<T>(name: StoreOperationName, source: AsyncIterable<T>): AsyncGenerator<T> {
    const beganAt = this.#clock.monotonic();
    let isDone = true;
    try {
      yield* source;
    } catch (error) {
      isDone = false;
      throw error;
    } finally {
      this.#tell(name, 1, { tookMs: this.#clock.monotonic() - beganAt, isDone });
    }
  }

  #tell(
    name: StoreOperationName,
    items: number,
    { tookMs, isDone }: Pick<StoreOperation, 'tookMs' | 'isDone'>,
  ): void {
    const operation: StoreOperation = { store: this.#store, name, items, tookMs, isDone };
    for (const { hear } of this.#hearers) {
      try {
        hear(operation);
      } catch {
        // Dropped on purpose: it was done, or has failed for another reason; nothing here can help
        // the listener.
      }
    }
  }
}

/** How many a call found: of a list, a page, or one alone. */
export function itemsOf(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  if (value === undefined || value === null) return 0;
  const { entries } = value as { readonly entries?: unknown };
  return Array.isArray(entries) ? entries.length : 1;
}

// Records.

const READ_MAX = 1_000;

/** The same record store; kinds, keys and a `max` beyond their limits are refused. */
export function checkedRecords(records: RecordStore): RecordStore {
  return {
    async append(kind, record) {
      return records.append(checkKind(kind), record);
    },
    async read(kind, after, max) {
      return records.read(
        checkKind(kind),
        after,
        checkNumber('max', max, { min: 1, max: READ_MAX }),
      );
    },
    async trim(kind, upTo) {
      return records.trim(checkKind(kind), upTo);
    },
    async put(kind, key, value, revision) {
      return records.put(checkKind(kind), checkRecordKey(key), value, revision);
    },
    async get(kind, key) {
      return records.get(checkKind(kind), checkRecordKey(key));
    },
    async list(kind) {
      return records.list(checkKind(kind));
    },
    async remove(kind, key) {
      return records.remove(checkKind(kind), checkRecordKey(key));
    },
  };
}

function checkKind(kind: string): string {
  return checkKey('record kind', kind);
}

function checkRecordKey(key: string): string {
  return checkKey('record key', key);
}

/** A value as JSON; what JSON does not have, such as `undefined`, is `null`. */
export function recordText(value: unknown): string {
  return JSON.stringify(value) ?? 'null';
}
