/**
 * order-model — order keys at scale: several claimers and stores, a restart, many waiting
 * messages, many commits at once, and hundreds of random steps beside a model that knows what a
 * claim must take. For stores whose `traits.ordered` is true.
 */

import assert from 'node:assert/strict';
import type { Entry, Status } from '../../core/entry.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import { assertNotSlowed } from './load.ts';
import { assertNext, assertNothingDue, keyedEntry, moveTo } from './order.ts';
import {
  assertRefused,
  entryChange,
  claim,
  claimIds,
  claimOne,
  claimRequest,
  type EntryCase,
  got,
  sampleIds,
  later,
  put,
  steppedStatus,
} from './shared.ts';
import { sampleEntries, sampleEntry } from '../samples.ts';
import { seededDice } from '../virtual-time.ts';

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
        assert.deepEqual(await store.commit([entryChange(entry, 'remove')]), ['done']);
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
      await put(store, keyedEntry('c'));
      await put(other, keyedEntry('b'));
      await put(store, keyedEntry('a'));
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
      await put(
        store,
        keyedEntry('d', { state: 'hold', dueAt: null }),
        keyedEntry('c'),
        keyedEntry('b'),
      );
      await assertNothingDue(store);
      const again = await reopen();
      await assertNothingDue(again);
      await put(again, keyedEntry('a', { priority: 0 }));
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
      await put(store, keyedEntry('head', { state: 'hold', dueAt: null }));
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
      await put(store, keyedEntry('z1', { orderKey: 'z', state: 'hold', dueAt: null }));
      await put(store, keyedEntry('a1', { orderKey: 'a' }), keyedEntry('alone', { orderKey: 'x' }));
      await put(store, keyedEntry('d1', { orderKey: 'd', state: 'deferred', dueAt: later(50) }));
      await put(store, sampleEntry('free'), keyedEntry('a2', { orderKey: 'a' }));
      await put(store, keyedEntry('d2', { orderKey: 'd' }), keyedEntry('z2', { orderKey: 'z' }));
      await put(store, keyedEntry('z3', { orderKey: 'z', state: 'deferred', dueAt: later(70) }));
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
    name: 'the first ones of fewer than 1 or more than 500 keys are refused',
    needs: ['order'],
    async run({ store }) {
      for (const max of [0, -1, 1.5, 501, Number.NaN]) {
        await assert.rejects(headsOf(store)(max), { code: 'limit.exceeded' });
      }
    },
  },
  {
    name: 'the held first of a key is told however many keys with others to go are before it',
    needs: ['order'],
    async run({ store }) {
      const keyOf = (index: number): string => `key ${index >> 1}`;
      await put(store, ...sampleEntries(1_010, 'm', (index) => ({ orderKey: keyOf(index) })));
      await put(store, keyedEntry('late', { orderKey: 'l', state: 'deferred', dueAt: later(50) }));
      await put(store, keyedEntry('next', { orderKey: 'l' }));
      await put(store, keyedEntry('stuck', { orderKey: 'z', state: 'hold', dueAt: null }));
      await put(store, keyedEntry('behind', { orderKey: 'z' }));
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
      await put(
        store,
        keyedEntry('a', { state: 'hold', dueAt: null }),
        keyedEntry('b'),
        keyedEntry('c'),
      );
      await put(store, keyedEntry('d', { state: 'bounce', lane: 'notice', dueAt: null }));
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

const COMMITS: readonly EntryCase[] = [
  {
    name: 'a commit that ends several of a key at once lets the one behind them go',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('d'), keyedEntry('c'), keyedEntry('b'), keyedEntry('a'));
      const first = await claimOne(store);
      await assertNothingDue(store);
      const second = await got(store, 'c');
      const changes = [entryChange(second, 'remove'), entryChange(first, 'remove')];
      assert.deepEqual(await store.commit(changes), ['done', 'done']);
      await assertNext(store, 'b');
      await assertNothingDue(store);
    },
  },
  {
    name: 'a commit that ends one of a key and brings an earlier one back lets that one go',
    needs: ['order'],
    async run({ store }) {
      await put(
        store,
        keyedEntry('c', { state: 'archived', dueAt: null }),
        keyedEntry('b'),
        keyedEntry('a'),
      );
      const taken = await claimOne(store);
      await assertNothingDue(store);
      const archived = await got(store, 'c');
      const back = steppedStatus(archived, { state: 'incoming', dueAt: later(0) });
      const changes = [entryChange(taken, 'remove'), entryChange(archived, back)];
      assert.deepEqual(await store.commit(changes), ['done', 'done']);
      await assertNext(store, 'c');
      await assertNothingDue(store);
    },
  },
  {
    name: 'a lazy commit lets the next of a key go as well',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('c'), keyedEntry('b'), keyedEntry('a'));
      for (const next of ['b', 'a']) {
        const taken = await claimOne(store);
        await assertNothingDue(store);
        await store.commit([entryChange(taken, 'remove')], { durable: false });
        assert.equal((await got(store, next)).status.state, 'incoming');
      }
      await assertNext(store, 'a');
    },
  },
  {
    name: 'a commit that ends the first ones of many keys lets all the next ones go',
    needs: ['order'],
    async run({ store }) {
      const keyOf = (index: number): string => `key ${index % 30}`;
      const entries = sampleEntries(90, 'm', (index) => ({ orderKey: keyOf(index) }));
      await put(store, ...entries);
      for (let round = 0; round < 3; round += 1) {
        const taken = await claim(store);
        const expected = sampleIds(entries.slice(round * 30, round * 30 + 30));
        assert.deepEqual(sampleIds(taken), expected);
        await assertNothingDue(store);
        await store.commit(taken.map((entry) => entryChange(entry, 'remove')));
      }
    },
  },
];

/** What the model knows of one message. */
interface Known {
  readonly id: string;
  readonly key: string | undefined;
  status: Status;
}

const ROUNDS = 40;
const MODEL_KEYS: readonly (string | undefined)[] = ['k', 'l', 'm', undefined];
const LEASE_MS = 30_000;

/** Random steps beside a model: a claim of everything takes what the model says, no more. */
async function assertAsModelled(store: EntryStore, seed: number): Promise<void> {
  const dice = seededDice(seed);
  const draw = (count: number): number => Math.floor(dice.random() * count);
  /** In the order of their inserts. */
  const known: Known[] = [];
  let nowMs = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const fresh = Array.from({ length: draw(6) }, (_, at) => drawn(`${draw(1e6)}-${round}-${at}`));
    await put(store, ...fresh);
    known.push(
      ...fresh.map(({ envelope: { id, orderKey: key }, status }) => ({ id, key, status })),
    );
    nowMs += draw(20_000);
    const now = later(nowMs);
    const expected = claimable(known, now);
    const taken = await claim(store, { now, leaseMs: LEASE_MS, max: 500 });
    assert.deepEqual(
      [...sampleIds(taken)].sort(),
      expected.sort(),
      `round ${round} of seed ${seed}`,
    );
    for (const { envelope, status } of taken) note(known, envelope.id, status);
    for (const one of known.filter(() => dice.random() < 0.3)) await step(one);
  }

  function drawn(id: string): Entry {
    const key = MODEL_KEYS[draw(MODEL_KEYS.length)];
    const isLate = dice.random() < 0.2;
    return sampleEntry(id, {
      ...(key === undefined ? {} : { orderKey: key }),
      priority: draw(10),
      state: isLate ? 'deferred' : 'incoming',
      dueAt: later(nowMs + (isLate ? draw(60_000) : 0)),
    });
  }

  async function step({ id }: Known): Promise<void> {
    const entry = await got(store, id);
    const isGone = dice.random() < 0.4;
    const to = isGone
      ? 'remove'
      : steppedStatus(entry, STEPS[draw(STEPS.length)]?.(nowMs, draw) ?? {});
    const done = await store.commit([entryChange(entry, to)], { durable: dice.random() < 0.5 });
    assert.deepEqual(done, ['done']);
    note(known, id, to);
  }
}

/** Where a step may lead. */
const STEPS: readonly ((nowMs: number, draw: (count: number) => number) => Partial<Status>)[] = [
  () => ({ state: 'hold', lane: 'delivery', dueAt: null }),
  () => ({ state: 'bounce', lane: 'notice', dueAt: null }),
  () => ({ state: 'archived', lane: 'delivery', dueAt: later(1e9) }),
  (nowMs) => ({ state: 'incoming', lane: 'delivery', dueAt: later(nowMs) }),
  (nowMs) => ({ state: 'incoming', lane: 'delivery', dueAt: later(nowMs) }),
  (nowMs, draw) => ({
    state: 'deferred',
    lane: 'delivery',
    dueAt: later(nowMs + draw(40_000)),
  }),
];

/** The ids a claim of everything must take now. */
function claimable(knowns: readonly Known[], now: number): string[] {
  const keys = new Set<string>();
  return knowns.flatMap(({ id, key, status }) => {
    if (status.state === 'bounce' || status.state === 'archived') return [];
    if (key !== undefined && keys.has(key)) return [];
    if (key !== undefined) keys.add(key);
    return status.dueAt !== null && status.dueAt <= now ? [id] : [];
  });
}

function note(knowns: Known[], id: string, status: Status | 'remove'): void {
  const at = knowns.findIndex((one) => one.id === id);
  const one = knowns[at];
  if (status === 'remove') knowns.splice(at, 1);
  else if (one !== undefined) one.status = status;
}

const MODELLED: readonly EntryCase[] = [1, 2, 3].map((seed) => ({
  name: `claims among random steps take what is due and first of its key, and all of it (${seed})`,
  needs: ['order'],
  run: ({ store }) => assertAsModelled(store, seed),
}));

export const orderModelCases: readonly EntryCase[] = [...COMMITS, ...MODELLED];
