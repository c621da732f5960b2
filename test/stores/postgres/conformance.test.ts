/** conformance — the shared suites over the PostgreSQL stores, against a real server. */

import type { BodyStore } from '../../../src/ports/body-store.ts';
import type { EntryStore } from '../../../src/ports/entry-store.ts';
import { postgres, postgresBodies } from '../../../src/stores/postgres/index.ts';
import { bodyStoreSuite } from '../../../src/testkit/body-store-suite.ts';
import { entryStoreSuite } from '../../../src/testkit/entry-store-suite.ts';
import type { BodiesUnderTest, StoreUnderTest } from '../../../src/testkit/suite.ts';
import { runSuite } from '../../suite.ts';
import { connect, dropSchema, newSchema, serverUrl } from './setup.ts';

async function makeEntries(): Promise<StoreUnderTest> {
  const url = await serverUrl();
  const schema = newSchema();
  const stores: EntryStore[] = [];
  const open = async () => {
    const store = postgres({ url, schema });
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
    async damage(id) {
      const client = await connect();
      const cut = `UPDATE "${schema}".contents SET envelope = substr(envelope, 1, 20)
        WHERE seq = (SELECT seq FROM "${schema}".entries WHERE id = $1)`;
      await client.query(cut, [id]);
      await client.end();
    },
    async dispose() {
      for (const opened of stores) await opened.close();
      await dropSchema(schema);
    },
  };
}

async function makeBodies(): Promise<BodiesUnderTest> {
  const url = await serverUrl();
  const schema = newSchema();
  const stores: BodyStore[] = [];
  const open = async () => {
    const bodies = postgresBodies({ url, schema });
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
      await dropSchema(schema);
    },
  };
}

runSuite(
  'the PostgreSQL store keeps the promises of an entry store:',
  entryStoreSuite(makeEntries, { canReopen: true, canShare: true, canDamage: true }),
);
runSuite(
  'the PostgreSQL body store keeps the promises of a body store:',
  bodyStoreSuite(makeBodies, { canReopen: true }),
);
