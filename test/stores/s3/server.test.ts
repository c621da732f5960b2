/** Opening, and cut connections, against the real server. */
import {
  ListMultipartUploadsCommand,
  PutBucketLifecycleConfigurationCommand,
  PutBucketVersioningCommand,
} from '@aws-sdk/client-s3';
import { s3 } from 'respool/stores/s3';
import { describe, expect, test } from 'vitest';
import { FaultProxy } from '../../nodes/proxy.ts';
import { withService } from '../../services/index.ts';
import {
  allRefs,
  bytesOf,
  chunksOf,
  clientOf,
  newBucket,
  opened,
  pieces,
  requestTime,
} from './setup.ts';

const MIB = 2 ** 20;
const FUTURE = 8e15;

withService('s3', (url) => {
  describe('opening', () => {
    test('a bucket that is not there is refused, and made when that is asked for', async () => {
      const options = { endpoint: url(), bucket: newBucket() };
      await expect(s3(options).open()).rejects.toMatchObject({
        code: 'config.invalid',
        message: expect.stringContaining('createBucket'),
      });
      const store = s3({ ...options, createBucket: true });
      await store.open();
      await store.close();
      const again = s3(options);
      await again.open();
      await again.close();
    });

    test('keys that are wrong are refused', async () => {
      const wrong = new URL(url());
      wrong.password = 'wrong';
      const store = s3({ endpoint: wrong.href, bucket: newBucket(), createBucket: true });
      await expect(store.open()).rejects.toMatchObject({ code: 'config.invalid' });
    });

    test('a server that is not there is unavailable', async () => {
      const options = { endpoint: 'http://a:b@127.0.0.1:9', bucket: 'bucket', attemptsMax: 1 };
      await expect(s3(options).open()).rejects.toMatchObject({ code: 'store.unavailable' });
    });

    test('the probe finds conditional writes, and leaves nothing', async () => {
      const store = await opened(url());
      const findings = await store.diagnose();
      const found = findings.find(({ id }) => id === 'conditional-writes');
      expect(found?.level).toBe('ok');
      expect(await allRefs(store, FUTURE)).toEqual([]);
      await store.close();
    });

    test('lifecycle rules and versions of the bucket are found', async () => {
      const bucket = newBucket();
      const store = await opened(url(), { bucket, prefix: 'app' });
      const client = clientOf(url());
      const rule = {
        ID: 'tidy',
        Status: 'Enabled' as const,
        Filter: { Prefix: 'app/' },
        Expiration: { Days: 3 },
      };
      await client.send(
        new PutBucketLifecycleConfigurationCommand({
          Bucket: bucket,
          LifecycleConfiguration: { Rules: [rule] },
        }),
      );
      await client.send(
        new PutBucketVersioningCommand({
          Bucket: bucket,
          VersioningConfiguration: { Status: 'Enabled' },
        }),
      );
      const levels = Object.fromEntries(
        (await store.diagnose()).map(({ id, level }) => [id, level]),
      );
      expect(levels).toMatchObject({ lifecycle: 'unsafe', versions: 'note' });
      client.destroy();
      await store.close();
    });

    test('a client of yours does as well', async () => {
      const client = clientOf(url());
      const store = s3({ client, bucket: newBucket(), prefix: 'app/', createBucket: true });
      await store.open();
      await store.put('a', chunksOf('hello'));
      expect(Buffer.from(await bytesOf(store, 'a')).toString()).toBe('hello');
      await store.close();
      client.destroy();
    });

    test('older checksums and a storage class go in and out', async () => {
      const store = await opened(url(), { checksums: 'when-required', storageClass: 'STANDARD' });
      await store.put('a', pieces(12 * MIB));
      expect((await bytesOf(store, 'a')).byteLength).toBe(12 * MIB);
      await store.remove(['a', 'b']);
      expect(await allRefs(store, FUTURE)).toEqual([]);
      await store.close();
    });
  });

  test('connections bounds those to the server', async () => {
    await using proxy = await FaultProxy.start(url());
    const store = await opened(proxy.url, { connections: 3 });
    let most = 0;
    const put = async (n: number): Promise<void> => {
      await store.put(`r${n}`, pieces(1_000));
      most = Math.max(most, proxy.connections);
    };
    await Promise.all(Array.from({ length: 40 }, (_, n) => put(n)));
    expect(most).toBe(3);
    await store.close();
  });

  test('of large bodies put under one ref at the same time one is kept', async () => {
    const store = await opened(url());
    const filled = async function* (byte: number): AsyncGenerator<Uint8Array> {
      for (let n = 0; n < 10; n += 1) yield new Uint8Array(MIB).fill(byte);
    };
    const puts = [1, 2, 3].map((byte) => store.put('a', filled(byte)));
    const results = await Promise.allSettled(puts);
    const winners = results.flatMap(({ status }, at) => (status === 'fulfilled' ? [at + 1] : []));
    expect(winners).toHaveLength(1);
    const bytes = await bytesOf(store, 'a');
    expect([bytes[0], bytes.at(-1)]).toEqual([winners[0], winners[0]]);
    await store.close();
  });

  describe('a connection that is cut', () => {
    test('in the middle of an upload leaves nothing to be seen, and what it left is swept', async () => {
      await using proxy = await FaultProxy.start(url());
      const bucket = newBucket();
      const store = await opened(proxy.url, { bucket, attemptsMax: 1 });
      proxy.spoilAfter('up', 14 * MIB, 'reset');
      const put = store.put('a', pieces(40 * MIB));
      await expect(put).rejects.toMatchObject({ code: 'store.unavailable' });
      proxy.recover();
      await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'body.missing' });
      // The abort could not get through either: this is what a crash leaves.
      const left = await allRefs(store, FUTURE);
      expect(left).toEqual([expect.stringMatching(/^a\.[0-9a-f]+\.part$/)]);
      await store.remove(left);
      const client = clientOf(url());
      const uploads = await client.send(new ListMultipartUploadsCommand({ Bucket: bucket }));
      expect(uploads.Uploads ?? []).toEqual([]);
      expect(await store.put('a', pieces(12 * MIB))).toEqual({ size: 12 * MIB });
      client.destroy();
      await store.close();
    });

    test('while a small body is written is mended by the next try of the package', async () => {
      await using proxy = await FaultProxy.start(url());
      const store = await opened(proxy.url);
      proxy.spoilAfter('up', 100_000, 'reset');
      const put = store.put('a', pieces(MIB));
      while (proxy.connections > 0) await new Promise((resolve) => setImmediate(resolve));
      proxy.recover();
      expect(await put).toEqual({ size: MIB });
      expect((await bytesOf(store, 'a')).byteLength).toBe(MIB);
      await store.close();
    });

    test('in the middle of a body that is read is told, never a shorter body', async () => {
      await using proxy = await FaultProxy.start(url());
      const store = await opened(proxy.url);
      await store.put('a', pieces(12 * MIB));
      proxy.spoilAfter('down', 3 * MIB, 'reset');
      await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'store.unavailable' });
      proxy.recover();
      expect((await bytesOf(store, 'a')).byteLength).toBe(12 * MIB);
      await store.close();
    });
  });

  test('readers that stop early keep no connection, and a closed store has none', async () => {
    await using proxy = await FaultProxy.start(url());
    const store = await opened(proxy.url);
    await store.put('a', pieces(2 * MIB));
    for (let n = 0; n < 100; n += 1) for await (const _ of store.get('a')) break;
    expect(proxy.connections).toBeLessThan(10);
    await store.close();
    while (proxy.connections > 0) await new Promise((resolve) => setImmediate(resolve));
    expect(proxy.connections).toBe(0);
  });

  describe('a server that hangs', () => {
    test('holds up a put for no longer than the time limit', async () => {
      await using proxy = await FaultProxy.start(url());
      const time = requestTime();
      const store = await opened(proxy.url, time.options);
      proxy.spoil('hold');
      time.pass(true);
      for (const size of [1, 12 * MIB]) {
        await expect(store.put('a', pieces(size))).rejects.toMatchObject({
          code: 'store.unavailable',
        });
      }
      proxy.recover();
      time.pass(false);
      await store.put('b', pieces(1));
      await store.close();
    });

    test('in the middle of a body that is read is told after the time limit', async () => {
      await using proxy = await FaultProxy.start(url());
      const time = requestTime();
      const store = await opened(proxy.url, time.options);
      await store.put('a', pieces(12 * MIB));
      proxy.spoilAfter('down', MIB, 'hold');
      time.pass(true);
      await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'store.unavailable' });
      await store.close();
    });

    test('does not mind a reader that takes its time', async () => {
      const time = requestTime();
      const store = await opened(url(), time.options);
      await store.put('a', pieces(6 * MIB));
      let size = 0;
      for await (const chunk of store.get('a')) {
        size += chunk.byteLength;
        // While the reader has the word, only its own time passes.
        time.end();
      }
      expect(size).toBe(6 * MIB);
      await store.close();
    });
  });
});
