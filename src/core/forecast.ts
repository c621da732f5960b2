/** forecast — where a backlog or a disk goes at the present rates. Pure. */

import { type Millis, SECOND_MS } from './duration.ts';

/** A backlog, and when it ends or runs over if everything goes on as it does. */
export interface Forecast {
  /** What waits or is on its way. */
  readonly backlog: number;
  readonly inPerSecond: number;
  readonly outPerSecond: number;
  /** Until nothing is left; null: it does not get smaller. */
  readonly drainsInMs: number | null;
  /** Until the disk of the store is full; null: it does not get fuller, or nobody can tell. */
  readonly fullInMs: number | null;
}

/** Until a backlog is gone; 0 when there is none, null when it does not get smaller. */
export function drainsInMs(
  backlog: number,
  { inPerSecond, outPerSecond }: { readonly inPerSecond: number; readonly outPerSecond: number },
): number | null {
  if (backlog <= 0) return 0;
  const perSecond = outPerSecond - inPerSecond;
  return perSecond > 0 ? Math.round((backlog / perSecond) * SECOND_MS) : null;
}

interface Sample {
  readonly at: Millis;
  readonly value: number;
}

const SAMPLES_MAX = 120;

/** The course of one value over the last minutes, from looks at it. */
export class Trend {
  readonly #windowMs: number;
  readonly #samples: Sample[] = [];

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** Notes what it is now. */
  add(at: Millis, value: number): void {
    const last = this.#samples.at(-1);
    // A clock that went back: what was before says nothing about how fast it goes.
    if (last !== undefined && last.at >= at) this.#samples.length = 0;
    this.#samples.push({ at, value });
    while (this.#samples.length > 1 && this.#isOver(at)) this.#samples.shift();
  }

  /** How much it grew per second; undefined: one look tells nothing. */
  get perSecond(): number | undefined {
    const first = this.#samples[0];
    const last = this.#samples.at(-1);
    if (first === undefined || last === undefined || last.at === first.at) return undefined;
    return ((last.value - first.value) / (last.at - first.at)) * SECOND_MS;
  }

  /** Until it is 0; null: it does not fall; undefined: nobody can tell yet. */
  get endsInMs(): number | null | undefined {
    const { perSecond } = this;
    const last = this.#samples.at(-1);
    if (perSecond === undefined || last === undefined) return undefined;
    return drainsInMs(last.value, { inPerSecond: 0, outPerSecond: -perSecond });
  }

  #isOver(now: Millis): boolean {
    const { length } = this.#samples;
    return length > SAMPLES_MAX || now - (this.#samples[0]?.at ?? now) > this.#windowMs;
  }
}
