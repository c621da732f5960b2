/** The server is killed in the middle of work: what it acknowledged is there when it is back. */

import { expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { natsBodies } from 'respool/stores/nats';
import { type EntryStore, isRespoolError } from 'respool';
import { type PrivateServer, privateServer, skipReason } from '../../services/index.ts';
import { atEnd, bucketName, openBodies, openStore, plainConnection } from './setup.ts';

const isSkipped = skipReason('nats') !== undefined;

/** A server of this test, ended after its stores. */
async function ownServer(): Promise<PrivateServer> {
  const server = await privateServer('nats');
  atEnd(() => server.stop());
  return server;
}

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

/** Repeats what the absence of the server made fail. */
async function untilThere<T>(act: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (!isRespoolError(error, 'store.unavailable')) throw error;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** The first calls may still be on their way when the server dies; later ones cannot be sent. */
async function untilUnsent(act: () => Promise<unknown>): Promise<unknown> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (String(error).includes('did not happen')) throw error;
    }
  }
}

test.skipIf(isSkipped)(
  'what was acknowledged before a kill of the server is there, what was removed is not',
  async () => {
    const server = await ownServer();
    const { url } = server;
    const bucket = bucketName();
    const store = await openStore({ url, bucket, timeoutMs: 2_000 });
    const other = await openStore({ url, bucket, timeoutMs: 2_000 });
    const stored = new Set<string>();
    const removed = new Set<string>();
    const load = { isOver: false };
    let count = 0;
    const work = async (): Promise<void> => {
      while (!load.isOver) {
        const id = `m-${(count += 1)}`;
        const isRemoved = count % 2 === 0;
        try {
          const bytes = new Uint8Array(600).fill(count % 256);
          await store.insert([sampleEntry(id, { bytes })]);
          stored.add(id);
          if (!isRemoved) continue;
          const [result] = await other.commit([{ id, revision: 1, to: 'remove' }]);
          if (result === 'done') removed.add(id);
          stored.delete(id);
        } catch (error) {
          // Of unknown outcome: it may be there or not.
          if (!isRespoolError(error, 'store.unavailable')) throw error;
          stored.delete(id);
          await new Promise((resolve) => setImmediate(resolve));
        }
      }
    };
    const workers = Array.from({ length: 16 }, work);
    const until = async (isReached: () => boolean): Promise<void> => {
      while (!isReached()) await new Promise((resolve) => setImmediate(resolve));
    };
    await until(() => stored.size > 400);
    await server.kill('SIGKILL');
    await server.restart();
    const before = stored.size;
    await until(() => stored.size > before + 200);
    load.isOver = true;
    await Promise.all(workers);
    for (const seen of [store, other]) {
      const ids = await untilThere(() => allIds(seen));
      expect([...stored].filter((id) => !ids.has(id))).toEqual([]);
      expect([...removed].filter((id) => ids.has(id))).toEqual([]);
    }
    const fresh = await openStore({ url, bucket });
    const ids = await allIds(fresh);
    expect([...stored].filter((id) => !ids.has(id))).toEqual([]);
    expect([...removed].filter((id) => ids.has(id))).toEqual([]);
    expect(removed.size).toBeGreaterThan(100);
  },
);

test.skipIf(isSkipped)(
  'while the server is away everything is refused, and works again when it is back',
  async () => {
    const server = await ownServer();
    const { url } = server;
    const bucket = bucketName();
    const store = await openStore({ url, bucket, timeoutMs: 1_000 });
    const bodies = await openBodies({ url, bucket, timeoutMs: 1_000 });
    // n.b. On a busy machine a server that is well may take longer than these short limits.
    await untilThere(() => store.insert([sampleEntry('a')]));
    await untilThere(() => bodies.put('a', once(Uint8Array.of(1, 2, 3))));
    await untilThere(() => store.flush());
    await server.kill('SIGKILL');
    await expect(store.insert([sampleEntry('b')])).rejects.toMatchObject({
      code: 'store.unavailable',
    });
    await expect(store.get('a')).rejects.toMatchObject({ code: 'store.unavailable' });
    await expect(bodies.get('a')[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      code: 'store.unavailable',
    });
    await server.restart();
    const filter = { lane: 'delivery', states: ['incoming'] } as const;
    expect(await untilThere(() => store.nextDueAt(filter))).toBeTypeOf('number');
    // The restart is told once: a server whose machine failed may have lost something.
    await expect(store.flush()).rejects.toMatchObject({ code: 'store.unavailable' });
    await untilThere(() => store.flush());
    // The feed is open again: what another store writes arrives, and wakes.
    const other = await openStore({ url, bucket });
    const woken = new Promise<void>((resolve) => void store.watch?.(resolve));
    await other.insert([sampleEntry('c')]);
    expect((await allIds(store)).has('c')).toBe(true);
    await woken;
    // On a connection of its own, which comes back in its own time.
    const bytes = await untilThere(async () => {
      const chunks = [];
      for await (const chunk of bodies.get('a')) chunks.push(...chunk);
      return chunks;
    });
    expect(bytes).toEqual([1, 2, 3]);
  },
);

test.skipIf(isSkipped)(
  'calls that begin while the server is away are carried out when it is back in their time',
  async () => {
    const server = await ownServer();
    const { url } = server;
    const bucket = bucketName();
    const store = await openStore({ url, bucket, timeoutMs: 20_000 });
    const bodies = await openBodies({ url, bucket, timeoutMs: 20_000 });
    await store.insert([sampleEntry('a')]);
    await bodies.put('a', once(Uint8Array.of(1)));
    await server.kill('SIGKILL');
    const calls = [
      store.insert([sampleEntry('b')]),
      store.get('a').then((entry) => entry?.envelope.id),
      store.commit([{ id: 'a', revision: 9, to: 'remove' }]),
      bodies.put('b', once(Uint8Array.of(1, 2))),
      store.records.put('map', 'key', 1).then(() => store.records.get('map', 'key')),
    ];
    await server.restart();
    expect(await Promise.all(calls)).toEqual([
      ['stored'],
      'a',
      ['stale'],
      { size: 2 },
      { key: 'key', value: 1, revision: 1 },
    ]);
  },
);

test.skipIf(isSkipped)(
  'a call that was never sent says that it did not happen, after its time',
  async () => {
    const server = await ownServer();
    const bodies = await openBodies({ url: server.url, timeoutMs: 700 });
    await server.kill('SIGKILL');
    const startedAt = performance.now();
    const call = untilUnsent(() => bodies.put('a', once(Uint8Array.of(1))));
    await expect(call).rejects.toThrow(/there is no connection; it did not happen/);
    expect(performance.now() - startedAt).toBeGreaterThan(600);
    await server.restart();
    expect(await untilThere(() => bodies.put('a', once(Uint8Array.of(1))))).toEqual({ size: 1 });
  },
);

test.skipIf(isSkipped)(
  'a body whose chunks a server lost before its last step is not told as put',
  async () => {
    const server = await ownServer();
    const bucket = bucketName();
    const bodies = await openBodies({ url: server.url, bucket, maxChunkSize: 1_024 });
    const plain = await plainConnection(server.url);
    const stream = `OBJ_${bucket}`;
    const body = async function* (): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(1_024);
      const countOf = async (): Promise<number> => {
        const answer = await plain.request(`$JS.API.STREAM.INFO.${stream}`);
        return answer.json<{ state: { messages: number } }>().state.messages;
      };
      while ((await countOf()) === 0);
      // What a power cut takes, and a start of the server after it.
      await plain.request(`$JS.API.STREAM.PURGE.${stream}`, '{}');
      await server.kill('SIGKILL');
      await server.restart();
    };
    await expect(bodies.put('a', body())).rejects.toMatchObject({ code: 'store.unavailable' });
    const bytes = new Uint8Array(1_500).fill(7);
    expect(await untilThere(() => bodies.put('a', once(bytes)))).toEqual({ size: 1_500 });
    const chunks = [];
    for await (const chunk of bodies.get('a')) chunks.push(...chunk);
    expect(chunks).toEqual([...bytes]);
  },
);

test.skipIf(isSkipped)('a connection that its owner has closed is not waited for', async () => {
  const server = await ownServer();
  const bucket = bucketName();
  await openBodies({ url: server.url, bucket });
  const connection = await plainConnection(server.url);
  const bodies = natsBodies({ connection, bucket, timeoutMs: 60_000 });
  await bodies.open();
  await connection.close();
  await expect(bodies.put('a', once(Uint8Array.of(1)))).rejects.toMatchObject({
    code: 'store.unavailable',
  });
  await bodies.close();
});

test.skipIf(isSkipped)(
  'a server that stands still makes operations fail in their time, not hang',
  async () => {
    const server = await ownServer();
    const store = await openStore({ url: server.url, timeoutMs: 500 });
    await untilThere(() => store.insert([sampleEntry('a')]));
    await server.freeze();
    // A process of many threads may do a little more before the last of them stands still.
    let count = 0;
    const insertUntilRefused = async (): Promise<void> => {
      for (;;) {
        count += 1;
        await store.insert([sampleEntry(`b${count}`)]);
      }
    };
    await expect(insertUntilRefused()).rejects.toMatchObject({ code: 'store.unavailable' });
    await server.thaw();
    const result = await untilThere(() => store.insert([sampleEntry(`b${count}`)]));
    expect([['stored'], [{ duplicateOf: `b${count}` }]]).toContainEqual(result);
    expect((await untilThere(() => allIds(store))).size).toBe(count + 1);
  },
);

test.skipIf(isSkipped)(
  'entries whose markers were taken out before a kill do not come back with it',
  async () => {
    const server = await ownServer();
    const { url } = server;
    const bucket = bucketName();
    // Several blocks of the server's files, so that not all of them are written anew.
    const bytes = new Uint8Array(10_000);
    const first = await openStore({ url, bucket });
    const entries = sampleEntries(2_400, 'm', { bytes });
    await first.insert(entries);
    const removed = entries.filter((_, at) => at % 8 === 0).map(({ envelope }) => envelope.id);
    await first.commit(removed.map((id) => ({ id, revision: 1, to: 'remove' as const })));
    await first.close();
    const store = await openStore({ url, bucket });
    await server.kill('SIGKILL');
    await server.restart();
    const ids = await untilThere(() => allIds(store));
    expect(removed.filter((id) => ids.has(id))).toEqual([]);
    expect(ids.size).toBe(2_100);
    expect(await store.insert([sampleEntry(removed[0] ?? '')])).toEqual(['stored']);
  },
);
