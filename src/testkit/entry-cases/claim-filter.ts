/** claim-filter — which entries a claim may see, and when the next of them is due. */

import assert from 'node:assert/strict';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntry } from '../samples.ts';
import {
  changeOf,
  claim,
  claimIds,
  claimOne,
  DELIVERY,
  type EntryCase,
  type EntryWorld,
  later,
  NOTICE,
  put,
  stepped,
} from './shared.ts';

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
      await store.commit([changeOf(entry, stepped(entry), { envelope })]);
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
      await store.commit([changeOf(entry, stepped(entry), { envelope })]);
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
      await store.commit([changeOf(gone, 'remove')]);
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
