/**
 * scrape-query — what a store or a broker is asked for a scrape.
 *
 * Promise: asked only when somebody scrapes, at most once in `everyMs` however many scrape, and
 * never again while an answer is on its way. A look that takes long is taken less often: asking is
 * at most a twentieth of the time. One that fails leaves what was there, and its age tells.
 */

import type { Clock } from '../../ports/clock.ts';
import { memo } from '../../system/memo.ts';

/** The rest after a look, as a multiple of how long it took. */
const REST_TIMES = 19;

/** What is asked, and what is done with the answer. */
export interface ScrapeQueryOptions {
  /** Asks, and puts the answer into rows in one go; what it throws is told to `onFailure`. */
  readonly read: () => Promise<void>;
  readonly onFailure: (error: unknown) => void;
  /** False: there is nobody to ask at present, and nobody is asked. */
  readonly isThere?: () => boolean;
  readonly everyMs: number;
  readonly clock: Clock;
}

/** Somebody who is asked now and then. */
export interface ScrapeQuery {
  /** Asks if it is time, or joins who asks already; never rejects. */
  refresh(): Promise<void>;
  /** Since the last answer; since the beginning, when there was none. */
  readonly ageMs: number;
  stop(): void;
}

/** Nothing is asked before the first `refresh`. */
export function makeScrapeQuery(
  { read, onFailure, isThere, everyMs, clock }: ScrapeQueryOptions,
  onStop: () => void,
): ScrapeQuery {
  let answeredAt = clock.monotonic();
  let isStopped = false;
  const asked = memo(clock, { everyMs, restTimes: REST_TIMES });
  const ask = async (): Promise<void> => {
    try {
      await read();
      answeredAt = clock.monotonic();
    } catch (error) {
      if (!isStopped) onFailure(error);
    }
  };
  return {
    refresh() {
      if (isStopped || isThere?.() === false) return Promise.resolve();
      return asked.get('', ask);
    },
    get ageMs() {
      return clock.monotonic() - answeredAt;
    },
    stop() {
      isStopped = true;
      onStop();
    },
  };
}
