/** conformance — the shared suite over the NATS entry store; two files run a half of it each. */

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
