/** wakes — a store hears of what others write, by LISTEN or by looking, and not of its own. */

import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import type { Clock, EntryStore } from 'respool';
import { postgres } from 'respool/stores/postgres';
import { sampleEntry } from 'respool/testkit';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import { FaultProxy } from '../../nodes/proxy.ts';
import { withService } from '../../services/index.ts';
import { atEnd, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { holdTimers, systemClock } from '../../time.ts';
import { claimRequest, entryChange, later, steppedStatus } from '../requests.ts';

/** Counts the calls of a watch; `next` resolves with the next one. */
function watching(store: EntryStore) {
  let calls = 0;
  let waiting: (() => void)[] = [];
  const stop = store.watch?.(() => {
    calls += 1;
    for (const resolve of waiting.splice(0)) resolve();
  });
  return {
    stop,
    calls: () => calls,
    next: () => new Promise<void>((resolve) => waiting.push(resolve)),
    reset: () => {
      waiting = [];
      calls = 0;
    },
  };
}

/** The machine's clock, and a count of the timers of a length that were set. */
function countingClock(): Clock & { readonly spans: number[] } {
  const spans: number[] = [];
  return {
    ...systemClock,
    spans,
    after(ms, call) {
      spans.push(ms);
      return systemClock.after(ms, call);
    },
  };
}

/** The server's processes that listen on a channel. */
async function listeners(client: pg.Client, channel: string): Promise<unknown[]> {
  const text = 'SELECT pid FROM pg_stat_activity WHERE query = $1';
  return (await client.query(text, [`LISTEN "${channel}"`])).rows.map(({ pid }) => pid);
}

/** Options of a store that cannot listen, since it has no address of its own. */
async function withPool(): Promise<{ readonly pool: pg.Pool }> {
  const pool = new pg.Pool({ connectionString: await serverUrl() });
  atEnd(() => pool.end());
  return { pool };
}

/** A server that lets everybody in and answers each statement as a replica answers LISTEN. */
async function refusingServer() {
  const sockets = new Set<Socket>();
  let accepted = 0;
  const message = (kind: string, body: string): Buffer => {
    const length = Buffer.alloc(4);
    length.writeInt32BE(4 + Buffer.byteLength(body, 'latin1'));
    return Buffer.concat([Buffer.from(kind), length, Buffer.from(body, 'latin1')]);
  };
  const ready = message('Z', 'I');
  const words = 'SERROR\0C25006\0Mcannot execute LISTEN during recovery\0\0';
  const server = createServer((socket) => {
    accepted += 1;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket)).on('error', () => undefined);
    socket.on('data', (bytes) => {
      // Only the greeting has no letter before its length.
      if (bytes[0] === 0) socket.write(Buffer.concat([message('R', '\0\0\0\0'), ready]));
      else if (bytes.toString('latin1', 0, 1) === 'X') socket.end();
      else socket.write(Buffer.concat([message('E', words), ready]));
    });
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `postgres://me@127.0.0.1:${port}/db`,
    accepted: () => accepted,
    open: () => sockets.size,
  };
}

withService('postgres', () => {
  test('an insert wakes a store that listens', async () => {
    const [schema, listenUrl] = [ownSchema(), await serverUrl()];
    const one = await openStore({ schema, listenUrl });
    const two = await openStore({ schema, listenUrl });
    const watch = watching(two);
    const woken = watch.next();
    await one.insert([sampleEntry('a')]);
    await woken;
    expect((await two.claim(claimRequest(two))).length).toBe(1);
  });

  test('a record that was put wakes a store that listens', async () => {
    const [schema, listenUrl] = [ownSchema(), await serverUrl()];
    const one = await openStore({ schema, listenUrl });
    const two = await openStore({ schema, listenUrl });
    const woken = watching(two).next();
    await one.records.put('pause', 'mail', true);
    await woken;
    expect(await two.records.get('pause', 'mail')).toBeDefined();
  });

  test('a connection for LISTEN that vanished without a word is made anew', async () => {
    const schema = ownSchema();
    const proxy = await FaultProxy.start(await serverUrl());
    onTestFinished(() => proxy[Symbol.asyncDispose]());
    const listenUrl = proxy.url;
    const { clock, count, release } = holdTimers(77_000);
    const options = { schema, listenUrl, statementTimeout: '77s' } as const;
    const one = await openStore(options, { clock });
    const client = await openClient();
    await client.query(`LISTEN "${namesOf(schema, '').channel}"`);
    const heard = new Promise((resolve) => client.once('notification', resolve));
    proxy.spoil('vanish');
    await one.insert([sampleEntry('a')]);
    await expect.poll(count).toBe(1);
    release();
    proxy.recover();
    // What was not told is told over the pool.
    await heard;
    await expect.poll(() => proxy.connections).toBe(1);
  });

  test('many inserts send few notifications, and never with the insert', async () => {
    const [schema, listenUrl] = [ownSchema(), await serverUrl()];
    const store = await openStore({ schema, listenUrl });
    const client = await openClient();
    const { channel } = namesOf(schema, '');
    const heard: number[] = [];
    client.on('notification', () => heard.push(systemClock.monotonic()));
    await client.query(`LISTEN "${channel}"`);
    const beganAt = systemClock.monotonic();
    for (let n = 0; n < 60; n += 1) await store.insert([sampleEntry(`m${n}`)]);
    await client.query('SELECT 1');
    const tookMs = systemClock.monotonic() - beganAt;
    expect(heard.length).toBeGreaterThan(0);
    expect(heard.length).toBeLessThan(60);
    // At most every 20 ms; a timer may be a millisecond early.
    expect(heard.length).toBeLessThanOrEqual(1 + tookMs / 19);
  });

  test('an insert in your own transaction notifies nobody, a write of the store does', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const [client, own] = [await openClient(), await openClient()];
    const { channel } = namesOf(schema, '');
    const heard: (string | undefined)[] = [];
    client.on('notification', ({ payload }) => heard.push(payload));
    await client.query(`LISTEN "${channel}"`);
    await own.query('BEGIN');
    await store.insertWithin(own, [sampleEntry('b')]);
    await own.query('COMMIT');
    // What was sent before comes before this one.
    await own.query('SELECT pg_notify($1, $2)', [channel, 'the last']);
    await client.query('SELECT 1');
    expect(heard).toEqual(['the last']);
    await store.insert([sampleEntry('a')]);
    await expect.poll(() => heard.length).toBe(2);
  });

  test('a watched store listens at its url, and again after it lost that connection', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const client = await openClient();
    const { channel } = namesOf(schema, '');
    expect(await listeners(client, channel)).toEqual([]);
    const watch = watching(store);
    await expect.poll(() => listeners(client, channel)).toHaveLength(1);
    const [pid] = await listeners(client, channel);
    await client.query('SELECT pg_terminate_backend($1)', [pid]);
    await expect
      .poll(async () => (await listeners(client, channel)).filter((one) => one !== pid).length)
      .toBe(1);
    const woken = watch.next();
    // Nothing was written: no look would find this.
    await client.query('SELECT pg_notify($1, $2)', [channel, 'another process']);
    await woken;
    await store.close();
    await expect.poll(() => listeners(client, channel)).toEqual([]);
  });

  // Regression: a watched store told nothing as long as it was refused a connection for LISTEN.
  test('a watched store that gets no connection for LISTEN notifies over its pool', async () => {
    const [schema, client] = [ownSchema(), await openClient()];
    const role = `one_${schema.slice(2, 20)}`;
    await client.query(`CREATE ROLE ${role} LOGIN PASSWORD 'only-here' CONNECTION LIMIT 1`);
    atEnd(() => client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
    const { rows } = await client.query('SELECT current_database() AS name');
    await client.query(`GRANT CREATE ON DATABASE "${rows[0].name}" TO ${role}`);
    const url = new URL(await serverUrl());
    url.username = role;
    url.password = 'only-here';
    const { clock, count } = holdTimers(1_000);
    const store = await openStore({ schema, url: url.href, connections: 1 }, { clock });
    const { channel } = namesOf(schema, '');
    const heard = new Promise((resolve) => client.once('notification', resolve));
    await client.query(`LISTEN "${channel}"`);
    watching(store);
    // Refused, and not tried again before this timer, which is held.
    await expect.poll(count).toBeGreaterThan(0);
    await store.insert([sampleEntry('a')]);
    await heard;
    expect(await listeners(client, channel)).toEqual([]);
  });

  // Regression: a replica at "listenUrl" was left with one more connection by every try.
  test('a "listenUrl" that refuses to listen is told, and no connection to it is left', async () => {
    const replica = await refusingServer();
    const options = { url: await serverUrl(), schema: ownSchema(), retryFor: '300ms' };
    // Nothing is dropped by the time that has passed: what was not ended stays.
    const after: Clock['after'] = (ms, call) =>
      ms === 2_000 ? () => undefined : systemClock.after(ms, call);
    const clock = { ...systemClock, after };
    const store = postgres({ ...options, listenUrl: replica.url }, { clock });
    await expect(store.open()).rejects.toMatchObject({
      code: 'store.unavailable',
      message: expect.stringContaining('cannot listen at "listenUrl": cannot execute LISTEN'),
    });
    expect(replica.accepted()).toBeGreaterThan(1);
    await expect.poll(replica.open).toBe(0);
  });

  test('a "listenUrl" that does not let us in is told without its password', async () => {
    const listenUrl = new URL(await serverUrl());
    listenUrl.password = 'c4nary-password';
    const store = postgres({
      url: await serverUrl(),
      schema: ownSchema(),
      listenUrl: listenUrl.href,
    });
    const error = await store.open().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'config.invalid' });
    expect(String(error)).toContain('cannot listen at "listenUrl"');
    expect(String(error)).not.toContain('c4nary');
  });

  test('without LISTEN a store finds what another inserted', async () => {
    const schema = ownSchema();
    const one = await openStore({ schema });
    const two = await openStore({ schema, ...(await withPool()) });
    const watch = watching(two);
    const woken = watch.next();
    await one.insert([sampleEntry('a')]);
    await woken;
    expect(watch.calls()).toBeGreaterThan(0);
  });

  test('without LISTEN a store finds what another released', async () => {
    const schema = ownSchema();
    const one = await openStore({ schema });
    const held = sampleEntry('a', { state: 'hold', dueAt: null });
    await one.insert([held]);
    const clock = countingClock();
    const two = await openStore({ schema, ...(await withPool()) }, { clock });
    const watch = watching(two);
    await expect
      .poll(() => clock.spans.filter((ms) => ms >= 50 && ms <= 1_000).length)
      .toBeGreaterThan(1);
    const woken = watch.next();
    await one.commit([
      entryChange(held, steppedStatus(held, { state: 'incoming', dueAt: later(0) })),
    ]);
    await woken;
    expect(watch.calls()).toBe(1);
  });

  test('a message of a transaction is found once it is committed', async () => {
    const store = await openStore();
    const client = await openClient();
    const watch = watching(store);
    await client.query('BEGIN');
    await store.insertWithin(client, [sampleEntry('a')]);
    await client.query('COMMIT');
    await watch.next();
    expect(await store.claim(claimRequest(store))).toHaveLength(1);
  });

  test('a store is woken once at the most by what it writes itself, and looks less often while it is quiet', async () => {
    const clock = countingClock();
    const store = await openStore({}, { clock });
    const watch = watching(store);
    const entry = sampleEntry('a');
    await store.insert([entry]);
    await store.commit([entryChange(entry, steppedStatus(entry, { dueAt: later(1) }))]);
    await store.claim(claimRequest(store, { now: later(1) }));
    await expect.poll(() => clock.spans.includes(800)).toBe(true);
    // What is due next has moved: others may have done that in the same moment.
    expect(watch.calls()).toBeLessThanOrEqual(1);
    const spans = clock.spans.filter((ms) => [100, 200, 400, 800].includes(ms));
    expect(spans.slice(-4)).toEqual([100, 200, 400, 800]);
    expect(spans.length).toBeLessThanOrEqual(8);
  });

  test('a store that lost its LISTEN connection listens again', async () => {
    const [schema, listenUrl] = [ownSchema(), `${await serverUrl()}?application_name=respool_ears`];
    const one = await openStore({ schema, listenUrl: await serverUrl() });
    const two = await openStore({ schema, listenUrl });
    const watch = watching(two);
    const client = await openClient();
    const ears = "SELECT pid FROM pg_stat_activity WHERE application_name = 'respool_ears'";
    const before = (await client.query(ears)).rows[0]?.pid;
    await client.query('SELECT pg_terminate_backend($1)', [before]);
    await expect
      .poll(async () => (await client.query(ears)).rows.filter(({ pid }) => pid !== before).length)
      .toBe(1);
    const woken = watch.next();
    await one.insert([sampleEntry('a')]);
    await woken;
    expect(watch.calls()).toBeGreaterThan(0);
  });

  test('who stopped watching is not called, and a closed store looks no more', async () => {
    const schema = ownSchema();
    const clock = countingClock();
    const one = await openStore({ schema });
    const two = await openStore({ schema }, { clock });
    const watch = watching(two);
    watch.stop?.();
    await one.insert([sampleEntry('a')]);
    await two.close();
    // What ends sockets that are not answered is longer than any pause between two looks.
    const looks = () => clock.spans.filter((ms) => ms <= 1_000).length;
    const before = looks();
    await one.insert([sampleEntry('b')]);
    expect(looks()).toBe(before);
    expect(watch.calls()).toBe(0);
  });
});
