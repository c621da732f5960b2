/**
 * An outbox in bad times: writers roll back and hold their transactions open, relays are killed, the
 * broker goes away and the database crashes. `npm run torture -- outbox` does the same with larger
 * numbers.
 */
import { expect, test } from 'vitest';
import { skipReason } from '../services/index.ts';
import { freshSeed } from '../torture/chance.ts';
import { BATCH } from './faults/order.ts';
import { outboxRun } from './faults/run.ts';

const KILLS = 10;
const TIMEOUT_MS = 600_000;

const reason = skipReason('postgres') ?? skipReason('rabbitmq');
const skipped = reason === undefined ? '' : ` (skipped: ${reason})`;

test(`what is committed is published, has its effect once, and keeps the order of its key${skipped}`, {
  skip: reason !== undefined,
  timeout: TIMEOUT_MS,
}, async () => {
  const seed = freshSeed();
  const result = await outboxRun({
    kills: KILLS,
    seed,
    holdMs: 300,
    messagesMax: 3,
    brokerAwayMs: 3_000,
    endMaxMs: 240_000,
  });
  expect(result.complaints, `seed ${seed}`).toEqual([]);
  expect(result).toMatchObject({ lost: 0, unexpected: 0 });
  expect(result.kills).toBeGreaterThanOrEqual(KILLS);
  expect(result.duplicated).toBeLessThanOrEqual(result.kills * BATCH);
  // Otherwise nothing was proved.
  expect(result.messages).toBeGreaterThan(KILLS * BATCH);
  expect(result.rolledBack).toBeGreaterThan(20);
  expect(result.keyed).toBeGreaterThan(50);
});
