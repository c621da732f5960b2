/**
 * parking — claims that wait for a slot, or for room at their handler or destination, in the order
 * they came.
 *
 * They wait under their lease, kept alive by the watchman, and go before anything new.
 */

import { topicMatches } from '../core/topic.ts';
import type { Claim } from '../ports/source.ts';
import type { Watched, Watchman } from './watchman.ts';

/** A claim that waits. */
export class ParkedClaim implements Watched {
  readonly claim: Claim;
  readonly #watchman: Watchman;
  readonly #onTimeout: (parked: ParkedClaim) => void;
  /** When it has waited long enough (monotonic). */
  timeoutAt: number;
  leaseEndsAt: number;
  isFenced = false;

  constructor(
    claim: Claim,
    times: { readonly leaseEndsAt: number; readonly timeoutAt: number },
    watchman: Watchman,
    onTimeout: (parked: ParkedClaim) => void,
  ) {
    this.claim = claim;
    this.#watchman = watchman;
    this.#onTimeout = onTimeout;
    this.leaseEndsAt = times.leaseEndsAt;
    this.timeoutAt = times.timeoutAt;
    watchman.add(this);
  }

  onTimeout(): void {
    this.#onTimeout(this);
  }

  onFence(): void {
    this.leave();
  }

  /** It starts, or is given up: the watchman need not look after it here any more. */
  leave(): void {
    this.#watchman.remove(this);
  }
}

/** All that wait. */
export class Parking {
  #claims: ParkedClaim[] = [];

  get size(): number {
    return this.#claims.length;
  }

  add(parked: ParkedClaim): void {
    this.#claims.push(parked);
  }

  remove(parked: ParkedClaim): void {
    this.#claims = this.#claims.filter((one) => one !== parked);
  }

  /** The first of them, out of here. */
  take(max: number): readonly ParkedClaim[] {
    return this.#claims.splice(0, max);
  }

  /** Those that must not begin while these topics are paused, out of here. */
  takeStopped(paused: readonly string[] | 'all'): readonly ParkedClaim[] {
    const isStopped = ({ claim }: ParkedClaim): boolean =>
      paused === 'all' || paused.some((pattern) => topicMatches(pattern, claim.envelope.topic));
    const stopped = this.#claims.filter(isStopped);
    this.#claims = this.#claims.filter((one) => !isStopped(one));
    return stopped;
  }
}
