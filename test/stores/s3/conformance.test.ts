/** The whole contract of a body store, against the real server. */
import { bodyStoreSuite } from 'respool/testkit';
import { s3 } from 'respool/stores/s3';
import { runSuite } from '../../suite.ts';
import { withService } from '../../services/index.ts';
import { newBucket } from './setup.ts';

withService('s3', (url) => {
  runSuite(
    's3 bodies',
    bodyStoreSuite(
      async () => {
        const options = { endpoint: url(), bucket: newBucket(), prefix: 'app', createBucket: true };
        let bodies = s3(options);
        await bodies.open();
        return {
          bodies,
          reopen: async () => {
            await bodies.close();
            bodies = s3(options);
            await bodies.open();
            return bodies;
          },
          dispose: () => bodies.close(),
        };
      },
      { canReopen: true },
    ),
  );
});
