/** The lists of what an addition touches: each place is there, for one that was added before. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, readPage, tableUnder, wordOf } from './pages.ts';

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

/** One that exists, by the heading of its list: what `<area>` and `<name>` are, and its word. */
const ADDED = {
  'A command': { area: 'inspect', name: 'shape', word: /\bshape\b/ },
  'A metric': { area: '', name: '', word: /lease_?losses/i },
  'A middleware': { area: '', name: 'circuit-breaker', word: /\bcircuitBreaker\b/ },
} as const;

test.each(Object.entries(ADDED))('%s touches the places of its list', (heading, added) => {
  const rows = tableUnder(readPage('CONTRIBUTING.md'), heading);
  expect(rows.map(([number]) => number)).toEqual(['1', '2', '3', '4', '5']);
  const files = rows.map(([, touch = '']) =>
    wordOf(touch).replace('<area>', added.area).replace('<name>', added.name),
  );
  const isTouched = (file: string): boolean => {
    const full = path.join(ROOT, file);
    return existsSync(full) && added.word.test(readFileSync(full, 'utf8'));
  };
  expect(files.filter((file) => !isTouched(file))).toEqual([]);
});
