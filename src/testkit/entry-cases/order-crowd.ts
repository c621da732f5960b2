/**
 * order-crowd — order among many: several claimers and stores, a restart, a crowd that waits, and
 * what is told of the first ones of keys. For stores whose `traits.ordered` is true.
 */

import assert from 'node:assert/strict';
import type { Entry } from '../../core/entry.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import { sampleEntries, sampleEntry } from '../samples.ts';
import { assertNotSlowed } from './load.ts';
import { assertNext, assertNothingDue, keyed, moveTo } from './order.ts';
import {
  assertRefused,
  changeOf,
  claimIds,
  claimRequest,
  type EntryCase,
  later,
  put,
} from './shared.ts';

const KEYS = 5;
const PER_KEY = 24;
const CLAIMERS = 8;
/** How often in a row a claimer may find nothing while others work. */
const IDLE_MAX = 2_000;

/** Claimers over these stores at once; insists on one at a time per key, in order. */
async function assertInTurns(stores: readonly [EntryStore, ...EntryStore[]]): Promise<void> {
  const [first] = stores;
  const keyOf = (index: number): string => `key ${index % KEYS}`;
  const total = KEYS * PER_KEY;
  await put(
    first,
    ...sampleEntries(total, 'm', (index) => ({
      orderKey: keyOf(index),
      priority: (index * 3) % 10,
      dueAt: later(-((index * 7) % 13)),
    })),
  );
  const running = new Set<string>();
  const taken = new Map<string, string[]>();
  let done = 0;
  const begin = ({ envelope: { id, orderKey = '' } }: Entry): void => {
    assert.ok(!running.has(orderKey), `two of "${orderKey}" at once, the second is "${id}"`);
    running.add(orderKey);
    taken.set(orderKey, [...(taken.get(orderKey) ?? []), id]);
  };
  const work = async (store: EntryStore): Promise<void> => {
    for (let idle = 0; idle < IDLE_MAX && done < total; idle += 1) {
      const bite = await store.claim(claimRequest(store, { max: 3 }));
      if (bite.length > 0) idle = 0;
      for (const entry of bite) begin(entry);
      for (const entry of bite) {
        // Before the commit: what it lets go may be in another's hands before we hear of it.
        running.delete(entry.envelope.orderKey ?? '');
        assert.deepEqual(await store.commit([changeOf(entry, 'remove')]), ['done']);
        done += 1;
      }
    }
  };
  await Promise.all(
    Array.from({ length: CLAIMERS }, (_, at) => work(stores[at % stores.length] ?? first)),
  );
  assert.equal(done, total, 'some were never let go');
  for (const ids of taken.values()) assert.deepEqual(ids, [...ids].sort());
}

const TOGETHER: readonly EntryCase[] = [
  {
    name: 'many claimers of one store keep the order of keys, and nothing is left behind',
    needs: ['order'],
    run: ({ store }) => assertInTurns([store]),
  },
  {
    name: 'claimers of two stores over the same data keep the order of keys',
    needs: ['order', 'share'],
    run: async ({ store, second }) => assertInTurns([store, await second()]),
  },
  {
    name: 'what one store takes blocks its key for the other, what it ends lets it go there',
    needs: ['order', 'share'],
    async run({ store, second }) {
      const other = await second();
      await put(store, keyed('c'));
      await put(other, keyed('b'));
      await put(store, keyed('a'));
      assert.deepEqual(await claimIds(other), ['c']);
      await assertNothingDue(store);
      await moveTo(other, 'c', 'remove');
      await assertNext(store, 'b');
      await assertNothingDue(other);
      await moveTo(store, 'b', 'remove');
      await assertNext(other, 'a');
    },
  },
  {
    name: 'a restart keeps the order of a key, and what waits for its turn',
    needs: ['order', 'reopen'],
    async run({ store, reopen }) {
      await put(store, keyed('d', { state: 'hold', dueAt: null }), keyed('c'), keyed('b'));
      await assertNothingDue(store);
      const again = await reopen();
      await assertNothingDue(again);
      await put(again, keyed('a', { priority: 0 }));
      await moveTo(again, 'd', 'remove');
      for (const id of ['c', 'b', 'a']) {
        await assertNext(again, id);
        await assertNothingDue(again);
        await moveTo(again, id, 'remove');
      }
    },
  },
];

const CROWDS: readonly EntryCase[] = [
  {
    name: 'a crowd behind the held first of a key does not slow the claim of one other',
    needs: ['order'],
    async run(world) {
      const { store } = world;
      await put(store, keyed('head', { state: 'hold', dueAt: null }));
      const parts = { orderKey: 'k', topic: 'wanted', priority: 0, dueAt: later(-1_000) };
      await assertNotSlowed(world, parts, {});
      await assertNothingDue(store);
      await moveTo(store, 'head', 'remove');
      await assertNext(store, 'few-00000');
      await assertNothingDue(store);
    },
  },
];

/** What a store that keeps order must have. */
function headsOf(store: EntryStore): NonNullable<EntryStore['keyHeads']> {
  const keyHeads = store.keyHeads?.bind(store);
  assert.ok(keyHeads !== undefined, 'a store that keeps order has keyHeads');
  return keyHeads;
}

const HEADS: readonly EntryCase[] = [
  {
    name: 'the first ones of keys are told with how many wait behind them, those stuck first',
    needs: ['order'],
    async run({ store }) {
      const keyHeads = headsOf(store);
      assert.deepEqual(await keyHeads(10), []);
      await put(store, keyed('z1', { orderKey: 'z', state: 'hold', dueAt: null }));
      await put(store, keyed('a1', { orderKey: 'a' }), keyed('alone', { orderKey: 'x' }));
      await put(store, keyed('d1', { orderKey: 'd', state: 'deferred', dueAt: later(50) }));
      await put(store, sampleEntry('free'), keyed('a2', { orderKey: 'a' }));
      await put(store, keyed('d2', { orderKey: 'd' }), keyed('z2', { orderKey: 'z' }));
      await put(store, keyed('z3', { orderKey: 'z', state: 'deferred', dueAt: later(70) }));
      const held = { orderKey: 'z', id: 'z1', state: 'hold', dueAt: null, behind: 2 };
      const fresh = { orderKey: 'a', id: 'a1', state: 'incoming', dueAt: later(0), behind: 1 };
      const deferred = { orderKey: 'd', id: 'd1', state: 'deferred', dueAt: later(50), behind: 1 };
      assert.deepEqual(await keyHeads(500), [held, deferred, fresh]);
      assert.deepEqual(await keyHeads(1), [held]);
      await claimIds(store, { now: later(1), leaseMs: 100 });
      const active = { ...fresh, state: 'active', dueAt: later(101) };
      assert.deepEqual(await keyHeads(500), [held, deferred, active]);
    },
  },
  {
    name: 'the held first of a key is told however many keys with others to go are before it',
    needs: ['order'],
    async run({ store }) {
      const keyOf = (index: number): string => `key ${index >> 1}`;
      await put(store, ...sampleEntries(1_010, 'm', (index) => ({ orderKey: keyOf(index) })));
      await put(store, keyed('late', { orderKey: 'l', state: 'deferred', dueAt: later(50) }));
      await put(store, keyed('next', { orderKey: 'l' }));
      await put(store, keyed('stuck', { orderKey: 'z', state: 'hold', dueAt: null }));
      await put(store, keyed('behind', { orderKey: 'z' }));
      await claimIds(store, { max: 1 });
      const heads = (await headsOf(store)(500)).map(({ id }) => id);
      assert.deepEqual(heads.slice(0, 3), ['late', 'stuck', 'm-00002']);
      assert.equal(heads.length, 500);
    },
  },
  {
    name: 'the next of a key is told as its first once the former no longer blocks',
    needs: ['order'],
    async run({ store }) {
      const keyHeads = headsOf(store);
      await put(store, keyed('a', { state: 'hold', dueAt: null }), keyed('b'), keyed('c'));
      await put(store, keyed('d', { state: 'bounce', lane: 'notice', dueAt: null }));
      assert.deepEqual(
        (await keyHeads(10)).map(({ id, behind }) => `${id} ${behind}`),
        ['a 2'],
      );
      await moveTo(store, 'a', { state: 'bounce', lane: 'notice', dueAt: null });
      assert.deepEqual(
        (await keyHeads(10)).map(({ id, behind }) => `${id} ${behind}`),
        ['b 1'],
      );
      await moveTo(store, 'b', { state: 'archived', dueAt: null, ending: 'delivered' });
      assert.deepEqual(await keyHeads(10), []);
    },
  },
  {
    name: 'of more than 1,000 that wait behind the first of a key 1,000 are told',
    needs: ['order'],
    async run({ store }) {
      await put(store, ...sampleEntries(1_003, 'm', { orderKey: 'k' }));
      const [head] = await headsOf(store)(1);
      assert.deepEqual([head?.id, head?.behind], ['m-00000', 1_000]);
    },
  },
  {
    name: 'the first ones of keys are asked for by 1 to 500',
    needs: ['order'],
    async run({ store }) {
      const keyHeads = headsOf(store);
      for (const max of [0, 501, -1, 1.5, Number.NaN]) {
        await assertRefused(() => keyHeads(max), 'limit.exceeded');
      }
    },
  },
];

/** Nothing of the above is left out in silence: what the maker says and the store says agree. */
const WORDS: readonly EntryCase[] = [
  {
    name: 'a store that keeps the order of keys says so',
    needs: ['order'],
    async run({ store }) {
      assert.equal(store.traits.ordered, true);
    },
  },
  {
    name: 'a store that keeps no order of keys says so, and has no first ones to tell of',
    needs: ['noOrder'],
    async run({ store }) {
      const text = 'its traits say that it keeps order: run the suite with canOrder: true';
      assert.equal(store.traits.ordered, false, text);
      assert.ok(!('keyHeads' in store));
    },
  },
];

export const orderCrowdCases: readonly EntryCase[] = [...WORDS, ...TOGETHER, ...CROWDS, ...HEADS];
