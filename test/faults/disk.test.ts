/** Disks that are full, and disks that fail to sync. */
import { expect, test } from 'vitest';
import { eio, type Failing } from '../torture/eio.ts';
import { full } from '../torture/full.ts';
import { PLACES } from '../torture/places.ts';
import { cannotMount, lacking } from '../torture/tools.ts';

const noMount = await cannotMount();
const noTrace = await lacking('strace');

test.for(PLACES)(
  'a full disk under %s refuses messages, and loses none',
  async (place, context) => {
    if (noMount !== undefined) context.skip(noMount);
    const result = await full(place);
    expect(result.complaints).toEqual([]);
    expect(result.refused).toBeGreaterThan(0);
    expect(result.accepted).toBeGreaterThan(100);
  },
);

test.for(PLACES)('%s never acknowledges what an fsync refused to keep', async (place, context) => {
  if (noTrace !== undefined) context.skip(noTrace);
  const failing: Failing[] = [
    'fsync,fdatasync 1',
    'fdatasync 2',
    'fsync 3',
    'fsync,fdatasync 1+',
    'fsync,fdatasync 4+',
  ];
  const result = await eio(place, { failing, canMount: noMount === undefined });
  expect(result.complaints).toEqual([]);
  expect(result.failedSteps).toBeGreaterThan(failing.length);
});
