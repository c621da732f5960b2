/**
 * heap — a binary heap whose items know their place, so that any of them can leave in log time.
 */

/** What a heap can hold; in one heap at a time. */
export interface HeapItem {
  /** Where it is in its heap; -1 when it is in none. */
  place: number;
}

/** The smallest item first, by `isBefore`. */
export class Heap<Item extends HeapItem> {
  readonly #items: Item[] = [];
  readonly #isBefore: (one: Item, other: Item) => boolean;

  constructor(isBefore: (one: Item, other: Item) => boolean) {
    this.#isBefore = isBefore;
  }

  get size(): number {
    return this.#items.length;
  }

  first(): Item | undefined {
    return this.#items[0];
  }

  /** The item at this index: the children of index i are at 2i+1 and 2i+2. */
  at(index: number): Item | undefined {
    return this.#items[index];
  }

  add(item: Item): void {
    item.place = this.#items.length;
    this.#items.push(item);
    this.#rise(item);
  }

  remove(item: Item): void {
    const last = this.#items.pop();
    if (last !== undefined && last !== item) {
      this.#put(last, item.place);
      this.moved(last);
    }
    item.place = -1;
  }

  /** Puts an item in its right place after its order changed. */
  moved(item: Item): void {
    this.#rise(item);
    this.#sink(item);
  }

  #put(item: Item, place: number): void {
    this.#items[place] = item;
    item.place = place;
  }

  #rise(item: Item): void {
    for (;;) {
      const { place } = item;
      const above = place === 0 ? undefined : this.#items[(place - 1) >> 1];
      if (above === undefined || !this.#isBefore(item, above)) return;
      this.#put(item, above.place);
      this.#put(above, place);
    }
  }

  #sink(item: Item): void {
    for (;;) {
      const { place } = item;
      const left = this.#items[2 * place + 1];
      const right = this.#items[2 * place + 2];
      if (left === undefined) return;
      const below = right !== undefined && this.#isBefore(right, left) ? right : left;
      if (!this.#isBefore(below, item)) return;
      this.#put(item, below.place);
      this.#put(below, place);
    }
  }
}
