/** A spool as the place where messages are sent on to (R170): by the suite, and behind a relay. */
import { createSpool, type Parcel, type Spool } from 'respool';
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
    mend: async () => {
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
  const parcel: Parcel = {
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

  test('refuses what is no spool', () => {
    expect(() => spoolSink({} as never)).toThrow(/what createSpool\(\) returns/);
  });

  test('takes what a relay sends, each once; while its store is gone the relay waits', async () => {
    const store = faultyStore(memory());
    await using target = createSpool({ entries: store, bodies: memoryBodies() });
    const { relay, spool, clock } = relayWorld(spoolSink(target));
    const ids = await put(spool, 50);
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    await relay.start();
    await clock.settle();
    expect(relay.load.target).toBe('shut');
    // The next answer is lost on its way, so all are sent twice.
    store.faults.plan = (operation, n) => (operation === 'insert' && n < 5 ? 'after' : 'ok');
    await clock.advance('1m');
    expect((await arrivals(target)).map(({ id }) => id)).toEqual(ids.toSorted());
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
    await relay.stop();
  });
});
