/** Opening and closing, in whatever order they come: nothing is left open. */
import { s3 } from 'respool/stores/s3';
import { expect, test } from 'vitest';
import { pieces } from './setup.ts';
import { stubClient } from './stub.ts';

test('a store that is opened twice asks its bucket once', async () => {
  const client = stubClient();
  const store = s3({ client, bucket: 'spool' });
  await Promise.all([store.open(), store.open()]);
  await store.open();
  expect(client.names().filter((name) => name === 'HeadBucket')).toHaveLength(1);
  await store.close();
});

test('a store that is closed while it opens is closed in the end, and can be opened again', async () => {
  let goOn = (): void => {};
  const held = new Promise<void>((resolve) => (goOn = resolve));
  const client = stubClient({ before: (name) => (name === 'HeadBucket' ? held : undefined) });
  const store = s3({ client, bucket: 'spool' });
  const opening = store.open();
  const closing = store.close();
  goOn();
  await Promise.all([opening, closing]);
  await expect(store.put('a', pieces(1))).rejects.toThrow(/not open/);
  await store.open();
  expect(await store.put('a', pieces(1))).toEqual({ size: 1 });
  await store.close();
});

test('a store that could not be opened can be tried again', async () => {
  let isAway = true;
  const before = (): void => {
    if (isAway) throw new Error('connect ECONNREFUSED');
  };
  const store = s3({ client: stubClient({ before }), bucket: 'spool' });
  await expect(store.open()).rejects.toMatchObject({ code: 'store.unavailable' });
  isAway = false;
  await store.open();
  expect(await store.put('a', pieces(1))).toEqual({ size: 1 });
  await store.close();
});

test('one that is closed and opened again while it fails to open is closed by the next close', async () => {
  let fails = 1;
  const before = (name: string): void => {
    if (name !== 'HeadBucket' || fails === 0) return;
    fails -= 1;
    throw new Error('connect ECONNREFUSED');
  };
  const store = s3({ client: stubClient({ before }), bucket: 'spool' });
  const first = store.open();
  const closing = store.close();
  const second = store.open();
  await expect(first).rejects.toMatchObject({ code: 'store.unavailable' });
  await closing;
  await second;
  await store.close();
  await expect(store.put('a', pieces(1))).rejects.toThrow(/not open/);
});

test('closing waits for the removal of an unfinished upload', async () => {
  let goOn = (): void => {};
  const held = new Promise<void>((resolve) => (goOn = resolve));
  const client = stubClient({
    before: (name) => (name === 'AbortMultipartUpload' ? held : undefined),
  });
  const store = s3({ client, bucket: 'spool' });
  await store.open();
  const ended: string[] = [];
  const removing = store.remove(['a.31.part']).then(() => ended.push('removed'));
  const closing = store.close().then(() => ended.push('closed'));
  goOn();
  await Promise.all([removing, closing]);
  expect(ended).toEqual(['removed', 'closed']);
});

test('an unfinished upload of a body with the longest ref can be removed', async () => {
  const client = stubClient();
  const store = s3({ client, bucket: 'spool' });
  await store.open();
  await store.remove([`${'a'.repeat(128)}.31.part`]);
  expect(client.names()).toContain('AbortMultipartUpload');
  await store.close();
});
