/** A spool whose large bodies lie in a bucket. */
import { createHash, randomBytes } from 'node:crypto';
import {
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { createSpool, type Spool } from 'respool';
import { memory } from 'respool/stores/memory';
import { type S3ClientLike, s3 } from 'respool/stores/s3';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { objectKeyOf } from '../../../src/stores/s3/body-store.ts';
import { withService } from '../../services/index.ts';
import { allRefs, clientOf, newBucket, opened } from './setup.ts';
import { stubClient } from './stub.ts';

const LARGE = Buffer.alloc(50_000, 1);
/** In the second part. */
const FLIPPED_AT = 9_000_000;

withService('s3', (url) => {
  test('bodies go through the bucket and are gone when their messages are', async () => {
    const bucket = newBucket();
    const bodies = await opened(url(), { bucket, prefix: 'app' });
    await bodies.close();
    const spool = createSpool({ entries: memory(), bodies });
    const sent = new Map<string, string>();
    const found = new Map<string, string>();
    const done = new Promise<void>((resolve) => {
      spool.handle('report', async (delivery) => {
        const bytes = await delivery.body({ maxBytes: 20_000_000 });
        found.set(delivery.id, digest(bytes));
        if (found.size === 3) resolve();
      });
    });
    await spool.start();
    for (const size of [20_000, 1_000_000, 12_000_000]) {
      const body = randomBytes(size);
      const { id } = await spool.enqueue({ topic: 'report', body });
      sent.set(id, digest(body));
    }
    await done;
    await spool.stop();
    expect(found).toEqual(sent);
    await bodies.open();
    expect(await allRefs(bodies, 8e15)).toEqual([]);
    await bodies.close();
  });

  describe('a body in several parts of which the bucket', () => {
    const damages: [string, (bytes: Buffer) => Buffer][] = [
      ['changed a byte', flipped],
      ['lost the end', (bytes) => bytes.subarray(0, bytes.byteLength - 1)],
      ['lost all parts but the first', (bytes) => bytes.subarray(0, 8 * 2 ** 20)],
      ['has more than there was', (bytes) => Buffer.concat([bytes, Buffer.alloc(1)])],
    ];
    test.each(damages)(
      '%s is found by whoever reads it, and its message is held',
      async (_, damage) => {
        const bucket = newBucket();
        const spool = createSpool({
          entries: memory(),
          bodies: s3({ endpoint: url(), bucket, createBucket: true }),
        });
        onTestFinished(() => spool.stop());
        const { id } = await spool.enqueue({ topic: 'report', body: randomBytes(12_000_000) });
        const client = clientOf(url());
        await replace(client, bucket, damage);
        client.destroy();
        await expect(read(spool, id)).rejects.toMatchObject({ code: 'body.corrupt' });
        expect((await spool.operator({ by: 'ops' }).check()).findings).toMatchObject([
          { id, kind: 'body.corrupt' },
        ]);
        const held = new Promise((resolve) => spool.on('held', resolve));
        spool.handle('report', async (delivery) => {
          await delivery.body({ maxBytes: 20_000_000 });
        });
        await spool.start();
        expect(await held).toMatchObject({ id, because: { code: 'body.corrupt' } });
      },
    );
  });
});

describe('a listing that is not true', () => {
  test('takes no body that a message has, whatever is missing, left over or dated wrongly', async () => {
    const stub = stubClient();
    const clock = new SimClock();
    const listing: { untrue?: readonly object[] } = {};
    const client: S3ClientLike = {
      send: (command: object, options) =>
        listing.untrue !== undefined && command.constructor.name === 'ListObjectsV2Command'
          ? Promise.resolve({ Contents: listing.untrue })
          : stub.send(command as never, options),
    };
    const spool = createSpool({
      entries: memory(),
      bodies: s3({ client, bucket: 'bucket' }),
      caretaker: { orphanGrace: 0 },
      clock,
    });
    onTestFinished(() => spool.stop());
    const enqueue = async (): Promise<string> =>
      (await spool.enqueue({ topic: 'a', body: LARGE })).id;
    const ids = [await enqueue(), await enqueue()];
    // Both look as old as can be, one is listed twice, and one is there that is long gone.
    const keys = [...stub.objects.keys()];
    const gone = objectKeyOf('', '01k0000000000000000000gone-abcdefgh');
    const LastModified = new Date(0);
    listing.untrue = [...keys, keys[0], gone].map((Key) => ({ Key, LastModified }));
    ids.push(await enqueue());
    await spool.operator({ by: 'ops' }).cleanUp();
    await clock.advance('11m');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 1 });
    expect(stub.requests.filter(({ input }) => input['Key'] === gone)).toHaveLength(1);
    for (const id of ids) expect((await read(spool, id)).equals(LARGE)).toBe(true);
  });
});

/** Puts other bytes in the place of the only body. */
async function replace(
  client: S3Client,
  Bucket: string,
  damage: (bytes: Buffer) => Buffer,
): Promise<void> {
  const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket }));
  expect(Contents).toHaveLength(1);
  const Key = Contents[0]?.Key;
  const { Body, Metadata } = await client.send(new GetObjectCommand({ Bucket, Key }));
  const bytes = Buffer.from((await Body?.transformToByteArray()) ?? []);
  await client.send(new PutObjectCommand({ Bucket, Key, Metadata, Body: damage(bytes) }));
}

function flipped(bytes: Buffer): Buffer {
  bytes.writeUInt8(bytes.readUInt8(FLIPPED_AT) ^ 1, FLIPPED_AT);
  return bytes;
}

async function read(spool: Spool, id: string): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of await spool.body(id)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function digest(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
