/** A crash and a standstill of the real server. */
import { expect, test } from 'vitest';
import { privateServer, withService } from '../../services/index.ts';
import { bytesOf, chunksOf, newBucket, opened, pieces, requestTime } from './setup.ts';

withService('s3', () => {
  test('bodies survive a crash of the server, and puts go on when it is back', async () => {
    await using server = await privateServer('s3');
    const bucket = newBucket();
    // A new server takes a while for its first bucket.
    await (await opened(server.url, { bucket })).close();
    const time = requestTime();
    const store = await opened(server.url, { bucket, attemptsMax: 2, ...time.options });
    await store.put('a', chunksOf('before'));
    await server.kill();
    await expect(store.put('b', pieces(100))).rejects.toMatchObject({ code: 'store.unavailable' });
    await server.restart();
    expect(Buffer.from(await bytesOf(store, 'a')).toString()).toBe('before');
    expect(await store.put('b', pieces(100))).toEqual({ size: 100 });
    await server.freeze();
    time.pass(true);
    await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'store.unavailable' });
    await server.thaw();
    time.pass(false);
    expect(Buffer.from(await bytesOf(store, 'a')).toString()).toBe('before');
    await store.close();
  });
});
