/**
 * kinds — the kinds of work of a spool, and how many of the free slots each has a right to.
 *
 * In turns, so that none gets less than a quarter of the slots while it has something due. One that
 * had nothing due a moment ago has no turn: to ask it costs as much as to ask one that has.
 */

import type { Millis } from '../core/duration.ts';
import type { ClaimableState, Lane } from '../core/state.ts';

/** What is claimed together. */
export interface Kind {
  readonly lane: Lane;
  readonly states: readonly ClaimableState[];
}

const DEFERRED: Kind = { lane: 'delivery', states: ['deferred', 'active'] };
const INCOMING: Kind = { lane: 'delivery', states: ['incoming'] };
const BOUNCE: Kind = { lane: 'notice', states: ['bounce', 'active'] };

/** In order of precedence. */
export const KINDS: readonly Kind[] = [DEFERRED, INCOMING, BOUNCE];
/** What of the lane of notices can be due. */
export const NOTICE_STATES: readonly ClaimableState[] = BOUNCE.states;

/** Four turns: each kind has at least one of them, the first has two. */
const TURNS: readonly Kind[] = [DEFERRED, INCOMING, DEFERRED, BOUNCE];
/** A kind that had nothing due has no turn for so long; it takes what the others leave. */
const EMPTY_MS = 100;

/** Whose turn it is. */
export class KindTurns {
  #turn = 0;
  /** Until when a kind is taken to have nothing due. */
  readonly #emptyUntil = new Map<Kind, Millis>();

  /** How many of so many slots each of these kinds has a right to. */
  shares(max: number, kinds: ReadonlySet<Kind>, now: Millis): ReadonlyMap<Kind, number> {
    const asked = TURNS.filter((kind) => kinds.has(kind));
    const busy = asked.filter((kind) => (this.#emptyUntil.get(kind) ?? now) <= now);
    const present = busy.length > 0 ? busy : asked;
    const shares = new Map<Kind, number>();
    for (let slot = 0; slot < max && present.length > 0; slot += 1) {
      const kind = present[this.#turn % present.length] ?? DEFERRED;
      this.#turn = (this.#turn + 1) % (TURNS.length * 3_000);
      shares.set(kind, (shares.get(kind) ?? 0) + 1);
    }
    return shares;
  }

  /** A claim of a kind brought so many. */
  note(kind: Kind, count: number, now: Millis): void {
    if (count > 0) this.#emptyUntil.delete(kind);
    else this.#emptyUntil.set(kind, now + EMPTY_MS);
  }
}
