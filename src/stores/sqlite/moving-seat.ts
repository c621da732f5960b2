/**
 * moving-seat — in the caller's thread while that is quick, then in a thread of its own.
 *
 *   own ─three of ten requests slow, one very slow, or a disk error─▶ thread, for good
 *
 * A way to a thread and back costs as much as the insert of a message, so a quick disk is faster
 * without; a slow one would stop the event loop at every commit.
 *
 * Durable inserts of 1 KiB per second against a bare loop of batched statements over the same
 * tables, 50 in flight: own 0.77, thread 0.67; whole lives, 500 in flight: own 1.15, thread 1.12.
 * (2026-11-15, 2 shared virtual cores, ext4, medians of five)
 */

import type { Clock } from '../../ports/clock.ts';
import type { MoveLogRequest } from './batch.ts';
import { type Seat, type SeatData, type SeatRequest, takeOwnSeat, takeThreadSeat } from './seat.ts';

/** A request that takes longer is slow: callers would feel it. */
const SLOW_MS = 10;
/** What an operation may take besides: a large batch on a quick disk takes its time as well. */
const OPERATION_MS = 0.03;
/** So many slow ones of the last few: not the one that moved the log, but the disk. */
const SLOW_MAX = 3;
const LAST_FEW = 10;
/** After a single one of this length nobody waits for a second. */
const VERY_SLOW_MS = 150;

/** The log is moved beside (file-line.ts); if it gets this many times longer, here after all. */
const LOG_BACKSTOP = 4;

/** Both kinds of files know it, and it opens the file. */
const HELLO: MoveLogRequest = { kind: 'moveLog' };

/** A seat that moves to a thread when the work in the caller's takes too long. */
export async function takeMovingSeat(
  data: SeatData,
  clock: Clock,
  takeThread: (data: SeatData) => Seat = takeThreadSeat,
): Promise<Seat> {
  const lastFew: boolean[] = [];
  /** A thread that is being started. */
  let coming: Seat | undefined;
  let thread: Seat | undefined;
  let open = 0;
  let hasLeft = false;
  const { autoCheckpointPages } = data.settings;
  const ownSettings = { ...data.settings, autoCheckpointPages: LOG_BACKSTOP * autoCheckpointPages };
  const own = await takeOwnSeat(
    { ...data, settings: ownSettings },
    clock,
    ({ ms, ops, needsCheck }) => {
      lastFew.push(ms > SLOW_MS + ops * OPERATION_MS);
      if (lastFew.length > LAST_FEW) lastFew.shift();
      // To look through the whole file is not done here either.
      if (ms > VERY_SLOW_MS || needsCheck) thread ??= start({ needsCheck });
      else if (lastFew.filter(Boolean).length >= SLOW_MAX) moveSoon();
    },
  );

  /** What was written lazily here is made durable by the first sync there. */
  function start(settings: { readonly needsCheck: boolean }): Seat {
    return takeThread({ ...data, settings: { ...data.settings, ...settings, startsDirty: true } });
  }

  /** The work goes on here until the thread has the file open; if it cannot open it, it stays. */
  function moveSoon(): void {
    if (coming !== undefined || thread !== undefined) return;
    coming = start({ needsCheck: false });
    void tryOut(coming);
  }

  async function tryOut(started: Seat): Promise<void> {
    const isReady = await started.ask(HELLO).then(
      () => true,
      () => false,
    );
    coming = undefined;
    if (isReady && thread === undefined) thread = started;
    else await started.close().catch(() => undefined);
  }

  /** Not before the thread has the file open: the last to close it moves the whole log. */
  async function leave(): Promise<void> {
    if (open > 0) return;
    hasLeft = true;
    // Nobody waits for it; whoever asked has an answer, which must not become an error.
    await own.close().catch(() => undefined);
  }

  return {
    get isThread() {
      return thread !== undefined;
    },
    async ask(request: SeatRequest) {
      if (thread !== undefined) {
        const answer = await thread.ask(request);
        if (!hasLeft) await leave();
        return answer;
      }
      open += 1;
      try {
        return await own.ask(request);
      } finally {
        open -= 1;
      }
    },
    async close() {
      try {
        await (thread ?? coming)?.close();
      } finally {
        await own.close();
      }
    },
  };
}
