/**
 * claim — which entries a claim may see, what it makes of them, what it never takes, and when the
 * next of them is due.
 */

import assert from 'node:assert/strict';
import type { Entry } from '../../core/entry.ts';
import { failure } from '../../core/failure.ts';
import { claimedStatus } from '../../core/next-status.ts';
import { STATES } from '../../core/state.ts';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import {
  assertSameEntry,
  entryChange,
  claim,
  claimIds,
  claimOne,
  claimRequest,
  DELIVERY,
  type EntryCase,
  type EntryWorld,
  got,
  later,
  listIds,
  NOTICE,
  put,
  steppedStatus,
} from './shared.ts';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntries, sampleEntry } from '../samples.ts';

/** Claims the entry at `now`, and compares every field with what core makes of it. */
async function assertClaimedAsCoreSays(
  { store }: EntryWorld,
  entry: Entry,
  parts: Parameters<typeof claimRequest>[1] = {},
): Promise<void> {
  await put(store, entry);
  const request = claimRequest(store, parts);
  const taken = await store.claim(request);
  const expected: Entry = { ...entry, status: claimedStatus(entry.status, request) };
  assert.equal(taken.length, 1, 'the entry was not claimed');
  assertSameEntry(taken[0], expected);
  assertSameEntry(await store.get(entry.envelope.id), expected);
}

/** Two entries of each state, ready to be claimed were it not for the state. */
async function putEveryState({ store }: EntryWorld): Promise<void> {
  for (const state of STATES) {
    const lane = state === 'bounce' ? 'notice' : 'delivery';
    const active = state === 'active' ? { holder: 'x:1', claimedFrom: 'incoming' as const } : {};
    await put(store, sampleEntry(state, { state, lane, ...active }));
  }
}

export const claimCases: readonly EntryCase[] = [
  {
    name: 'a claim of an incoming entry makes of it exactly what core says',
    run: (world) => assertClaimedAsCoreSays(world, sampleEntry('a')),
  },
  {
    name: 'a claim of a due deferred entry makes of it exactly what core says',
    run: (world) =>
      assertClaimedAsCoreSays(
        world,
        sampleEntry('a', {
          state: 'deferred',
          dueAt: later(500),
          attempts: 2,
          postponed: 1,
          revision: 9,
          policy: 'strict',
          because: { code: 'smtp.451', text: 'greylisted', by: 'handler' },
          lastFailure: failure('transient', 'smtp.451', 'greylisted'),
          notes: { seen: 'yes' },
          history: [
            { at: SAMPLE_AT, tookMs: 3, by: 'x', lane: 'delivery', attempt: 2, code: 'smtp.451' },
          ],
        }),
        { now: later(500) },
      ),
  },
  {
    name: 'a claim of a bounce notice counts a notice, not an attempt',
    run: (world) =>
      assertClaimedAsCoreSays(
        world,
        sampleEntry('a', {
          state: 'bounce',
          lane: 'notice',
          attempts: 10,
          notices: 1,
          ending: 'bounced',
        }),
        NOTICE,
      ),
  },
  {
    name: 'a claim of a lease that is over counts a lost holder, not an attempt',
    run: (world) =>
      assertClaimedAsCoreSays(
        world,
        sampleEntry('a', {
          state: 'active',
          holder: 'gone:1',
          claimedFrom: 'deferred',
          attempts: 4,
          lost: 1,
          revision: 5,
        }),
      ),
  },
  {
    name: 'a claim of a notice whose lease is over counts a lost holder',
    run: (world) =>
      assertClaimedAsCoreSays(
        world,
        sampleEntry('a', {
          state: 'active',
          lane: 'notice',
          holder: 'gone:1',
          claimedFrom: 'bounce',
          notices: 2,
        }),
        NOTICE,
      ),
  },
  {
    name: 'an entry is due at its due time and not a millisecond earlier',
    async run({ store }) {
      await put(store, sampleEntry('a', { state: 'deferred', dueAt: later(10) }));
      assert.deepEqual(await claimIds(store, { now: later(9) }), []);
      assert.deepEqual(await claimIds(store, { now: later(10) }), ['a']);
    },
  },
  {
    name: 'an entry without a due time is never claimed',
    async run({ store }) {
      await put(
        store,
        sampleEntry('a', { state: 'bounce', lane: 'notice', dueAt: null }),
        sampleEntry('b', { state: 'deferred', dueAt: null }),
      );
      const now = later(1e12);
      assert.deepEqual(await claimIds(store, { now }), []);
      assert.deepEqual(await claimIds(store, { ...NOTICE, now }), []);
    },
  },
  {
    name: 'a held or archived entry is never claimed',
    async run(world) {
      await putEveryState(world);
      const states = ['incoming', 'deferred', 'bounce', 'active'] as const;
      const now = later(1e12);
      const taken = await claimIds(world.store, { now, states });
      assert.deepEqual([...taken].sort(), ['active', 'deferred', 'incoming']);
      assert.deepEqual(await claimIds(world.store, { now, states, lane: 'notice' }), ['bounce']);
    },
  },
  {
    name: 'a leased entry is not claimed again before its lease is over',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      assert.deepEqual(await claimIds(store), ['a']);
      assert.deepEqual(await claimIds(store), []);
      assert.deepEqual(await claimIds(store, { now: later(SAMPLE_LEASE_MS - 1) }), []);
      assert.deepEqual(await claimIds(store, { now: later(SAMPLE_LEASE_MS) }), ['a']);
    },
  },
  {
    name: 'a claim that does not ask for active entries leaves leases that are over alone',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      await claim(store);
      const states = ['incoming', 'deferred', 'bounce'] as const;
      assert.deepEqual(await claimIds(store, { now: later(1e9), states }), []);
    },
  },
  {
    name: 'an extended lease keeps the entry from others until its new end',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      const taken = await claimOne(store);
      const { status } = taken;
      const extended = { ...status, revision: status.revision + 1, dueAt: later(500_000) };
      assert.deepEqual(await store.commit([entryChange(taken, extended)]), ['done']);
      assert.deepEqual(await claimIds(store, { now: later(SAMPLE_LEASE_MS) }), []);
      assert.deepEqual(await claimIds(store, { now: later(500_000) }), ['a']);
    },
  },
  {
    name: 'a claim takes at most as many as asked for, the first ones',
    async run({ store }) {
      await put(store, ...sampleEntries(10, 'm'));
      assert.deepEqual(await claimIds(store, { max: 3 }), ['m-00000', 'm-00001', 'm-00002']);
      assert.equal((await claimIds(store, { max: 100 })).length, 7);
    },
  },
  {
    name: 'a claim of at most nothing takes nothing',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      assert.deepEqual(await claimIds(store, { max: 0 }), []);
      assert.equal((await got(store, 'a')).status.state, 'incoming');
    },
  },
  {
    name: 'claims come by priority, then due time, then id',
    async run({ store }) {
      const now = later(1_000);
      await put(
        store,
        sampleEntry('late', { priority: 0, dueAt: later(900), state: 'deferred' }),
        sampleEntry('z', { priority: 5, dueAt: later(1) }),
        sampleEntry('a', { priority: 5, dueAt: later(2) }),
        sampleEntry('c', { priority: 5, dueAt: later(2), state: 'deferred' }),
        sampleEntry('b', { priority: 5, dueAt: later(2) }),
        sampleEntry('last', { priority: 9, dueAt: later(0) }),
        sampleEntry('first', { priority: 0, dueAt: later(3) }),
      );
      const expected = ['first', 'late', 'z', 'a', 'b', 'c', 'last'];
      assert.deepEqual(await claimIds(store, { now }), expected);
    },
  },
  {
    name: 'claims of one entry at a time come in the same order as one claim of all',
    async run({ store }) {
      const spread = sampleEntries(40, 'm', (index) => ({
        priority: (index * 7) % 10,
        topic: `t${index % 3}`,
        ...(index % 4 === 0 ? {} : { destination: `d${index % 4}` }),
        dueAt: later((index * 13) % 17),
      }));
      await put(store, ...spread);
      const key = ({ envelope, status }: Entry) => {
        const afterMs = String((status.dueAt ?? 0) - SAMPLE_AT).padStart(3, '0');
        return `${envelope.priority} ${afterMs} ${envelope.id}`;
      };
      const expected = spread.map(key).sort();
      const byKey = new Map(spread.map((entry) => [entry.envelope.id, key(entry)]));
      for (let left = expected; left.length > 0; left = left.slice(1)) {
        const [id] = await claimIds(store, { max: 1, now: later(100) });
        assert.equal(byKey.get(id ?? ''), left[0]);
      }
    },
  },
  {
    name: 'ids are ordered byte by byte, not as a language would',
    async run({ store }) {
      const ids = ['0-', '00', '0_', '0a', '9', 'a', 'a-b', 'a0', 'a_b', 'aa', 'b'];
      await put(store, ...[...ids].reverse().map((id) => sampleEntry(id)));
      assert.deepEqual(await claimIds(store), ids);
      assert.deepEqual(await listIds(store), ids);
    },
  },
  {
    name: 'an entry that was deferred and came due is claimed again, with its next attempt',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      const first = await claimOne(store);
      const deferred = steppedStatus(first, { state: 'deferred', dueAt: later(2_000) });
      await store.commit([entryChange(first, deferred)]);
      assert.deepEqual(await claimIds(store, { now: later(1_999) }), []);
      const again = await claimOne(store, { now: later(2_000) });
      assert.equal(again.status.attempts, 2);
      assert.equal(again.status.claimedFrom, 'deferred');
      assert.equal(again.status.revision, 4);
    },
  },
  {
    name: 'an entry whose due time moved is claimed by its new due time',
    async run({ store }) {
      const entry = sampleEntry('a', { state: 'deferred', dueAt: later(10) });
      await put(store, entry);
      const delayed = steppedStatus(entry, { dueAt: later(1_000) });
      await store.commit([entryChange(entry, delayed)]);
      assert.deepEqual(await claimIds(store, { now: later(999) }), []);
      assert.deepEqual(await claimIds(store, { now: later(1_000) }), ['a']);
    },
  },
  {
    name: 'a claim of an empty store returns nothing',
    async run({ store }) {
      assert.deepEqual(await claimIds(store), []);
    },
  },
];

const TOPICS = ['mail', 'mail.send', 'mail.send.now', 'report', 'report.daily', 'a.mail.b'];

/** What a claim with these rules takes of one entry per topic. */
async function takenTopics(
  { store }: EntryWorld,
  topics: NonNullable<ClaimFilter['topics']>,
): Promise<readonly string[]> {
  await put(store, ...TOPICS.map((topic, index) => sampleEntry(`t${index}`, { topic })));
  return (await claim(store, { topics })).map(({ envelope }) => envelope.topic);
}

/** One entry due in the past, one in the future, one of another topic due before both. */
async function putThree({ store }: EntryWorld): Promise<void> {
  await put(
    store,
    sampleEntry('past', { dueAt: later(-50) }),
    sampleEntry('future', { state: 'deferred', dueAt: later(50) }),
    sampleEntry('other', { topic: 'report', dueAt: later(-100), destination: 'd1' }),
  );
}

export const claimFilterCases: readonly EntryCase[] = [
  {
    name: 'the lanes do not see each other',
    async run({ store }) {
      const states = ['incoming', 'deferred', 'bounce', 'active'] as const;
      await put(
        store,
        sampleEntry('delivery'),
        sampleEntry('notice', { state: 'bounce', lane: 'notice' }),
      );
      assert.deepEqual(await claimIds(store, { lane: 'delivery', states }), ['delivery']);
      assert.deepEqual(await claimIds(store, { lane: 'notice', states }), ['notice']);
    },
  },
  {
    name: 'leases that are over stay in their lane',
    async run({ store }) {
      await put(store, sampleEntry('notice', { state: 'bounce', lane: 'notice' }));
      await claim(store, NOTICE);
      const now = later(SAMPLE_LEASE_MS);
      assert.deepEqual(await claimIds(store, { now }), []);
      assert.deepEqual(await claimIds(store, { ...NOTICE, now }), ['notice']);
    },
  },
  {
    name: 'a claim takes only from the states it names',
    async run({ store }) {
      await put(
        store,
        sampleEntry('incoming'),
        sampleEntry('deferred', { state: 'deferred' }),
        sampleEntry('active', { state: 'active', holder: 'x:1', claimedFrom: 'incoming' }),
      );
      assert.deepEqual(await claimIds(store, { states: [] }), []);
      assert.deepEqual(await claimIds(store, { states: ['deferred'] }), ['deferred']);
      assert.deepEqual(await claimIds(store, { states: ['incoming'] }), ['incoming']);
      assert.deepEqual(await claimIds(store, { states: ['active'] }), ['active']);
    },
  },
  {
    name: 'a claim by ids takes these and no others, and only when they are due',
    async run({ store }) {
      await put(
        store,
        sampleEntry('a'),
        sampleEntry('b'),
        sampleEntry('c', { state: 'deferred', dueAt: later(10) }),
      );
      assert.deepEqual(await claimIds(store, { ids: ['c', 'b', 'nobody'] }), ['b']);
      assert.deepEqual(await claimIds(store, { ids: [] }), []);
    },
  },
  {
    name: 'a claim by ids keeps the order of claims and its maximum',
    async run({ store }) {
      await put(store, sampleEntry('a'), sampleEntry('b', { priority: 1 }), sampleEntry('c'));
      assert.deepEqual(await claimIds(store, { ids: ['c', 'a', 'b'], max: 2 }), ['b', 'a']);
    },
  },
  {
    name: 'a claim by ids that names one twice takes it once',
    async run({ store }) {
      await put(store, sampleEntry('a'), sampleEntry('b'));
      assert.deepEqual(await claimIds(store, { ids: ['b', 'a', 'b', 'a'] }), ['a', 'b']);
    },
  },
  {
    name: 'a claim by ids obeys lane, states and destinations too',
    async run({ store }) {
      await put(
        store,
        sampleEntry('a', { destination: 'd1' }),
        sampleEntry('b', { state: 'bounce', lane: 'notice' }),
        sampleEntry('c', { state: 'deferred' }),
        sampleEntry('d'),
      );
      const ids = ['a', 'b', 'c', 'd'];
      const states = ['incoming', 'bounce'] as const;
      const filter = { ids, states, exceptDestinations: ['d1'] };
      assert.equal(await store.nextDueAt({ ...DELIVERY, ...filter }), SAMPLE_AT);
      assert.deepEqual(await claimIds(store, filter), ['d']);
      assert.equal(await store.nextDueAt({ ...DELIVERY, ...filter }), null);
    },
  },
  {
    name: 'a claim by ids obeys the topic rules too',
    async run({ store }) {
      await put(store, sampleEntry('a', { topic: 'x' }), sampleEntry('b', { topic: 'y' }));
      const topics = [{ pattern: 'y', take: true }];
      assert.deepEqual(await claimIds(store, { ids: ['a', 'b'], topics }), ['b']);
    },
  },
  {
    name: 'a plain topic takes exactly this topic',
    async run(world) {
      const taken = await takenTopics(world, [{ pattern: 'mail', take: true }]);
      assert.deepEqual(taken, ['mail']);
    },
  },
  {
    name: 'a star stands for exactly one word of the topic',
    async run(world) {
      const taken = await takenTopics(world, [{ pattern: 'mail.*', take: true }]);
      assert.deepEqual(taken, ['mail.send']);
    },
  },
  {
    name: 'a hash stands for any number of words of the topic, also none',
    async run(world) {
      const taken = await takenTopics(world, [{ pattern: 'mail.#', take: true }]);
      assert.deepEqual(taken, ['mail', 'mail.send', 'mail.send.now']);
    },
  },
  {
    name: 'wildcards in the middle of a pattern match there',
    async run(world) {
      const taken = await takenTopics(world, [{ pattern: '#.mail.*', take: true }]);
      assert.deepEqual(taken, ['mail.send', 'a.mail.b']);
    },
  },
  {
    name: 'the first rule that matches a topic decides',
    async run(world) {
      const taken = await takenTopics(world, [
        { pattern: 'mail.send', take: false },
        { pattern: 'report', take: true },
        { pattern: 'report.#', take: false },
        { pattern: 'mail.#', take: true },
      ]);
      assert.deepEqual(taken, ['mail', 'mail.send.now', 'report']);
    },
  },
  {
    name: 'a topic that no rule matches is not taken',
    async run(world) {
      assert.deepEqual(await takenTopics(world, [{ pattern: 'none', take: true }]), []);
      assert.deepEqual(await claimIds(world.store, { topics: [] }), []);
    },
  },
  {
    name: 'a rule that excludes and a last rule for the rest take all but the excluded',
    async run(world) {
      const taken = await takenTopics(world, [
        { pattern: 'mail.#', take: false },
        { pattern: '#', take: true },
      ]);
      assert.deepEqual(taken, ['report', 'report.daily', 'a.mail.b']);
    },
  },
  {
    name: 'characters that mean something in SQL or in patterns elsewhere are plain in a topic',
    async run({ store }) {
      await put(store, sampleEntry('a', { topic: 'a_b' }), sampleEntry('b', { topic: 'axb' }));
      assert.deepEqual(await claimIds(store, { topics: [{ pattern: 'a_b', take: true }] }), ['a']);
    },
  },
  {
    name: 'excluded destinations are not taken; entries without a destination are',
    async run({ store }) {
      await put(
        store,
        sampleEntry('a', { destination: 'd1' }),
        sampleEntry('b', { destination: 'd2' }),
        sampleEntry('c'),
        sampleEntry('d', { destination: 'D1' }),
      );
      const exceptDestinations = ['d1', 'd3'];
      assert.deepEqual(await claimIds(store, { exceptDestinations }), ['b', 'c', 'd']);
      assert.deepEqual(await claimIds(store, { exceptDestinations: [] }), ['a']);
    },
  },
  {
    name: 'a claim of many passes over excluded destinations between the others',
    async run({ store }) {
      const destinations = ['d1', 'd2', 'd3', 'd1', 'd2', 'd3', 'd1', 'd2', 'd3'];
      await put(
        store,
        ...destinations.map((destination, index) =>
          sampleEntry(`m${index}`, { destination, dueAt: later(-20 + index) }),
        ),
      );
      const exceptDestinations = ['d2'];
      const expected = ['m0', 'm2', 'm3', 'm5', 'm6', 'm8'];
      assert.deepEqual(await claimIds(store, { exceptDestinations }), expected);
      assert.deepEqual(await claimIds(store), ['m1', 'm4', 'm7']);
    },
  },
  {
    name: 'an entry that was given another topic is claimed under it',
    async run({ store }) {
      const entry = sampleEntry('a', { topic: 'old' });
      await put(store, entry);
      const envelope = { ...entry.envelope, topic: 'new' };
      await store.commit([entryChange(entry, steppedStatus(entry), { envelope })]);
      assert.deepEqual(await claimIds(store, { topics: [{ pattern: 'old', take: true }] }), []);
      assert.deepEqual(await claimIds(store, { topics: [{ pattern: 'new', take: true }] }), ['a']);
    },
  },
  {
    name: 'an entry that was given another priority and destination is claimed by them',
    async run({ store }) {
      const entry = sampleEntry('z', { destination: 'd1' });
      await put(store, entry, sampleEntry('a'));
      const envelope = { ...entry.envelope, priority: 1, destination: 'd2' };
      await store.commit([entryChange(entry, steppedStatus(entry), { envelope })]);
      assert.deepEqual(await claimIds(store, { exceptDestinations: ['d1'] }), ['z', 'a']);
    },
  },
  {
    name: 'nothing is due next in an empty store',
    async run({ store }) {
      assert.equal(await store.nextDueAt(DELIVERY), null);
    },
  },
  {
    name: 'the next due time is the earliest that a claim would see, past or future',
    async run(world) {
      await putThree(world);
      const { store } = world;
      assert.equal(await store.nextDueAt(DELIVERY), later(-100));
      assert.equal(await store.nextDueAt({ ...DELIVERY, states: ['deferred'] }), later(50));
      assert.equal(await store.nextDueAt({ ...DELIVERY, states: ['active'] }), null);
      assert.equal(await store.nextDueAt({ ...DELIVERY, states: [] }), null);
    },
  },
  {
    name: 'the next due time leaves out excluded topics and destinations',
    async run(world) {
      await putThree(world);
      const { store } = world;
      const topics = [
        { pattern: 'report', take: false },
        { pattern: '#', take: true },
      ];
      assert.equal(await store.nextDueAt({ ...DELIVERY, topics }), later(-50));
      assert.equal(await store.nextDueAt({ ...DELIVERY, exceptDestinations: ['d1'] }), later(-50));
      assert.equal(await store.nextDueAt({ ...DELIVERY, topics: [] }), null);
    },
  },
  {
    name: 'the next due time can be asked for certain ids',
    async run(world) {
      await putThree(world);
      const { store } = world;
      assert.equal(await store.nextDueAt({ ...DELIVERY, ids: ['future', 'nobody'] }), later(50));
      assert.equal(await store.nextDueAt({ ...DELIVERY, ids: ['nobody'] }), null);
    },
  },
  {
    name: 'the next due time of an active entry is the end of its lease',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      await claimOne(store);
      assert.equal(await store.nextDueAt(DELIVERY), later(SAMPLE_LEASE_MS));
      assert.equal(await store.nextDueAt({ ...DELIVERY, states: ['incoming', 'deferred'] }), null);
    },
  },
  {
    name: 'the next due time does not depend on priority',
    async run({ store }) {
      await put(
        store,
        sampleEntry('a', { priority: 0, dueAt: later(9) }),
        sampleEntry('b', { priority: 9, dueAt: later(3) }),
        sampleEntry('c', { priority: 5, dueAt: later(6) }),
      );
      assert.equal(await store.nextDueAt(DELIVERY), later(3));
    },
  },
  {
    name: 'the next due time leaves out what is held, archived, without a due time or gone',
    async run({ store }) {
      const gone = sampleEntry('gone');
      await put(
        store,
        gone,
        sampleEntry('hold', { state: 'hold', dueAt: null }),
        sampleEntry('odd', { state: 'hold', dueAt: SAMPLE_AT }),
        sampleEntry('archived', { state: 'archived', ending: 'delivered' }),
        sampleEntry('announced', { state: 'bounce', lane: 'notice', dueAt: null }),
      );
      await store.commit([entryChange(gone, 'remove')]);
      assert.equal(await store.nextDueAt(DELIVERY), null);
      assert.equal(await store.nextDueAt(NOTICE), null);
    },
  },
  {
    name: 'the next due time of the notice lane is its own',
    async run({ store }) {
      await put(
        store,
        sampleEntry('a', { dueAt: later(1) }),
        sampleEntry('b', { state: 'bounce', lane: 'notice', dueAt: later(7) }),
      );
      assert.equal(await store.nextDueAt(NOTICE), later(7));
    },
  },
];
