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
  /** Resolves when nothing is queued and nothing is on its way. */
  idle(): Promise<void>;
}

interface Call<Item, Result> {
  readonly items: readonly Item[];
  readonly resolve: (results: readonly Result[]) => void;
  readonly reject: (error: unknown) => void;
}

/** Makes a line over `run`, which gets at most `batchMax` items unless a single call brings more. */
export function createBatchLine<Item, Result>(
  run: (items: readonly Item[]) => Promise<readonly Result[]>,
  { batchMax }: { readonly batchMax: number },
): BatchLine<Item, Result> {
  let queued: Call<Item, Result>[] = [];
  let isBusy = false;
  let onIdle: (() => void)[] = [];

  async function work(): Promise<void> {
    while (queued.length > 0) {
      const calls = take();
      try {
        settle(calls, await run(calls.length === 1 ? itemsOf(calls[0]) : calls.flatMap(itemsOf)));
      } catch (error) {
        for (const call of calls) call.reject(error);
      }
    }
    isBusy = false;
    const waiting = onIdle;
    onIdle = [];
    for (const resolve of waiting) resolve();
  }

  function take(): Call<Item, Result>[] {
    let count = 0;
    let end = 0;
    while (end < queued.length) {
      count += itemsOf(queued[end]).length;
      if (end > 0 && count > batchMax) break;
      end += 1;
    }
    const calls = queued.slice(0, end);
    queued = queued.slice(end);
    return calls;
  }

  return {
    add(items) {
      return new Promise((resolve, reject) => {
        queued.push({ items, resolve, reject });
        if (isBusy) return;
        isBusy = true;
        // A microtask, not a call: a burst of calls in one turn of the loop makes one batch.
        queueMicrotask(() => void work());
      });
    },
    idle() {
      return isBusy ? new Promise((resolve) => onIdle.push(resolve)) : Promise.resolve();
    },
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
    call.resolve(results.slice(from, from + call.items.length));
    from += call.items.length;
  }
}
