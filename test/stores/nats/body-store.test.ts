/** The shared suite over the NATS body store, against a real server. */

import type { BodyStore } from '../../../src/ports/body-store.ts';
import { natsBodies } from '../../../src/stores/nats/index.ts';
import { bodyStoreSuite } from '../../../src/testkit/body-store-suite.ts';
import type { BodiesUnderTest } from '../../../src/testkit/suite.ts';
import { withService } from '../../services/index.ts';
import { runSuite } from '../../suite.ts';
import { bucketName, removeBucket } from './setup.ts';

async function makeBodies(url: string): Promise<BodiesUnderTest> {
  const bucket = bucketName();
  const stores: BodyStore[] = [];
  const open = async () => {
    const bodies = natsBodies({ url, bucket });
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

withService('nats', (url) => {
  runSuite(
    'the NATS body store keeps the promises of a body store:',
    bodyStoreSuite(() => makeBodies(url()), { canReopen: true }),
  );
});
