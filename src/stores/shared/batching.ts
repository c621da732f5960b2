/**
 * batching — natural group commit, for every store and every kind of write.
 *
 * While a batch is on its way to the disk or the server, calls queue up; when it returns, all that
 * queued go as the next batch. No timer, no added latency at low load, full batches at high load.
 */

/** A line of calls that share batches. */
export interface BatchLine<Item, Result> {
  /** Hands items over; resolves with their results, in order, once their batch is through. */
  add(items: readonly Item[]): Promise<readonly Result[]>;
  /**
   * The same, and resolves with what `read` makes of the results. Saves a turn of promises per
   * call: with many callers, the first of them can go on before the last has been told.
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
export interface BatchOptions {
  /** The most items in a batch, unless a single call brings more. */
  readonly batchMax: number;
  /**
   * How many batches may be on their way at once; default 1. With 2, the next batch is made while
   * the disk is busy with the last; calls of different batches may then be carried out in any
   * order.
   */
  readonly inFlightMax?: number;
  /**
   * With so many items queued a batch goes at once, within the turn of the loop, marked as a part:
   * the last call is kept back, so that another batch follows for certain. Default: never.
   */
  readonly eagerAt?: number;
}

/** Makes a line over `run`, which is told whether another batch follows in the same turn. */
export function createBatchLine<Item, Result>(
  run: (items: readonly Item[], isPart: boolean) => Promise<readonly Result[]>,
  { batchMax, inFlightMax = 1, eagerAt = Number.POSITIVE_INFINITY }: BatchOptions,
): BatchLine<Item, Result> {
  let queued: Call<Item, Result>[] = [];
  let queuedItems = 0;
  let inFlight = 0;
  let isScheduled = false;
  let onIdle: (() => void)[] = [];

  function schedule(): void {
    if (isScheduled || inFlight >= inFlightMax) return;
    isScheduled = true;
    // A microtask, not a call: a burst of calls in one turn of the loop makes one batch.
    queueMicrotask(() => {
      isScheduled = false;
      if (queued.length > 0 && inFlight < inFlightMax) void send(take(queued.length), false);
    });
  }

  async function send(calls: readonly Call<Item, Result>[], isPart: boolean): Promise<void> {
    inFlight += 1;
    try {
      const items = calls.length === 1 ? itemsOf(calls[0]) : calls.flatMap(itemsOf);
      settle(calls, await run(items, isPart));
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
    inFlight -= 1;
    if (queued.length > 0) schedule();
    else if (inFlight === 0) tellIdle();
  }

  function take(max: number): Call<Item, Result>[] {
    let count = 0;
    let end = 0;
    while (end < max) {
      const next = count + itemsOf(queued[end]).length;
      if (end > 0 && next > batchMax) break;
      count = next;
      end += 1;
    }
    const calls = queued.slice(0, end);
    queued = queued.slice(end);
    queuedItems -= count;
    return calls;
  }

  function tellIdle(): void {
    const waiting = onIdle;
    onIdle = [];
    for (const resolve of waiting) resolve();
  }

  return {
    add<T>(items: readonly Item[], read?: (results: readonly Result[]) => T) {
      return new Promise<T>((resolve, reject) => {
        queued.push({ items, settle: settleWith(read, resolve, reject), reject });
        queuedItems += items.length;
        schedule();
        const isEager = queuedItems >= eagerAt && queued.length > 1 && inFlight < inFlightMax - 1;
        if (isEager) void send(take(queued.length - 1), true);
      });
    },
    idle() {
      const isIdle = inFlight === 0 && queued.length === 0;
      return isIdle ? Promise.resolve() : new Promise((resolve) => onIdle.push(resolve));
    },
  };
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
