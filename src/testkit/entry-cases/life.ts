/**
 * life — opening, closing, reopening and surviving damage; and that a store which reports its
 * operations reports them correctly, by the time the call is answered.
 */

import assert from 'node:assert/strict';
import type { Entry } from '../../core/entry.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import type { StoreOperation } from '../../ports/store-operation.ts';
import {
  assertRefused,
  assertSameEntry,
  entryChange,
  claim,
  claimIds,
  claimOne,
  claimRequest,
  DELIVERY,
  type EntryCase,
  got,
  sampleIds,
  later,
  listIds,
  put,
  stateCounts,
  steppedStatus,
} from './shared.ts';
import { SAMPLE_LEASE_MS, sampleEntries, sampleEntry } from '../samples.ts';
import { heardOperations, itemsTold } from '../suite.ts';

/** Every way to use a store, by name. */
function usesOf(store: EntryStore): Readonly<Record<string, () => Promise<unknown>>> {
  const entry = sampleEntry('late');
  const { records } = store;
  return {
    insert: () => store.insert([entry]),
    claim: () => store.claim(claimRequest(store)),
    nextDueAt: () => store.nextDueAt(DELIVERY),
    commit: () => store.commit([entryChange(entry, 'remove')]),
    lazyCommit: () => store.commit([entryChange(entry, 'remove')], { durable: false }),
    get: () => store.get('late'),
    list: () => store.list({ limit: 1 }),
    tally: () => store.tally('state', {}),
    append: () => records.append('k', 1),
    read: () => records.read('k', 0, 1),
    trim: () => records.trim('k', 1),
    put: () => records.put('k', 'k', 1),
    getRecord: () => records.get('k', 'k'),
    listRecords: () => records.list('k'),
    remove: () => records.remove('k', 'k'),
  };
}

export const lifeCases: readonly EntryCase[] = [
  {
    name: 'a store says what it is and what it can do',
    async run({ store }) {
      assert.ok(store.name !== '' && store.instance !== '');
      const { processes, wakes, ordered, inlineMaxBytes, durability } = store.traits;
      assert.ok(['one', 'many'].includes(processes));
      assert.ok(['none', 'process', 'server', 'power-loss', 'node-loss'].includes(durability));
      assert.ok(Number.isInteger(inlineMaxBytes) && inlineMaxBytes >= 0);
      assert.equal(typeof ordered, 'boolean');
      // A store that wakes others must have `watch`.
      assert.ok(!wakes || store.watch !== undefined);
    },
  },
  {
    name: 'closing twice, or twice at once, is no error',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      await Promise.all([store.close(), store.close()]);
      await store.close();
    },
  },
  {
    name: 'every use after closing is refused',
    async run({ store }) {
      await store.close();
      for (const [name, use] of Object.entries(usesOf(store))) {
        await assertRefused(use, 'store.unavailable').catch((error: unknown) => {
          throw new Error(`"${name}" after closing`, { cause: error });
        });
      }
    },
  },
  {
    name: 'closing waits for what is on its way',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const entries = sampleEntries(50, 'm');
      const inserts = entries.map((entry) => store.insert([entry]));
      const again = await reopen();
      const results = (await Promise.all(inserts)).flat();
      assert.ok(results.every((result) => result === 'stored'));
      assert.deepEqual(await listIds(again), sampleIds(entries));
    },
  },
  {
    name: 'a flush with nothing to do is done',
    async run({ store }) {
      await store.flush();
      await put(store, sampleEntry('a'));
      await Promise.all([store.flush(), store.flush()]);
      assert.deepEqual(await listIds(store), ['a']);
    },
  },
  {
    name: 'inserted entries survive closing and opening, in every field',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const bytes = Uint8Array.from({ length: 300 }, (_, index) => index % 256);
      const entries = [
        ...sampleEntries(20, 'm', (index) => ({ priority: index % 10, topic: `t${index}` })),
        sampleEntry('full', { bytes, headers: { h: 'é' }, dedupeKey: 'k', destination: 'd' }),
        sampleEntry('stored', { isStored: true, state: 'deferred', dueAt: later(9) }),
      ];
      await put(store, ...entries);
      const again = await reopen();
      for (const entry of entries) assertSameEntry(await again.get(entry.envelope.id), entry);
      assert.deepEqual(await again.insert([sampleEntry('x', { dedupeKey: 'k' })]), [
        { duplicateOf: 'full' },
      ]);
    },
  },
  {
    name: 'changes and removals survive closing and opening',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const [a, b, c] = sampleEntries(3, 'm') as [Entry, Entry, Entry];
      await put(store, a, b, c);
      const status = steppedStatus(a, { state: 'hold', dueAt: null, notes: { n: '1' } });
      const envelope = { ...a.envelope, headers: { changed: 'yes' } };
      await store.commit([entryChange(a, status, { envelope }), entryChange(b, 'remove')]);
      const again = await reopen();
      assertSameEntry(await again.get('m-00000'), { ...a, envelope, status });
      assert.equal(await again.get('m-00001'), undefined);
      assertSameEntry(await again.get('m-00002'), c);
      assert.deepEqual(await stateCounts(again), { hold: 1, incoming: 1 });
    },
  },
  {
    name: 'a lazy commit that was flushed survives closing and opening',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const [a, b] = sampleEntries(2, 'm') as [Entry, Entry];
      await put(store, a, b);
      const status = steppedStatus(a, { state: 'archived', ending: 'delivered' });
      const changes = [entryChange(a, status), entryChange(b, 'remove')];
      await store.commit(changes, { durable: false });
      await store.flush();
      const again = await reopen();
      assertSameEntry(await again.get('m-00000'), { ...a, status });
      assert.equal(await again.get('m-00001'), undefined);
    },
  },
  {
    name: 'a lazy commit that was not flushed survives an orderly close',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const entry = sampleEntry('a');
      await put(store, entry);
      await store.commit([entryChange(entry, 'remove')], { durable: false });
      assert.deepEqual(await listIds(await reopen()), []);
    },
  },
  {
    name: 'a claim survives closing and opening, with its holder and its lease',
    needs: ['reopen'],
    async run({ store, reopen }) {
      await put(store, sampleEntry('a'));
      const taken = await claimOne(store);
      const again = await reopen();
      assertSameEntry(await again.get('a'), taken);
      assert.deepEqual(await claimIds(again), []);
      assert.deepEqual(await claimIds(again, { now: later(SAMPLE_LEASE_MS) }), ['a']);
    },
  },
  {
    name: 'a store that was opened again has another instance name',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const before = store.instance;
      assert.notEqual((await reopen()).instance, before);
    },
  },
  {
    name: 'claims, lists and counts after opening are those of before',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const parts = (index: number) => ({
        priority: (index * 7) % 10,
        dueAt: later((index * 3) % 11),
        topic: `t${index % 3}`,
      });
      await put(store, ...sampleEntries(30, 'm', parts));
      await claim(store, { max: 5, now: later(20) });
      const counts = await stateCounts(store);
      const order = await listIds(store, { order: 'dueAt', limit: 4 });
      const nextDueAt = await store.nextDueAt(DELIVERY);
      const again = await reopen();
      assert.deepEqual(await stateCounts(again), counts);
      assert.deepEqual(await listIds(again, { order: 'dueAt', limit: 4 }), order);
      assert.equal(await again.nextDueAt(DELIVERY), nextDueAt);
      assert.equal((await claimIds(again, { now: later(20) })).length, 25);
    },
  },
  {
    name: 'leases of a holder that is gone can be ended before their time',
    needs: ['reopen', 'expireLost'],
    async run({ store, reopen }) {
      await put(store, sampleEntry('a'), sampleEntry('b'));
      await claim(store, { max: 1 });
      const again = await reopen();
      assert.ok(again.expireLost !== undefined, 'the store has no expireLost');
      assert.equal(await again.expireLost(later(5)), 1);
      const [lost] = await claim(again, { now: later(5), states: ['active'] });
      assert.equal(lost?.envelope.id, 'a');
      assert.equal(lost?.status.lost, 1);
      assert.equal(await again.expireLost(later(5)), 0);
    },
  },
  {
    name: 'leases of a holder that lives are not ended by another',
    needs: ['share', 'expireLost'],
    async run({ store, second }) {
      await put(store, sampleEntry('a'));
      const taken = await claimOne(store);
      const other = await second();
      assert.ok(other.expireLost !== undefined, 'the store has no expireLost');
      assert.equal(await other.expireLost(later(5)), 0);
      assert.deepEqual(await claimIds(other, { now: later(5) }), []);
      assert.deepEqual(await store.commit([entryChange(taken, 'remove')]), ['done']);
    },
  },
  {
    name: 'a damaged entry is reported on the first page of a list, its neighbours are fine',
    needs: ['damage'],
    async run({ store, damage }) {
      const entries = sampleEntries(5, 'm');
      await put(store, ...entries);
      await damage('m-00002');
      const { entries: found, corrupt, next } = await store.list({ limit: 2 });
      assert.equal(corrupt.length, 1);
      assert.ok(corrupt[0]?.where !== '' && corrupt[0]?.reason !== '');
      assert.ok(corrupt[0]?.id === undefined || corrupt[0].id === 'm-00002');
      const rest = await listIds(store, { limit: 2, after: next ?? '' });
      const expected = ['m-00000', 'm-00001', 'm-00003', 'm-00004'];
      assert.deepEqual([...sampleIds(found), ...rest], expected);
      assert.deepEqual((await store.list({ limit: 2, after: next ?? '' })).corrupt, []);
      for (const id of expected) {
        assertSameEntry(
          await store.get(id),
          entries.find(({ envelope }) => envelope.id === id) as Entry,
        );
      }
    },
  },
  {
    name: 'a damaged entry is not handed out as if it were well',
    needs: ['damage'],
    async run({ store, damage }) {
      await put(store, sampleEntry('a'));
      await damage('a');
      await assertRefused(() => store.get('a'), 'store.corrupt');
    },
  },
  {
    name: 'a claim does not return a damaged entry and does not stop at it',
    needs: ['damage'],
    async run({ store, damage }) {
      await put(store, ...sampleEntries(4, 'm'));
      await damage('m-00000');
      await damage('m-00002');
      const taken: string[] = [];
      for (let n = 0; n < 6; n += 1) taken.push(...(await claimIds(store, { max: 1 })));
      assert.deepEqual(taken, ['m-00001', 'm-00003']);
    },
  },
  {
    name: 'a damaged entry that claims have met does not look due for ever',
    needs: ['damage'],
    async run({ store, damage }) {
      await put(store, ...sampleEntries(2, 'm'));
      await damage('m-00001');
      for (let n = 0; n < 3; n += 1) await claim(store);
      const states = ['incoming', 'deferred'] as const;
      assert.equal(await store.nextDueAt({ ...DELIVERY, states }), null);
    },
  },
  {
    name: 'a damaged entry is still reported after closing and opening',
    needs: ['damage', 'reopen'],
    async run({ store, damage, reopen }) {
      await put(store, ...sampleEntries(3, 'm'));
      await damage('m-00001');
      await claim(store, { max: 1 });
      const again = await reopen();
      const { entries, corrupt } = await again.list({ limit: 10 });
      assert.deepEqual(sampleIds(entries), ['m-00000', 'm-00002']);
      assert.equal(corrupt.length, 1);
      assert.deepEqual(await claimIds(again), ['m-00002']);
    },
  },
];

export const operationCases: readonly EntryCase[] = [
  {
    name: 'insert, claim, commit and read are told as operations, with their items',
    async run({ store }) {
      const told = heardOperations(store);
      if (told === undefined) return;
      await put(store, sampleEntry('a'), sampleEntry('b'), sampleEntry('c'));
      const taken = await claim(store, { max: 2 });
      assert.equal(itemsTold(told.list, 'claim'), 2);
      await store.commit(taken.map((entry) => entryChange(entry, 'remove')));
      await got(store, 'c');
      assert.equal(itemsTold(told.list, 'insert'), 3);
      assert.equal(itemsTold(told.list, 'commit'), 2);
      assert.equal(itemsTold(told.list, 'read'), 1);
      for (const operation of told.list) assertWhole(operation);
    },
  },
  {
    name: 'operations of calls at the same time are told with all their items',
    async run({ store }) {
      const told = heardOperations(store);
      if (told === undefined) return;
      const calls = Array.from({ length: 40 }, (_, n) => put(store, sampleEntry(`m${n}`)));
      await Promise.all([...calls, claim(store), claim(store)]);
      assert.equal(itemsTold(told.list, 'insert'), 40);
      await claim(store);
      assert.equal(itemsTold(told.list, 'claim'), 40);
    },
  },
  {
    name: 'a read that fails is told as failed',
    needs: ['damage'],
    async run({ store, damage }) {
      await put(store, sampleEntry('a'));
      await damage('a');
      const told = heardOperations(store);
      if (told === undefined) return;
      await assertRefused(() => store.get('a'), 'store.corrupt');
      const reads = told.list.filter(({ name }) => name === 'read');
      assert.deepEqual(
        reads.map(({ isDone, items }) => ({ isDone, items })),
        [{ isDone: false, items: 0 }],
      );
    },
  },
  {
    name: 'what a closed store refuses is not told as done',
    async run({ store }) {
      await put(store, sampleEntry('a'));
      await store.close();
      const told = heardOperations(store);
      if (told === undefined) return;
      await assertRefused(() => store.insert([sampleEntry('b')]), 'store.unavailable');
      await assertRefused(() => claim(store), 'store.unavailable');
      await assertRefused(() => store.get('a'), 'store.unavailable');
      assert.deepEqual(
        told.list.filter(({ isDone }) => isDone),
        [],
      );
    },
  },
  {
    name: 'who stops listening to operations is told no more, and who listens twice is told twice',
    async run({ store }) {
      const [once, twice] = [heardOperations(store), heardOperations(store)];
      if (once === undefined || twice === undefined) return;
      await put(store, sampleEntry('a'));
      once.stop();
      once.stop();
      await put(store, sampleEntry('b'));
      twice.stop();
      await put(store, sampleEntry('c'));
      assert.equal(itemsTold(once.list, 'insert'), 1);
      assert.equal(itemsTold(twice.list, 'insert'), 2);
    },
  },
  {
    name: 'a listener to operations that throws harms neither the operation nor other listeners',
    async run({ store }) {
      const stop = store.onOperation?.(() => {
        throw new Error('a listener failed');
      });
      const told = heardOperations(store);
      await put(store, sampleEntry('a'));
      const [taken] = await claim(store);
      assert.ok(taken !== undefined, 'nothing was claimed');
      assert.deepEqual(await store.commit([entryChange(taken, 'remove')]), ['done']);
      if (told !== undefined) assert.equal(itemsTold(told.list, 'commit'), 1);
      stop?.();
    },
  },
];

function assertWhole({ store, name, tookMs, isDone }: StoreOperation): void {
  assert.equal(store, 'entries');
  assert.ok(Number.isFinite(tookMs) && tookMs >= 0, `"${name}" took ${tookMs} ms`);
  assert.equal(isDone, true, `"${name}" is told as failed`);
}
