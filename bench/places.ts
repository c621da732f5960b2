/**
 * places — schemas and buckets that live as long as one run of a bench.
 */

import { randomBytes } from 'node:crypto';
import {
  DeleteBucketCommand,
  DeleteObjectsCommand,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { Client } from 'pg';

/** A name that no other run has. */
export function newName(): string {
  return `bench${randomBytes(6).toString('hex')}`;
}

/** Removes a schema with all its tables. */
export async function dropSchema(url: string, schema: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(`DROP SCHEMA IF EXISTS "${schema}" CASCADE`);
  await client.end();
}

/** Removes the streams of a bucket. */
export async function dropBuckets(url: string, bucket: string): Promise<void> {
  const connection = await connect({ servers: url });
  const manager = await jetstreamManager(connection);
  for (const name of [`KV_${bucket}`, `OBJ_${bucket}`]) {
    await manager.streams.delete(name).catch(() => undefined);
  }
  await connection.close();
}

/** Removes a bucket with all its objects. */
export async function dropObjects(url: string, bucket: string): Promise<void> {
  const client = s3Client(url);
  for (;;) {
    const page = await client.send(new ListObjectsV2Command({ Bucket: bucket }));
    const objects = (page.Contents ?? []).map(({ Key }) => ({ Key }));
    if (objects.length === 0) break;
    await client.send(new DeleteObjectsCommand({ Bucket: bucket, Delete: { Objects: objects } }));
  }
  await client.send(new DeleteBucketCommand({ Bucket: bucket }));
  client.destroy();
}

/** A client of the test server, whose URL carries its keys. */
export function s3Client(url: string): S3Client {
  const { username, password, origin } = new URL(url);
  return new S3Client({
    endpoint: origin,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: username, secretAccessKey: password },
  });
}
