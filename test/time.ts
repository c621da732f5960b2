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
