/** outbox-lag — how long the oldest message that could have gone has been waiting. */

import { fixed, RetryableError } from 'respool';
import { createTestSpool } from 'respool/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { askOutbox } from '../../src/observe/metrics/outbox.ts';

const MINUTE_MS = 60_000;

test('what failed and waits for its next try has been waiting since it came', async () => {
  const { spool, clock } = await createTestSpool({
    policies: { default: fixed('1h', { attempts: 10 }) },
  });
  onTestFinished(() => spool.stop());
  spool.handle('x', () => {
    throw new RetryableError('test.busy', 'not now');
  });
  expect((await askOutbox({ spool })).lagMs).toBe(0);
  await spool.enqueue({ topic: 'x' });
  await clock.advance(10 * MINUTE_MS);
  const { counts, lagMs } = await askOutbox({ spool });
  expect(counts.get('deferred')).toBe(1);
  expect(lagMs).toBe(10 * MINUTE_MS);
});
