/**
 * indexed-set — a set of things that come and go by the thousand, as an array in which each knows
 * its place.
 *
 * n.b. Not a Set: one of those makes itself a new table after so many comings and goings, and every
 * old table points to the next. Once one of them has grown old, all that was in any later one stays
 * in memory until the next full collection, and is carried about until then: that was a third of
 * the time of a busy process. (V8 13.6, 2026-11-18)
 */

/** Where a thing stands in each crowd it may be in; undefined where it is in none. */
export type Indexed<Key extends string> = { [Name in Key]: number | undefined };

/** The things that are in it, in no order. */
export class IndexedSet<Key extends string, Thing extends Indexed<Key>> {
  readonly #key: Key;
  readonly #things: Thing[] = [];

  /** Where its things keep their place: a property that belongs to one crowd alone. */
  constructor(key: Key) {
    this.#key = key;
  }

  get size(): number {
    return this.#things.length;
  }

  /** Asks the thing: its property belongs to this crowd alone. */
  has(thing: Thing): boolean {
    return thing[this.#key] !== undefined;
  }

  add(thing: Thing): void {
    if (this.has(thing)) return;
    this.#put(thing, this.#things.length);
  }

  delete(thing: Thing): void {
    const at = thing[this.#key];
    if (at === undefined) return;
    const last = this.#things.pop();
    if (last !== undefined && last !== thing) this.#put(last, at);
    this.#place(thing, undefined);
  }

  /** Those that are in it now; some may be gone when their turn comes. */
  list(): readonly Thing[] {
    return this.#things.slice();
  }

  #put(thing: Thing, at: number): void {
    this.#things[at] = thing;
    this.#place(thing, at);
  }

  #place(thing: Indexed<Key>, at: number | undefined): void {
    thing[this.#key] = at;
  }
}
