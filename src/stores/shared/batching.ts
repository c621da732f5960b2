/**
 * batching — natural group commit, for every store and every kind of write; the engine and the
 * dead letters of a spool batch their own calls with it, too.
 *
 * While a batch is on its way to the disk or the server, calls queue up; when it returns, all that
 * queued go as the next batch. No timer, no added latency at low load, full batches at high load.
 */

/** A line of calls that share batches. */
export interface BatchLine<Item, Result> {
  /** Hands items over; resolves with their results, in order, once their batch is through. */
  add(items: readonly Item[]): Promise<readonly Result[]>;
  /**
   * The same, and resolves with what `read` makes of the results. Saves a microtask per
   * call: with many callers, the first of them can go on before the last has its answer.
   */
  add<T>(items: readonly Item[], read: (results: readonly Result[]) => T): Promise<T>;
  /** Resolves when nothing is queued and nothing is on its way. */
  idle(): Promise<void>;
}

interface Call<Item, Result> {
  readonly items: readonly Item[];
  readonly settle: (results: readonly Result[]) => void;
  readonly reject: (error: unknown) => void;
}

/** How a line makes its batches. */
interface BatchOptions {
  /** The most items in a batch, unless a single call brings more. */
  readonly batchMax: number;
  /**
   * How many batches may be on their way at once; default 1. With 2, the next batch is made while
   * the disk is busy with the last; calls of different batches may then be carried out in any
   * order.
   */
  readonly inFlightMax?: number;
  /**
   * Number of queued items at which a batch is sent at once, within the same turn of the event
   * loop, marked as a part: the last call is kept back, so that another batch certainly follows.
   * Default: never.
   */
  readonly eagerAt?: number;
}

/** Carries out a batch; `isPart`: another one follows in the same turn. */
export type RunBatch<Item, Result> = (
  items: readonly Item[],
  isPart: boolean,
) => Promise<readonly Result[]>;

/**
 * Makes a line over `run`, which learns whether another batch follows in the same turn. Options
 * that change are read whenever they matter.
 */
export function createBatchLine<Item, Result>(
  run: RunBatch<Item, Result>,
  options: BatchOptions | (() => BatchOptions),
): BatchLine<Item, Result> {
  return new Line(run, typeof options === 'function' ? options : () => options);
}

class Line<Item, Result> implements BatchLine<Item, Result> {
  readonly #run: RunBatch<Item, Result>;
  readonly #options: () => BatchOptions;
  #queued: Call<Item, Result>[] = [];
  #queuedItems = 0;
  #inFlight = 0;
  #isScheduled = false;
  #onIdle: (() => void)[] = [];

  constructor(run: RunBatch<Item, Result>, options: () => BatchOptions) {
    this.#run = run;
    this.#options = options;
  }

  add<T>(items: readonly Item[], read?: (results: readonly Result[]) => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#queued.push({ items, settle: settleWith(read, resolve, reject), reject });
      this.#queuedItems += items.length;
      this.#schedule();
      if (this.#isEager()) void this.#send(this.#take(this.#queued.length - 1), true);
    });
  }

  idle(): Promise<void> {
    const isIdle = this.#inFlight === 0 && this.#queued.length === 0;
    return isIdle ? Promise.resolve() : new Promise((resolve) => this.#onIdle.push(resolve));
  }

  #isEager(): boolean {
    const { inFlightMax = 1, eagerAt = Number.POSITIVE_INFINITY } = this.#options();
    const isMuch = this.#queuedItems >= eagerAt && this.#queued.length > 1;
    return isMuch && this.#inFlight < inFlightMax - 1;
  }

  #isFull(): boolean {
    return this.#inFlight >= (this.#options().inFlightMax ?? 1);
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isFull()) return;
    this.#isScheduled = true;
    // A microtask, not a call: a burst of calls in one turn of the loop makes one batch.
    queueMicrotask(() => {
      this.#isScheduled = false;
      if (this.#queued.length === 0 || this.#isFull()) return;
      void this.#send(this.#take(this.#queued.length), false);
      // More than one batch holds: the rest does not wait for its end.
      if (this.#queued.length > 0) this.#schedule();
    });
  }

  async #send(calls: readonly Call<Item, Result>[], isPart: boolean): Promise<void> {
    this.#inFlight += 1;
    try {
      const items = calls.length === 1 ? itemsOf(calls[0]) : calls.flatMap(itemsOf);
      settle(calls, await this.#run(items, isPart));
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
    this.#inFlight -= 1;
    if (this.#queued.length > 0) this.#schedule();
    else if (this.#inFlight === 0) this.#tellIdle();
  }

  #take(max: number): Call<Item, Result>[] {
    const { batchMax } = this.#options();
    let count = 0;
    let end = 0;
    while (end < max) {
      const next = count + itemsOf(this.#queued[end]).length;
      if (end > 0 && next > batchMax) break;
      count = next;
      end += 1;
    }
    const calls = this.#queued.slice(0, end);
    this.#queued = this.#queued.slice(end);
    this.#queuedItems -= count;
    return calls;
  }

  #tellIdle(): void {
    const waiting = this.#onIdle;
    this.#onIdle = [];
    for (const resolve of waiting) resolve();
  }
}

function settleWith<Result, T>(
  read: ((results: readonly Result[]) => T) | undefined,
  resolve: (value: T) => void,
  reject: (error: unknown) => void,
): (results: readonly Result[]) => void {
  if (read === undefined) return resolve as (results: readonly Result[]) => void;
  return (results) => {
    try {
      resolve(read(results));
    } catch (error) {
      reject(error);
    }
  };
}

function itemsOf<Item>(call: { readonly items: readonly Item[] } | undefined): readonly Item[] {
  return call?.items ?? [];
}

function settle<Item, Result>(
  calls: readonly Call<Item, Result>[],
  results: readonly Result[],
): void {
  let from = 0;
  for (const call of calls) {
    call.settle(results.slice(from, from + call.items.length));
    from += call.items.length;
  }
}
