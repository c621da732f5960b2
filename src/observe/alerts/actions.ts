/**
 * actions — does what rules have to do, beside the rounds.
 *
 * Promise: a deed is never done twice at once, and no end of a pause overtakes its pause. One that
 * fails is tried again, less and less often: each try is on the audit record.
 */

import { MINUTE_MS } from '../../core/duration.ts';
import { deedOf, laneOf } from './deeds.ts';
import type { AlertParts } from './types.ts';

/** What failed is tried again after so long, at the latest. */
const AGAIN_MAX_MS: number = 5 * MINUTE_MS;

type ActParts = Pick<AlertParts, 'act' | 'rules' | 'clock' | 'everyMs'>;

/** One deed of a rule, and what becomes of it. */
export interface Act {
  readonly rule: string;
  readonly key: string;
  readonly onDone: () => void;
  readonly onFailure: (error: unknown) => void;
}

/** Deeds that are on their way. */
export class Acts {
  readonly #parts: ActParts;
  readonly #running = new Map<string, Promise<void>>();
  /** By lane, what has failed: how long it waits, and until when. */
  readonly #failed = new Map<string, { readonly waitMs: number; readonly until: number }>();

  constructor(parts: ActParts) {
    this.#parts = parts;
  }

  /** Begins one, unless it or its opposite is on its way: then the next round does. */
  begin({ rule, key, onDone, onFailure }: Act): void {
    const { act, rules, clock } = this.#parts;
    const deed = deedOf(key, rule, rules);
    const lane = laneOf(rule, deed);
    const until = this.#failed.get(lane)?.until ?? Number.NEGATIVE_INFINITY;
    if (this.#running.has(lane) || clock.monotonic() < until) return;
    const done = act(deed, `alert:${rule}`).then(
      () => {
        this.#failed.delete(lane);
        onDone();
      },
      (error: unknown) => {
        this.#putOff(lane);
        onFailure(error);
      },
    );
    this.#running.set(
      lane,
      done.finally(() => this.#running.delete(lane)),
    );
  }

  #putOff(lane: string): void {
    const { clock, everyMs } = this.#parts;
    const waitedMs = this.#failed.get(lane)?.waitMs ?? everyMs / 2;
    const waitMs = Math.max(everyMs, Math.min(2 * waitedMs, AGAIN_MAX_MS));
    this.#failed.set(lane, { waitMs, until: clock.monotonic() + waitMs });
  }

  /** When all of them have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}
