/** Files and rows are damaged while a spool is closed. */
import { expect, test } from 'vitest';
import { freshSeed } from '../torture/chance.ts';
import { corruption } from '../torture/corruption.ts';
import { PLACES } from '../torture/places.ts';

const ROUNDS = 8;

test.each(PLACES)('what is damaged in %s is never delivered, its neighbours are', async (place) => {
  const seed = freshSeed();
  let noticed = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const result = await corruption(place, seed + round);
    expect(result.complaints).toEqual([]);
    noticed += result.noticed;
  }
  expect(noticed).toBeGreaterThan(ROUNDS / 2);
});
