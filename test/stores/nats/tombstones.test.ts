/** Markers are taken out by their sequence, which means nothing after a restart of the server. */

import { expect, test } from 'vitest';
import { Tombstones, readTombstone } from '../../../src/stores/nats/tombstones.ts';
import type { Stream } from '../../../src/stores/nats/stream.ts';
import { systemClock } from '../../time.ts';

/** Tombstones over a stream that notes what is taken out; `write` is what a tombstone meets. */
function setup(write: () => Promise<number>) {
  const dropped: number[] = [];
  const stream = {
    line: { isConnected: true, restarts: 0 },
    restartsForget: true,
    write,
    drop: (seq: number) => Promise.resolve(dropped.push(seq) > 0),
    purge: () => Promise.resolve(),
  };
  const tombstones = new Tombstones({
    stream: stream as unknown as Stream,
    clock: systemClock,
    makeSubject: (name) => name,
    makeToken: () => 'token',
  });
  return { tombstones, dropped, stream };
}

test('markers are taken out behind their tombstone', async () => {
  const { tombstones, dropped } = setup(() => Promise.resolve(9));
  tombstones.add([{ name: 'ea', seq: 5 }]);
  await tombstones.close();
  expect(dropped).toEqual([5]);
});

test('what waited when the server was started again is not taken out by its old sequence', async () => {
  let fail: (error: Error) => void = () => {};
  let begun = (): void => {};
  const isBegun = new Promise<void>((resolve) => (begun = resolve));
  const { tombstones, dropped } = setup(() => {
    begun();
    return new Promise((_, reject) => (fail = reject));
  });
  tombstones.add([{ name: 'ea', seq: 5 }]);
  await isBegun;
  tombstones.clear();
  fail(new Error('the connection broke'));
  await tombstones.close();
  expect([tombstones.waiting, dropped]).toEqual([0, []]);
});

test('a server that is back takes nothing out by sequences of before, also before we have read it anew', async () => {
  let answer: (seq: number) => void = () => {};
  let begun = (): void => {};
  const isBegun = new Promise<void>((resolve) => (begun = resolve));
  const { tombstones, dropped, stream } = setup(() => {
    begun();
    return new Promise((resolve) => (answer = resolve));
  });
  tombstones.add([{ name: 'ea', seq: 5 }]);
  await isBegun;
  stream.line.restarts = 1;
  answer(9);
  await tombstones.close();
  expect(dropped).toEqual([]);
});

test('without a connection, closing waits for nothing', async () => {
  const { tombstones, stream } = setup(() => new Promise(() => {}));
  stream.line.isConnected = false;
  tombstones.add([{ name: 'ea', seq: 5 }]);
  await tombstones.close();
  expect(tombstones.waiting).toBe(1);
});

test('a tombstone names what was removed, and which life of it where that is known', () => {
  expect(readTombstone('ea:5:77 dkey:6 :7 eb')).toEqual([
    { name: 'ea', seq: 5, birth: 77 },
    { name: 'dkey', seq: 6, birth: undefined },
  ]);
});
