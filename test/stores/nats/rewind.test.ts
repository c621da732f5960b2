/**
 * A server that went back: its stream is shown again as it was earlier, and the processes that live
 * on know better.
 */

import { jetstreamManager, type StoredMsg } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntry } from 'respool/testkit';
import { nats, natsBodies } from 'respool/stores/nats';
import { createSpool, type EntryStore, type RespoolError, type SpoolEvent } from 'respool';
import { privateServer, withService } from '../../services/index.ts';
import { OTHERS_MS } from '../../../src/stores/nats/feed.ts';
import { holdTimers } from '../../time.ts';
import { atEnd, bucketName, openStore, plainConnection, removeBucket } from './setup.ts';

/** The stream of a bucket, which can be brought back to what it was. */
async function streamOf(url: string, bucket: string) {
  const plain = await plainConnection(url);
  const { streams } = await jetstreamManager(plain);
  const name = `KV_${bucket}`;
  const messages = async (): Promise<readonly StoredMsg[]> => {
    const { state } = await streams.info(name);
    const all: StoredMsg[] = [];
    for (let seq = state.first_seq; seq <= state.last_seq; seq += 1) {
      const found = await streams.getMessage(name, { seq }).catch(() => null);
      if (found !== null) all.push(found);
    }
    return all;
  };
  const goBackTo = async (earlier: readonly StoredMsg[]): Promise<void> => {
    const { config } = await streams.info(name);
    await streams.delete(name);
    await streams.add(config);
    for (const { subject, data, header } of earlier) {
      await plain.request(subject, data, { headers: header, timeout: 20_000 });
    }
  };
  return { messages, goBackTo };
}

function hear(store: EntryStore): RespoolError[] {
  const heard: RespoolError[] = [];
  store.onTrouble?.((error) => heard.push(error));
  return heard;
}

const claim = (store: EntryStore) =>
  store.claim({
    lane: 'delivery',
    states: ['incoming', 'deferred', 'active'],
    max: 10,
    now: SAMPLE_AT,
    leaseMs: SAMPLE_LEASE_MS,
    holder: `${store.instance}:1`,
  });

const idsOf = async (store: EntryStore) =>
  (await store.list({ limit: 500 })).entries.map(({ envelope }) => envelope.id);

withService('nats', (url) => {
  test('a message whose removal the server forgot is not delivered again', async () => {
    const bucket = bucketName();
    const store = await openStore({ url: url(), bucket });
    const other = await openStore({ url: url(), bucket });
    const heard = [hear(store), hear(other)];
    const { messages, goBackTo } = await streamOf(url(), bucket);
    await store.insert([sampleEntry('a'), sampleEntry('b')]);
    const earlier = await messages();
    const [entry] = (await claim(store)).filter(({ envelope }) => envelope.id === 'a');
    const { revision = 0, holder = '' } = entry?.status ?? {};
    expect(await store.commit([{ id: 'a', revision, holder, to: 'remove' }])).toEqual(['done']);
    expect(await idsOf(other)).toEqual(['b']);
    await goBackTo(earlier);
    for (const seen of [store, other]) {
      expect(await idsOf(seen)).toEqual(['b']);
      expect((await claim(seen)).map(({ envelope }) => envelope.id)).not.toContain('a');
    }
    // The second one may see what the first has put right already.
    const [error] = heard.flat();
    expect(error?.code).toBe('store.corrupt');
    // Whether "a" is named too depends on whether its tombstone was written before or after.
    expect(error?.message).toMatch(/lost writes/);
    // Also for who opens the bucket later.
    const fresh = await openStore({ url: url(), bucket });
    await expect.poll(() => idsOf(fresh)).toEqual(['b']);
  });

  test('a delivered message that comes back without its body is not held, and a spool tells', async () => {
    const bucket = bucketName();
    await using server = await privateServer('nats');
    const place = { url: server.url, bucket };
    await using spool = createSpool({ entries: nats(place), bodies: natsBodies(place) });
    const troubles: string[] = [];
    spool.on('trouble', ({ error }) => troubles.push(error.message));
    const { id } = await spool.enqueue({ topic: 'mail', body: new Uint8Array(30_000) });
    const { messages, goBackTo } = await streamOf(server.url, bucket);
    const earlier = await messages();
    let handled = 0;
    spool.handle('mail', async (delivery) => {
      await delivery.body();
      handled += 1;
    });
    await spool.start();
    await expect.poll(() => spool.get(id)).toBeUndefined();
    // Its tombstone is written: without that, the process would still write it, and nothing be missing.
    const hasGrave = async () => (await messages()).some(({ header }) => header.has('Rs-Grave'));
    await expect.poll(hasGrave).toBe(true);
    await goBackTo(earlier);
    await server.kill('SIGKILL');
    await server.restart();
    await expect.poll(() => troubles.join()).toMatch(/were settled came back/);
    expect(await spool.get(id)).toBeUndefined();
    expect(handled).toBe(1);
  });

  test('an entry that fell back is not claimed before others had the time to write it again', async () => {
    const bucket = bucketName();
    const others = holdTimers(OTHERS_MS);
    // It has nothing at hand that it could write.
    const store = await openStore({
      url: url(),
      bucket,
      cacheBytes: 0,
      clock: others.clock,
      // Its end is held as well.
      timeoutMs: OTHERS_MS,
    });
    const heard = hear(store);
    const { messages, goBackTo } = await streamOf(url(), bucket);
    await store.insert([sampleEntry('a')]);
    const earlier = await messages();
    const [first] = await claim(store);
    if (first === undefined) throw new Error('nothing was claimed');
    const { holder = '', ...status } = first.status;
    const { revision } = status;
    const archived = { ...status, state: 'archived', revision: revision + 1 } as const;
    expect(await store.commit([{ id: 'a', revision, holder, to: archived }])).toEqual(['done']);
    await goBackTo(earlier);
    let claimed: readonly string[] | undefined;
    const claiming = claim(store).then((list) => {
      claimed = list.map(({ envelope }) => envelope.id);
    });
    await expect.poll(() => heard.join()).toMatch(/1 fell back .*, 0 of them were written again/);
    await expect.poll(() => others.count()).toBe(2);
    expect(claimed).toBeUndefined();
    // The time of the claim is over first.
    others.release();
    await claiming;
    expect(claimed).toEqual(['a']);
  });

  // Regression: a store that was closed in that time began to sweep afterwards, and a process whose
  // work was done never ended.
  test('a store that is closed while it waits for others leaves no timer', async () => {
    const bucket = bucketName();
    await using server = await privateServer('nats');
    const others = holdTimers(OTHERS_MS);
    const timers = new Set<() => void>();
    const after: typeof others.clock.after = (ms, call) => {
      const cancel = others.clock.after(ms, () => {
        timers.delete(end);
        call();
      });
      const end = (): void => {
        timers.delete(end);
        cancel();
      };
      timers.add(end);
      return end;
    };
    const store = nats({
      url: server.url,
      bucket,
      cacheBytes: 0,
      clock: { ...others.clock, after },
    });
    await store.open();
    const { messages, goBackTo } = await streamOf(server.url, bucket);
    await store.insert([sampleEntry('a')]);
    const earlier = await messages();
    expect(await claim(store)).toHaveLength(1);
    await goBackTo(earlier);
    await server.kill('SIGKILL');
    await server.restart();
    await expect.poll(() => others.count()).toBe(1);
    await store.close();
    expect(others.count()).toBe(0);
    await expect.poll(() => timers.size).toBe(0);
  });

  test('an entry that fell back to an older revision is written again by who knows it', async () => {
    const bucket = bucketName();
    const store = await openStore({ url: url(), bucket });
    const heard = hear(store);
    const { messages, goBackTo } = await streamOf(url(), bucket);
    await store.insert([sampleEntry('a'), sampleEntry('b')]);
    const earlier = await messages();
    const taken = await claim(store);
    const [first] = taken;
    if (first === undefined) throw new Error('nothing was claimed');
    const { holder: _, ...status } = first.status;
    const archived = { ...status, state: 'archived', revision: status.revision + 1 } as const;
    const { revision, holder = '' } = first.status;
    const { id } = first.envelope;
    expect(await store.commit([{ id, revision, holder, to: archived }])).toEqual(['done']);
    await goBackTo(earlier);
    expect((await store.list({ limit: 9 })).entries.map((one) => one.status.state)).toEqual([
      'archived',
      'active',
    ]);
    expect((await store.get(id))?.status).toEqual(archived);
    const [error] = heard;
    expect(error?.message).toMatch(/2 fell back to an older state, 2 of them were written again/);
    const fresh = await openStore({ url: url(), bucket });
    expect((await fresh.get(id))?.status).toEqual(archived);
  });

  test('messages that the server lost are told, and none is told where nothing was lost', async () => {
    const bucket = bucketName();
    const store = await openStore({ url: url(), bucket });
    const heard = hear(store);
    const { messages, goBackTo } = await streamOf(url(), bucket);
    await store.insert([sampleEntry('a')]);
    const earlier = await messages();
    await store.insert([sampleEntry('b'), sampleEntry('c')]);
    await goBackTo(earlier);
    expect(await idsOf(store)).toEqual(['a']);
    expect(heard.map(({ message }) => /(\d) of its messages are gone/.exec(message)?.[1])).toEqual([
      '2',
    ]);
    expect(await store.insert([sampleEntry('b')])).toEqual(['stored']);
    expect(await idsOf(store)).toEqual(['a', 'b']);
    expect(heard).toHaveLength(1);
  });

  /** A message with a large body, delivered; its entry is back, and its process has ended. */
  async function deliveredAndBack(serverUrl: string, more: object = {}) {
    const place = { url: serverUrl, bucket: bucketName() };
    const spool = createSpool({ entries: nats(place), bodies: natsBodies(place) });
    const { id } = await spool.enqueue({ topic: 'mail', body: new Uint8Array(30_000), ...more });
    const { messages, goBackTo } = await streamOf(serverUrl, place.bucket);
    const earlier = await messages();
    const { envelope } = (await spool.get(id)) ?? {};
    spool.handle('mail', async (delivery) => void (await delivery.body()));
    const delivered = new Promise((resolve) => spool.on('delivered', resolve));
    await spool.start();
    await delivered;
    // It ends when the body is removed.
    await spool.stop();
    await goBackTo(earlier);
    return { place, id, ref: envelope?.body.ref ?? '' };
  }

  /** A process that knows nothing of before. */
  function coldStart(place: { readonly url: string; readonly bucket: string }) {
    const spool = createSpool({ entries: nats(place), bodies: natsBodies(place) });
    const events: SpoolEvent[] = [];
    spool.on('*', (event) => events.push(event));
    spool.handle('mail', async (delivery) => void (await delivery.body()));
    return { spool, events };
  }

  test('after a cold start a delivered message that is back without its body is not held', async () => {
    await using server = await privateServer('nats');
    const { place, id, ref } = await deliveredAndBack(server.url);
    await server.kill('SIGKILL');
    await server.restart();
    const { spool, events } = coldStart(place);
    await using _ = spool;
    const kinds = () => events.map(({ kind }) => kind);
    expect((await spool.get(id))?.status.state).toBe('incoming');
    await spool.start();
    await expect.poll(() => spool.get(id)).toBeUndefined();
    await expect.poll(kinds).toContain('trouble');
    expect(kinds()).not.toContain('held');
    expect(kinds()).not.toContain('delivered');
    const [error] = events.flatMap((event) => (event.kind === 'trouble' ? [event.error] : []));
    expect(error).toMatchObject({ code: 'store.corrupt' });
    expect(error?.message).toContain(`message "${id}" had ended before (removed)`);
    const audit = await spool.operator({ by: 'ops' }).audit();
    expect(audit.filter(({ ids }) => ids.includes(id))).toMatchObject([
      { by: 'engine', action: 'settle-again', details: { settledAs: 'removed' } },
    ]);
    const bodies = natsBodies(place);
    await bodies.open();
    expect(await bodies.wasSettled?.(ref)).toBe('removed');
    await bodies.close();
  });

  test('one with a dedupe key is archived again, so that it is recognised', async () => {
    const { place, id } = await deliveredAndBack(url(), { dedupeKey: 'k' });
    atEnd(() => removeBucket(place.url, place.bucket));
    const { spool } = coldStart(place);
    await using _ = spool;
    await spool.start();
    const state = async () => (await spool.get(id))?.status;
    await expect.poll(state).toMatchObject({ state: 'archived', ending: 'delivered' });
    const again = await spool.enqueue({ topic: 'mail', body: 'x', dedupeKey: 'k' });
    expect(again).toMatchObject({ id, duplicate: true });
  });

  test('without a marker a message whose body is missing is held as before', async () => {
    const { place, id, ref } = await deliveredAndBack(url());
    atEnd(() => removeBucket(place.url, place.bucket));
    const { streams } = await jetstreamManager(await plainConnection(url()));
    await streams.purge(`OBJ_${place.bucket}`);
    const { spool, events } = coldStart(place);
    await using _ = spool;
    await spool.start();
    const state = async () => (await spool.get(id))?.status;
    await expect.poll(state).toMatchObject({ state: 'hold', because: { code: 'body.missing' } });
    expect(events.map(({ kind }) => kind)).not.toContain('trouble');
    expect(ref).not.toBe('');
  });

  test('check --repair does not hold what had ended, and holds what has no marker', async () => {
    const { place, id, ref } = await deliveredAndBack(url());
    atEnd(() => removeBucket(place.url, place.bucket));
    const { spool } = coldStart(place);
    await using _ = spool;
    const repaired = async () =>
      (await spool.operator({ by: 'ops' }).check({ repair: true })).findings.map(
        ({ kind, where }) => [kind, where],
      );
    expect(await repaired()).toEqual([['body.missing', ref]]);
    expect((await spool.get(id))?.status.state).toBe('incoming');
    const { streams } = await jetstreamManager(await plainConnection(url()));
    await streams.purge(`OBJ_${place.bucket}`);
    expect(await repaired()).toEqual([['body.missing', ref]]);
    expect((await spool.get(id))?.status.state).toBe('hold');
  });
});
