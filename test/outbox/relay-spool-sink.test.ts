/** A spool as the place where messages are sent on to (R170): by the suite, and behind a relay. */
import {
  createSpool,
  type EntryStore,
  type OutgoingMessage,
  RespoolError,
  type Spool,
} from 'respool';
import { spoolSink } from 'respool/outbox';
import { memory, memoryBodies } from 'respool/stores/memory';
import { faultyStore, sinkSuite, type SinkUnderTest } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { runSuite } from '../suite.ts';
import { put, relayWorld } from './relay-setup.ts';

/** What the spool has, with bodies. */
async function arrivals(
  spool: Spool,
): Promise<
  { id: string; topic: string; headers: Readonly<Record<string, string>>; body: Buffer }[]
> {
  const found = [];
  for await (const { envelope } of spool.list({ order: 'id' })) {
    const parts: Uint8Array[] = [];
    for await (const part of await spool.body(envelope.id)) parts.push(part);
    const { id, topic, headers } = envelope;
    found.push({ id, topic, headers, body: Buffer.concat(parts) });
  }
  return found;
}

/** A store in memory that says it keeps no order. */
function unordered(): EntryStore {
  const store = memory();
  const traits = { ...store.traits, ordered: false };
  return new Proxy(store, {
    get(target, name) {
      if (name === 'traits') return traits;
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

const make = async (): Promise<SinkUnderTest> => {
  const store = faultyStore(memory());
  const spool = createSpool({ entries: store, bodies: memoryBodies() });
  return {
    sink: spoolSink(spool),
    arrived: async (count) => {
      const found = await arrivals(spool);
      expect(found.length).toBeGreaterThanOrEqual(count);
      return found;
    },
    breakDown: async () => {
      store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    },
    recover: async () => {
      store.faults.plan = () => 'ok';
    },
    refusable: (parcel) => ({ ...parcel, topic: 'not..a topic' }),
    dispose: () => spool.stop(),
  };
};

runSuite(
  'a spool as a sink',
  sinkSuite(make, { canBreak: true, canRefuse: true, keepsOrder: false }),
);

describe('spoolSink', () => {
  const parcel: OutgoingMessage = {
    id: 'a1',
    topic: 'mail',
    headers: {},
    body: Buffer.from('{}'),
    enqueuedAt: 5_000,
  };

  test('stores all of a send in one write', async () => {
    const store = faultyStore(memory());
    await using spool = createSpool({ entries: store, bodies: memoryBodies() });
    const parcels = Array.from({ length: 100 }, (_, at) => ({ ...parcel, id: `a${at}` }));
    expect(new Set(await spoolSink(spool).send(parcels))).toEqual(new Set(['confirmed']));
    expect(store.faults.count('insert')).toBe(1);
  });

  test('gives up what the spool will never take, and what it cannot take now for later', async () => {
    const store = faultyStore(memory());
    await using spool = createSpool({
      entries: store,
      bodies: memoryBodies(),
      limits: { bodyBytes: 2 },
    });
    const sink = spoolSink(spool);
    expect(await sink.send([{ ...parcel, body: Buffer.from('abc') }])).toMatchObject([
      { permanence: 'permanent', code: 'limit.exceeded' },
    ]);
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    expect(await sink.send([parcel])).toMatchObject([
      { permanence: 'transient', code: 'store.unavailable' },
    ]);
  });

  test('hands the order key on, so that order is kept over there', async () => {
    await using target = createSpool({ entries: memory(), bodies: memoryBodies() });
    const { relay, spool, clock } = relayWorld(spoolSink(target));
    await spool.enqueueMany([
      { id: 'a1', topic: 'a', orderKey: 'ann' },
      { id: 'a2', topic: 'a', orderKey: 'ann' },
      { id: 'b1', topic: 'a' },
    ]);
    await relay.start();
    await clock.advance('1m');
    const keys = new Map<string, string | undefined>();
    for await (const { envelope } of target.list()) keys.set(envelope.id, envelope.orderKey);
    expect(Object.fromEntries(keys)).toEqual({ a1: 'ann', a2: 'ann', b1: undefined });
    expect(await target.operator({ by: 'ops' }).keyHeads()).toMatchObject([
      { orderKey: 'ann', id: 'a1', behind: 1 },
    ]);
    await relay.stop();
  });

  test('refuses a key where the store over there keeps no order, and nothing else waits', async () => {
    await using target = createSpool({ entries: unordered(), bodies: memoryBodies() });
    const { relay, spool, clock, status } = relayWorld(spoolSink(target));
    await spool.enqueueMany([
      { id: 'a1', topic: 'a', orderKey: 'ann' },
      { id: 'b1', topic: 'a' },
      { id: 'b2', topic: 'a' },
    ]);
    await relay.start();
    await clock.advance('1m');
    expect(relay.load.target).toBe('closed');
    expect((await arrivals(target)).map(({ id }) => id)).toEqual(['b1', 'b2']);
    const { state, lastFailure } = await status('a1');
    expect(state).toBe('deferred');
    expect(lastFailure).toMatchObject({ code: 'store.unordered' });
    expect(lastFailure?.reason).toMatch(/keeps no order.*sqlite.*keepOrder: false/);
    await relay.stop();
  });

  test('leaves the key out where it is told to', async () => {
    await using target = createSpool({ entries: unordered(), bodies: memoryBodies() });
    const sink = spoolSink(target, { keepOrder: false });
    expect(await sink.send([{ ...parcel, orderKey: 'ann' }])).toEqual(['confirmed']);
    expect((await target.get('a1'))?.envelope.orderKey).toBeUndefined();
  });

  test('keeps the order of a key when one of a send is refused', async () => {
    const order: string[] = [];
    const sink = spoolSink({
      enqueueMany: async (messages) => {
        const [first] = messages;
        if (messages.length > 1) throw new RespoolError('message.invalid', 'one of them');
        // The first takes the longest.
        if (first?.id === 'a1') await new Promise((resolve) => setImmediate(resolve));
        order.push(first?.id ?? '');
      },
    });
    const parcels = ['a1', 'a2', 'a3'].map((id) => ({ ...parcel, id, orderKey: 'ann' }));
    expect(await sink.send(parcels)).toEqual(['confirmed', 'confirmed', 'confirmed']);
    expect(order).toEqual(['a1', 'a2', 'a3']);
  });

  test('refuses what is no spool, and what is no option', () => {
    expect(() => spoolSink({} as never)).toThrow(/what createSpool\(\) returns/);
    const spool = { enqueueMany: () => Promise.resolve() };
    expect(() => spoolSink(spool, { keepOrder: 1 as never })).toThrow(/"keepOrder"/);
    expect(() => spoolSink(spool, { order: true } as never)).toThrow(/"order"/);
  });

  test('takes what a relay sends, each once; while its store is gone the relay waits', async () => {
    const store = faultyStore(memory());
    await using target = createSpool({ entries: store, bodies: memoryBodies() });
    const { relay, spool, clock } = relayWorld(spoolSink(target));
    const ids = await put(spool, 50);
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    await relay.start();
    await clock.settle();
    expect(relay.load.target).toBe('open');
    // The next answer is lost on its way, so all are sent twice.
    store.faults.plan = (operation, n) => (operation === 'insert' && n < 5 ? 'after' : 'ok');
    await clock.advance('1m');
    expect((await arrivals(target)).map(({ id }) => id)).toEqual(ids.toSorted());
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
    await relay.stop();
  });
});
