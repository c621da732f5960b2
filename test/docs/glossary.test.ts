/** docs/glossary.md: twelve words for the first day, then every other word once, in order. */
import { expect, test } from 'vitest';
import { headingsOf, readPage, tableUnder } from './pages.ts';

const page = readPage('docs/glossary.md');
const [first = '', ...rest] = headingsOf(page, 2);
const words = (heading: string): string[] => tableUnder(page, heading).map(([word = '']) => word);

test('the first section has the twelve words of the first day', () => {
  expect(words(first)).toHaveLength(12);
});

test('no word has two meanings', () => {
  const all = [first, ...rest].flatMap(words);
  expect(all.length).toBeGreaterThan(100);
  expect(all.filter((word, at) => all.indexOf(word) !== at)).toEqual([]);
});

test('the words of every other section are in alphabetical order', () => {
  for (const heading of rest) expect(words(heading)).toEqual(words(heading).toSorted());
});
