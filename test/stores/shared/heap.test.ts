import { expect, test } from 'vitest';
import { Heap, type HeapItem } from '../../../src/stores/shared/heap.ts';
import { seededDice } from 'respool/testkit';

interface Item extends HeapItem {
  value: number;
}

test('a heap gives its items in order, whatever was added, removed and moved before', () => {
  const dice = seededDice(1);
  const random = (count: number) => Math.floor(dice.random() * count);
  const heap = new Heap<Item>((one, other) => one.value < other.value);
  const held: Item[] = [];
  for (let step = 0; step < 5_000; step += 1) {
    const chosen = held[random(held.length)];
    if (chosen === undefined || random(10) < 5) {
      const item = { value: random(1_000), place: -1 };
      heap.add(item);
      held.push(item);
    } else if (random(2) === 0) {
      heap.remove(chosen);
      held.splice(held.indexOf(chosen), 1);
      expect(chosen.place).toBe(-1);
    } else {
      chosen.value = random(1_000);
      heap.moved(chosen);
    }
    expect(heap.size).toBe(held.length);
    const least = held.length === 0 ? undefined : Math.min(...held.map(({ value }) => value));
    expect(heap.first()?.value).toBe(least);
  }
  const values = held.map(({ value }) => value).sort((one, other) => one - other);
  for (const value of values) {
    const first = heap.first() as Item;
    expect(first.value).toBe(value);
    heap.remove(first);
  }
  expect(heap.first()).toBeUndefined();
});
