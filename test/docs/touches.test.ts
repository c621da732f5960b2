/** docs/how-to/write-a-store.md: what a store of this package touches is where the page says. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, readPage, tableUnder } from './pages.ts';

const HEADING = 'A store of this package: five touches';

test('a new store touches five places, and each of them is there for one that was added', () => {
  const rows = tableUnder(readPage('docs/how-to/write-a-store.md'), HEADING);
  expect(rows.map(([number]) => number)).toEqual(['1', '2', '3', '4', '5']);
  const words = rows.flatMap((row) => [...row.join(' ').matchAll(/`([^`]+)`/g)]);
  const paths = words.flatMap(([, word = '']) => (/^\w[\w-]*\//.test(word) ? [word] : []));
  expect(paths.length).toBeGreaterThan(10);
  const isThere = (one: string): boolean =>
    existsSync(path.join(ROOT, one.replace('<name>', 'nats')));
  expect(paths.filter((one) => !isThere(one))).toEqual([]);
});
