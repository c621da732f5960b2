/** conformance — what the shared suites need of the NATS stores; two files run a half for entries. */

import { connect } from '@nats-io/transport-node';
import type { BodyStore, EntryStore } from 'respool';
import { nats, natsBodies } from 'respool/stores/nats';
import { type BodiesUnderTest, entryStoreSuite, type StoreUnderTest } from 'respool/testkit';
import { shardOf } from '../../../src/stores/nats/row.ts';
import { withService } from '../../services/index.ts';
import { runSuite } from '../../suite.ts';
import { bucketName, removeBucket } from './setup.ts';

/** An entry store for the suite, in a bucket of its own. */
export async function makeEntries(
  url: string,
  { replicas = 1 }: { readonly replicas?: number } = {},
): Promise<StoreUnderTest> {
  const bucket = bucketName();
  const stores: EntryStore[] = [];
  const open = async () => {
    const store = nats({ url, bucket, replicas });
    stores.push(store);
    await store.open();
    return store;
  };
  const store = await open();
  return {
    store,
    async reopen() {
      await store.close();
      return open();
    },
    second: open,
    damage: (id) => damage(url, bucket, id),
    async dispose() {
      for (const opened of stores) await opened.close();
      await removeBucket(url, bucket);
    },
  };
}

/** A body store for the suite, in a bucket of its own. */
export async function makeBodies(
  url: string,
  { replicas = 1 }: { readonly replicas?: number } = {},
): Promise<BodiesUnderTest> {
  const bucket = bucketName();
  const stores: BodyStore[] = [];
  const open = async () => {
    const bodies = natsBodies({ url, bucket, replicas });
    stores.push(bodies);
    await bodies.open();
    return bodies;
  };
  const bodies = await open();
  return {
    bodies,
    async reopen() {
      await bodies.close();
      return open();
    },
    async dispose() {
      for (const opened of stores) await opened.close();
      await removeBucket(url, bucket);
    },
  };
}

/** Writes something else under the key of an entry. */
async function damage(url: string, bucket: string, id: string): Promise<void> {
  const connection = await connect({ servers: url.split(',') });
  await connection.request(`$KV.${bucket}.e.${shardOf(id)}.${id}`, 'nonsense');
  await connection.close();
}

/** Every second case of the suite, against a real server. */
export function runHalf(half: 0 | 1): void {
  withService('nats', (url) => {
    const cases = entryStoreSuite(() => makeEntries(url()), {
      canReopen: true,
      canShare: true,
      canDamage: true,
      crowd: 5_000,
    });
    runSuite(
      `the NATS store keeps the promises of an entry store (half ${half + 1}):`,
      cases.filter((_, at) => at % 2 === half),
    );
  });
}
