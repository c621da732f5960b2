/**
 * order-model — order keys under many commits: several at once, lazy ones, and hundreds of random
 * steps beside a model that knows what a claim must take. For stores with `traits.ordered`.
 */

import assert from 'node:assert/strict';
import type { Entry, Status } from '../../core/entry.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import { sampleEntries, sampleEntry } from '../samples.ts';
import { seededDice } from '../seeded-dice.ts';
import { assertNext, assertNothingDue, keyed } from './order.ts';
import {
  changeOf,
  claim,
  claimOne,
  type EntryCase,
  got,
  idsOf,
  later,
  put,
  stepped,
} from './shared.ts';

const COMMITS: readonly EntryCase[] = [
  {
    name: 'a commit that ends several of a key at once lets the one behind them go',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyed('d'), keyed('c'), keyed('b'), keyed('a'));
      const first = await claimOne(store);
      await assertNothingDue(store);
      const second = await got(store, 'c');
      const changes = [changeOf(second, 'remove'), changeOf(first, 'remove')];
      assert.deepEqual(await store.commit(changes), ['done', 'done']);
      await assertNext(store, 'b');
      await assertNothingDue(store);
    },
  },
  {
    name: 'a commit that ends one of a key and brings an earlier one back lets that one go',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyed('c', { state: 'archived', dueAt: null }), keyed('b'), keyed('a'));
      const taken = await claimOne(store);
      await assertNothingDue(store);
      const archived = await got(store, 'c');
      const back = stepped(archived, { state: 'incoming', dueAt: later(0) });
      const changes = [changeOf(taken, 'remove'), changeOf(archived, back)];
      assert.deepEqual(await store.commit(changes), ['done', 'done']);
      await assertNext(store, 'c');
      await assertNothingDue(store);
    },
  },
  {
    name: 'a lazy commit lets the next of a key go as well',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyed('c'), keyed('b'), keyed('a'));
      for (const next of ['b', 'a']) {
        const taken = await claimOne(store);
        await assertNothingDue(store);
        await store.commit([changeOf(taken, 'remove')], { durable: false });
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
        const expected = idsOf(entries.slice(round * 30, round * 30 + 30));
        assert.deepEqual(idsOf(taken), expected);
        await assertNothingDue(store);
        await store.commit(taken.map((entry) => changeOf(entry, 'remove')));
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
const KEYS: readonly (string | undefined)[] = ['k', 'l', 'm', undefined];
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
    assert.deepEqual([...idsOf(taken)].sort(), expected.sort(), `round ${round} of seed ${seed}`);
    for (const { envelope, status } of taken) note(known, envelope.id, status);
    for (const one of known.filter(() => dice.random() < 0.3)) await step(one);
  }

  function drawn(id: string): Entry {
    const key = KEYS[draw(KEYS.length)];
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
    const to = isGone ? 'remove' : stepped(entry, STEPS[draw(STEPS.length)]?.(nowMs, draw) ?? {});
    const done = await store.commit([changeOf(entry, to)], { durable: dice.random() < 0.5 });
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
function claimable(known: readonly Known[], now: number): string[] {
  const keys = new Set<string>();
  return known.flatMap(({ id, key, status }) => {
    if (status.state === 'bounce' || status.state === 'archived') return [];
    if (key !== undefined && keys.has(key)) return [];
    if (key !== undefined) keys.add(key);
    return status.dueAt !== null && status.dueAt <= now ? [id] : [];
  });
}

function note(known: Known[], id: string, status: Status | 'remove'): void {
  const at = known.findIndex((one) => one.id === id);
  const one = known[at];
  if (status === 'remove') known.splice(at, 1);
  else if (one !== undefined) one.status = status;
}

const MODELLED: readonly EntryCase[] = [1, 2, 3].map((seed) => ({
  name: `claims among random steps take what is due and first of its key, and all of it (${seed})`,
  needs: ['order'],
  run: ({ store }) => assertAsModelled(store, seed),
}));

export const orderModelCases: readonly EntryCase[] = [...COMMITS, ...MODELLED];
