/** docs/decisions/: numbered without gaps, dated, of one shape, and listed in ARCHITECTURE.md. */
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { headingsOf, linksOf, readPage, readPages } from './pages.ts';

const decisions = readPages().filter(({ file }) => file.startsWith('docs/decisions/'));

test('decisions are numbered without gaps', () => {
  const numbers = decisions.map(({ file }) => Number(path.basename(file).slice(0, 4)));
  expect(numbers.length).toBeGreaterThan(40);
  expect(numbers).toEqual(numbers.map((_, at) => at + 1));
});

test('ARCHITECTURE.md lists every decision, each under its title', () => {
  const page = readPage('ARCHITECTURE.md');
  const linked = linksOf(page).filter((link) => link.startsWith('docs/decisions/'));
  expect(linked.toSorted()).toEqual(decisions.map(({ file }) => file));
  const untitled = decisions.filter((decision) => {
    const title = (headingsOf(decision, 1)[0] ?? '').replace(/^\d+\. /, '');
    return !page.text.includes(`[${title}](${decision.file})`);
  });
  expect(untitled.map(({ file }) => file)).toEqual([]);
});

describe.each(decisions.map((page) => [page.file, page] as const))('%s', (file, page) => {
  test('has its number, a date, a context and a decision', () => {
    const number = Number(path.basename(file).slice(0, 4));
    expect(page.text).toMatch(new RegExp(`^# ${number}\\. .+\\n\\n20\\d\\d-\\d\\d-\\d\\d\\n`));
    expect(headingsOf(page, 2).slice(0, 2)).toEqual(['Context', 'Decision']);
  });
});
