/**
 * claim-fairness — the kinds of work of a spool, and how many of the free slots each is entitled
 * to.
 *
 * In turns, so that none gets less than a quarter of the slots while it has something due. One that
 * had nothing due has no turn until a look for a single message, every 100 ms, finds one: to ask it
 * costs as much as to ask one that has many. A look that finds one gives its kind its share.
 *
 * Why: docs/decisions/0015-kinds-of-work-share-the-slots.md
 */

import type { Millis } from '../core/duration.ts';
import type { ClaimableState, Lane } from '../core/state.ts';

/** What is claimed together. */
export interface ClaimKind {
  readonly lane: Lane;
  readonly states: readonly ClaimableState[];
}

const DEFERRED: ClaimKind = { lane: 'delivery', states: ['deferred', 'active'] };
const INCOMING: ClaimKind = { lane: 'delivery', states: ['incoming'] };
const BOUNCE: ClaimKind = { lane: 'notice', states: ['bounce', 'active'] };

/** In order of precedence. */
export const KINDS: readonly ClaimKind[] = [DEFERRED, INCOMING, BOUNCE];
/** The states of notices that can be due. */
export const NOTICE_STATES: readonly ClaimableState[] = BOUNCE.states;

/**
 * Four turns: each kind has at least one of them, the first has two. Also in docs/guarantees.md and
 * decision 0015.
 */
export const TURN_CYCLE: readonly ClaimKind[] = [DEFERRED, INCOMING, DEFERRED, BOUNCE];
/**
 * Interval of checks of a kind that had nothing due; meanwhile it gets what others leave. Also in
 * docs/guarantees.md, decision 0015 and test/spool/claim-fairness.test.ts.
 */
const LOOK_EVERY_MS = 100;

/** Whose turn it is. */
export class FairTurns {
  #turn = 0;
  /** Messages that were claimed since the turns restarted. */
  #given = 0;
  /** Whether the last restart came before every kind had its turn. */
  #wasEarly = false;
  /** Kinds that had nothing due when they were asked last, and when to look at them again. */
  readonly #lookAt = new Map<ClaimKind, Millis>();
  /** When the next retry of this process is due, as far as it was noted. */
  #retryAt: Millis = Number.POSITIVE_INFINITY;
  #question = '';

  /**
   * What is asked for now. A kind that had nothing for another query, as without a handler that was
   * busy then, may have something for this one.
   */
  ask(question: string): void {
    if (question !== this.#question) this.#lookAt.clear();
    this.#question = question;
  }

  /**
   * Handlers or pauses changed: what waited meanwhile goes in the order of precedence. Not twice in
   * a row before the turns went round: with changes that come quicker than that, only the first
   * kind would ever have a turn. True if the turns began again.
   */
  restart(): boolean {
    this.#lookAt.clear();
    const isEarly = this.#given > 0 && this.#given < TURN_CYCLE.length;
    if (isEarly && this.#wasEarly) return false;
    if (this.#given > 0) this.#wasEarly = isEarly;
    this.#turn = 0;
    this.#given = 0;
    return true;
  }

  /** A retry is due then: it is not to wait for the next look. */
  noteRetry(dueAt: Millis): void {
    this.#retryAt = Math.min(this.#retryAt, dueAt);
  }

  /** Kinds without a turn that have to be looked at now, for a single message each. */
  looks(kinds: ReadonlySet<ClaimKind>, now: Millis): readonly ClaimKind[] {
    // What is known to be due needs no look. It has a turn like the others: a look comes before
    // them, and where there is one slot only it would take that each time.
    if (this.#retryAt <= now) this.#lookAt.delete(DEFERRED);
    const isIdle = [...kinds].every((kind) => this.#lookAt.has(kind));
    return isIdle ? [] : KINDS.filter((kind) => kinds.has(kind) && this.#isDue(kind, now));
  }

  /** How many of this many slots each of these kinds has a right to. */
  shares(max: number, kinds: ReadonlySet<ClaimKind>): ReadonlyMap<ClaimKind, number> {
    const asked = TURN_CYCLE.filter((kind) => kinds.has(kind));
    const busy = asked.filter((kind) => !this.#lookAt.has(kind));
    const present = busy.length > 0 ? busy : asked;
    const [first] = present;
    if (first === undefined) return new Map();
    // Nothing is shared: that is no turn. Rounds of notices alone, while the handler is busy, could
    // otherwise let the turns of its next rounds all be those of retries.
    if (present.every((kind) => kind === first)) return new Map([[first, max]]);
    const shares = new Map<ClaimKind, number>();
    for (let slot = 0; slot < max; slot += 1) {
      const kind = present[this.#turn % present.length] ?? first;
      this.#turn = (this.#turn + 1) % (TURN_CYCLE.length * 3_000);
      shares.set(kind, (shares.get(kind) ?? 0) + 1);
    }
    return shares;
  }

  #isDue(kind: ClaimKind, now: Millis): boolean {
    const lookAt = this.#lookAt.get(kind);
    if (lookAt === undefined) return false;
    // Further away than it was ever set: the clock was set back.
    return lookAt <= now || lookAt > now + LOOK_EVERY_MS;
  }

  /** A round of claims brought this many of a kind. */
  note(kind: ClaimKind, count: number, now: Millis): void {
    if (kind === DEFERRED && this.#retryAt <= now) this.#retryAt = Number.POSITIVE_INFINITY;
    this.#given += count;
    if (count > 0) this.#lookAt.delete(kind);
    else this.#lookAt.set(kind, now + LOOK_EVERY_MS);
  }
}

/** Items of several kinds, to be taken in turn. */
export class ClaimMixture<K, Item> {
  readonly #turns: readonly K[];
  readonly #lists: ReadonlyMap<K, Item[]>;

  /** Whose turn comes after whose; a kind may have several turns. */
  constructor(turns: readonly K[]) {
    this.#turns = turns;
    this.#lists = new Map(turns.map((kind) => [kind, []]));
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
    const { size } = this;
    const places = new Map<K, number>();
    const items: Item[] = [];
    for (let turn = 0; items.length < size; turn = (turn + 1) % this.#turns.length) {
      const kind = this.#turns[turn] as K;
      const at = places.get(kind) ?? 0;
      items.push(...(this.#lists.get(kind)?.slice(at, at + 1) ?? []));
      places.set(kind, at + 1);
    }
    return items;
  }
}
