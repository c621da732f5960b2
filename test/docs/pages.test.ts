/** Every page: links that lead somewhere, words we mean, nothing about any one machine. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { configText } from '../../src/cli/commands/start/init-templates.ts';
import { anchorsOf, headingsOf, linksOf, type Page, ROOT, readPage, readPages } from './pages.ts';

const pages = readPages();
const byFile = new Map(pages.map((page) => [page.file, page]));

/** What no page says: promises nobody can keep, praise, places of one machine. */
const NEVER_SAID = [
  /exactly[- ]once/i,
  /guaranteed delivery/i,
  /never loses/i,
  /no duplicates/i,
  /linearizable/i,
  /\bsimply\b/i,
  /\bpowerful\b/i,
  /\p{Emoji_Presentation}/u,
  new RegExp(['', 'work', ''].join('/')),
  /\/home\/|\/root\/|\/tmp\//,
  // Not the room of our source.
  /(?<!stores\/)\bshared\//,
];

describe.each(pages.map((page) => [page.file, page] as const))('%s', (_, page) => {
  test('has one title and links that lead somewhere', () => {
    expect(headingsOf(page, 1)).toHaveLength(1);
    expect(linksOf(page).filter((link) => !leadsSomewhere(page, link))).toEqual([]);
  });

  test('says nothing that we do not say', () => {
    const found = NEVER_SAID.flatMap((word) => page.text.match(word)?.[0] ?? []);
    expect(found).toEqual([]);
  });
});

test('every page can be reached from README.md', () => {
  const reached = new Set(['README.md']);
  for (const file of reached) {
    const page = byFile.get(file);
    if (page === undefined) continue;
    for (const link of linksOf(page)) {
      if (!/^https?:/.test(link)) reached.add(targetOf(page, link).file);
    }
  }
  const lost = pages.map(({ file }) => file).filter((file) => !reached.has(file));
  expect(lost).toEqual([]);
});

test('docs/README.md has every page, but those that an index of their own lists', () => {
  const index = byFile.get('docs/README.md') as Page;
  const linked = new Set(linksOf(index).map((link) => targetOf(index, link).file));
  const elsewhere = ['docs/README.md', 'docs/decisions/', 'docs/reference/cli/'];
  const missing = pages
    .map(({ file }) => file)
    .filter((file) => file.startsWith('docs/') && !linked.has(file))
    .filter((file) => !elsewhere.some((start) => file.startsWith(start)));
  expect(missing).toEqual([]);
});

test('README.md is short: at most 140 lines and 15 links, ARCHITECTURE.md at most 130 lines', () => {
  const readme = readPage('README.md');
  const lines = ({ text }: Page): number => text.trimEnd().split('\n').length;
  expect(lines(readme)).toBeLessThanOrEqual(140);
  expect(linksOf(readme).length).toBeLessThanOrEqual(15);
  expect(lines(readPage('ARCHITECTURE.md'))).toBeLessThanOrEqual(130);
});

test('README.md gives the two commands word for word', () => {
  const { blocks } = readPage('README.md');
  const commands = blocks
    .filter(({ language }) => language === 'sh')
    .map(({ text }) => text.trim());
  expect(commands).toContain('npm ci && npm start');
  expect(commands).toContain('npm ci && npm test');
});

test('the configuration in README.md is the one that its commands make', () => {
  const blocks = readPage('README.md').blocks.filter(({ language }) => language === 'yaml');
  const [first] = blocks;
  expect(parse(first?.text ?? '')).toEqual(parse(configText('yaml', 7_668)));
  const commands = readPage('README.md').blocks.map(({ text }) => text);
  expect(commands.some((text) => text.includes('respool init --format yaml'))).toBe(true);
});

test('the scripts that pages name exist', () => {
  const manifest = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const named = pages.flatMap(({ text }) => [...text.matchAll(/npm run ([\w:]+)/g)]);
  expect(named.length).toBeGreaterThan(0);
  for (const [, script = ''] of named) expect(Object.keys(manifest.scripts)).toContain(script);
});

test('CHANGELOG.md speaks of the version in package.json', () => {
  const { version } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
    version: string;
  };
  const headings = headingsOf(readPage('CHANGELOG.md'), 2);
  expect(headings[0]).toBe('Unreleased');
  expect(headings.some((heading) => heading.startsWith(version))).toBe(true);
});

function leadsSomewhere(page: Page, link: string): boolean {
  if (/^https?:/.test(link)) return true;
  const { file, anchor } = targetOf(page, link);
  if (!existsSync(path.join(ROOT, file))) return false;
  const target = byFile.get(file);
  return anchor === '' || target === undefined || anchorsOf(target).has(anchor);
}

function targetOf(page: Page, link: string): { readonly file: string; readonly anchor: string } {
  const [target = '', anchor = ''] = link.split('#');
  const file = target === '' ? page.file : path.posix.join(path.posix.dirname(page.file), target);
  return { file, anchor };
}
