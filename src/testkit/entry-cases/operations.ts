/**
 * operations — a store that tells of what it does at its disk or server tells the truth, by the
 * time its call is answered. One that does not tell has nothing to prove here.
 */

import assert from 'node:assert/strict';
import type { StoreOperation } from '../../ports/store-operation.ts';
import { heardOperations, itemsTold } from '../heard-operations.ts';
import { sampleEntry } from '../samples.ts';
import { assertRefused, changeOf, claim, type EntryCase, got, put } from './shared.ts';

export const operationCases: readonly EntryCase[] = [
  {
    name: 'insert, claim, commit and read are told as operations, with their items',
    async run({ store }) {
      const told = heardOperations(store);
      if (told === undefined) return;
      await put(store, sampleEntry('a'), sampleEntry('b'), sampleEntry('c'));
      const taken = await claim(store, { max: 2 });
      assert.equal(itemsTold(told.list, 'claim'), 2);
      await store.commit(taken.map((entry) => changeOf(entry, 'remove')));
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
      assert.deepEqual(await store.commit([changeOf(taken, 'remove')]), ['done']);
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
