/** blocked-clock — virtual time that goes on while no timer is served. */

import { SimClock } from 'respool/testkit';

/** A clock that can be blocked, as by a handler that keeps the event loop from turning. */
export class BlockedClock extends SimClock {
  #blockedMs = 0;

  block(ms: number): void {
    this.#blockedMs += ms;
  }

  override now(): number {
    return super.now() + this.#blockedMs;
  }

  override monotonic(): number {
    return super.monotonic() + this.#blockedMs;
  }
}
