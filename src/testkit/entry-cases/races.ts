/** races — many at once: every entry is taken once, every revision is written once. */

import assert from 'node:assert/strict';
import type { Entry } from '../../core/entry.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import { sampleEntries, sampleEntry } from '../samples.ts';
import {
  changeOf,
  claimIds,
  claimOne,
  claimRequest,
  type EntryCase,
  got,
  idsOf,
  later,
  listIds,
  put,
  stateCounts,
  stepped,
} from './shared.ts';

const CLAIMERS = 64;
const MESSAGES = 500;

/** Claims in small bites until nothing is left; what it got. */
async function claimUntilEmpty(store: EntryStore): Promise<readonly Entry[]> {
  const taken: Entry[] = [];
  for (;;) {
    const bite = await store.claim(claimRequest(store, { max: 3 }));
    if (bite.length === 0) return taken;
    taken.push(...bite);
  }
}

/** 64 claimers over these stores; insists that each of 500 messages was taken exactly once. */
async function assertTakenOnce(stores: readonly EntryStore[]): Promise<void> {
  const [first] = stores as readonly [EntryStore];
  await put(first, ...sampleEntries(MESSAGES, 'm'));
  const claimers = Array.from({ length: CLAIMERS }, (_, index) =>
    claimUntilEmpty(stores[index % stores.length] ?? first),
  );
  const taken = (await Promise.all(claimers)).flat();
  assert.equal(taken.length, MESSAGES);
  assert.equal(new Set(idsOf(taken)).size, MESSAGES);
  // Each claim wrote its own holder: what is stored is what exactly one of them was told.
  for (const entry of taken) {
    const stored = await got(first, entry.envelope.id);
    assert.equal(stored.status.holder, entry.status.holder);
    assert.equal(stored.status.revision, 2);
  }
}

export const raceCases: readonly EntryCase[] = [
  {
    name: '64 claimers at once take each of 500 messages exactly once',
    run: ({ store }) => assertTakenOnce([store]),
  },
  {
    name: '64 claimers in two processes take each of 500 messages exactly once',
    needs: ['share'],
    run: async ({ store, second }) => assertTakenOnce([store, await second()]),
  },
  {
    name: 'of many commits of one revision at once one is done and the others are stale',
    async run({ store }) {
      const entry = sampleEntry('a');
      await put(store, entry);
      const results = await Promise.all(
        Array.from({ length: 16 }, (_, index) =>
          store.commit([changeOf(entry, stepped(entry, { notes: { by: String(index) } }))]),
        ),
      );
      const done = results.flatMap(([result], index) => (result === 'done' ? [index] : []));
      assert.equal(done.length, 1);
      assert.deepEqual((await got(store, 'a')).status.notes, { by: String(done[0]) });
    },
  },
  {
    name: 'of two commits of one revision from two processes one is done and one is stale',
    needs: ['share'],
    async run({ store, second }) {
      const other = await second();
      const entries = sampleEntries(50, 'm');
      await put(store, ...entries);
      const commit = async (by: EntryStore) =>
        by.commit(entries.map((entry) => changeOf(entry, stepped(entry, { notes: { by: 'x' } }))));
      const [ours, theirs] = await Promise.all([commit(store), commit(other)]);
      for (let index = 0; index < entries.length; index += 1) {
        const results = [ours[index], theirs[index]];
        assert.ok(results.includes('done') && results.includes('stale'), String(results));
      }
    },
  },
  {
    name: 'inserts of one id from two processes store it once',
    needs: ['share'],
    async run({ store, second }) {
      const other = await second();
      const [ours, theirs] = await Promise.all([
        store.insert(sampleEntries(50, 'm', { headers: { by: 'us' } })),
        other.insert(sampleEntries(50, 'm', { headers: { by: 'them' } })),
      ]);
      for (let index = 0; index < 50; index += 1) {
        const id = `m-${String(index).padStart(5, '0')}`;
        const winners = [ours[index], theirs[index]].filter((result) => result === 'stored');
        assert.equal(winners.length, 1, `"${id}" was stored ${winners.length} times`);
        const by = ours[index] === 'stored' ? 'us' : 'them';
        assert.equal((await got(store, id)).envelope.headers['by'], by);
      }
    },
  },
  {
    name: 'what one process writes the other sees',
    needs: ['share'],
    async run({ store, second }) {
      const other = await second();
      const entry = sampleEntry('a', { dedupeKey: 'k' });
      await put(store, entry);
      assert.deepEqual(await other.insert([sampleEntry('b', { dedupeKey: 'k' })]), [
        { duplicateOf: 'a' },
      ]);
      const taken = await claimOne(other);
      assert.deepEqual(await claimIds(store), []);
      assert.deepEqual(await store.commit([changeOf(entry, 'remove')]), ['stale']);
      assert.deepEqual(await other.commit([changeOf(taken, 'remove')]), ['done']);
      assert.equal(await store.get('a'), undefined);
    },
  },
  {
    name: 'a lazy commit of one process is seen by the other once it is flushed',
    needs: ['share'],
    async run({ store, second }) {
      const other = await second();
      const entry = sampleEntry('a');
      await put(store, entry);
      await store.commit([changeOf(entry, 'remove')], { durable: false });
      await store.flush();
      assert.equal(await other.get('a'), undefined);
    },
  },
  {
    name: 'two opened stores over the same data have different instance names',
    needs: ['share'],
    async run({ store, second }) {
      assert.notEqual((await second()).instance, store.instance);
    },
  },
  {
    name: 'inserts, claims and commits at once lose nothing and double nothing',
    async run({ store }) {
      const entries = sampleEntries(300, 'm');
      const done: string[] = [];
      const insert = async (part: number) => {
        for (let at = part; at < entries.length; at += 4) await put(store, entries[at] as Entry);
      };
      const work = async () => {
        for (let idle = 0; idle < 200 && done.length < entries.length; idle += 1) {
          const taken = await store.claim(claimRequest(store, { max: 5 }));
          if (taken.length > 0) idle = 0;
          const results = await store.commit(taken.map((entry) => changeOf(entry, 'remove')));
          assert.ok(results.every((result) => result === 'done'));
          done.push(...idsOf(taken));
        }
      };
      await Promise.all([insert(0), insert(1), insert(2), insert(3)]);
      await Promise.all([work(), work(), work(), work()]);
      assert.deepEqual(done.sort(), idsOf(entries));
      assert.deepEqual(await listIds(store), []);
    },
  },
  {
    name: 'claims and deferrals in turn keep every entry in exactly one state',
    async run({ store }) {
      const entries = sampleEntries(60, 'm', (index) => ({ topic: `t${index % 5}` }));
      await put(store, ...entries);
      for (let round = 1; round <= 5; round += 1) {
        const now = later(round * 1_000);
        const taken = await store.claim(claimRequest(store, { max: 60, now }));
        assert.equal(taken.length, 60);
        const changes = taken.map((entry) =>
          changeOf(entry, stepped(entry, { state: 'deferred', dueAt: later(round * 1_000 + 1) })),
        );
        await Promise.all(changes.map((change) => store.commit([change], { durable: false })));
        assert.deepEqual(await stateCounts(store), { deferred: 60 });
      }
      assert.equal((await got(store, 'm-00059')).status.attempts, 5);
    },
  },
];
