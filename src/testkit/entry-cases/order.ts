/**
 * order — messages of one key go one at a time, in the order they were inserted.
 *
 * For stores whose `traits.ordered` is true. What waits for its turn may show any due time, so no
 * case looks at it. Claims name their time: a store must not let the next one go by a clock of its
 * own that is ahead of theirs. The same at scale, and in random steps: order-model.ts.
 */

import assert from 'node:assert/strict';
import type { Millis } from '../../core/duration.ts';
import type { Entry, Status } from '../../core/entry.ts';
import type { ClaimFilter, EntryStore } from '../../ports/entry-store.ts';
import { SAMPLE_AT, SAMPLE_LEASE_MS, type SampleParts, sampleEntry } from '../samples.ts';
import {
  entryChange,
  claim,
  claimIds,
  claimOne,
  claimRequest,
  DELIVERY,
  type EntryCase,
  got,
  later,
  NOTICE,
  put,
  steppedStatus,
} from './shared.ts';

/** An entry of key `k`, or of the one given. */
export function keyedEntry(id: string, parts: SampleParts = {}): Entry {
  return sampleEntry(id, { orderKey: 'k', ...parts });
}

/** Changes an entry as it is now; insists that it was done. */
export async function moveTo(
  store: EntryStore,
  id: string,
  to: Partial<Status> | 'remove',
): Promise<void> {
  const entry = await got(store, id);
  const change = entryChange(entry, to === 'remove' ? to : steppedStatus(entry, to));
  assert.deepEqual(await store.commit([change]), ['done']);
}

/** Nothing is due for this filter, neither to a claim nor by `nextDueAt`. */
export async function assertNothingDue(
  store: EntryStore,
  now: Millis = SAMPLE_AT,
  filter: ClaimFilter = DELIVERY,
): Promise<void> {
  assert.deepEqual(await claimIds(store, { ...filter, now }), []);
  const dueAt = await store.nextDueAt(filter);
  assert.ok(dueAt === null || dueAt > now, `told of something due ${now - (dueAt ?? now)} ms ago`);
}

/** Exactly this one is due: `nextDueAt` returns its time, and a claim takes it alone. */
export async function assertNext(
  store: EntryStore,
  id: string,
  now: Millis = SAMPLE_AT,
): Promise<void> {
  const dueAt = await store.nextDueAt(DELIVERY);
  assert.ok(dueAt !== null && dueAt <= now, `"${id}" is due, and nextDueAt told ${dueAt}`);
  assert.deepEqual(await claimIds(store, { now }), [id]);
}

const ARCHIVED = { state: 'archived', dueAt: later(1e9), ending: 'delivered' } as const;
const BOUNCED = { state: 'bounce', lane: 'notice', dueAt: null, ending: 'bounced' } as const;

/** What becomes of a head, and the sentence for it. */
const ENDINGS: readonly (readonly [string, Partial<Status> | 'remove'])[] = [
  ['removed', 'remove'],
  ['archived', ARCHIVED],
  ['bounced', BOUNCED],
  ['bounced, with a notice that is due,', { ...BOUNCED, dueAt: SAMPLE_AT }],
];

const AFTER_AN_END: readonly EntryCase[] = ENDINGS.map(([how, to]) => ({
  name: `once the first of a key is ${how} the next is due at once`,
  needs: ['order'],
  async run({ store }) {
    await put(store, keyedEntry('c'), keyedEntry('b'), keyedEntry('a'));
    assert.deepEqual(await claimIds(store), ['c']);
    await assertNothingDue(store);
    await moveTo(store, 'c', to);
    await assertNext(store, 'b');
    await assertNothingDue(store);
    await moveTo(store, 'b', to);
    await assertNext(store, 'a');
  },
}));

const HELD = { state: 'hold', dueAt: null } as const;

/** How a head that blocks may stand there. */
const BLOCKING: readonly (readonly [string, SampleParts])[] = [
  ['incoming but of a topic that is not asked for', { topic: 'paused' }],
  ['active', { state: 'active', holder: 'x:1', claimedFrom: 'incoming', dueAt: later(9_000) }],
  ['deferred', { state: 'deferred', dueAt: later(9_000) }],
  ['deferred without a due time', { state: 'deferred', dueAt: null }],
  ['held', HELD],
];

const NOT_PAUSED: ClaimFilter = {
  ...DELIVERY,
  topics: [
    { pattern: 'paused', take: false },
    { pattern: '#', take: true },
  ],
};

const BEHIND_A_HEAD: readonly EntryCase[] = BLOCKING.map(([how, parts]) => ({
  name: `while the first of a key is ${how} the next is not taken`,
  needs: ['order'],
  async run({ store }) {
    await put(store, keyedEntry('head', parts));
    await put(store, keyedEntry('a', { priority: 0, dueAt: later(-1_000) }));
    await assertNothingDue(store, SAMPLE_AT, NOT_PAUSED);
    // Asked again and again, and a little later, it is still not.
    await assertNothingDue(store, later(8_000), NOT_PAUSED);
    await moveTo(store, 'head', 'remove');
    await assertNext(store, 'a', later(8_000));
  },
}));

const UNBLOCKING: readonly (readonly [string, SampleParts])[] = [
  ['bounced', BOUNCED],
  ['archived', ARCHIVED],
  ['held as a notice', { ...HELD, lane: 'notice' }],
];

const BEHIND_NOBODY: readonly EntryCase[] = UNBLOCKING.map(([how, parts]) => ({
  name: `one that is ${how} blocks no other of its key`,
  needs: ['order'],
  async run({ store }) {
    await put(store, keyedEntry('head', parts), keyedEntry('a'));
    await assertNext(store, 'a');
  },
}));

const TURNS: readonly EntryCase[] = [
  {
    name: 'messages of one key go in the order of their insert, whatever else they say',
    needs: ['order'],
    async run({ store }) {
      const ids = Array.from({ length: 30 }, (_, index) => `m-${(index * 7) % 30}`);
      const entries = ids.map((id, index) =>
        keyedEntry(id, {
          priority: 9 - (index % 10),
          dueAt: later(-((index * 13) % 17)),
          enqueuedAt: later(-((index * 5) % 11)),
          topic: `t${index % 3}`,
          state: index % 4 === 1 ? 'deferred' : 'incoming',
        }),
      );
      await put(store, ...entries.slice(0, 20));
      for (const entry of entries.slice(20)) await put(store, entry);
      const taken: string[] = [];
      for (const _ of ids) {
        const entry = await claimOne(store);
        taken.push(entry.envelope.id);
        assert.deepEqual(await claimIds(store), []);
        await store.commit([entryChange(entry, 'remove')]);
      }
      assert.deepEqual(taken, ids);
      assert.deepEqual(await claimIds(store), []);
    },
  },
  {
    name: 'of two of one key in one insert a claim takes the first alone',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('b'), keyedEntry('a', { priority: 0 }));
      assert.deepEqual(await claimIds(store), ['b']);
      assert.deepEqual(await claimIds(store), []);
    },
  },
  {
    name: 'other keys, and those without one, do not wait',
    needs: ['order'],
    async run({ store }) {
      await put(
        store,
        keyedEntry('a1', HELD),
        keyedEntry('a2'),
        keyedEntry('b1', { orderKey: 'K' }),
      );
      await put(store, sampleEntry('c1'), sampleEntry('c2'), keyedEntry('b2', { orderKey: 'K' }));
      assert.deepEqual(await claimIds(store), ['b1', 'c1', 'c2']);
      await moveTo(store, 'b1', 'remove');
      await assertNext(store, 'b2');
    },
  },
  {
    name: 'a claim is filled with what may go, past those that wait for their turn',
    needs: ['order'],
    async run({ store }) {
      const waiting = Array.from({ length: 50 }, (_, at) => keyedEntry(`w${at}`, { priority: 0 }));
      await put(store, keyedEntry('head', HELD), ...waiting);
      await put(store, sampleEntry('x'), sampleEntry('y'), sampleEntry('z'));
      assert.deepEqual(await claimIds(store, { max: 2 }), ['x', 'y']);
      assert.deepEqual(await claimIds(store, { max: 2 }), ['z']);
    },
  },
  {
    name: 'one that comes later goes behind those that wait, however urgent',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('c'), keyedEntry('b'));
      assert.deepEqual(await claimIds(store), ['c']);
      await put(store, keyedEntry('a', { priority: 0, dueAt: later(-1e6) }));
      await assertNothingDue(store);
      await moveTo(store, 'c', 'remove');
      await assertNext(store, 'b');
      await moveTo(store, 'b', 'remove');
      await assertNext(store, 'a');
    },
  },
  {
    name: 'a duplicate keeps the place of the one that is there',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('b', HELD), keyedEntry('a'));
      const results = await store.insert([keyedEntry('b'), keyedEntry('c')]);
      assert.deepEqual(results, [{ duplicateOf: 'b' }, 'stored']);
      await assertNothingDue(store);
      await moveTo(store, 'b', 'remove');
      await assertNext(store, 'a');
    },
  },
  {
    name: 'a claim by ids does not take one that waits for its turn',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('b'), keyedEntry('a'));
      assert.deepEqual(await claimIds(store, { ids: ['a'] }), []);
      assert.deepEqual(await claimIds(store, { ids: ['a', 'b'] }), ['b']);
      assert.deepEqual(await claimIds(store, { ids: ['a'] }), []);
      await moveTo(store, 'b', 'remove');
      assert.deepEqual(await claimIds(store, { ids: ['a'] }), ['a']);
    },
  },
];

const TIMES: readonly EntryCase[] = [
  {
    name: 'while the first of a key is deferred its due time is the next of the key',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('b'), keyedEntry('a', { priority: 0 }));
      const taken = await claimOne(store);
      const deferred = steppedStatus(taken, { state: 'deferred', dueAt: later(5_000) });
      await store.commit([entryChange(taken, deferred)]);
      await assertNothingDue(store);
      assert.equal(await store.nextDueAt(DELIVERY), later(5_000));
      await assertNothingDue(store, later(4_999));
      await assertNext(store, 'b', later(5_000));
      await moveTo(store, 'b', 'remove');
      await assertNext(store, 'a', later(5_000));
    },
  },
  {
    name: 'the first of a key whose lease is over is taken again before the next',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('b'), keyedEntry('a', { priority: 0 }));
      assert.deepEqual(await claimIds(store), ['b']);
      await assertNothingDue(store, later(SAMPLE_LEASE_MS - 1));
      assert.equal(await store.nextDueAt(DELIVERY), later(SAMPLE_LEASE_MS));
      await assertNext(store, 'b', later(SAMPLE_LEASE_MS));
      assert.equal((await got(store, 'b')).status.lost, 1);
      await assertNothingDue(store, later(SAMPLE_LEASE_MS));
    },
  },
  {
    name: 'a lease of the first of a key that is extended keeps the next waiting',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('b'), keyedEntry('a'));
      const taken = await claimOne(store);
      await assertNothingDue(store);
      const { status } = taken;
      const extended = { ...status, revision: status.revision + 1, dueAt: later(500_000) };
      assert.deepEqual(await store.commit([entryChange(taken, extended)]), ['done']);
      await assertNothingDue(store, later(499_999));
      await assertNext(store, 'b', later(500_000));
    },
  },
  {
    name: 'one that is not due itself waits for its time after its turn has come',
    needs: ['order'],
    async run({ store }) {
      await put(
        store,
        keyedEntry('b'),
        keyedEntry('a', { state: 'deferred', dueAt: later(7_000) }),
      );
      assert.deepEqual(await claimIds(store), ['b']);
      await moveTo(store, 'b', 'remove');
      await assertNothingDue(store, later(6_999));
      assert.equal(await store.nextDueAt(DELIVERY), later(7_000));
      await assertNext(store, 'a', later(7_000));
    },
  },
];

const OPERATORS: readonly EntryCase[] = [
  {
    name: 'one that is sent again after its bounce blocks those that were not taken yet',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('a'), keyedEntry('b'), keyedEntry('c'));
      assert.deepEqual(await claimIds(store), ['a']);
      await moveTo(store, 'a', BOUNCED);
      await assertNext(store, 'b');
      await moveTo(store, 'a', { state: 'incoming', lane: 'delivery', dueAt: SAMPLE_AT });
      await moveTo(store, 'b', 'remove');
      await assertNext(store, 'a');
      await assertNothingDue(store);
      await moveTo(store, 'a', 'remove');
      await assertNext(store, 'c');
    },
  },
  {
    name: 'one of a key that is held while it waits lets none behind it pass once it is first',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('a'), keyedEntry('b'), keyedEntry('c'));
      assert.deepEqual(await claimIds(store), ['a']);
      await moveTo(store, 'b', HELD);
      await moveTo(store, 'a', 'remove');
      await assertNothingDue(store);
      await moveTo(store, 'b', { state: 'incoming', dueAt: SAMPLE_AT });
      await assertNext(store, 'b');
    },
  },
  {
    name: 'the removal of one that waits changes nothing for the others of its key',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('a'), keyedEntry('b'), keyedEntry('c'));
      assert.deepEqual(await claimIds(store), ['a']);
      await assertNothingDue(store);
      await moveTo(store, 'b', 'remove');
      await assertNothingDue(store);
      await moveTo(store, 'a', 'remove');
      await assertNext(store, 'c');
    },
  },
  {
    name: 'a notice neither waits for its key nor lets its key wait',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('a', HELD));
      await put(store, keyedEntry('b', { ...BOUNCED, dueAt: SAMPLE_AT }), keyedEntry('c'));
      assert.deepEqual(await claimIds(store, NOTICE), ['b']);
      await moveTo(store, 'a', 'remove');
      await assertNext(store, 'c');
      const again = await store.claim(
        claimRequest(store, { ...NOTICE, now: later(SAMPLE_LEASE_MS) }),
      );
      assert.deepEqual(
        again.map(({ envelope }) => envelope.id),
        ['b'],
      );
    },
  },
  {
    name: 'a change that is stale lets none go',
    needs: ['order'],
    async run({ store }) {
      await put(store, keyedEntry('a'), keyedEntry('b'));
      const [taken] = await claim(store);
      assert.ok(taken !== undefined);
      await assertNothingDue(store);
      const stale = entryChange(taken, 'remove', { revision: taken.status.revision + 1 });
      assert.deepEqual(await store.commit([stale]), ['stale']);
      await assertNothingDue(store);
    },
  },
];

export const orderCases: readonly EntryCase[] = [
  ...TURNS,
  ...BEHIND_A_HEAD,
  ...BEHIND_NOBODY,
  ...AFTER_AN_END,
  ...TIMES,
  ...OPERATORS,
];
