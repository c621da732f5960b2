/** clock, dice — the real ones: the only place that asks for the time and for chance. */

import type { Clock, Dice } from '../ports/clock.ts';

/** Node refuses longer timers and fires them at once; a longer wait is waited in parts. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after: startTimer,
  soon: (call) => {
    setImmediate(call);
  },
};

/** The machine's chance. */
export const systemDice: Dice = { random: () => Math.random() };

function startTimer(ms: number, call: () => void): () => void {
  let timer = setTimeout(fire, Math.min(ms, TIMER_MAX_MS));
  let restMs = ms;
  function fire(): void {
    restMs -= TIMER_MAX_MS;
    if (restMs <= 0) call();
    else timer = setTimeout(fire, Math.min(restMs, TIMER_MAX_MS));
  }
  return () => clearTimeout(timer);
}
