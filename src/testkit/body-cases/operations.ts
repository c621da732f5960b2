/** operations — as for entries: a body store that tells of what it does tells the truth. */

import assert from 'node:assert/strict';
import type { StoreOperation } from '../../ports/store-operation.ts';
import { heardOperations } from '../heard-operations.ts';
import {
  assertHolds,
  assertMissing,
  assertRefused,
  type BodyCase,
  chunksOf,
  HELLO,
  readAndStop,
} from './shared.ts';

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
