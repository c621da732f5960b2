/**
 * per-key — one state per topic, destination or key of the user's, for middleware that counts.
 *
 * Bounded: the least recently used state is dropped first.
 *
 * Called by circuit-breaker.ts and rate-limit.ts.
 */

import type { Delivery } from '../ports/handler.ts';
import { optionError } from './options.ts';

/** What is counted together: all, one topic, one destination, or what a function returns. */
export type KeyBy = 'all' | 'topic' | 'destination' | ((delivery: Delivery) => string);

/** How many keys one middleware remembers. Also in docs/how-to/middleware.md. */
const KEYS_MAX = 10_000;

/** States by key, made when first asked for. */
export class PerKey<T> {
  readonly #keyOf: (delivery: Delivery) => string;
  readonly #make: (key: string) => T;
  readonly #states = new Map<string, T>();

  constructor(by: (delivery: Delivery) => string, make: (key: string) => T) {
    this.#keyOf = by;
    this.#make = make;
  }

  /** The state that this delivery counts for. */
  of(delivery: Delivery): T {
    const key = this.#keyOf(delivery);
    const state = this.#states.get(key) ?? this.#make(key);
    // Taken out and put back: a Map keeps the order of putting in, so the oldest comes first.
    this.#states.delete(key);
    this.#states.set(key, state);
    if (this.#states.size > KEYS_MAX) {
      const [oldest] = this.#states.keys();
      if (oldest !== undefined) this.#states.delete(oldest);
    }
    return state;
  }
}

/** The function behind an option `by`. */
export function keyFunctionOf(what: string, by: KeyBy): (delivery: Delivery) => string {
  switch (by) {
    case 'all':
      return () => 'all';
    case 'topic':
      return ({ topic }) => topic;
    case 'destination':
      // Messages without a destination must not share one with each other's topics.
      return ({ envelope, topic }) => envelope.destination ?? `topic ${topic}`;
    default:
      if (typeof by !== 'function') {
        throw optionError(what, by, "'all', 'topic', 'destination' or a function of the delivery");
      }
      return (delivery) => keyFrom(what, by(delivery));
  }
}

function keyFrom(what: string, key: unknown): string {
  if (typeof key === 'string') return key;
  throw optionError(`what ${what}() returned`, key, 'a string');
}
