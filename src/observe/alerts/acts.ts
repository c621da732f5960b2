/**
 * acts — does what rules have to do, beside the rounds.
 *
 * Promise: a deed is never done twice at once, and no end of a pause overtakes its pause.
 */

import { deedOf, laneOf } from './deeds.ts';
import type { AlertParts } from './types.ts';

/** One deed of a rule, and what becomes of it. */
export interface Act {
  readonly rule: string;
  readonly key: string;
  readonly onDone: () => void;
  readonly onFailure: (error: unknown) => void;
}

/** Deeds that are on their way. */
export class Acts {
  readonly #parts: Pick<AlertParts, 'act' | 'rules'>;
  readonly #running = new Map<string, Promise<void>>();

  constructor(parts: Pick<AlertParts, 'act' | 'rules'>) {
    this.#parts = parts;
  }

  /** Begins one, unless it or its opposite is on its way: then the next round does. */
  begin({ rule, key, onDone, onFailure }: Act): void {
    const { act, rules } = this.#parts;
    const deed = deedOf(key, rule, rules);
    const lane = laneOf(rule, deed);
    if (this.#running.has(lane)) return;
    const done = act(deed, `alert:${rule}`)
      .then(onDone, onFailure)
      .finally(() => this.#running.delete(lane));
    this.#running.set(lane, done);
  }

  /** When all of them have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}
