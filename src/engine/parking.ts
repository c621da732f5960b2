/**
 * parking — claims that wait for a slot, or for room at their handler or destination, in the order
 * they came.
 *
 * They wait under their lease, kept alive by the watchman, and go before anything new.
 */

import { topicMatches } from '../core/topic.ts';
import type { Claim } from '../ports/source.ts';
import { type EngineParts, NOTHING_PAUSED } from './parts.ts';
import type { Route } from './routes.ts';
import type { Watched, Watchman } from './lease-timer.ts';

/** A claim that waits. */
export class ParkedClaim implements Watched {
  readonly claim: Claim;
  readonly #watchman: Watchman;
  readonly #onTimeout: (parked: ParkedClaim) => void;
  /** When it has waited long enough (monotonic). */
  timeoutAt: number;
  leaseEndsAt: number;
  isFenced = false;
  watchedAt: number | undefined;

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
  takeStopped(paused: Paused): readonly ParkedClaim[] {
    const stopped = this.#claims.filter(({ claim }) => isStopped(claim, paused));
    this.#claims = this.#claims.filter(({ claim }) => !isStopped(claim, paused));
    return stopped;
  }
}

type Paused = readonly string[] | 'all';

function isStopped({ envelope }: Claim, paused: Paused): boolean {
  return paused === 'all' || paused.some((pattern) => topicMatches(pattern, envelope.topic));
}

/** Whether a claim would not be asked for any more: paused, or its handler taken away meanwhile. */
export function isUnwanted(claim: Claim, route: Route | undefined, parts: EngineParts): boolean {
  const paused = parts.paused();
  if (paused !== NOTHING_PAUSED && isStopped(claim, paused)) return true;
  // What every handler refuses by its envelope is held, and a lost holder is judged without one.
  if (route !== undefined || claim.claimedFrom === 'active') return false;
  if (claim.lane === 'delivery' && parts.slots.takesUnhandled) return false;
  return !parts.routes.serves(claim.lane, claim.envelope.topic);
}

/**
 * Whether a claim may wait for a slot though it could be left to others. If we end meanwhile, that
 * counts as an attempt and as a lost holder: not for its last attempt, and not twice.
 */
export function bearsWaiting(claim: Claim, route: Route | undefined, parts: EngineParts): boolean {
  return claim.lost === 0 && claim.attempt < parts.policyFor(claim, route).maxAttempts;
}
