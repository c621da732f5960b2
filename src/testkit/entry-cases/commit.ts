/** commit — a guarded write happens as a whole or is stale, and stores what it says. */

import assert from 'node:assert/strict';
import type { Entry, Status } from '../../core/entry.ts';
import { type State, STATES } from '../../core/state.ts';
import { inlineBodyInfo, SAMPLE_LEASE_MS, sampleEntries, sampleEntry } from '../samples.ts';
import {
  assertSameEntry,
  entryChange,
  claimIds,
  claimOne,
  type EntryCase,
  type EntryWorld,
  got,
  later,
  put,
  stateCounts,
  steppedStatus,
} from './shared.ts';

/** A legal looking status of a state, one revision on. */
function inState(entry: Entry, state: State): Status {
  const base = steppedStatus(entry, { updatedAt: later(entry.status.revision) });
  switch (state) {
    case 'active':
      return { ...base, state, dueAt: later(60_000), holder: 'x:1', claimedFrom: 'incoming' };
    case 'hold':
      return { ...base, state, dueAt: null, because: { code: 'c', text: 't', by: 'b' } };
    case 'bounce':
      return { ...base, state, lane: 'notice', ending: 'bounced', dueAt: later(5) };
    case 'archived':
      return { ...base, state, ending: 'delivered', dueAt: later(1e9) };
    default:
      return { ...base, state, lane: 'delivery', dueAt: later(7) };
  }
}

/** Takes an entry from one state to the other and compares what is stored. */
async function moveThrough({ store }: EntryWorld, from: State, to: State): Promise<void> {
  const fresh = sampleEntry(`${from}-${to}`);
  await put(store, fresh);
  const before: Entry = { ...fresh, status: inState(fresh, from) };
  assert.deepEqual(await store.commit([entryChange(fresh, before.status)]), ['done']);
  const after: Entry = { ...fresh, status: inState(before, to) };
  assert.deepEqual(await store.commit([entryChange(before, after.status)]), ['done']);
  assertSameEntry(await store.get(fresh.envelope.id), after);
}

const MOVES: readonly EntryCase[] = STATES.map((from) => ({
  name: `a move from ${from} to each state is stored as it was given`,
  run: async (world) => {
    for (const to of STATES) await moveThrough(world, from, to);
    const counts: Record<string, number> = {};
    for (const to of STATES) counts[to] = 1;
    assert.deepEqual(await stateCounts(world.store), counts);
  },
}));

export const commitCases: readonly EntryCase[] = [
  ...MOVES,
  {
    name: 'a change computed from an older revision is stale and changes nothing',
    async run({ store }) {
      const entry = sampleEntry('a', { revision: 3 });
      await put(store, entry);
      for (const revision of [2, 4]) {
        const change = { ...entryChange(entry, steppedStatus(entry, { state: 'hold' })), revision };
        assert.deepEqual(await store.commit([change]), ['stale']);
      }
      assertSameEntry(await store.get('a'), entry);
    },
  },
  {
    name: 'a removal computed from an older revision is stale and removes nothing',
    async run({ store }) {
      const entry = sampleEntry('a', { revision: 3 });
      await put(store, entry);
      const change = entryChange(entry, 'remove', { revision: 2 });
      assert.deepEqual(await store.commit([change]), ['stale']);
      assertSameEntry(await store.get('a'), entry);
    },
  },
  {
    name: 'a change of an active entry by anyone but its holder is stale',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      const taken = await claimOne(store);
      const { holder: _holder, ...nobody } = entryChange(
        taken,
        steppedStatus(taken, { state: 'hold' }),
      );
      assert.deepEqual(await store.commit([nobody]), ['stale']);
      assert.deepEqual(await store.commit([{ ...nobody, holder: 'other:1' }]), ['stale']);
      assert.deepEqual(await store.commit([{ ...nobody, to: 'remove' }]), ['stale']);
      assertSameEntry(await store.get('a'), taken);
    },
  },
  {
    name: 'a change of an id that is not there is stale',
    async run({ store }) {
      const entry = sampleEntry('a');
      assert.deepEqual(await store.commit([entryChange(entry, steppedStatus(entry))]), ['stale']);
      assert.deepEqual(await store.commit([entryChange(entry, 'remove')]), ['stale']);
      assert.equal(await store.get('a'), undefined);
    },
  },
  {
    name: 'a holder whose lease was taken over can no longer settle',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      const slow = await claimOne(store);
      const fast = await claimOne(store, { now: later(SAMPLE_LEASE_MS) });
      assert.deepEqual(await store.commit([entryChange(slow, 'remove')]), ['stale']);
      assert.deepEqual(await store.commit([entryChange(fast, 'remove')]), ['done']);
    },
  },
  {
    name: 'a holder cannot change another message that came to its id and its revision',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      const taken = await claimOne(store);
      assert.deepEqual(await store.commit([entryChange(taken, 'remove')]), ['done']);
      const next = sampleEntry('a');
      await put(store, next);
      assert.deepEqual(await store.commit([entryChange(next, steppedStatus(next))]), ['done']);
      const late = steppedStatus(taken, { state: 'deferred' });
      assert.deepEqual(await store.commit([entryChange(taken, late)]), ['stale']);
      assert.deepEqual(await store.commit([entryChange(taken, 'remove')]), ['stale']);
      assert.equal((await store.get('a'))?.status.state, 'incoming');
    },
  },
  {
    name: 'a holder whose lease is over but was not taken over can still settle',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      const taken = await claimOne(store);
      assert.deepEqual(await claimIds(store, { now: later(SAMPLE_LEASE_MS - 1) }), []);
      const updatedAt = later(10 * SAMPLE_LEASE_MS);
      const done = steppedStatus(taken, { state: 'archived', ending: 'delivered', updatedAt });
      assert.deepEqual(await store.commit([entryChange(taken, done)]), ['done']);
    },
  },
  {
    name: 'the results of a commit come in the order of its changes, each judged by itself',
    async run({ store }) {
      const [a, b, c] = sampleEntries(3, 'm') as [Entry, Entry, Entry];
      await put(store, a, b, c);
      const results = await store.commit([
        entryChange(a, steppedStatus(a, { state: 'hold', dueAt: null })),
        entryChange(b, 'remove', { revision: 9 }),
        entryChange(sampleEntry('nobody'), 'remove'),
        entryChange(c, 'remove'),
      ]);
      assert.deepEqual(results, ['done', 'stale', 'stale', 'done']);
      assert.equal((await got(store, 'm-00000')).status.state, 'hold');
      assertSameEntry(await store.get('m-00001'), b);
      assert.equal(await store.get('m-00002'), undefined);
    },
  },
  {
    name: 'of two changes of one revision in one call the first is done and the second is stale',
    async run({ store }) {
      const entry = sampleEntry('a');
      await put(store, entry);
      const results = await store.commit([
        entryChange(entry, steppedStatus(entry, { notes: { by: 'first' } })),
        entryChange(entry, steppedStatus(entry, { notes: { by: 'second' } })),
      ]);
      assert.deepEqual(results, ['done', 'stale']);
      assert.deepEqual((await got(store, 'a')).status.notes, { by: 'first' });
    },
  },
  {
    name: 'a removed entry is gone from everywhere',
    async run({ store }) {
      const entry = sampleEntry('a');
      await put(store, entry);
      assert.deepEqual(await store.commit([entryChange(entry, 'remove')]), ['done']);
      assert.equal(await store.get('a'), undefined);
      assert.deepEqual((await store.list({ limit: 10 })).entries, []);
      assert.deepEqual(await store.tally('state', {}), []);
      assert.deepEqual(await claimIds(store), []);
    },
  },
  {
    name: 'a change without an envelope keeps envelope and body',
    async run({ store }) {
      const entry = sampleEntry('a', { headers: { h: '1' }, destination: 'd', dedupeKey: 'k' });
      await put(store, entry);
      const status = steppedStatus(entry, { state: 'hold', dueAt: null });
      await store.commit([entryChange(entry, status)]);
      assertSameEntry(await store.get('a'), { ...entry, status });
    },
  },
  {
    name: 'a changed envelope is kept, and the inline body stays with it',
    async run({ store }) {
      const entry = sampleEntry('a', { headers: { h: '1' } });
      await put(store, entry);
      const status = steppedStatus(entry);
      const { priority: _priority, ...rest } = entry.envelope;
      const envelope = {
        ...rest,
        priority: 2,
        topic: 'other',
        headers: { h: '2', 'new-one': 'é' },
        destination: 'somewhere',
        orderKey: 'o',
        expiresAt: later(99),
      };
      await store.commit([entryChange(entry, status, { envelope })]);
      assertSameEntry(await store.get('a'), { ...entry, envelope, status });
    },
  },
  {
    name: 'optional fields that a change leaves out are gone',
    async run({ store }) {
      const entry = sampleEntry('a', {
        destination: 'd',
        expiresAt: later(5),
        because: { code: 'c', text: 't', by: 'b' },
        ending: 'removed',
      });
      await put(store, entry);
      const { destination: _destination, expiresAt: _expiresAt, ...envelope } = entry.envelope;
      const { because: _because, ending: _ending, ...status } = steppedStatus(entry);
      await store.commit([entryChange(entry, status, { envelope })]);
      assertSameEntry(await store.get('a'), { ...entry, envelope, status });
    },
  },
  {
    name: 'a body that is let go takes its inline bytes along',
    async run({ store }) {
      for (const place of ['none', 'store'] as const) {
        const entry = sampleEntry(place, { bytes: Uint8Array.of(1, 2, 3) });
        await put(store, entry);
        const envelope = { ...entry.envelope, body: { ...entry.envelope.body, place } };
        const status = steppedStatus(entry, { state: 'archived', ending: 'delivered' });
        await store.commit([entryChange(entry, status, { envelope })]);
        const found = await got(store, place);
        assertSameEntry(found, { envelope, status });
        assert.ok(!('inlineBody' in found), 'the bytes were kept');
      }
    },
  },
  {
    name: 'an inline body can be replaced together with its envelope',
    async run({ store }) {
      const entry = sampleEntry('a', { bytes: Uint8Array.of(1) });
      await put(store, entry);
      const inlineBody = Uint8Array.of(9, 8, 7, 0);
      const envelope = { ...entry.envelope, body: inlineBodyInfo('a2', inlineBody) };
      const status = steppedStatus(entry);
      await store.commit([entryChange(entry, status, { envelope, inlineBody })]);
      assertSameEntry(await store.get('a'), { envelope, status, inlineBody });
      inlineBody.fill(0);
      assert.deepEqual([...((await got(store, 'a')).inlineBody ?? [])], [9, 8, 7, 0]);
    },
  },
  {
    name: 'a stored body can become an inline one',
    async run({ store }) {
      const entry = sampleEntry('a', { isStored: true });
      await put(store, entry);
      const inlineBody = Uint8Array.of(5);
      const envelope = { ...entry.envelope, body: inlineBodyInfo('a2', inlineBody) };
      const status = steppedStatus(entry);
      await store.commit([entryChange(entry, status, { envelope, inlineBody })]);
      assertSameEntry(await store.get('a'), { envelope, status, inlineBody });
    },
  },
  {
    name: 'a stale change leaves envelope and inline body as they are',
    async run({ store }) {
      const entry = sampleEntry('a', { revision: 2 });
      await put(store, entry);
      const inlineBody = Uint8Array.of(9);
      const envelope = { ...entry.envelope, body: inlineBodyInfo('a2', inlineBody) };
      const change = entryChange(entry, steppedStatus(entry), {
        envelope,
        inlineBody,
        revision: 1,
      });
      assert.deepEqual(await store.commit([change]), ['stale']);
      assertSameEntry(await store.get('a'), entry);
    },
  },
  {
    name: 'a lazy commit is seen at once by every reader',
    async run({ store }) {
      const [a, b] = sampleEntries(2, 'm') as [Entry, Entry];
      await put(store, a, b);
      const held = steppedStatus(a, { state: 'hold', dueAt: null });
      const changes = [entryChange(a, held), entryChange(b, 'remove')];
      assert.deepEqual(await store.commit(changes, { durable: false }), ['done', 'done']);
      assertSameEntry(await store.get('m-00000'), { ...a, status: held });
      assert.equal(await store.get('m-00001'), undefined);
      assert.deepEqual(await stateCounts(store), { hold: 1 });
      assert.deepEqual(await claimIds(store), []);
    },
  },
  {
    name: 'a commit after a lazy commit of the same entry sees its revision',
    async run({ store }) {
      const entry = sampleEntry('a');
      await put(store, entry);
      const lazy: Entry = { ...entry, status: steppedStatus(entry) };
      await store.commit([entryChange(entry, lazy.status)], { durable: false });
      assert.deepEqual(await store.commit([entryChange(entry, 'remove')]), ['stale']);
      assert.deepEqual(await store.commit([entryChange(lazy, 'remove')]), ['done']);
    },
  },
  {
    name: 'a commit of nothing returns nothing',
    async run({ store }) {
      assert.deepEqual(await store.commit([]), []);
      assert.deepEqual(await store.commit([], { durable: false }), []);
    },
  },
  {
    name: '1,000 changes go in with one call',
    async run({ store }) {
      const entries = sampleEntries(1_000, 'm');
      await put(store, ...entries);
      const changes = entries.map((entry, index) =>
        entryChange(
          entry,
          index % 2 === 0 ? 'remove' : steppedStatus(entry, { state: 'deferred' }),
        ),
      );
      const results = await store.commit(changes);
      assert.ok(results.length === 1_000 && results.every((result) => result === 'done'));
      assert.deepEqual(await stateCounts(store), { deferred: 500 });
    },
  },
];
