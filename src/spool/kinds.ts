/**
 * kinds — the kinds of work of a spool, and how many of the free slots each has a right to.
 *
 * In turns, so that none gets less than a quarter of the slots while it has something due. One that
 * had nothing due has no turn until a look for a single message, every 100 ms, finds one: to ask it
 * costs as much as to ask one that has many.
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
/** A kind that had nothing due is looked at so often; meanwhile it takes what the others leave. */
const LOOK_EVERY_MS = 100;

/** Whose turn it is. */
export class KindTurns {
  #turn = 0;
  /** Kinds that had nothing due when they were asked last, and when to look at them again. */
  readonly #lookAt = new Map<Kind, Millis>();
  #question = '';

  /**
   * What is asked for now. Who had nothing for another question, as without a handler that was busy
   * then, may have something for this one.
   */
  ask(question: string): void {
    if (question !== this.#question) this.#lookAt.clear();
    this.#question = question;
  }

  /** How many of so many slots each of these kinds has a right to. */
  shares(max: number, kinds: ReadonlySet<Kind>, now: Millis): ReadonlyMap<Kind, number> {
    const asked = TURNS.filter((kind) => kinds.has(kind));
    const busy = asked.filter((kind) => !this.#lookAt.has(kind));
    const shares = new Map<Kind, number>();
    let left = max;
    if (busy.length > 0) {
      for (const kind of new Set(asked)) {
        if (left === 0 || !this.#isDue(kind, now)) continue;
        shares.set(kind, 1);
        left -= 1;
      }
    }
    const present = busy.length > 0 ? busy : asked;
    for (let slot = 0; slot < left && present.length > 0; slot += 1) {
      const kind = present[this.#turn % present.length] ?? DEFERRED;
      this.#turn = (this.#turn + 1) % (TURNS.length * 3_000);
      shares.set(kind, (shares.get(kind) ?? 0) + 1);
    }
    return shares;
  }

  #isDue(kind: Kind, now: Millis): boolean {
    const lookAt = this.#lookAt.get(kind);
    // Further away than it was ever set: the clock was set back.
    return lookAt !== undefined && (lookAt <= now || lookAt > now + LOOK_EVERY_MS);
  }

  /** A round of claims brought so many of a kind. */
  note(kind: Kind, count: number, now: Millis): void {
    if (count > 0) this.#lookAt.delete(kind);
    else this.#lookAt.set(kind, now + LOOK_EVERY_MS);
  }
}

/** Items of several kinds, to be taken in turn: one of each, then the next of each. */
export class Mixture<K, Item> {
  readonly #lists: ReadonlyMap<K, Item[]>;

  /** In this order of precedence. */
  constructor(kinds: readonly K[]) {
    this.#lists = new Map(kinds.map((kind) => [kind, []]));
  }

  get size(): number {
    return [...this.#lists.values()].reduce((sum, list) => sum + list.length, 0);
  }

  add(kind: K, items: readonly Item[]): void {
    this.#lists.get(kind)?.push(...items);
  }

  inTurn(): readonly Item[] {
    const lists = [...this.#lists.values()].filter((list) => list.length > 0);
    if (lists.length === 1) return lists[0] ?? [];
    const longest = Math.max(0, ...lists.map((list) => list.length));
    const places = Array.from({ length: longest }, (_, at) => at);
    return places.flatMap((at) => lists.flatMap((list) => list.slice(at, at + 1)));
  }
}
