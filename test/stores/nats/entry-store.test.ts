/** The shared suite over the NATS entry store, against a real server. */

import { connect } from '@nats-io/transport-node';
import type { EntryStore } from '../../../src/ports/entry-store.ts';
import { shardOf } from '../../../src/stores/nats/codec.ts';
import { nats } from '../../../src/stores/nats/index.ts';
import { entryStoreSuite } from '../../../src/testkit/entry-store-suite.ts';
import type { StoreUnderTest } from '../../../src/testkit/suite.ts';
import { withService } from '../../services/index.ts';
import { runSuite } from '../../suite.ts';
import { bucketName, removeBucket } from './setup.ts';

async function makeEntries(url: string): Promise<StoreUnderTest> {
  const bucket = bucketName();
  const stores: EntryStore[] = [];
  const open = async () => {
    const store = nats({ url, bucket });
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

/** Writes something else under the key of an entry. */
async function damage(url: string, bucket: string, id: string): Promise<void> {
  const connection = await connect({ servers: url });
  await connection.request(`$KV.${bucket}.e.${shardOf(id)}.${id}`, 'nonsense');
  await connection.close();
}

withService('nats', (url) => {
  runSuite(
    'the NATS store keeps the promises of an entry store:',
    entryStoreSuite(() => makeEntries(url()), {
      canReopen: true,
      canShare: true,
      canDamage: true,
    }),
  );
});
