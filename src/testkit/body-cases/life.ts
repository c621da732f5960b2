/**
 * life — removing, listing, concurrency, closing and reopening; and that a store which reports
 * its operations reports them correctly.
 */

import assert from 'node:assert/strict';
import { HOUR_MS } from '../../core/duration.ts';
import type { StoreOperation } from '../../ports/store-operation.ts';
import { systemClock } from '../../system/clock.ts';
import {
  allRefs,
  assertHolds,
  assertMissing,
  assertRefused,
  type BodyCase,
  chunksOf,
  farFuture,
  HELLO,
  MIB,
  oddPieces,
  randomBytes,
  read,
  readAndStop,
} from './shared.ts';
import { heardOperations } from '../suite.ts';

export const bodyLifeCases: readonly BodyCase[] = [
  {
    name: 'a removed body is missing, and its neighbours stay',
    async run({ bodies }) {
      for (const ref of ['a', 'b', 'c']) await bodies.put(ref, chunksOf(HELLO));
      await bodies.remove(['a', 'c']);
      await assertMissing(bodies, 'a');
      await assertHolds(bodies, 'b', HELLO);
      await assertMissing(bodies, 'c');
    },
  },
  {
    name: 'removing what is not there, twice, or nothing at all is no error',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await bodies.remove([]);
      await bodies.remove(['nobody', 'a', 'a']);
      await bodies.remove(['a']);
      await assertMissing(bodies, 'a');
    },
  },
  {
    name: 'a store that remembers settled messages tells them from bodies that are missing',
    async run({ bodies }) {
      if (bodies.wasSettled === undefined) return;
      for (const ref of ['a', 'b', 'c', 'd']) await bodies.put(ref, chunksOf(HELLO));
      await bodies.remove(['a'], 'delivered');
      await bodies.remove(['b'], 'removed');
      await bodies.remove(['c']);
      // Removed again by a process that finds a part of it: what is known of it stays.
      await bodies.remove(['a']);
      const known = [];
      for (const ref of ['a', 'b', 'c', 'd', 'e']) known.push(await bodies.wasSettled(ref));
      assert.deepEqual(known, ['delivered', 'removed', undefined, undefined, undefined]);
      for (const ref of ['a', 'b', 'c']) await assertMissing(bodies, ref);
      assert.deepEqual(await allRefs(bodies, farFuture()), ['d']);
      await assertRefused(() => bodies.put('a', chunksOf(HELLO)), 'message.duplicate');
    },
  },
  {
    name: 'many bodies are removed with one call',
    async run({ bodies }) {
      const refs = Array.from({ length: 300 }, (_, n) => `r${n}`);
      for (const ref of refs) await bodies.put(ref, chunksOf(Uint8Array.of(1)));
      await bodies.remove(refs);
      assert.deepEqual(await allRefs(bodies, farFuture()), []);
    },
  },
  {
    name: 'the refs written before a time are listed, those after it are not',
    async run({ bodies }) {
      assert.deepEqual(await allRefs(bodies, farFuture()), []);
      for (const ref of ['b', 'a', 'c']) await bodies.put(ref, chunksOf(HELLO));
      await bodies.remove(['c']);
      assert.deepEqual(await allRefs(bodies, farFuture()), ['a', 'b']);
      assert.deepEqual(await allRefs(bodies, systemClock.now() - HOUR_MS), []);
    },
  },
  {
    name: 'a ref is listed with the time it was written',
    async run({ bodies }) {
      // A server's clock may differ from ours, but not by an hour.
      await bodies.put('a', chunksOf(HELLO));
      for await (const { writtenAt } of bodies.refs(farFuture())) {
        assert.ok(Math.abs(writtenAt - systemClock.now()) < HOUR_MS);
      }
    },
  },
  {
    name: 'bodies can be removed while their refs are listed',
    async run({ bodies }) {
      for (let n = 0; n < 50; n += 1) await bodies.put(`r${n}`, chunksOf(Uint8Array.of(n)));
      const seen = new Set<string>();
      for await (const { ref } of bodies.refs(farFuture())) {
        seen.add(ref);
        await bodies.remove([ref]);
      }
      assert.equal(seen.size, 50);
      assert.deepEqual(await allRefs(bodies, farFuture()), []);
    },
  },
  {
    name: 'puts at the same time do not mix',
    async run({ bodies }) {
      const all = Array.from({ length: 24 }, (_, n) => randomBytes(10_000 + n * 7_919, n));
      await Promise.all(all.map((bytes, n) => bodies.put(`r${n}`, oddPieces(bytes))));
      for (const [n, bytes] of all.entries()) await assertHolds(bodies, `r${n}`, bytes);
    },
  },
  {
    name: 'readers of one body at the same time each get the whole',
    async run({ bodies }) {
      const bytes = randomBytes(MIB, 5);
      await bodies.put('a', chunksOf(bytes));
      await Promise.all(Array.from({ length: 8 }, () => assertHolds(bodies, 'a', bytes)));
    },
  },
  {
    name: 'a body can be read again and again',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await assertHolds(bodies, 'a', HELLO);
      await assertHolds(bodies, 'a', HELLO);
    },
  },
  {
    name: 'readers that stop early leave nothing behind',
    async run({ bodies }) {
      const bytes = randomBytes(300_000, 6);
      await bodies.put('a', chunksOf(bytes.subarray(0, 150_000), bytes.subarray(150_000)));
      // More than the files a process may usually have open, were each of them to leave one.
      for (let n = 0; n < 1_500; n += 1) await readAndStop(bodies, 'a');
      await assertHolds(bodies, 'a', bytes);
      await bodies.remove(['a']);
      await assertMissing(bodies, 'a');
    },
  },
  {
    name: 'closing twice, or twice at once, is no error',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await Promise.all([bodies.close(), bodies.close()]);
      await bodies.close();
    },
  },
  {
    name: 'every use after closing is refused',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await bodies.close();
      await assertRefused(() => bodies.put('b', chunksOf(HELLO)), 'store.unavailable');
      await assertRefused(() => read(bodies, 'a'), 'store.unavailable');
      await assertRefused(() => bodies.remove(['a']), 'store.unavailable');
      await assertRefused(() => allRefs(bodies, farFuture()), 'store.unavailable');
    },
  },
  {
    name: 'bodies survive closing and opening',
    needs: 'reopen',
    async run({ bodies, reopen }) {
      const bytes = randomBytes(200_000, 7);
      await bodies.put('a', oddPieces(bytes));
      await bodies.put('b', chunksOf());
      await bodies.put('c', chunksOf(HELLO));
      await bodies.remove(['c']);
      const again = await reopen();
      await assertHolds(again, 'a', bytes);
      await assertHolds(again, 'b', new Uint8Array(0));
      await assertMissing(again, 'c');
      assert.deepEqual(await allRefs(again, farFuture()), ['a', 'b']);
      await assertRefused(() => again.put('a', chunksOf(HELLO)), 'message.duplicate');
    },
  },
];

export const bodyOperationCases: readonly BodyCase[] = [
  {
    name: 'put, get and remove are told as operations, with their items',
    async run({ bodies }) {
      const told = heardOperations(bodies);
      if (told === undefined) return;
      await bodies.put('a', chunksOf(HELLO));
      await bodies.put('b', chunksOf(HELLO));
      await assertHolds(bodies, 'a', HELLO);
      await bodies.remove(['a', 'b']);
      assert.deepEqual(told.list.map(shown), [
        { store: 'bodies', name: 'put', items: 1, isDone: true },
        { store: 'bodies', name: 'put', items: 1, isDone: true },
        { store: 'bodies', name: 'get', items: 1, isDone: true },
        { store: 'bodies', name: 'remove', items: 2, isDone: true },
      ]);
      for (const { tookMs, name } of told.list) {
        assert.ok(Number.isFinite(tookMs) && tookMs >= 0, `"${name}" took ${tookMs} ms`);
      }
    },
  },
  {
    name: 'a put or a get that fails is told as failed, a reader that stops early is not',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      const told = heardOperations(bodies);
      if (told === undefined) return;
      await assertMissing(bodies, 'nobody');
      await assertRefused(() => bodies.put('a', chunksOf(HELLO)), 'message.duplicate');
      await assert.rejects(bodies.put('b', broken()));
      await readAndStop(bodies, 'a');
      assert.deepEqual(
        told.list.map(({ name, isDone }) => ({ name, isDone })),
        [
          { name: 'get', isDone: false },
          { name: 'put', isDone: false },
          { name: 'put', isDone: false },
          { name: 'get', isDone: true },
        ],
      );
    },
  },
  {
    name: 'who stops listening to operations is told no more, and one that throws harms nobody',
    async run({ bodies }) {
      const stop = bodies.onOperation?.(() => {
        throw new Error('a listener failed');
      });
      const told = heardOperations(bodies);
      await bodies.put('a', chunksOf(HELLO));
      await assertHolds(bodies, 'a', HELLO);
      told?.stop();
      stop?.();
      await bodies.remove(['a']);
      if (told === undefined) return;
      assert.deepEqual(
        told.list.map(({ name }) => name),
        ['put', 'get'],
      );
    },
  },
];

function shown({ tookMs: _tookMs, ...rest }: StoreOperation): Omit<StoreOperation, 'tookMs'> {
  return rest;
}

async function* broken(): AsyncGenerator<Uint8Array> {
  yield HELLO;
  throw new Error('the stream failed');
}
