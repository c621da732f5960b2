/**
 * poison-isolation — messages that were lost with several consumers are tried one at a time.
 *
 *   suspected ─▶ held for a moment ─▶ begun ─settled─▶ free
 *       └─ another one is held or runs ─▶ a wait queue, its count as it was
 *
 * A crash takes a whole prefetch with it, and the broker counts all of that. Whoever is guilty is
 * found only when the other suspects are out of our hands before it begins; else they would be
 * parked together with it.
 *
 * Why: docs/decisions/0022-redeliveries-count-as-lost.md
 */

import type { Clock } from '../../ports/clock.ts';
import { Sleeper } from '../../system/wait.ts';
import type { RabbitClaim } from './claim.ts';
import type { Subscription } from './subscription.ts';
import type { VerdictRoute } from './verdict-routes.ts';
import type { QueuePlan } from '../topology/model.ts';

/** How long one is held: others of the same prefetch come in the same moment. */
const HELD_MS = 50;
/** This often again while others come and go. */
const HOLDS_MAX = 20;
/** How long the others wait, or as near to it as there is a wait queue. */
const LATER_MS = 1_000;

/** What a trial needs of its source. */
export interface PoisonIsolationParts {
  readonly clock: Clock;
  /** Resolves when nothing is passed on any more. */
  readonly idle: () => Promise<void>;
  /** How many messages were passed on so far. */
  readonly passed: () => number;
  readonly begin: (claim: RabbitClaim) => void;
  readonly giveBack: (claim: RabbitClaim) => Promise<unknown>;
  readonly isWanted: () => boolean;
}

/** Whether a message was lost so often that it may be what ends its consumers. */
export function isSuspect({ lost, claimedFrom }: RabbitClaim, maxLost: number): boolean {
  // One past the limit is judged without a handler: it does no harm.
  return lost * 2 > maxLost && claimedFrom !== 'active';
}

/** The one suspect that a consumer has in its hands. */
export class PoisonIsolation {
  readonly #parts: PoisonIsolationParts;
  readonly #sleeper: Sleeper;
  #claim: RabbitClaim | undefined;

  constructor(parts: PoisonIsolationParts) {
    this.#parts = parts;
    this.#sleeper = new Sleeper(parts.clock);
  }

  /** Holds and begins it; false when there is another one. */
  take(claim: RabbitClaim): boolean {
    if (this.#claim !== undefined) return false;
    this.#claim = claim;
    void this.#hold(claim);
    return true;
  }

  /** Its handler is done. */
  settle(claim: RabbitClaim): void {
    if (this.#claim === claim) this.#claim = undefined;
  }

  /** Its channel is gone, and it with it. */
  lose(intake: Subscription): void {
    if (this.#claim?.intake === intake) this.#claim = undefined;
  }

  /** Does not hold it any longer. */
  end(): void {
    this.#sleeper.wake();
  }

  async #hold(claim: RabbitClaim): Promise<void> {
    const { idle, passed, begin, giveBack, isWanted } = this.#parts;
    for (let holds = 0; holds < HOLDS_MAX && isWanted(); holds += 1) {
      const before = passed();
      await this.#sleeper.sleep(HELD_MS);
      await idle();
      // A moment without any: the acks of what was passed on are at the broker, too.
      if (passed() === before) break;
    }
    if (this.#claim !== claim) return;
    if (isWanted()) begin(claim);
    else {
      this.#claim = undefined;
      await giveBack(claim);
    }
  }
}

/** The way of a suspect that has to wait for its turn. */
export function laterOf({ past, lost }: RabbitClaim, plan: QueuePlan): VerdictRoute {
  const { attempts: attempt, routingKey } = past;
  const delayMs = Math.min(LATER_MS, plan.waitsMs.at(-1) ?? 0);
  return { route: plan.wait({ delayMs, attempt, routingKey }), past: { ...past, lost } };
}

/**
 * The way of a suspect that is given back although nothing happened to it: to the end of the queue,
 * with half of what would park it. n.b. The broker counts whatever comes back, for whatever reason.
 */
export function renewedOf(
  { past }: RabbitClaim,
  { again }: QueuePlan,
  maxLost: number,
): VerdictRoute {
  return { route: again, past: { ...past, lost: Math.floor(maxLost / 2) } };
}
