/** PostgreSQL with a transaction that somebody left open. */
import { expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { idleTransaction } from './idle-transaction.ts';

/** The doctor says nothing of a transaction that is open for less than five seconds. */
const LASTS_MS = 6_000;
const ROUNDS = 4;

withService('postgres', (url) => {
  // What is left of the rate is a matter of `npm run torture -- nodes`; how much a claim has to
  // read is in test/stores/postgres/dead-rows.test.ts.
  test('a spool delivers beside a transaction left open, and the doctor names it', async () => {
    const result = await idleTransaction(url(), { lastsMs: LASTS_MS, rounds: ROUNDS });
    // Otherwise nothing was in the way.
    expect(result.deadHeld).toBeGreaterThan(1_000);
    expect(result.held.length).toBeGreaterThanOrEqual(ROUNDS);
    expect(result.told.held).toMatchObject({
      level: 'note',
      text: expect.stringMatching(/idle in transaction.* has a transaction open for \d+ s/),
      todo: expect.stringContaining('pg_terminate_backend'),
    });
    // It only reads: what is removed in the other database can be cleaned up.
    expect(result.told.free).toBeUndefined();
  });
});
