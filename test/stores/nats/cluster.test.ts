/**
 * Three servers, three replicas: the promises of the stores, a leader that is killed, and reads that
 * see what was written.
 */

import { connect } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bodyStoreSuite, entryStoreSuite, sampleEntries, sampleEntry } from 'respool/testkit';
import { nats, natsBodies } from 'respool/stores/nats';
import { type EntryStore, isRespoolError } from 'respool';
import { runSuite } from '../../suite.ts';
import { type Cluster, clusterServer, startCluster, VARIABLE } from './cluster.ts';
import { makeBodies, makeEntries } from './conformance.ts';
import { atEnd, bucketName, openBodies, openStore, plainConnection } from './setup.ts';

const found = await clusterServer();
const isNamed = (process.env[VARIABLE] ?? '') !== '';
const replicas = 3;

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

async function allIds(store: EntryStore): Promise<ReadonlySet<string>> {
  const ids = new Set<string>();
  let after: string | undefined;
  do {
    const page = await store.list({ limit: 500, ...(after === undefined ? {} : { after }) });
    for (const { envelope } of page.entries) ids.add(envelope.id);
    after = page.next;
  } while (after !== undefined);
  return ids;
}

/** Stores and removes until it is told to stop; notes what was acknowledged. */
function startLoad(store: EntryStore, other: EntryStore) {
  const stored = new Set<string>();
  const removed = new Set<string>();
  const load = { isOver: false, failures: 0 };
  let count = 0;
  const work = async (): Promise<void> => {
    while (!load.isOver) {
      count += 1;
      const id = `m-${count}`;
      const isRemoved = count % 2 === 0;
      try {
        await store.insert([sampleEntry(id, { bytes: new Uint8Array(600) })]);
        stored.add(id);
        if (!isRemoved) continue;
        // Of unknown outcome until it is answered.
        stored.delete(id);
        const [result] = await other.commit([{ id, revision: 1, to: 'remove' }]);
        if (result === 'done') removed.add(id);
      } catch (error) {
        if (!isRespoolError(error, 'store.unavailable')) throw error;
        load.failures += 1;
        stored.delete(id);
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  };
  const workers = Array.from({ length: 16 }, work);
  return {
    stored,
    removed,
    load,
    end: async (): Promise<void> => {
      load.isOver = true;
      await Promise.all(workers);
    },
  };
}

async function until(isReached: () => boolean): Promise<void> {
  while (!isReached()) await new Promise((resolve) => setImmediate(resolve));
}

function withCluster(tests: (cluster: () => Cluster) => void): void {
  if ('reason' in found) {
    describe.skip(`with three servers of NATS (skipped: ${found.reason})`, () =>
      tests(() => {
        throw new Error(found.reason);
      }));
    return;
  }
  describe('with three servers of NATS', () => {
    let cluster: Cluster | undefined;
    beforeAll(async () => {
      cluster = await startCluster(found.command);
    });
    afterAll(() => cluster?.[Symbol.asyncDispose]());
    tests(() => {
      if (cluster === undefined) throw new Error('the cluster has not started');
      return cluster;
    });
  });
}

withCluster((cluster) => {
  test('a store of three replicas survives the loss of a machine, and says so', async () => {
    const store = await openStore({ url: cluster().url, replicas });
    expect(store.traits.durability).toBe('node-loss');
  });

  test('a leader that is killed in the middle of work, twice, loses nothing', async () => {
    const { url } = cluster();
    const bucket = bucketName();
    const store = await openStore({ url, bucket, replicas });
    const other = await openStore({ url, bucket, replicas });
    const { stored, removed, load, end } = startLoad(store, other);
    for (let round = 0; round < 2; round += 1) {
      const before = stored.size;
      await until(() => stored.size > before + 300);
      const leader = await cluster().leaderOf(`KV_${bucket}`);
      await cluster().kill(leader);
      const atKill = stored.size;
      await until(() => stored.size > atKill + 300);
      await cluster().restart(leader);
    }
    await end();
    for (const seen of [store, other, await openStore({ url, bucket })]) {
      const ids = await allIds(seen);
      expect([...stored].filter((id) => !ids.has(id))).toEqual([]);
      expect([...removed].filter((id) => ids.has(id))).toEqual([]);
    }
    expect(removed.size).toBeGreaterThan(100);
    expect(load.failures).toBeLessThan(200);
  });

  test('what came back with one replica goes again, also where its server is not ours', async () => {
    const { url, urls, names } = cluster();
    const bucket = bucketName();
    const first = await openStore({ url, bucket });
    // Several blocks of the server's files, so that not all of them are written anew.
    const entries = sampleEntries(2_400, 'm', { bytes: new Uint8Array(10_000) });
    await first.insert(entries);
    const removed = entries.filter((_, at) => at % 8 === 0).map(({ envelope }) => envelope.id);
    await first.commit(removed.map((id) => ({ id, revision: 1, to: 'remove' as const })));
    await first.close();
    const keeps = await cluster().leaderOf(`KV_${bucket}`);
    const ours = urls.find((_, at) => names[at] !== keeps) ?? '';
    const options = { url: ours, bucket, connect: { ignoreClusterUpdates: true } };
    const store = await openStore(options);
    await cluster().kill(keeps);
    await cluster().restart(keeps);
    const plain = await plainConnection(ours);
    const ask = JSON.stringify({ subjects_filter: `$KV.${bucket}.e.>` });
    const countLeft = async (): Promise<number> => {
      const answer = await plain.request(`$JS.API.STREAM.INFO.KV_${bucket}`, ask);
      const { state } = answer.json<{ state?: { subjects?: object } }>();
      return Object.keys(state?.subjects ?? {}).length;
    };
    const flush = () => store.flush().then(() => 'kept', String);
    await expect.poll(flush).toContain('was started again');
    await expect.poll(countLeft).toBe(2_100);
    const ids = await allIds(store);
    expect(ids.size).toBe(2_100);
    expect(removed.filter((id) => ids.has(id))).toEqual([]);
  });

  test('what one store wrote is read by another at once, whichever server each is at', async () => {
    const bucket = bucketName();
    const { urls } = cluster();
    const stores = [];
    for (const url of urls) stores.push(await openStore({ url, bucket, replicas }));
    for (let n = 0; n < 300; n += 1) {
      const [writer, reader] = [stores[n % 3], stores[(n + 1) % 3]];
      const id = `m-${n}`;
      await writer?.insert([sampleEntry(id)]);
      expect((await reader?.get(id))?.envelope.id).toBe(id);
      const to = { ...sampleEntry(id).status, revision: 2 };
      expect(await reader?.commit([{ id, revision: 1, to }])).toEqual(['done']);
      expect((await writer?.get(id))?.status.revision).toBe(2);
    }
  });

  test('a list has what was written before it, though its replica may be behind', async () => {
    const bucket = bucketName();
    const { urls } = cluster();
    const stores = [];
    for (const url of urls) stores.push(await openStore({ url, bucket, replicas }));
    for (let n = 0; n < 100; n += 1) {
      const sequence = await stores[n % 3]?.records.append('audit', n);
      const lines = await stores[(n + 1) % 3]?.records.read('audit', (sequence ?? 0) - 1, 5);
      expect(lines).toEqual([{ sequence, record: n }]);
    }
  });

  test('a body that one store wrote is read by another at once', async () => {
    const bucket = bucketName();
    const { urls } = cluster();
    const stores = [];
    for (const url of urls) stores.push(await openBodies({ url, bucket, replicas }));
    for (let n = 0; n < 100; n += 1) {
      await stores[n % 3]?.put(`b-${n}`, once(new Uint8Array(200_000).fill(n)));
      let size = 0;
      const body = stores[(n + 1) % 3]?.get(`b-${n}`) ?? [];
      for await (const chunk of body) size += chunk.length;
      expect(size).toBe(200_000);
    }
  });

  test('single messages are asked of the leader, not of a replica that may be behind', async () => {
    const { url } = cluster();
    const bucket = bucketName();
    await openStore({ url, bucket, replicas });
    await openBodies({ url, bucket, replicas });
    const real = await connect({ servers: url.split(',') });
    atEnd(() => real.close());
    const asked: string[] = [];
    const connection = new Proxy(real, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (name !== 'publish') return typeof value === 'function' ? value.bind(target) : value;
        return (...given: Parameters<typeof target.publish>) => {
          asked.push(given[0]);
          target.publish(...given);
        };
      },
    });
    const store = nats({ connection, bucket, cacheBytes: 0 });
    await store.open();
    await store.insert([sampleEntry('a')]);
    expect((await store.get('a'))?.envelope.id).toBe('a');
    await store.close();
    const bodies = natsBodies({ connection, bucket });
    await bodies.open();
    await bodies.put('a', once(Uint8Array.of(1)));
    for await (const chunk of bodies.get('a')) expect(chunk).toEqual(Uint8Array.of(1));
    await bodies.close();
    const gets = asked.filter((subject) => subject.includes('STREAM.MSG.GET'));
    expect(gets.length).toBeGreaterThanOrEqual(3);
    expect(asked.filter((subject) => subject.includes('DIRECT.GET'))).toEqual([]);
  });

  // Each of these 262 cases makes a stream of three replicas: minutes, so only on request.
  const reason = isNamed ? '' : ` (skipped: ${VARIABLE} names no server)`;
  describe.skipIf(!isNamed)(`with all cases of the test kit${reason}`, () => {
    runSuite(
      'the NATS store of three replicas keeps the promises of an entry store:',
      entryStoreSuite(() => makeEntries(cluster().url, { replicas }), {
        canReopen: true,
        canShare: true,
        canDamage: true,
        crowd: 1_000,
      }),
    );

    runSuite(
      'the NATS body store of three replicas keeps the promises of a body store:',
      bodyStoreSuite(() => makeBodies(cluster().url, { replicas }), { canReopen: true }),
    );
  });
});
