/** Every option has its effect, and what is unsafe or wrong is refused before anything is written. */

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createSpool, type EntryStore } from 'respool';
import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import { nats, natsBodies, type NatsEntryOptions } from 'respool/stores/nats';
import { checkReplicas, durabilityOf } from '../../../src/stores/nats/schema.ts';
import { withService } from '../../services/index.ts';
import { faultyConnection } from './faulty-connection.ts';
import {
  atEnd,
  bucketName,
  openBodies,
  openStore,
  plainConnection,
  removeBucket,
} from './setup.ts';
import { systemClock } from '../../time.ts';

const invalid = { code: 'config.invalid' };

describe('options that are wrong are refused', () => {
  const url = 'nats://127.0.0.1:4222';
  const wrong: readonly (readonly [string, object])[] = [
    ['neither url nor connection', {}],
    ['a name that is no option', { url, replica: 1 }],
    ['a bucket with a dot', { url, bucket: 'a.b' }],
    ['a bucket with a space', { url, bucket: 'a b' }],
    ['a bucket with a star', { url, bucket: '*' }],
    ['an empty bucket', { url, bucket: '' }],
    ['a bucket of 65 characters', { url, bucket: 'x'.repeat(65) }],
    ['no replica', { url, replicas: 0 }],
    ['six replicas', { url, replicas: 6 }],
    ['a bucket of no bytes', { url, maxBytes: 0 }],
    ['a time that is too short', { url, timeoutMs: 1 }],
    ['an address of another kind', { url: 'http://127.0.0.1' }],
    ['a description that is no text', { url, description: 5 }],
    ['a description that is too long', { url, description: 'x'.repeat(1_001) }],
    ['a monitoring address of another kind', { url, monitoringUrl: 'nats://127.0.0.1' }],
  ];
  test.each(wrong)('%s', (_, options) => {
    expect(() => nats(options as NatsEntryOptions)).toThrow(expect.objectContaining(invalid));
    expect(() => natsBodies(options)).toThrow(expect.objectContaining(invalid));
  });
  test('an index for no entries', () => {
    expect(() => nats({ url, entriesMax: 0 })).toThrow(expect.objectContaining(invalid));
  });
  test.each([1_023, 2 ** 26 + 1, 1.5, '5000'])('chunks, or values, of %j bytes', (size) => {
    const wrong = { url, maxChunkSize: size as number };
    expect(() => natsBodies(wrong)).toThrow(expect.objectContaining(invalid));
    const alsoWrong = { url, maxValueSize: size as number };
    expect(() => nats(alsoWrong)).toThrow(expect.objectContaining(invalid));
  });
  test('chunks of entries, values of bodies', () => {
    expect(() => nats({ url, maxChunkSize: 5_000 } as object)).toThrow(/maxChunkSize/);
    expect(() => natsBodies({ url, maxValueSize: 5_000 } as object)).toThrow(/maxValueSize/);
  });
  test('a history or an age limit, with the reason', () => {
    for (const make of [nats, natsBodies] as ((options: object) => unknown)[]) {
      expect(() => make({ url, history: 5 })).toThrow(/5 as "history".*come back.*leave it out/);
      expect(() => make({ url, ttl: 1_000 })).toThrow(/as "ttl".*remove messages that wait/);
    }
  });
  test('a cache of less than nothing', () => {
    expect(() => nats({ url, cacheBytes: -1 })).toThrow(expect.objectContaining(invalid));
  });
});

test('several replicas are refused where compare-and-swap does not hold', () => {
  expect(() => checkReplicas('2.9.20', 3)).toThrow(expect.objectContaining(invalid));
  expect(() => checkReplicas('2.8.4', 2)).toThrow(expect.objectContaining(invalid));
  for (const version of ['2.9.21', '2.10.0', '3.0.0', '2.10.27-binary']) {
    expect(checkReplicas(version, 3)).toBeUndefined();
  }
  expect(checkReplicas('2.9.10', 1)).toBeUndefined();
});

test('the durability follows from version, replicas, cluster and sync', () => {
  const one = { version: '2.10.27', replicas: 1, isClustered: false, syncsAlways: false };
  const file = { ...one, storage: 'file' };
  expect(durabilityOf(file)).toBe('server');
  expect(durabilityOf({ ...file, syncsAlways: true })).toBe('power-loss');
  expect(durabilityOf({ ...file, version: '2.9.10', syncsAlways: true })).toBe('process');
  expect(durabilityOf({ ...file, storage: 'memory', syncsAlways: true })).toBe('process');
  expect(durabilityOf({ ...file, replicas: 3, isClustered: true })).toBe('node-loss');
  const old = { ...file, version: '2.10.22', replicas: 3, isClustered: true };
  expect(durabilityOf(old)).toBe('process');
});

test('a server that is not there is told as such, without the password', async () => {
  const store = nats({ url: 'nats://ada:secret@127.0.0.1:1' });
  const error: unknown = await store.open().catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: 'store.unavailable' });
  expect(String(error)).not.toContain('secret');
  await store.close();
});

/** A monitoring door that says what it is told to. */
async function monitor(answer: string): Promise<string> {
  const server = createServer((_, response) => response.end(answer));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => new Promise((resolve) => server.close(resolve)));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function streamConfig(url: string, stream: string): Promise<Record<string, unknown>> {
  const connection = await plainConnection(url);
  const answer = await connection.request(`$JS.API.STREAM.INFO.${stream}`);
  return answer.json<{ config: Record<string, unknown> }>().config;
}

async function* ofBytes(size: number): AsyncGenerator<Uint8Array> {
  yield new Uint8Array(size);
}

async function claimAll(store: EntryStore): Promise<number> {
  const holder = `${store.instance}:1`;
  const asked = { lane: 'delivery', states: ['incoming'], max: 100 } as const;
  return (await store.claim({ ...asked, now: SAMPLE_AT, leaseMs: 1_000, holder })).length;
}

withService('nats', (url) => {
  test('a new bucket is made as asked', async () => {
    const bucket = bucketName();
    const description = 'mail that waits';
    await openStore({ url: url(), bucket, replicas: 1, maxBytes: 2 ** 24, description });
    await openBodies({ url: url(), bucket });
    expect(await streamConfig(url(), `KV_${bucket}`)).toMatchObject({
      subjects: [`$KV.${bucket}.>`],
      max_msgs_per_subject: 1,
      num_replicas: 1,
      max_bytes: 2 ** 24,
      description,
      storage: 'file',
      discard: 'new',
    });
    expect(await streamConfig(url(), `OBJ_${bucket}`)).toMatchObject({ max_bytes: -1 });
  });

  test('a bucket that is otherwise than asked, or made for other use, is refused', async () => {
    const bucket = bucketName();
    await openStore({ url: url(), bucket });
    const other = nats({ url: url(), bucket, maxBytes: 2 ** 24 });
    await expect(other.open()).rejects.toMatchObject(invalid);
    const foreign = bucketName();
    const connection = await plainConnection(url());
    const config = { name: `KV_${foreign}`, subjects: [`$KV.${foreign}.>`], deny_delete: true };
    const made = { ...config, max_msgs_per_subject: 1, allow_rollup_hdrs: true };
    await connection.request(`$JS.API.STREAM.CREATE.KV_${foreign}`, JSON.stringify(made));
    atEnd(() => connection.request(`$JS.API.STREAM.DELETE.KV_${foreign}`));
    await expect(nats({ url: url(), bucket: foreign }).open()).rejects.toThrow(/deny_delete/);
  });

  test('a stream whose server may answer before it has written is refused', async () => {
    const bucket = bucketName();
    await openStore({ url: url(), bucket });
    const real = await plainConnection(url());
    // No server here knows this setting yet: its answer is made to say so.
    const connection = new Proxy(real, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (name !== 'subscribe') return typeof value === 'function' ? value.bind(target) : value;
        return (subject: string, options: { callback: (error: null, message: object) => void }) =>
          target.subscribe(subject, {
            callback: (_, message) => {
              const text = message
                .string()
                .replace('"config":{', '"config":{"persist_mode":"async",');
              const data = new TextEncoder().encode(text);
              options.callback(null, { subject: message.subject, data, headers: message.headers });
            },
          });
      },
    });
    await expect(nats({ connection, bucket }).open()).rejects.toThrow(/persist_mode/);
  });

  test('the monitoring address decides about a power cut, on a server that can sync', async () => {
    const always = await monitor('{"jetstream":{"config":{"sync_always":true}}}');
    const lines: string[] = [];
    const note = (_: object, text: string) => void lines.push(text);
    const logger = { debug: note, info: note, warn: note, error: note };
    const store = await openStore({ url: url(), monitoringUrl: always, logger });
    const { version } = (await plainConnection(url())).info ?? { version: '' };
    const canSync = !version.startsWith('2.9.');
    expect(store.traits.durability).toBe(canSync ? 'power-loss' : 'process');
    expect(lines.join()).toContain(version);
    const broken = await monitor('nonsense');
    const doubtful = await openStore({ url: url(), monitoringUrl: broken, logger });
    expect(doubtful.traits.durability).toBe(canSync ? 'server' : 'process');
    expect(lines.join()).toContain('cannot ask NATS how it syncs');
  });

  test('three replicas are refused by this server, or by its lack of a cluster', async () => {
    const store = nats({ url: url(), bucket: bucketName(), replicas: 3 });
    await expect(store.open()).rejects.toMatchObject({ name: 'RespoolError' });
  });

  test('a given connection is used and not closed', async () => {
    const connection = await plainConnection(url());
    const bucket = bucketName();
    await openStore({ url: url(), bucket });
    const store = nats({ connection, bucket });
    await store.open();
    await store.insert([sampleEntry('a')]);
    await store.close();
    expect(connection.isClosed()).toBe(false);
    await connection.flush();
  });

  test('what connect is given goes to the package', async () => {
    const name = bucketName();
    const seen = nats({ url: url(), bucket: name, connect: { maxReconnectAttempts: 0, user: 1 } });
    await expect(seen.open()).rejects.toMatchObject({ code: 'store.unavailable' });
  });

  test('an operation is given up after its time', async () => {
    const bucket = bucketName();
    await openStore({ url: url(), bucket });
    let isSilent = false;
    const connection = await faultyConnection(url(), () => (isSilent ? 'swallowed' : 'sent'));
    const [quick, slow] = [300, 10_000].map((timeoutMs) => nats({ connection, bucket, timeoutMs }));
    await Promise.all([quick?.open(), slow?.open()]);
    isSilent = true;
    const ended: string[] = [];
    const startedAt = systemClock.monotonic();
    const giving = quick?.get('a').finally(() => void ended.push('quick'));
    const waiting = slow?.get('a').finally(() => void ended.push('slow'));
    await expect(giving).rejects.toMatchObject({ code: 'store.unavailable' });
    expect(systemClock.monotonic() - startedAt).toBeGreaterThan(250);
    // Each after its own time: the other one goes on, and has its answer.
    expect(ended).toEqual(['quick']);
    isSilent = false;
    expect(await waiting).toBeUndefined();
    await Promise.all([quick?.close(), slow?.close()]);
  });

  test('an insert beyond the entries a process may remember is refused', async () => {
    const store = await openStore({ url: url(), entriesMax: 5 });
    await store.insert(sampleEntries(5, 'm'));
    await expect(store.insert([sampleEntry('x')])).rejects.toMatchObject({ code: 'store.full' });
    await store.commit([{ id: 'm-00000', revision: 1, to: 'remove' }]);
    expect(await store.insert([sampleEntry('x')])).toEqual(['stored']);
  });

  test('a bucket that is nine tenths full takes no more, but lets go of what it has', async () => {
    const store = await openStore({ url: url(), maxBytes: 2 ** 20 });
    const bytes = new Uint8Array(10_000);
    const refused: string[] = [];
    for (let n = 0; n < 110 && refused.length === 0; n += 1) {
      await store.insert([sampleEntry(`m${n}`, { bytes })]).catch((error: { code: string }) => {
        refused.push(error.code);
      });
    }
    expect(refused).toEqual(['store.full']);
    expect(await claimAll(store)).toBeGreaterThan(50);
  });

  test('a body that does not fit into a full bucket is refused, and leaves nothing', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket, maxBytes: 2 ** 20 });
    await bodies.put('a', ofBytes(600_000));
    await expect(bodies.put('b', ofBytes(600_000))).rejects.toMatchObject({ code: 'store.full' });
    const refs: string[] = [];
    for await (const { ref } of bodies.refs(systemClock.now() + 60_000)) refs.push(ref);
    expect(refs).toEqual(['a']);
    await bodies.remove(['a']);
    expect(await bodies.put('b', ofBytes(600_000))).toEqual({ size: 600_000 });
  });

  test('bodies are cut into chunks of the size that is asked for', async () => {
    const bucket = bucketName();
    const small = await openBodies({ url: url(), bucket, maxChunkSize: 10_000 });
    await small.put('a', ofBytes(95_000));
    const connection = await plainConnection(url());
    const stateOf = async () => {
      const answer = await connection.request(`$JS.API.STREAM.INFO.OBJ_${bucket}`);
      return answer.json<{ state: { messages: number } }>().state;
    };
    expect((await stateOf()).messages).toBe(11);
    // More than a message of this server may have: its chunks are as large as it takes.
    const large = await openBodies({ url: url(), bucket, maxChunkSize: 2 ** 26 });
    await large.put('b', ofBytes(1_500_000));
    expect((await stateOf()).messages).toBe(14);
    for (const [bodies, ref, size] of [
      [large, 'a', 95_000],
      [small, 'b', 1_500_000],
    ] as const) {
      let found = 0;
      for await (const chunk of bodies.get(ref)) found += chunk.length;
      expect(found).toBe(size);
    }
  });

  test('an entry beyond the largest value is refused; one that grows later is not', async () => {
    const store = await openStore({ url: url(), maxValueSize: 3_000 });
    const large = sampleEntry('a', { bytes: new Uint8Array(3_000) });
    await expect(store.insert([large])).rejects.toThrow(/"maxValueSize" is 3000/);
    const entry = sampleEntry('b', { bytes: new Uint8Array(1_000) });
    expect(await store.insert([entry])).toEqual(['stored']);
    const to = { ...entry.status, revision: 2, notes: { note: 'x'.repeat(4_000) } };
    expect(await store.commit([{ id: 'b', revision: 1, to }])).toEqual(['done']);
    expect((await store.get('b'))?.status.notes).toEqual(to.notes);
  });

  test('an entry that leaves no room for its attempts is refused when it is new', async () => {
    const store = await openStore({ url: url() });
    const headers = { h: 'x'.repeat(2 ** 20 - 40_000) };
    const insert = store.insert([sampleEntry('a', { headers })]);
    await expect(insert).rejects.toThrow(/65536 of it for the attempts to come/);
    const fitting = { h: 'x'.repeat(2 ** 20 - 80_000) };
    const entry = sampleEntry('b', { headers: fitting });
    expect(await store.insert([entry])).toEqual(['stored']);
    const to = { ...entry.status, revision: 2, notes: { note: 'x'.repeat(60_000) } };
    expect(await store.commit([{ id: 'b', revision: 1, to }])).toEqual(['done']);
  });

  test('a spool that must survive a power cut does not start on a server that may not', async () => {
    const bucket = bucketName();
    atEnd(() => removeBucket(url(), bucket));
    const place = { url: url(), bucket };
    const entries = nats(place);
    await using spool = createSpool({
      entries,
      bodies: natsBodies(place),
      requireDurability: 'power-loss',
    });
    await expect(spool.enqueue({ topic: 'mail' })).rejects.toMatchObject({
      ...invalid,
      message: expect.stringMatching(/requireDurability.*power-loss/) as string,
    });
    expect(['server', 'process']).toContain(entries.traits.durability);
  });

  test('an old server in a cluster is told as one that can lose a stream', async () => {
    const bucket = bucketName();
    await openStore({ url: url(), bucket });
    const real = await plainConnection(url());
    const lines: (readonly [string, string])[] = [];
    const at = (level: string) => (_: object, text: string) => void lines.push([level, text]);
    const logger = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
    for (const [version, cluster, warnings] of [
      ['2.10.22', 'east', 1],
      ['2.10.23', 'east', 0],
      ['2.10.22', '', 0],
    ] as const) {
      const info = { ...real.info, version, cluster };
      const connection = new Proxy(real, {
        get(target, name) {
          if (name === 'info') return info;
          const value: unknown = Reflect.get(target, name, target);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      });
      const store = nats({ connection, bucket, logger });
      await store.open();
      await store.close();
      const warned = lines.splice(0).filter(([level]) => level === 'warn');
      expect(warned).toHaveLength(warnings);
      for (const [, text] of warned) {
        expect(text).toMatch(/2\.10\.22 in a cluster can lose a whole stream.*use 2\.10\.23/);
      }
    }
  });

  test('without a cache, entries are read from the server when they are claimed', async () => {
    const asked: string[] = [];
    const connection = await faultyConnection(url(), (subject) => {
      if (subject.includes('DIRECT.GET')) asked.push(subject);
      return 'sent';
    });
    for (const [cacheBytes, reads] of [
      [0, 5],
      [2 ** 20, 0],
    ] as const) {
      const bucket = bucketName();
      await openStore({ url: url(), bucket });
      const store = nats({ connection, bucket, cacheBytes });
      await store.open();
      await store.insert(sampleEntries(5, 'm'));
      asked.length = 0;
      expect(await claimAll(store)).toBe(5);
      expect(asked).toHaveLength(reads);
      await store.close();
    }
  });

  test('an entry that is larger than the server takes is refused, and nothing is written', async () => {
    const store = await openStore({ url: url() });
    const headers = Object.fromEntries(
      Array.from({ length: 50 }, (_, at) => [`h${at}`, 'x'.repeat(30_000)]),
    );
    const entries = [sampleEntry('a'), sampleEntry('b', { headers })];
    await expect(store.insert(entries)).rejects.toMatchObject({ code: 'limit.exceeded' });
    expect((await store.list({ limit: 10 })).entries).toEqual([]);
    const bytes = new Uint8Array(16 * 1024 + 1);
    await expect(store.insert([sampleEntry('c', { bytes })])).rejects.toThrow(/body store/);
  });
});
