/** What the real test server never does: a poor server, lost answers, refusals. */
import { bodyStoreSuite } from 'respool/testkit';
import { s3 } from 'respool/stores/s3';
import { describe, expect, test } from 'vitest';
import { runSuite } from '../../suite.ts';
import { allRefs, bytesOf, chunksOf, opened, pieces } from './setup.ts';
import { refusal, type StubOptions, stubClient } from './stub.ts';

const MIB = 2 ** 20;
const FUTURE = 8e15;

runSuite(
  'a server without conditional writes, without DeleteObjects, with pages of two',
  bodyStoreSuite(
    async () => {
      const client = stubClient({ conditional: false, deleteObjects: 'refused', pageMax: 2 });
      let bodies = s3({ client, bucket: 'bucket' });
      await bodies.open();
      return {
        bodies,
        reopen: async () => {
          await bodies.close();
          bodies = s3({ client, bucket: 'bucket' });
          await bodies.open();
          return bodies;
        },
        dispose: () => bodies.close(),
      };
    },
    { canReopen: true },
  ),
);

describe('answers that are lost', () => {
  test('a put that the package repeated after a lost answer is ours', async () => {
    let puts = 0;
    const { client, store } = await setup({
      // Carried out, and then refused, as the second of two equal requests is.
      after: (name, input) => {
        if (name !== 'PutObject' || !isBody(input)) return;
        puts += 1;
        throw refusal(412, 'PreconditionFailed');
      },
    });
    expect(await store.put('a', chunksOf('hello'))).toEqual({ size: 5 });
    expect(puts).toBe(1);
    expect(client.names()).toContain('HeadObject');
  });

  test('a refused put of somebody else is a duplicate', async () => {
    const { store } = await setup();
    await store.put('a', chunksOf('first'));
    await expect(store.put('a', chunksOf('second'))).rejects.toMatchObject({
      code: 'message.duplicate',
    });
  });

  test.each(['after', 'before'] as const)(
    'the end of an upload whose answer is lost %s the work counts as what it was',
    async (when) => {
      const { client, store } = await setup({
        [when]: (name: string) => {
          if (name === 'CompleteMultipartUpload') throw new Error('socket hang up');
        },
      });
      const put = store.put('a', pieces(12 * MIB));
      if (when === 'after') {
        expect(await put).toEqual({ size: 12 * MIB });
        return;
      }
      await expect(put).rejects.toMatchObject({ code: 'store.unavailable' });
      expect(client.uploads.size).toBe(0);
      await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'body.missing' });
    },
  );

  test('a write that met another one to its key is tried again', async () => {
    let conflicts = 2;
    const { store } = await setup({
      before: (name, input) => {
        if (name !== 'PutObject' || !isBody(input) || conflicts === 0) return;
        conflicts -= 1;
        throw refusal(409, 'ConditionalRequestConflict');
      },
    });
    expect(await store.put('a', chunksOf('hello'))).toEqual({ size: 5 });
    expect(conflicts).toBe(0);
  });
});

describe('an upload in parts', () => {
  test('ends with the first part that fails: nothing more is read, sent or left', async () => {
    let isClosed = false;
    let readBytes = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) {
          readBytes += MIB;
          yield new Uint8Array(MIB);
        }
      } finally {
        isClosed = true;
      }
    }
    const { client, store } = await setup({
      before: (name, input) => {
        if (name === 'UploadPart' && input['PartNumber'] === 2) throw refusal(500, 'InternalError');
      },
    });
    await expect(store.put('a', endless())).rejects.toMatchObject({ code: 'store.unavailable' });
    expect(isClosed).toBe(true);
    expect(readBytes).toBeLessThan(64 * MIB);
    expect(client.names()).toContain('AbortMultipartUpload');
    expect(client.uploads.size).toBe(0);
  });

  test('an abort that fails does not hide what went wrong', async () => {
    const { store } = await setup({
      before: (name) => {
        if (name === 'UploadPart') throw refusal(403, 'AccessDenied');
        if (name === 'AbortMultipartUpload') throw refusal(500, 'InternalError');
      },
    });
    await expect(store.put('a', pieces(12 * MIB))).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringContaining('AccessDenied'),
    });
  });

  test('partBytes and partsAtOnce bound what is in memory', async () => {
    let onTheWay = 0;
    let most = 0;
    let sentBytes = 0;
    let readBytes = 0;
    let aheadMost = 0;
    async function* source(): AsyncGenerator<Uint8Array> {
      for (let n = 0; n < 60; n += 1) {
        readBytes += MIB;
        aheadMost = Math.max(aheadMost, readBytes - sentBytes);
        yield new Uint8Array(MIB);
      }
    }
    const options = { partBytes: 5 * MIB, partsAtOnce: 2 };
    const { client, store } = await setup(
      {
        before: async (name) => {
          if (name !== 'UploadPart') return;
          onTheWay += 1;
          most = Math.max(most, onTheWay);
          await new Promise((resolve) => setImmediate(resolve));
        },
        after: (name, input) => {
          if (name !== 'UploadPart') return;
          onTheWay -= 1;
          sentBytes += Number(input['ContentLength']);
        },
      },
      options,
    );
    expect(await store.put('a', source())).toEqual({ size: 60 * MIB });
    expect(most).toBe(2);
    expect(aheadMost).toBeLessThanOrEqual(3 * 5 * MIB + MIB);
    expect(client.names().filter((name) => name === 'UploadPart')).toHaveLength(12);
  });

  test('a body of exactly one part goes in one request', async () => {
    const { client, store } = await setup({}, { partBytes: 5 * MIB });
    await store.put('a', pieces(5 * MIB));
    await store.put('b', pieces(5 * MIB + 1));
    expect(client.names().filter((name) => name === 'CreateMultipartUpload')).toHaveLength(1);
    expect((await bytesOf(store, 'b')).byteLength).toBe(5 * MIB + 1);
  });

  test('one that was begun long ago is listed, and removed by that name', async () => {
    const { client, store } = await setup({ pageMax: 1 });
    await store.put('done', chunksOf('x'));
    const key = [...client.objects.keys()][0] ?? '';
    for (const id of ['u-old', 'u-old-2']) {
      client.uploads.set(id, { key, input: {}, at: new Date(1_000) });
    }
    const left = await allRefs(store, 2_000);
    expect(left).toHaveLength(2);
    for (const name of left) expect(name).toMatch(/^done\.[0-9a-f]+\.part$/);
    await store.remove([...left, ...left]);
    expect(client.uploads.size).toBe(0);
    expect(await allRefs(store, FUTURE)).toEqual(['done']);
  });

  test('a bucket whose unfinished uploads may not be listed still lists its bodies', async () => {
    const { store } = await setup({
      before: (name) => {
        if (name === 'ListMultipartUploads') throw refusal(403, 'AccessDenied');
      },
    });
    await store.put('a', chunksOf('x'));
    expect(await allRefs(store, FUTURE)).toEqual(['a']);
    const findings = await store.diagnose();
    expect(
      findings.find(({ id, todo }) => id === 'unfinished-uploads' && todo?.includes('List')),
    ).toBeDefined();
  });
});

describe('what is read', () => {
  test('bytes that are not those that were written are corrupt', async () => {
    const { client, store } = await setup();
    await store.put('a', chunksOf('hello'));
    const [key, object] = [...client.objects][0] ?? ['', undefined];
    if (object !== undefined) client.objects.set(key, { ...object, bytes: Buffer.from('hellO') });
    await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'body.corrupt' });
  });

  test('a bucket that is gone is no missing body', async () => {
    const { store } = await setup({
      before: (name) => {
        if (name === 'GetObject') throw refusal(404, 'NoSuchBucket');
      },
    });
    await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'config.invalid' });
  });
});

describe('the probe', () => {
  test.each([
    ['PutObject', 1],
    ['ListObjectsV2', 1],
    ['PutObject', 2],
  ])('is removed when its %s number %i fails', async (name, number) => {
    let count = 0;
    const client = stubClient({
      conditional: false,
      // Carried out, and the answer is lost: it may be there.
      after: (request) => {
        if (request === name && (count += 1) === number) throw refusal(500, 'InternalError');
      },
    });
    const store = s3({ client, bucket: 'bucket', prefix: 'app' });
    await expect(store.open()).rejects.toMatchObject({ code: 'store.unavailable' });
    expect(client.requests.some(({ input }) => String(input['Key']).includes('probe/'))).toBe(true);
    expect([...client.objects.keys()]).toEqual([]);
  });

  test('that a killed process left is removed by the next opening, and nothing else', async () => {
    const client = stubClient();
    const object = { bytes: new Uint8Array(1), metadata: {} };
    const [now, longAgo] = [new Date(), new Date(0)];
    client.objects.set('app/probe/respool-left', { ...object, at: longAgo });
    client.objects.set('app/probe/respool-running', { ...object, at: now });
    client.objects.set('app/probe/of-another', { ...object, at: longAgo });
    client.objects.set('probe/respool-elsewhere', { ...object, at: longAgo });
    await s3({ client, bucket: 'bucket', prefix: 'app' }).open();
    expect([...client.objects.keys()]).toEqual([
      'app/probe/respool-running',
      'app/probe/of-another',
      'probe/respool-elsewhere',
    ]);
  });
});

test('what is not ours below the prefix is never listed', async () => {
  const { client, store } = await setup({}, { prefix: 'app' });
  await store.put('a', chunksOf('x'));
  const strange = { bytes: new Uint8Array(0), metadata: {}, at: new Date(0) };
  for (const key of ['app/readme', 'app/zz/a', 'app/00/a/b', 'application/00/a', 'app/00/A']) {
    client.objects.set(key, strange);
  }
  expect(await allRefs(store, FUTURE)).toEqual(['a']);
});

test('a batch in which one object is not removed is an error', async () => {
  const { store } = await setup({
    before: (name) => {
      if (name === 'DeleteObjects') throw refusal(503, 'SlowDown');
    },
  });
  await expect(store.remove(['a', 'b'])).rejects.toMatchObject({ code: 'store.unavailable' });
});

async function setup(options: StubOptions = {}, more: object = {}) {
  const client = stubClient(options);
  const store = await opened('', { client, ...more });
  client.requests.length = 0;
  return { client, store };
}

function isBody(input: Readonly<Record<string, unknown>>): boolean {
  return !String(input['Key']).startsWith('probe/');
}
