/**
 * time — the clock and the chance of this machine as a user of the package would write them, and
 * spans in milliseconds.
 */
import type { Clock, Dice } from 'respool';

export const MINUTE_MS = 60_000;
export const HOUR_MS: number = 60 * MINUTE_MS;
export const DAY_MS: number = 24 * HOUR_MS;

/** The machine's clock; a test spreads it and replaces the part that it controls. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after: (ms, call) => {
    const timer = setTimeout(call, Math.min(ms, 2 ** 31 - 1));
    return () => clearTimeout(timer);
  },
  soon: (call) => {
    setImmediate(call);
  },
};

export const systemDice: Dice = { random: () => Math.random() };

/** A machine's clock on which timers of one length do not end by themselves. */
export interface HeldTimers {
  readonly clock: Clock;
  /** How many of them run. */
  readonly count: () => number;
  /** Ends those that run; later ones end after their length. */
  readonly release: () => void;
}

/** Holds a limit that a busy machine might reach before the test says that it is reached. */
export function holdTimers(lengthMs: number): HeldTimers {
  const held = new Set<() => void>();
  let isReleased = false;
  const after: Clock['after'] = (ms, call) => {
    if (ms !== lengthMs || isReleased) return systemClock.after(ms, call);
    const end = (): void => call();
    held.add(end);
    return () => void held.delete(end);
  };
  return {
    clock: { ...systemClock, after },
    count: () => held.size,
    release: () => {
      isReleased = true;
      for (const end of held) end();
      held.clear();
    },
  };
}
