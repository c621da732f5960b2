/** docs/decisions/: numbered without gaps, dated, of one shape, and listed in ARCHITECTURE.md. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { headingsOf, linksOf, ROOT, readPage, readPages } from './pages.ts';

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
  test('has its number, a date, a context, a decision and its figures', () => {
    const number = Number(path.basename(file).slice(0, 4));
    expect(page.text).toMatch(new RegExp(`^# ${number}\\. .+\\n\\n20\\d\\d-\\d\\d-\\d\\d\\n`));
    const headings = headingsOf(page, 2);
    expect(headings.slice(0, 2)).toEqual(['Context', 'Decision']);
    expect(headings).toContain('Figures');
  });
});

test('the code refers to every decision, and to none that does not exist', () => {
  const names = decisions.map(({ file }) => path.basename(file));
  const files = readdirSync(path.join(ROOT, 'src'), { recursive: true, encoding: 'utf8' });
  const references = files
    .filter((file) => file.endsWith('.ts'))
    .flatMap((file) => referencesIn(readFileSync(path.join(ROOT, 'src', file), 'utf8')));
  expect(references.length).toBeGreaterThan(30);
  expect(references.filter((one) => !names.some((name) => name.startsWith(one)))).toEqual([]);
  expect(names.filter((name) => !references.some((one) => name.startsWith(one)))).toEqual([]);
});

/** Whole names, such as `0001-title.md`, and numbers in a list, such as `0001 and 0002`. */
function referencesIn(text: string): readonly string[] {
  return [...text.matchAll(/docs\/decisions\/(.*)/g)].flatMap(([, rest = '']) =>
    [...rest.matchAll(/\d{4}(?:-[\w-]+\.md|\b)/g)].map(([name]) => name),
  );
}
