/**
 * wait — sleeping, backing off and time limits. Whatever waits for a span, for work or for a signal
 * does it with these, so that no timer and no listener is left behind.
 */

import type { Clock } from '../ports/clock.ts';

/** What a wait needs of a clock. */
export type Timers = Pick<Clock, 'after'>;

/** The range of a wait that doubles. */
export interface BackoffRange {
  readonly firstMs: number;
  readonly maxMs: number;
}

/** Doublings that exceed every range. */
const DOUBLINGS_MAX = 50;

/** Resolves after the span (`Infinity`: never by itself), or as soon as the signal fires. */
export function sleep(clock: Timers, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) resolve();
    else startSleep(clock, ms, signal, resolve);
  });
}

/** Sleeps of one owner, all of which `wake` ends at once. Later ones are not affected. */
export class Sleeper {
  readonly #clock: Timers;
  readonly #ends = new Set<() => void>();

  constructor(clock: Timers) {
    this.#clock = clock;
  }

  get isAsleep(): boolean {
    return this.#ends.size > 0;
  }

  /** Resolves after the span, with `wake`, or as soon as the signal fires. */
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const end = startSleep(this.#clock, ms, signal, () => {
        this.#ends.delete(end);
        resolve();
      });
      this.#ends.add(end);
    });
  }

  wake(): void {
    for (const end of this.#ends) end();
  }
}

/** The wait after this many waits of the same range: it doubles each time, up to the maximum. */
export function backoffMs({ firstMs, maxMs }: BackoffRange, times: number): number {
  return Math.min(maxMs, firstMs * 2 ** Math.min(times, DOUBLINGS_MAX));
}

/** A wait that doubles with each failure and starts over after a success. */
export interface Backoff {
  /** The wait before the next try. */
  next(): number;
  reset(): void;
}

export function backoff(range: BackoffRange): Backoff {
  let times = 0;
  return {
    next() {
      times += 1;
      return backoffMs(range, times - 1);
    },
    reset() {
      times = 0;
    },
  };
}

/**
 * The result of the work; once the time is over (`Infinity`: never), the result of `onTimeout`, or
 * what it throws. A result or failure that comes later is ignored.
 */
export function withTimeout<T, L = never>(
  clock: Timers,
  ms: number,
  work: Promise<T>,
  onTimeout: () => L,
): Promise<T | L> {
  return new Promise((resolve, reject) => {
    const timedOut = async (): Promise<L> => onTimeout();
    const cancel = startTimer(clock, ms, () => resolve(timedOut()));
    // Twice, and not in a row: this path is as short as that of the work itself.
    work.then(resolve, reject);
    work.then(cancel, cancel);
  });
}

/** Whether the work ends in time, with a result or an error. */
export function endsWithin(clock: Timers, ms: number, work: Promise<unknown>): Promise<boolean> {
  const yes = (): boolean => true;
  const no = (): boolean => false;
  return withTimeout(clock, ms, work.then(yes, yes), no);
}

/** The result of the work; undefined when the signal fires first, and then it is ignored. */
export function unlessAborted<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
): Promise<T | undefined> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const onAbort = (): void => resolve(undefined);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    const end = (): void => signal.removeEventListener('abort', onAbort);
    work.then(resolve, reject);
    work.then(end, end);
  });
}

/** A signal that fires when a time limit is over or another signal fires; runs until `stop`. */
export class TimeLimit {
  readonly #abort = new AbortController();
  readonly #cancel: () => void;
  readonly #outer: AbortSignal | undefined;
  /** True when the time limit came first. */
  isOver = false;

  constructor(clock: Timers, limitMs: number, outer?: AbortSignal) {
    this.#outer = outer;
    this.#cancel = clock.after(limitMs, () => {
      this.isOver = !this.signal.aborted;
      this.#abort.abort();
    });
    if (outer?.aborted === true) this.#onOuter();
    else outer?.addEventListener('abort', this.#onOuter);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  stop(): void {
    this.#cancel();
    this.#outer?.removeEventListener('abort', this.#onOuter);
  }

  readonly #onOuter = (): void => this.#abort.abort(this.#outer?.reason);
}

/** Calls back once when the sleep is over; the result ends it early. */
function startSleep(
  clock: Timers,
  ms: number,
  signal: AbortSignal | undefined,
  onEnd: () => void,
): () => void {
  const end = (): void => {
    cancel();
    signal?.removeEventListener('abort', end);
    onEnd();
  };
  const cancel = startTimer(clock, ms, end);
  signal?.addEventListener('abort', end);
  return end;
}

function startTimer(clock: Timers, ms: number, call: () => void): () => void {
  return Number.isFinite(ms) ? clock.after(ms, call) : () => undefined;
}
