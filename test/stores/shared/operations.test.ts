import { describe, expect, test } from 'vitest';
import { seal } from 'respool/transforms';
import { faultyBodies, faultyStore, sampleEntry } from 'respool/testkit';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import { s3 } from 'respool/stores/s3';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { nats, natsBodies } from 'respool/stores/nats';
import { memory, memoryBodies } from 'respool/stores/memory';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import type { HearOperation, StoreOperation } from 'respool';
import { withExpiry } from '../../../src/outbox/relay.ts';
import { createBatchLine } from '../../../src/stores/shared/batching.ts';
import { Operations } from '../../../src/stores/shared/operations.ts';
import { heardOperations } from '../../../src/testkit/suite.ts';

/** Each look at this clock takes 5 ms. */
function setup() {
  let looks = 0;
  const monotonic = (): number => {
    looks += 1;
    return looks * 5;
  };
  const operations = new Operations('entries', { monotonic });
  const told: StoreOperation[] = [];
  return { operations, told, hear: told.push.bind(told) as HearOperation, looks: () => looks };
}

const keys = { k1: Buffer.alloc(32, 1) };
const path = '/nowhere';
const url = 'postgres://nobody@localhost/nothing';
const STORES = {
  memory: memory(),
  memoryBodies: memoryBodies(),
  sqlite: sqlite({ path }),
  sqliteBodies: sqliteBodies({ path }),
  filesystem: filesystem({ path }),
  filesystemBodies: filesystemBodies({ path }),
  postgres: postgres({ url }),
  postgresBodies: postgresBodies({ url }),
  nats: nats({ url: 'nats://localhost', bucket: 'b' }),
  natsBodies: natsBodies({ url: 'nats://localhost', bucket: 'b' }),
  s3: s3({ bucket: 'bucket', endpoint: 'http://localhost' }),
} as const;

describe('every store of this package tells of its operations:', () => {
  test.each(Object.entries(STORES))('%s', (_name, store) => {
    const stop = store.onOperation?.(() => undefined);
    expect(stop).toBeTypeOf('function');
    stop?.();
  });
});

test.each([
  ['a seal', seal(memory(), { keys })],
  ['an expiry', withExpiry(memory(), 1_000)],
  ['faults', faultyStore(memory())],
])('%s around a store lets its operations be heard', async (_name, store) => {
  const told: StoreOperation[] = [];
  await store.open();
  const stop = store.onOperation?.((operation) => void told.push(operation));
  await store.insert([sampleEntry('a'), sampleEntry('b')]);
  stop?.();
  await store.insert([sampleEntry('c')]);
  expect(told).toMatchObject([{ store: 'entries', name: 'insert', items: 2, isDone: true }]);
});

test('around a store that does not tell, nobody pretends to', () => {
  const quiet = without(memory());
  const quietBodies = without(memoryBodies());
  const around = [
    seal(quiet, { keys }),
    withExpiry(quiet, 1_000),
    faultyStore(quiet),
    faultyBodies(quietBodies),
  ];
  for (const store of around) expect(heardOperations(store)).toBeUndefined();
  expect(heardOperations(faultyBodies(memoryBodies()))).toBeDefined();
});

function without<Store extends object>(store: Store): Omit<Store, 'onOperation'> {
  const quiet: Store & { onOperation?: unknown } = { ...store };
  delete quiet.onOperation;
  return quiet;
}

test('with nobody listening no clock is read, and the work itself is handed back', async () => {
  const { operations, hear, looks } = setup();
  operations.on(hear)();
  const work = Promise.resolve([1]);
  const source = (async function* () {})();
  expect(operations.time('read', 1, () => work)).toBe(work);
  expect(operations.line('insert', () => work)([1], false)).toBe(work);
  expect(
    operations.mixed(
      () => work,
      () => expect.unreachable(),
    )([1], false),
  ).toBe(work);
  expect(operations.stream('get', source)).toBe(source);
  expect(looks()).toBe(0);
});

test('a batch of many calls is told once, with two looks at the clock', async () => {
  const { operations, hear, told, looks } = setup();
  operations.on(hear);
  const run = async (items: readonly number[]) => items;
  const line = createBatchLine(operations.line('insert', run), { batchMax: 100 });
  await Promise.all(Array.from({ length: 50 }, (_, n) => line.add([n])));
  expect(told).toEqual([{ store: 'entries', name: 'insert', items: 50, tookMs: 5, isDone: true }]);
  expect(looks()).toBe(2);
});

test('a mixed batch is told once per kind, what failed in it apart', async () => {
  const { operations, hear, told, looks } = setup();
  operations.on(hear);
  const run = operations.mixed(
    async (items: readonly number[]) => items,
    (item, result, add) => add(item % 2 === 0 ? 'insert' : 'commit', item, result !== 3),
  );
  await run([1, 2, 3, 4, 5], false);
  const shared = { store: 'entries', tookMs: 5 };
  expect(told).toEqual([
    { ...shared, name: 'commit', items: 6, isDone: true },
    { ...shared, name: 'insert', items: 6, isDone: true },
    { ...shared, name: 'commit', items: 3, isDone: false },
  ]);
  expect(looks()).toBe(2);
});

test('a batch that fails as a whole is told as failed, and its error comes as it is', async () => {
  const { operations, hear, told } = setup();
  operations.on(hear);
  const error = new Error('no disk');
  const fails = () => Promise.reject<readonly string[]>(error);
  await expect(operations.line('insert', fails)(['a', 'b'], false)).rejects.toBe(error);
  const mixed = operations.mixed<string, string>(fails, (_item, result, add) =>
    add('commit', 1, result !== undefined),
  );
  await expect(mixed(['a', 'b', 'c'], false)).rejects.toBe(error);
  await expect(operations.time('claim', () => 1, fails)).rejects.toBe(error);
  const failed = { store: 'entries', tookMs: 5, isDone: false };
  expect(told).toEqual([
    { ...failed, name: 'insert', items: 2 },
    { ...failed, name: 'commit', items: 3 },
    { ...failed, name: 'claim', items: 0 },
  ]);
});

test('records are told as reads and writes', async () => {
  const told: string[] = [];
  const store = memory();
  await store.open();
  store.onOperation?.(({ name, items }) => void told.push(`${name} ${items}`));
  const { records } = store;
  await records.append('audit', 1);
  await records.append('audit', 2);
  await records.put('pause', 'x', 1);
  expect(await records.read('audit', 0, 10)).toHaveLength(2);
  expect(await records.get('pause', 'x')).toMatchObject({ value: 1 });
  expect(await records.list('pause')).toHaveLength(1);
  await records.remove('pause', 'x');
  await records.trim('audit', 2);
  const writes = ['write 1', 'write 1', 'write 1'];
  expect(told).toEqual([...writes, 'read 2', 'read 1', 'read 1', 'write 1', 'write 1']);
});
