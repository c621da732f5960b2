/**
 * moving-seat — in the caller's thread while that is quick, then in a thread of its own.
 *
 *   own ─three of ten requests slow, one very slow, or a disk error─▶ thread, for good
 *
 * A way to a thread and back costs as much as the insert of a message, so a quick disk is faster
 * without; a slow one would stop the event loop at every commit.
 *
 * Durable inserts of 1 KiB per second against a bare loop of batched statements over the same
 * tables, 50 in flight: own 0.83, thread 0.67; whole lives, 500 in flight: own 1.2, thread 1.1.
 * (2026-11-15, 2 shared virtual cores, ext4, medians of five)
 *
 * Why: docs/decisions/0010-sqlite-starts-in-the-calling-thread.md
 */

import type { Clock } from '../../ports/clock.ts';
import type { MoveLogRequest } from './batch.ts';
import {
  type Seat,
  type SeatData,
  type SeatRequest,
  takeOwnSeat,
  takeThreadSeat,
  type Took,
} from './file-thread.ts';

/** A request that takes longer is slow: callers would feel it. */
const SLOW_MS = 10;
/** What an operation may take besides: a large batch on a quick disk takes its time as well. */
const OPERATION_MS = 0.03;
/** So many slow ones of the last few: not the one that moved the log, but the disk. */
const SLOW_MAX = 3;
const LAST_FEW = 10;
/** After a single one of this length nobody waits for a second. */
const VERY_SLOW_MS = 150;

/** The log is moved beside (file-client.ts); if it gets this many times longer, here after all. */
const LOG_BACKSTOP = 4;

/** Both kinds of files know it, and it opens the file. */
const HELLO: MoveLogRequest = { kind: 'moveLog' };

/** Tells a slow disk from a slow moment. */
class Pace {
  /** Which of the last few requests were slow. */
  readonly #lastFew: boolean[] = [];

  judge({ ms, ops }: Took): 'quick' | 'slow' | 'very slow' {
    this.#lastFew.push(ms > SLOW_MS + ops * OPERATION_MS);
    if (this.#lastFew.length > LAST_FEW) this.#lastFew.shift();
    if (ms > VERY_SLOW_MS) return 'very slow';
    return this.#lastFew.filter(Boolean).length >= SLOW_MAX ? 'slow' : 'quick';
  }
}

/** A seat that moves to a thread when the work in the caller's takes too long. */
export async function takeMovingSeat(
  data: SeatData,
  clock: Clock,
  takeThread: (data: SeatData) => Seat = takeThreadSeat,
): Promise<Seat> {
  const { autoCheckpointPages } = data.settings;
  const settings = { ...data.settings, autoCheckpointPages: LOG_BACKSTOP * autoCheckpointPages };
  const pace = new Pace();
  const own = await takeOwnSeat({ ...data, settings }, clock, {
    onTook: (took) => seat.look(pace.judge(took), took.needsCheck),
    elsewhere: () => seat.thread,
  });
  // What was written lazily here is made durable by the first sync there.
  const start = (needsCheck: boolean) =>
    takeThread({ ...data, settings: { ...data.settings, needsCheck, startsDirty: true } });
  const seat = new MovingSeat(own, start);
  return seat;
}

class MovingSeat implements Seat {
  readonly #own: Seat;
  readonly #start: (needsCheck: boolean) => Seat;
  /** How many requests the own seat has not answered. */
  #open = 0;
  #hasLeft = false;
  #onAnswered: (() => void)[] = [];
  /** A thread that is being started. */
  #coming: Seat | undefined;
  /** The thread, once the work is done there. */
  thread: Seat | undefined;

  constructor(own: Seat, start: (needsCheck: boolean) => Seat) {
    this.#own = own;
    this.#start = start;
  }

  get isThread(): boolean {
    return this.thread !== undefined;
  }

  async ask(request: SeatRequest): Promise<unknown> {
    if (this.thread !== undefined) {
      // What was asked before goes before: a sync must find what it is to sync.
      if (this.#open > 0) await new Promise<void>((resolve) => this.#onAnswered.push(resolve));
      const answer = await this.thread.ask(request);
      if (!this.#hasLeft) await this.#leave();
      return answer;
    }
    this.#open += 1;
    try {
      return await this.#own.ask(request);
    } finally {
      this.#open -= 1;
      if (this.#open === 0) for (const resolve of this.#onAnswered.splice(0)) resolve();
    }
  }

  async close(): Promise<void> {
    try {
      await (this.thread ?? this.#coming)?.close();
    } finally {
      await this.#own.close();
    }
  }

  /** Told after each request in the caller's thread. */
  look(pace: ReturnType<Pace['judge']>, needsCheck: boolean): void {
    // To look through the whole file is not done here either.
    if (pace === 'very slow' || needsCheck) this.thread ??= this.#start(needsCheck);
    else if (pace === 'slow') this.#moveSoon();
  }

  /** The work goes on here until the thread has the file open; if it cannot open it, it stays. */
  #moveSoon(): void {
    if (this.#coming !== undefined || this.thread !== undefined) return;
    this.#coming = this.#start(false);
    void this.#tryOut(this.#coming);
  }

  async #tryOut(started: Seat): Promise<void> {
    const isReady = await started.ask(HELLO).then(
      () => true,
      () => false,
    );
    this.#coming = undefined;
    if (isReady && this.thread === undefined) this.thread = started;
    else await started.close().catch(() => undefined);
  }

  /** Not before the thread has the file open: the last to close it moves the whole log. */
  async #leave(): Promise<void> {
    this.#hasLeft = true;
    // Nobody waits for it; whoever asked has an answer, which must not become an error.
    await this.#own.close().catch(() => undefined);
  }
}
