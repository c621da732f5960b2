/**
 * wait — sleeps, back-off, time limits, waiting until nothing is in flight (`WhenIdle`,
 * `InFlight`), and `memo`: results that are shared and throttled.
 *
 * All waiting for a span, for work or for a signal uses these. Promise: no timer and no listener is
 * left behind once a wait is over; a `TimeLimit` lasts until `stop`.
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
    // Two separate reactions instead of a chain: the result takes no extra microtask.
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

// Waiting until nothing is in flight, for everything that closes.
//
// Calls are counted and not kept: their results must not stay in memory until a close.

/** Waits for a condition; its owner calls `check` whenever something has ended. */
export class WhenIdle {
  readonly #isIdle: () => boolean;
  #waiting: (() => void)[] = [];

  constructor(isIdle: () => boolean) {
    this.#isIdle = isIdle;
  }

  /** Something has ended; if it was the last, the waits are over. */
  check(): void {
    if (this.#waiting.length === 0 || !this.#isIdle()) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when it is idle; if more begins in the meantime, it waits for that too. */
  async wait(): Promise<void> {
    while (!this.#isIdle()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** Whether it is idle within the span. */
  async within(clock: Timers, ms: number): Promise<boolean> {
    return this.#isIdle() || endsWithin(clock, ms, this.wait());
  }
}

/** Counts calls that are in flight. */
export class InFlight {
  #count = 0;
  readonly #whenIdle = new WhenIdle(() => this.#count === 0);

  get count(): number {
    return this.#count;
  }

  begin(): void {
    this.#count += 1;
  }

  /** Once for each `begin`. */
  readonly end = (): void => {
    this.#count -= 1;
    this.#whenIdle.check();
  };

  /** Counts the work until it ends, with a result or an error; the result is the same promise. */
  track<T>(work: Promise<T>): Promise<T> {
    this.begin();
    work.then(this.end, this.end);
    return work;
  }

  /** Resolves when nothing is in flight. */
  idle(): Promise<void> {
    return this.#whenIdle.wait();
  }
}

// Shared and throttled calls: a caller that asks while a call is in flight gets its answer, and an
// answer is given again until it is time for a new call.
/** When it is time for a new call: once all of these are over. Default of each: at once. */
export interface MemoOptions {
  /** Time since the answer came. */
  readonly ttlMs?: number;
  /** Time since the question was asked: it is asked at most this often. */
  readonly everyMs?: number;
  /** Time since the answer came, as a multiple of how long one round of all questions took. */
  readonly restTimes?: number;
  /** An answer that has not come within this time is asked for again; default: never. */
  readonly giveUpMs?: number;
  /** Answers that are remembered, by their questions; default: all. */
  readonly max?: number;
}

interface MemoEntry {
  readonly answer: Promise<unknown>;
  readonly askedAt: number;
  /** How long the last answer took. */
  tookMs: number;
  /** Undefined while it is on its way. */
  endedAt: number | undefined;
}

/** Cached answers by question. */
export interface Memo {
  /** The cached answer, that of the call in flight, or a new one. Failures are not cached. */
  get<T>(question: string, ask: () => Promise<T>): Promise<T>;
  clear(): void;
}

export function memo(clock: Pick<Clock, 'monotonic'>, options: MemoOptions): Memo {
  const { ttlMs = 0, everyMs = 0, restTimes = 0, giveUpMs, max } = options;
  const entries = new Map<string, MemoEntry>();

  function isFresh({ askedAt, endedAt }: MemoEntry): boolean {
    const now = clock.monotonic();
    if (endedAt === undefined) return now - askedAt < (giveUpMs ?? Number.POSITIVE_INFINITY);
    if (now - endedAt < ttlMs || now - askedAt < everyMs) return true;
    if (restTimes === 0) return false;
    let allMs = 0;
    for (const { tookMs } of entries.values()) allMs += tookMs;
    return now - endedAt < restTimes * allMs;
  }

  function dropOldest(): void {
    const [oldest] = entries.keys();
    if (oldest !== undefined) entries.delete(oldest);
  }

  return {
    get<T>(question: string, ask: () => Promise<T>): Promise<T> {
      const last = entries.get(question);
      if (last !== undefined && isFresh(last)) return last.answer as Promise<T>;
      const askedAt = clock.monotonic();
      const answer = ask();
      const entry: MemoEntry = { answer, askedAt, tookMs: last?.tookMs ?? 0, endedAt: undefined };
      entries.delete(question);
      if (max !== undefined && entries.size >= max) dropOldest();
      entries.set(question, entry);
      answer.then(
        () => {
          entry.endedAt = clock.monotonic();
          entry.tookMs = entry.endedAt - askedAt;
        },
        () => {
          if (entries.get(question) === entry) entries.delete(question);
        },
      );
      return answer;
    },
    clear: () => entries.clear(),
  };
}
