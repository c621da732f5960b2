/**
 * isolation — messages that were lost with several consumers are tried one at a time.
 *
 *   suspect ─▶ kept back for a moment ─▶ handled ─settled─▶ the next one may come
 *       └─ another one is kept back or handled ─▶ a wait queue, its count as it was
 *
 * A crash takes a whole prefetch with it, and the broker counts every message of it. The one that
 * causes the crash is found only if the other suspects have been forwarded before it begins;
 * otherwise they would be parked together with it.
 *
 * Why: docs/decisions/0022-redeliveries-count-as-lost.md
 */

import type { RabbitClaim } from './delivery.ts';
import type { Settler } from './settle.ts';
import type { Subscription } from './subscription.ts';

/** How long a suspect is kept back: others of the same prefetch arrive at the same moment. */
const KEEP_BACK_MS = 50;
/** Repetitions of that while others are being forwarded. */
const KEEP_BACKS_MAX = 20;

/** What becomes of a suspect that was kept back. */
type SuspectDecision = 'begin' | 'give back' | 'lost';

/** The one suspect of a consumer. */
export class Isolation {
  readonly #subscription: Subscription;
  readonly #settler: Settler;
  #claim: RabbitClaim | undefined;

  constructor(subscription: Subscription, settler: Settler) {
    this.#subscription = subscription;
    this.#settler = settler;
  }

  /** Keeps a suspect back and says what becomes of it; undefined while there is another one. */
  admit(claim: RabbitClaim): Promise<SuspectDecision> | undefined {
    if (this.#claim?.channel.isOpen === true) return undefined;
    this.#claim = claim;
    return this.#keepBack(claim);
  }

  /** The claim was settled or given back: another suspect may come. */
  release(claim: RabbitClaim): void {
    if (this.#claim === claim) this.#claim = undefined;
  }

  async #keepBack(claim: RabbitClaim): Promise<SuspectDecision> {
    const subscription = this.#subscription;
    const settler = this.#settler;
    for (let times = 0; times < KEEP_BACKS_MAX && subscription.isWanted; times += 1) {
      const before = settler.forwarded;
      await subscription.sleep(KEEP_BACK_MS);
      await settler.idle();
      // A moment without any: the acks of what was forwarded have reached the broker, too.
      if (settler.forwarded === before) break;
    }
    if (this.#claim !== claim || !claim.channel.isOpen) return 'lost';
    return subscription.isWanted ? 'begin' : 'give back';
  }
}
