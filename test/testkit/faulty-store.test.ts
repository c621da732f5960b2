import { describe, expect, test } from 'vitest';
import {
  bodyStoreSuite,
  entryStoreSuite,
  type FaultPlan,
  faultyBodies,
  type FaultyOptions,
  faultyStore,
  randomFaults,
  sampleEntry,
  seededDice,
  SimClock,
} from 'respool/testkit';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import type { EntryStore } from 'respool';
import { runSuite } from '../suite.ts';

const AWAY = { code: 'store.unavailable' };

async function setup(plan: FaultPlan) {
  const clock = new SimClock();
  const real = memory();
  const store = faultyStore(real, { plan, clock });
  await store.open();
  return { clock, real, store };
}

async function setupBodies(plan: FaultPlan) {
  const clock = new SimClock();
  const real = memoryBodies({ clock });
  const bodies = faultyBodies(real, { plan, clock });
  await bodies.open();
  return { clock, real, bodies };
}

async function* bytes(...chunks: readonly number[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield Uint8Array.of(chunk);
}

async function collect<T>(items: AsyncIterable<T>, into: T[] = []): Promise<T[]> {
  for await (const item of items) into.push(item);
  return into;
}

/** Fails this operation on its nth call only. */
const onCall =
  (wanted: string, wantedN: number, fault: ReturnType<FaultPlan>): FaultPlan =>
  (operation, n) =>
    operation === wanted && n === wantedN ? fault : 'ok';

describe('a faulty store', () => {
  test('fails before the write: nothing happened', async () => {
    const { real, store } = await setup(onCall('insert', 1, 'before'));
    await expect(store.insert([sampleEntry('a')])).rejects.toMatchObject(AWAY);
    expect(await real.get('a')).toBeUndefined();
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test('fails after the write: it happened, and the caller is told otherwise', async () => {
    const { real, store } = await setup(onCall('insert', 1, 'after'));
    await expect(store.insert([sampleEntry('a')])).rejects.toMatchObject(AWAY);
    expect((await real.get('a'))?.envelope.id).toBe('a');
    expect(await store.insert([sampleEntry('a')])).toEqual([{ duplicateOf: 'a' }]);
  });

  test('does its work late: nothing is seen before', async () => {
    const { clock, real, store } = await setup(onCall('insert', 1, { delayMs: 100 }));
    const insert = store.insert([sampleEntry('a')]);
    await clock.advance(99);
    expect(await real.get('a')).toBeUndefined();
    await clock.advance(1);
    expect((await real.get('a'))?.envelope.id).toBe('a');
    expect(await insert).toEqual(['stored']);
  });

  test('answers late: the work is seen at once', async () => {
    const { clock, real, store } = await setup(onCall('insert', 1, { answerLateMs: 100 }));
    let isAnswered = false;
    const insert = store.insert([sampleEntry('a')]).finally(() => {
      isAnswered = true;
    });
    await clock.advance(99);
    expect((await real.get('a'))?.envelope.id).toBe('a');
    expect(isAnswered).toBe(false);
    await clock.advance(1);
    expect(await insert).toEqual(['stored']);
  });

  test('passes an error of the store itself on as it is', async () => {
    const { store } = await setup(onCall('list', 1, 'after'));
    await expect(store.list({ limit: 0 })).rejects.toMatchObject({ code: 'limit.exceeded' });
  });

  test('counts the calls of each operation, failed ones too', async () => {
    const { store } = await setup(onCall('get', 2, 'before'));
    await store.get('a');
    await expect(store.get('a')).rejects.toMatchObject(AWAY);
    await store.get('a');
    await store.records.append('audit', 1);
    expect(store.faults.count('get')).toBe(3);
    expect(store.faults.count('records.append')).toBe(1);
    expect(store.faults.count('insert')).toBe(0);
    expect(store.faults.count()).toBe(5);
  });

  test('takes a new plan while it runs', async () => {
    const { store } = await setup(() => 'ok');
    await store.get('a');
    store.faults.plan = () => 'before';
    await expect(store.get('a')).rejects.toMatchObject(AWAY);
    store.faults.plan = () => 'ok';
    expect(await store.get('a')).toBeUndefined();
  });

  test('fails in its records too', async () => {
    const { real, store } = await setup(onCall('records.put', 1, 'after'));
    await expect(store.records.put('k', 'a', 1, 0)).rejects.toMatchObject(AWAY);
    expect(await store.records.put('k', 'a', 1, 0)).toBe('stale');
    expect((await real.records.get('k', 'a'))?.revision).toBe(1);
  });

  test('has the optional methods of its store, and no others', async () => {
    const plain = memory();
    expect('now' in faultyStore(plain) || 'watch' in faultyStore(plain)).toBe(false);
    const rich: EntryStore = {
      ...plain,
      now: async () => 42,
      expireLost: async (at) => at,
      watch: () => () => {},
    };
    const faulty = faultyStore(rich, {
      plan: (operation) => (operation === 'now' ? 'after' : 'ok'),
    });
    await expect(faulty.now?.()).rejects.toMatchObject(AWAY);
    expect(await faulty.expireLost?.(7)).toBe(7);
    expect('watch' in faulty).toBe(true);
    expect(faulty.instance).toBe(plain.instance);
  });
});

describe('a faulty body store', () => {
  test('fails before the write without reading the source', async () => {
    const { bodies } = await setupBodies(onCall('put', 1, 'before'));
    const source = bytes(1, 2);
    await expect(bodies.put('a', source)).rejects.toMatchObject(AWAY);
    expect(await bodies.put('a', source)).toEqual({ size: 2 });
  });

  test('fails after the write: the body is there', async () => {
    const { real, bodies } = await setupBodies(onCall('put', 1, 'after'));
    await expect(bodies.put('a', bytes(1, 2))).rejects.toMatchObject(AWAY);
    expect(await collect(real.get('a'))).toHaveLength(2);
  });

  test('fails a read before its first byte, or at its end', async () => {
    const plan: FaultPlan = (operation, n) => {
      if (operation !== 'get') return 'ok';
      return n === 1 ? 'before' : 'after';
    };
    const { bodies } = await setupBodies(plan);
    await bodies.put('a', bytes(1, 2));
    const seen: Uint8Array[] = [];
    await expect(collect(bodies.get('a'), seen)).rejects.toMatchObject(AWAY);
    expect(seen).toHaveLength(0);
    await expect(collect(bodies.get('a'), seen)).rejects.toMatchObject(AWAY);
    expect(seen).toHaveLength(2);
  });

  test('reads and lists late by the clock', async () => {
    const { clock, bodies } = await setupBodies((operation) =>
      operation === 'get' || operation === 'refs' ? { delayMs: 10 } : 'ok',
    );
    await bodies.put('a', bytes(7));
    const read = collect(bodies.get('a'));
    const refs = collect(bodies.refs(clock.now() + 1));
    await clock.advance(10);
    expect(await read).toEqual([Uint8Array.of(7)]);
    expect((await refs).map(({ ref }) => ref)).toEqual(['a']);
  });
});

describe('random faults', () => {
  const draw = (seed: number, calls: number) => {
    const rates = { before: 0.1, after: 0.1, delay: 0.1, answerLate: 0.1, delayMaxMs: 50 };
    const plan = randomFaults({ dice: seededDice(seed), ...rates });
    return Array.from({ length: calls }, (_, n) => plan('insert', n + 1));
  };

  test('are the same for the same seed, and others for another', () => {
    expect(draw(1, 200)).toEqual(draw(1, 200));
    expect(draw(1, 200)).not.toEqual(draw(2, 200));
  });

  test('come about as often as their rates say', () => {
    const faults = draw(3, 10_000);
    const share = (wanted: (fault: unknown) => boolean) => faults.filter(wanted).length / 10_000;
    expect(share((fault) => fault === 'ok')).toBeCloseTo(0.6, 1);
    expect(share((fault) => fault === 'before')).toBeCloseTo(0.1, 1);
    expect(share((fault) => fault === 'after')).toBeCloseTo(0.1, 1);
    expect(share((fault) => typeof fault === 'object')).toBeCloseTo(0.2, 1);
    for (const fault of faults) {
      if (typeof fault !== 'object') continue;
      const ms = 'delayMs' in fault ? fault.delayMs : fault.answerLateMs;
      expect(ms >= 0 && ms <= 50).toBe(true);
    }
  });

  test('spare open and close, and everything that is not named', () => {
    const always = randomFaults({ dice: seededDice(1), before: 1 });
    expect([always('open', 1), always('close', 1), always('get', 1)]).toEqual([
      'ok',
      'ok',
      'before',
    ]);
    const commits = randomFaults({ dice: seededDice(1), before: 1, only: ['commit'] });
    expect([commits('get', 1), commits('commit', 1)]).toEqual(['ok', 'before']);
  });
});

describe('seeded dice', () => {
  test('throw numbers from 0 up to 1, the same for the same seed', () => {
    const [one, same, other] = [seededDice(7), seededDice(7), seededDice(8)];
    const throws = Array.from({ length: 1_000 }, () => one.random());
    expect(throws).toEqual(throws.map(() => same.random()));
    expect(throws).not.toEqual(throws.map(() => other.random()));
    expect(throws.every((random) => random >= 0 && random < 1)).toBe(true);
    expect(new Set(throws.map((random) => Math.floor(random * 10))).size).toBe(10);
  });
});

const noFaults: FaultyOptions = {};

runSuite(
  'a faulty store without faults keeps the promises of its store:',
  entryStoreSuite(
    async () => {
      const store = faultyStore(memory(), noFaults);
      await store.open();
      return { store, dispose: () => store.close() };
    },
    { canReopen: false, canShare: false, canDamage: false, canOrder: true },
  ),
);

runSuite(
  'a faulty body store without faults keeps the promises of its store:',
  bodyStoreSuite(
    async () => {
      const bodies = faultyBodies(memoryBodies({ shared: createMemoryData() }), noFaults);
      await bodies.open();
      return { bodies, dispose: () => bodies.close() };
    },
    { canReopen: false },
  ),
);
