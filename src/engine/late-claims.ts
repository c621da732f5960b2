/**
 * late-claims — claims that came when their lease was over, or nearly: the store answered late, or
 * the process stood still. Somebody else may have them.
 *
 *   add() ─extend()─▶ done: begin()     stale: drop()     trouble: drop(), their lease runs out
 *
 * Promise: no handler starts under a lease that is over. All of one answer go in one call.
 */

import type { Claim } from '../ports/source.ts';
import type { EngineParts } from './parts.ts';
import type { Watchman } from './lease-timer.ts';

/** A claim that must be kept before it may begin. */
export interface LateClaim {
  readonly claim: Claim;
  /** It is ours until then (monotonic). It may be late again, and come back. */
  readonly begin: (leaseEndsAt: number) => void;
  /** It is not ours any more, or cannot be kept. */
  readonly drop: () => void;
}

/** What late claims need of their engine. */
export interface LateDuties {
  readonly parts: EngineParts;
  readonly watchman: Watchman;
  extend(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]>;
  onTrouble(error: unknown): void;
}

/** Keeps late claims and lets them begin. */
export class LateClaims {
  readonly #duties: LateDuties;
  #waiting: LateClaim[] = [];
  /** The calls that are on their way, one after the other. */
  #work: Promise<void> | undefined;
  #size = 0;

  constructor(duties: LateDuties) {
    this.#duties = duties;
  }

  /** Claims in hand here. */
  get size(): number {
    return this.#size;
  }

  /** What to wait for before anything is claimed: it might be what is being kept here. */
  get pending(): Promise<void> | undefined {
    return this.#work;
  }

  /** Whether a lease that ends then leaves less than a third of it to begin with. */
  isLate(leaseEndsAt: number): boolean {
    const { clock, source } = this.#duties.parts;
    return leaseEndsAt - clock.monotonic() < source.leaseMs / 3;
  }

  add(late: LateClaim): void {
    this.#size += 1;
    this.#waiting.push(late);
    this.#work ??= this.#keepAll();
  }

  async #keepAll(): Promise<void> {
    do {
      // A claim that waited for room may have a heartbeat on its way, which would overtake us. And
      // in any case after this turn: by then the others of the same answer are here.
      await this.#duties.watchman.beating;
      await this.#keep(this.#waiting.splice(0));
    } while (this.#waiting.length > 0);
    this.#work = undefined;
  }

  async #keep(batch: readonly LateClaim[]): Promise<void> {
    const { clock, source } = this.#duties.parts;
    // Counted from before the call: the store counts its lease from when it got the request.
    const leaseEndsAt = clock.monotonic() + source.leaseMs;
    let answers: readonly ('done' | 'stale')[] = [];
    try {
      answers = await this.#duties.extend(batch.map(({ claim }) => claim));
    } catch (error) {
      this.#duties.onTrouble(error);
    }
    for (const [at, late] of batch.entries()) {
      this.#size -= 1;
      if (answers[at] === 'done') late.begin(leaseEndsAt);
      else {
        if (answers[at] === 'stale') this.#tellStale(late.claim);
        late.drop();
      }
    }
  }

  #tellStale({ id, envelope, lane, attempt }: Claim): void {
    const { events, source } = this.#duties.parts;
    if (!events.hears('stale')) return;
    events.emit({ at: source.now(), kind: 'stale', id, topic: envelope.topic, lane, attempt });
  }
}
