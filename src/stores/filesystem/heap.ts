/**
 * heap — a binary heap whose items know their place, and a way to look at several heaps in order.
 *
 * due-tree.ts calls it. An item can be removed or moved from the middle in logarithmic time,
 * because it carries its own place; nothing is ever deleted lazily, so a heap is as large as what
 * it holds.
 */

/** What can lie in a heap: ordered by due time, then id. */
export interface HeapItem {
  /** When it is due; of a group: when its first member is. */
  due: number;
  /** Breaks ties. */
  id: string;
  /** Where it lies in its heap; -1 when it lies in none. */
  place: number;
}

/** Whether one item comes before another. */
function isBefore(one: HeapItem, other: HeapItem): boolean {
  return one.due < other.due || (one.due === other.due && one.id < other.id);
}

/** The smallest item lies at index 0; the children of index i at 2i+1 and 2i+2. */
export type Heap<Item extends HeapItem> = Item[];

/** Puts an item in. */
export function heapPush<Item extends HeapItem>(heap: Heap<Item>, item: Item): void {
  item.place = heap.length;
  heap.push(item);
  rise(heap, item);
}

/** Takes an item out, wherever it lies. */
export function heapRemove<Item extends HeapItem>(heap: Heap<Item>, item: Item): void {
  const last = heap.pop();
  if (last !== undefined && last !== item) {
    last.place = item.place;
    heap[item.place] = last;
    heapMoved(heap, last);
  }
  item.place = -1;
}

/** Puts an item right whose order has changed. */
export function heapMoved<Item extends HeapItem>(heap: Heap<Item>, item: Item): void {
  rise(heap, item);
  sink(heap, item);
}

function rise<Item extends HeapItem>(heap: Heap<Item>, item: Item): void {
  while (item.place > 0) {
    const parent = heap[(item.place - 1) >> 1];
    if (parent === undefined || !isBefore(item, parent)) return;
    swap(heap, item, parent);
  }
}

function sink<Item extends HeapItem>(heap: Heap<Item>, item: Item): void {
  for (;;) {
    const left = heap[2 * item.place + 1];
    const right = heap[2 * item.place + 2];
    const child = right !== undefined && left !== undefined && isBefore(right, left) ? right : left;
    if (child === undefined || !isBefore(child, item)) return;
    swap(heap, item, child);
  }
}

function swap<Item extends HeapItem>(heap: Heap<Item>, one: Item, other: Item): void {
  const place = one.place;
  one.place = other.place;
  other.place = place;
  heap[one.place] = one;
  heap[other.place] = other;
}
