/** claim — what a claim makes of an entry, and what it never takes. */

import assert from 'node:assert/strict';
import type { Entry } from '../../core/entry.ts';
import { failure } from '../../core/failure.ts';
import { claimed } from '../../core/next-status.ts';
import { STATES } from '../../core/state.ts';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntries, sampleEntry } from '../samples.ts';
import {
  assertSameEntry,
  changeOf,
  claim,
  claimIds,
  claimOne,
  claimRequest,
  type EntryCase,
  type EntryWorld,
  got,
  later,
  listIds,
  NOTICE,
  put,
  stepped,
} from './shared.ts';

/** Claims the entry at `now`, and compares every field with what core makes of it. */
async function assertClaimedAsCoreSays(
  { store }: EntryWorld,
  entry: Entry,
  parts: Parameters<typeof claimRequest>[1] = {},
): Promise<void> {
  await put(store, entry);
  const request = claimRequest(store, parts);
  const taken = await store.claim(request);
  const expected: Entry = { ...entry, status: claimed(entry.status, request) };
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
      assert.deepEqual(await store.commit([changeOf(taken, extended)]), ['done']);
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
      const deferred = stepped(first, { state: 'deferred', dueAt: later(2_000) });
      await store.commit([changeOf(first, deferred)]);
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
      const delayed = stepped(entry, { dueAt: later(1_000) });
      await store.commit([changeOf(entry, delayed)]);
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
