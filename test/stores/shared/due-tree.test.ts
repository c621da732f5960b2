/** The tree finds what a plain search finds, in the same order. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Lane } from 'respool';
import { type ClaimableState } from '../../../src/core/state.ts';
import { takesTopic } from '../../../src/core/topic.ts';
import { DueTree, type Leaf, type Walk } from '../../../src/stores/shared/due-tree.ts';

const STATES: readonly ClaimableState[] = ['incoming', 'deferred', 'bounce', 'active'];

const leafArbitrary = fc.record({
  topic: fc.constantFrom('a', 'a.b', 'c', 'c.d'),
  destination: fc.constantFrom(undefined, 'x', 'y', 'z'),
  priority: fc.nat(9),
  state: fc.constantFrom(...STATES),
  lane: fc.constantFrom<Lane[]>('delivery', 'notice'),
  due: fc.nat(20),
});
const walkArbitrary = fc.record({
  lane: fc.constantFrom<Lane[]>('delivery', 'notice'),
  states: fc.subarray([...STATES]),
  topics: fc.constantFrom(
    [{ pattern: '#', take: true }],
    [{ pattern: 'a.#', take: true }],
    [
      { pattern: 'c', take: false },
      { pattern: '#', take: true },
    ],
  ),
  exceptDestinations: fc.subarray(['x', 'y', 'z']),
});

test('entries that come and go are found in the order of a plain search', () => {
  fc.assert(
    fc.property(
      fc.array(leafArbitrary, { maxLength: 60 }),
      fc.infiniteStream(fc.nat(2)),
      walkArbitrary,
      fc.nat(20),
      (parts, chance, walk, now) => {
        const tree = new DueTree<Leaf>();
        const kept: Leaf[] = [];
        parts.forEach((part, index) => {
          const leaf: Leaf = { ...part, id: `m${index}`, place: -1, group: undefined };
          tree.add(leaf);
          kept.push(leaf);
          if (chance.next().value === 0) {
            const [gone] = kept.splice(index % kept.length, 1);
            if (gone !== undefined) tree.remove(gone);
          }
        });
        const fitting = kept.filter((leaf) => fits(leaf, walk));
        const due = fitting.filter((leaf) => leaf.due <= now).sort(byOrder);
        expect([...tree.due(walk, now)].map(({ id }) => id)).toEqual(due.map(({ id }) => id));
        const first = Math.min(...fitting.map((leaf) => leaf.due));
        expect(tree.nextDueAt(walk)).toBe(fitting.length === 0 ? null : first);
      },
    ),
    { numRuns: 500 },
  );
});

test('an entry that is not in the tree can be removed without harm', () => {
  const tree = new DueTree<Leaf>();
  const leaf: Leaf = {
    id: 'a',
    due: 1,
    place: -1,
    group: undefined,
    topic: 't',
    destination: undefined,
    priority: 5,
    state: 'incoming',
    lane: 'delivery',
  };
  tree.remove(leaf);
  tree.add(leaf);
  tree.remove(leaf);
  tree.remove(leaf);
  expect(tree.nextDueAt({ lane: 'delivery', states: ['incoming'] })).toBeNull();
});

function fits(leaf: Leaf, walk: Required<Walk>): boolean {
  return (
    leaf.lane === walk.lane &&
    walk.states.some((state) => state === leaf.state) &&
    takesTopic(walk.topics, leaf.topic) &&
    (leaf.destination === undefined || !walk.exceptDestinations.includes(leaf.destination))
  );
}

function byOrder(a: Leaf, b: Leaf): number {
  return a.priority - b.priority || a.due - b.due || (a.id < b.id ? -1 : 1);
}
