/**
 * A process dies right before a call that changes the disk: here at some points of every operation,
 * with `npm run torture -- points` at every single one.
 */
import { expect, test } from 'vitest';
import { longOr } from '../long.ts';
import { PLACES } from '../torture/places.ts';
import { points } from '../torture/points.ts';
import { reopening } from '../torture/reopening.ts';
import { lacking } from '../torture/tools.ts';

const POINTS = longOr(24, 12);
const MOMENTS = longOr(6, 3);
const reason = await lacking('strace');

test.for(PLACES)(
  'a process on %s may die before any write, fsync, rename or unlink',
  { timeout: 600_000 },
  async (place, context) => {
    if (reason !== undefined) context.skip(reason);
    const result = await points(place, { max: POINTS });
    expect(result.complaints).toEqual([]);
    expect(result.tried).toBe(POINTS);
    expect(result.missed).toBeLessThan(POINTS / 4);
  },
);

test.for(PLACES)(
  'a process on %s may die while it opens what a killed one left',
  { timeout: 600_000 },
  async (place, context) => {
    if (reason !== undefined) context.skip(reason);
    const result = await reopening(place, { max: MOMENTS });
    expect(result.complaints).toEqual([]);
    expect(result.missed).toBeLessThan(result.tried);
  },
);
