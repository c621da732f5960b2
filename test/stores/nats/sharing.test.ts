/** Several stores over one bucket: who claims what, who is told, and what is left in the stream. */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { headers } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import { nats } from 'respool/stores/nats';
import type { EntryStore } from 'respool';
import { shardOf } from '../../../src/stores/nats/row.ts';
import { withService } from '../../services/index.ts';
import { atEnd, bucketName, openStore, plainConnection } from './setup.ts';
import { systemClock } from '../../time.ts';

const DELIVERY = { lane: 'delivery', states: ['incoming', 'deferred', 'active'] } as const;

function claim(store: EntryStore, max = 100) {
  const holder = `${store.instance}:1`;
  return store.claim({ ...DELIVERY, max, now: SAMPLE_AT, leaseMs: 60_000, holder });
}

const removal = (id: string, revision = 1) => ({ id, revision, to: 'remove' as const });

async function idsOf(store: EntryStore): Promise<readonly string[]> {
  return (await store.list({ limit: 500 })).entries.map(({ envelope }) => envelope.id);
}

/** How many messages of the bucket lie under each kind of key. */
async function kindsIn(url: string, bucket: string): Promise<Readonly<Record<string, number>>> {
  const connection = await plainConnection(url);
  const ask = JSON.stringify({ subjects_filter: `$KV.${bucket}.>` });
  const answer = await connection.request(`$JS.API.STREAM.INFO.KV_${bucket}`, ask);
  const { state } = answer.json<{ state: { subjects?: Record<string, number> } }>();
  const kinds: Record<string, number> = {};
  for (const subject of Object.keys(state.subjects ?? {})) {
    const kind = subject.charAt(`$KV.${bucket}.`.length);
    kinds[kind] = (kinds[kind] ?? 0) + 1;
  }
  return kinds;
}

/** Starts a neighbour; resolves with what it removed, whether it lived to the end or not. */
async function startNeighbour(url: string, bucket: string) {
  const child = fork(path.join(import.meta.dirname, 'neighbour.ts'), [url, bucket]);
  atEnd(async () => child.kill('SIGKILL'));
  await once(child, 'message');
  const done: string[] = [];
  const ended = once(child, 'exit');
  const first = new Promise<void>((resolve) => {
    child.on('message', (told: { done?: string[] }) => {
      done.push(...(told.done ?? []));
      resolve();
    });
  });
  return { child, done, ended, first, go: () => child.send({}) };
}

withService('nats', (url) => {
  test('two processes share the work, and each message is removed by one of them', async () => {
    const bucket = bucketName();
    const store = await openStore({ url: url(), bucket });
    await store.insert(sampleEntries(400, 'm'));
    const [one, two] = await Promise.all([
      startNeighbour(url(), bucket),
      startNeighbour(url(), bucket),
    ]);
    one.go();
    two.go();
    await Promise.all([one.ended, two.ended]);
    const all = [...one.done, ...two.done];
    expect(new Set(all).size).toBe(all.length);
    expect(all).toHaveLength(400);
    expect(one.done.length * two.done.length).toBeGreaterThan(0);
    expect(await idsOf(store)).toEqual([]);
  });

  test('what a killed process held is claimed by another after its lease', async () => {
    const bucket = bucketName();
    const store = await openStore({ url: url(), bucket });
    await store.insert(sampleEntries(200, 'm'));
    const neighbour = await startNeighbour(url(), bucket);
    neighbour.go();
    await neighbour.first;
    neighbour.child.kill('SIGKILL');
    await neighbour.ended;
    const now = systemClock.now() + 120_000;
    const holder = `${store.instance}:1`;
    const taken = await store.claim({ ...DELIVERY, max: 500, now, leaseMs: 60_000, holder });
    // What it removed and could not tell us of is gone; all else is ours.
    const ids = new Set([...taken.map(({ envelope }) => envelope.id), ...neighbour.done]);
    expect(ids.size).toBe(taken.length + neighbour.done.length);
    expect(200 - ids.size).toBeLessThanOrEqual(7);
    expect(await claim(store)).toEqual([]);
  });

  test('another store’s insert wakes, our own does not', async () => {
    const bucket = bucketName();
    const [store, other] = [
      await openStore({ url: url(), bucket }),
      await openStore({ url: url(), bucket }),
    ];
    let wakes = 0;
    const woken = new Promise<void>((resolve) => {
      store.watch?.(() => {
        wakes += 1;
        resolve();
      });
    });
    await store.insert([sampleEntry('own')]);
    await store.nextDueAt(DELIVERY);
    await new Promise((resolve) => setImmediate(resolve));
    expect(wakes).toBe(0);
    await other.insert([sampleEntry('theirs')]);
    await woken;
    expect(await idsOf(store)).toEqual(['own', 'theirs']);
  });

  test('another store’s claim wakes a little later, for the end of its lease', async () => {
    const bucket = bucketName();
    const other = await openStore({ url: url(), bucket });
    await other.insert([sampleEntry('a')]);
    const waits: number[] = [];
    const soon: (() => void)[] = [];
    const clock = {
      ...systemClock,
      after(ms: number, call: () => void) {
        if (ms !== 1_000) return systemClock.after(ms, call);
        waits.push(ms);
        soon.push(call);
        return () => {};
      },
    };
    const store = await openStore({ url: url(), bucket, clock });
    let wakes = 0;
    const woken = new Promise<void>((resolve) => {
      store.watch?.(() => {
        wakes += 1;
        resolve();
      });
    });
    expect(await claim(other)).toHaveLength(1);
    expect(await idsOf(store)).toEqual(['a']);
    expect([waits, wakes]).toEqual([[1_000], 0]);
    for (const call of soon) call();
    await woken;
    expect(wakes).toBe(1);
  });

  test('a watcher that was stopped is no longer called', async () => {
    const bucket = bucketName();
    const [store, other] = [
      await openStore({ url: url(), bucket }),
      await openStore({ url: url(), bucket }),
    ];
    let wakes = 0;
    store.watch?.(() => (wakes += 1))();
    await other.insert([sampleEntry('a')]);
    await store.nextDueAt(DELIVERY);
    await new Promise((resolve) => setImmediate(resolve));
    expect(wakes).toBe(0);
  });

  test('a store whose connection was cut has missed nothing when it is back', async () => {
    const bucket = bucketName();
    const other = await openStore({ url: url(), bucket });
    const connection = await plainConnection(url());
    const store = nats({ connection, bucket });
    await store.open();
    atEnd(() => store.close());
    await other.insert(sampleEntries(50, 'a'));
    expect(await idsOf(store)).toHaveLength(50);
    const back = new Promise<void>((resolve) => {
      void (async () => {
        for await (const { type } of connection.status()) if (type === 'reconnect') resolve();
      })();
    });
    void connection.reconnect();
    await other.insert(sampleEntries(30, 'b', { dedupeKey: 'k' }).slice(0, 1));
    await other.insert(sampleEntries(30, 'c'));
    await other.commit(sampleEntries(40, 'a').map(({ envelope }) => removal(envelope.id)));
    await back;
    expect(await idsOf(store)).toEqual(await idsOf(other));
    expect(await store.tally('state', {})).toEqual(await other.tally('state', {}));
    expect((await claim(store)).length).toBe(41);
  });

  test('after a thousand lives the stream holds neither entries nor markers nor keys', async () => {
    const bucket = bucketName();
    const store = nats({ url: url(), bucket });
    await store.open();
    for (let round = 0; round < 5; round += 1) {
      const entries = sampleEntries(200, `r${round}`, (n) => ({ dedupeKey: `${round} ${n}` }));
      await store.insert(entries);
      await store.commit(entries.map(({ envelope }) => removal(envelope.id)));
    }
    await store.close();
    const { e = 0, d = 0, g = 0 } = await kindsIn(url(), bucket);
    expect({ e, d }).toEqual({ e: 0, d: 0 });
    expect(g).toBeLessThan(50);
    const later = await openStore({ url: url(), bucket });
    expect(await idsOf(later)).toEqual([]);
  });

  test('markers that a dead process left are taken out by the next one', async () => {
    const bucket = bucketName();
    const store = await openStore({ url: url(), bucket });
    await store.insert([sampleEntry('a')]);
    const connection = await plainConnection(url());
    const mark = headers();
    mark.set('KV-Operation', 'DEL');
    await connection.request(`$KV.${bucket}.e.${shardOf('a')}.a`, '', {
      headers: mark,
      timeout: 2_000,
    });
    expect(await idsOf(store)).toEqual([]);
    const next = nats({ url: url(), bucket });
    await next.open();
    await next.close();
    expect((await kindsIn(url(), bucket))['e'] ?? 0).toBe(0);
  });

  test('the server’s clock is told', async () => {
    const store = await openStore({ url: url() });
    const before = systemClock.now();
    const now = (await store.now?.()) ?? 0;
    const after = systemClock.now();
    // It is this machine, too; what was measured of its clock may be a little older.
    expect(now).toBeGreaterThanOrEqual(before - 5_000);
    expect(now).toBeLessThanOrEqual(after + 5_000);
  });

  test('an entry whose value is spoilt is passed over, refused and reported', async () => {
    const bucket = bucketName();
    const store = await openStore({ url: url(), bucket, cacheBytes: 0 });
    await store.insert(sampleEntries(3, 'm'));
    const connection = await plainConnection(url());
    const subject = `$KV.${bucket}.e.${shardOf('m-00001')}.m-00001`;
    const stream = `KV_${bucket}`;
    const found = await connection.request(`$JS.API.DIRECT.GET.${stream}.${subject}`);
    const same = headers();
    same.set('Rs-Facts', found.headers?.get('Rs-Facts') ?? '');
    const half = found.data.slice(0, 40);
    await connection.request(subject, half, { headers: same, timeout: 2_000 });
    expect((await claim(store)).map(({ envelope }) => envelope.id)).toEqual(['m-00000', 'm-00002']);
    await expect(store.get('m-00001')).rejects.toMatchObject({ code: 'store.corrupt' });
    expect((await store.list({ limit: 10 })).corrupt).toMatchObject([{ id: 'm-00001' }]);
    expect(await store.insert([sampleEntry('m-00001')])).toEqual([{ duplicateOf: 'm-00001' }]);
  });

  test('a store can be opened again after it was closed', async () => {
    const store = await openStore({ url: url() });
    await store.insert([sampleEntry('a')]);
    await store.records.append('audit', 1);
    await store.close();
    await store.open();
    expect(await idsOf(store)).toEqual(['a']);
    await store.records.append('audit', 2);
    const lines = await store.records.read('audit', 0, 10);
    expect(lines.map(({ record }) => record)).toEqual([1, 2]);
  });
});
