/** What the tests of the NATS stores share: buckets of their own, stores that are closed. */

import { randomBytes } from 'node:crypto';
import { connect, type NatsConnection } from '@nats-io/transport-node';
import { jetstreamManager } from '@nats-io/jetstream';
import { afterEach } from 'vitest';
import type { BodyStore, EntryStore } from 'respool';
import { nats, natsBodies, type NatsBodyOptions, type NatsEntryOptions } from 'respool/stores/nats';

const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

/** Runs after the test, the last one first. */
export function atEnd(end: () => Promise<unknown>): void {
  endings.push(end);
}

/** A name that no other test uses. */
export function bucketName(): string {
  return `test-${randomBytes(6).toString('hex')}`;
}

/** A plain connection beside the store, closed after the test. */
export async function plainConnection(url: string): Promise<NatsConnection> {
  const connection = await connect({ servers: url.split(',') });
  atEnd(() => connection.close());
  return connection;
}

/** Takes the streams of a bucket away. */
export async function removeBucket(url: string, bucket: string): Promise<void> {
  const connection = await connect({ servers: url.split(',') });
  const manager = await jetstreamManager(connection);
  for (const name of [`KV_${bucket}`, `OBJ_${bucket}`]) {
    await manager.streams.delete(name).catch(() => undefined);
  }
  await connection.close();
}

/** An opened entry store over a bucket, which is removed after the test. */
export async function openStore(options: NatsEntryOptions & { url: string }): Promise<EntryStore> {
  const bucket = options.bucket ?? bucketName();
  atEnd(() => removeBucket(options.url, bucket));
  const store = nats({ ...options, bucket });
  await store.open();
  atEnd(() => store.close());
  return store;
}

/** An opened body store over a bucket, which is removed after the test. */
export async function openBodies(options: NatsBodyOptions & { url: string }): Promise<BodyStore> {
  const bucket = options.bucket ?? bucketName();
  atEnd(() => removeBucket(options.url, bucket));
  const bodies = natsBodies({ ...options, bucket });
  await bodies.open();
  atEnd(() => bodies.close());
  return bodies;
}
