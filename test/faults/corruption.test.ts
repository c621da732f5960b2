/** Files and rows are damaged while a spool is closed. */
import { readdir, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { freshSeed } from '../torture/chance.ts';
import { corruption } from '../torture/corruption.ts';
import { inFolder } from '../torture/folder.ts';
import { PLACES, spoolAt } from '../torture/places.ts';

const ROUNDS = 5;

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

// Regression: the directory of the only, damaged file was removed, and then could not be synced.
test('a filesystem store whose only message is damaged opens and closes', async () => {
  await inFolder(async (path) => {
    const first = spoolAt('filesystem', path);
    await first.enqueue({ id: 'damaged', topic: 'c' });
    await first.stop();
    const incoming = join(path, 'entries', 'incoming');
    const files = (await readdir(incoming, { recursive: true })).filter((name) =>
      /damaged/.test(name),
    );
    for (const file of files) await truncate(join(incoming, file), 100);
    const second = spoolAt('filesystem', path);
    expect((await second.page()).corrupt).toMatchObject([{ id: 'damaged' }]);
    await second.stop();
  });
});
