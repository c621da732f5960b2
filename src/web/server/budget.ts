/**
 * budget — how many bytes of JSON requests may be in memory at once, over all callers.
 *
 * Each has a limit of its own, but a thousand slow callers have a thousand of them. What has come
 * in counts, not what was announced: nobody can take the place of others without sending.
 */

import { Refusal } from './refusal.ts';

/** Bytes of JSON requests in memory at once, at the most. */
const BUDGET_BYTES = 67_108_864;
const RETRY_AFTER_SECONDS = '1';

/** What is left for all. */
export class ByteBudget {
  readonly #maxBytes: number;
  #taken = 0;

  constructor(maxBytes: number = BUDGET_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** A share for one request. */
  open(): Share {
    let own = 0;
    return {
      take: (bytes) => {
        if (this.#taken + bytes > this.#maxBytes) throw busy();
        this.#taken += bytes;
        own += bytes;
      },
      giveBack: () => {
        this.#taken -= own;
        own = 0;
      },
    };
  }
}

/** What one request has taken. */
export interface Share {
  /** Refuses when all together would have too much. */
  take(bytes: number): void;
  giveBack(): void;
}

function busy(): Refusal {
  return new Refusal(
    503,
    'busy',
    'too many large requests are coming in at once; send it again in a moment',
    { code: 'store.unavailable', headers: { 'retry-after': RETRY_AFTER_SECONDS } },
  );
}
