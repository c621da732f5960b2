/**
 * your-own-tests — a spool in memory and in virtual time: an hour passes at once.
 */

import assert from 'node:assert/strict';
import type { Delivery } from 'respool';
import { createTestSpool } from 'respool/testkit';

const expect = (actual: unknown) => ({
  toBe: (expected: unknown) => assert.equal(actual, expected),
});
const failTwice = async (delivery: Delivery) => {
  if (delivery.attempt <= 2) throw new Error('not yet');
};

const { spool, clock } = await createTestSpool({ retention: { delivered: { archive: '7d' } } });
spool.handle('x', failTwice);
const { id } = await spool.enqueue({ topic: 'x' });
await clock.advance('1h');
expect((await spool.get(id))?.status.attempts).toBe(3);

console.log('three attempts in', '1h', 'of virtual time');
await spool.stop();
