/**
 * The power goes while a spool is at work: what has reached the disk is mounted and looked into.
 * Needs root, to mount.
 */
import { beforeEach, expect, test } from 'vitest';
import { freshSeed } from '../torture/chance.ts';
import { PLACES } from '../torture/places.ts';
import { cutsForget, powercut } from '../torture/powercut.ts';
import { cannotMount } from '../torture/tools.ts';

const reason = await cannotMount();

beforeEach((context) => {
  if (reason !== undefined) context.skip(reason);
});

test('a cut forgets what was written and not synced, or these tests would prove nothing', async () => {
  expect(await cutsForget()).toBe(true);
});

test('a store that does not sync is found out', async () => {
  const result = await powercut('unsynced', { cuts: 2, seed: 1 });
  expect(result.complaints.join('\n')).toContain('accepted and lost');
});

test.each(PLACES)('a power cut takes nothing that %s has acknowledged', async (place) => {
  const seed = freshSeed();
  const result = await powercut(place, { cuts: 4, seed });
  expect(result.complaints, `npm run torture -- powercut --seed ${seed}`).toEqual([]);
  expect(result.accepted).toBeGreaterThan(0);
});
