/** The shared suite over the NATS body store, against a real server. */

import { bodyStoreSuite } from 'respool/testkit';
import { withService } from '../../services/index.ts';
import { runSuite } from '../../suite.ts';
import { makeBodies } from './conformance.ts';

withService('nats', (url) => {
  runSuite(
    'the NATS body store keeps the promises of a body store:',
    bodyStoreSuite(() => makeBodies(url()), { canReopen: true }),
  );
});
