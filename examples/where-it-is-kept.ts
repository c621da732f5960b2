/**
 * where-it-is-kept — entries in PostgreSQL, bodies in S3, compressed and encrypted. Needs both servers:
 * POSTGRES_URL and S3_URL (`https://key:secret@host`) name them, and the bucket `spool` is there.
 */

import { S3Client } from '@aws-sdk/client-s3';
import pg from 'pg';
import { createSpool } from 'respool';
import { postgres } from 'respool/stores/postgres';
import { s3 } from 'respool/stores/s3';
import { compress, encrypt, generateKey } from 'respool/transforms';

const pool = new pg.Pool({ connectionString: process.env['POSTGRES_URL'] });
const { origin, username, password } = new URL(process.env['S3_URL'] ?? '');
const client = new S3Client({
  region: 'us-east-1',
  endpoint: origin,
  forcePathStyle: true,
  credentials: { accessKeyId: username, secretAccessKey: password },
});
// In your own program they come from a safe place, and stay the same: 'env:K1', 'file:./k2.key'.
const [k1, k2] = [generateKey(), generateKey()];

const spool = createSpool({
  entries: postgres({ pool, schema: 'respool' }), // a pg Pool you own, or { url }
  // What a server other than AWS promises, only its owner knows: say it, or 'power-loss' is refused.
  bodies: s3({ client, bucket: 'spool', prefix: 'app/', durability: 'power-loss' }),
  transforms: [compress('zstd'), encrypt({ keys: { k1, k2 }, primary: 'k2' })],
  requireDurability: 'power-loss',
});

let left = 2;
const delivered = new Promise<void>((resolve) => {
  spool.handle('report', async (delivery) => {
    const body = await delivery.body();
    const isInline = delivery.envelope.body.place === 'inline';
    console.log(`${body.byteLength} bytes from ${isInline ? 'PostgreSQL' : 'the bucket'}`);
    left -= 1;
    if (left === 0) resolve();
  });
});
await spool.enqueue({ topic: 'report', body: 'short' });
const long = Buffer.alloc(1_000_000, 'a long report, ');
const { id } = await spool.enqueue({ topic: 'report', body: long });
const { size, storedSize } = (await spool.get(id))?.envelope.body ?? { size: 0, storedSize: 0 };
console.log(`of ${size} bytes less than a tenth is kept: ${storedSize < size / 10}`);
await spool.start();
await delivered;
await spool.stop();
await pool.end();
client.destroy();
