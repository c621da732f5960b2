/** The lists of what an addition touches: each place is there, for one that was added before. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { rowsOf, withInterface } from '../../scripts/options/print.ts';
import { environmentName, keysOf } from '../../src/config/schema/keys.ts';
import { readOptions } from '../../src/core/option-table.ts';
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
  const filled = rows.map((row) => row.map((cell) => cell.replaceAll('<name>', 'nats')));
  expect(filled.flatMap(missingFiles)).toEqual([]);
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
  expect(rows.flatMap(missingFiles)).toEqual([]);
});

/** The files a row names without a folder, that are in none of its folders, nor at the top. */
function missingFiles(row: readonly string[]): string[] {
  const words = [...row.join(' ').matchAll(/`([^`]+)`/g)].map(([, word = '']) => word);
  const folders = words
    .filter((word) => word.includes('/'))
    .map((word) => (word.endsWith('/') ? word : path.dirname(word)));
  const isThere = (file: string): boolean =>
    ['', ...folders].some((folder) => existsSync(path.join(ROOT, folder, file)));
  return words.filter((word) => /^[\w.-]+\.(?:ts|json|md|txt)$/.test(word) && !isThere(word));
}

describe('an option touches five places', () => {
  const rows = tableUnder(readPage('CONTRIBUTING.md'), 'An option');

  test('and each of them exists', () => {
    expect(rows.map(([number]) => number)).toEqual(['1', '2', '3', '4', '5']);
    const words = rows.flatMap((row) => [...row.join(' ').matchAll(/`([^`]+)`/g)]);
    const paths = words.flatMap(([, word = '']) => (/^(?:src|test)\//.test(word) ? [word] : []));
    expect(paths.length).toBeGreaterThan(6);
    const isThere = (one: string): boolean =>
      existsSync(path.join(ROOT, one.replace('<room>', 'spool')));
    expect(paths.filter((one) => !isThere(one))).toEqual([]);
    const { scripts } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
      scripts: Readonly<Record<string, string>>;
    };
    expect(scripts).toHaveProperty('options');
  });

  test('and everything else follows from its row', () => {
    const table = {
      patience: {
        kind: 'duration',
        min: '1s',
        max: '1h',
        default: '10s',
        about: 'how long to wait',
      },
    } as const;
    const source = 'export interface One {\n}\n';
    expect(withInterface(source, 'One', table)).toBe(
      'export interface One {\n' +
        '  // Written by `npm run options`: edit the table of options instead.\n' +
        '  /** How long to wait. 1s to 1h; default 10s. */\n' +
        '  readonly patience?: Duration;\n}\n',
    );
    expect(rowsOf(table)).toEqual([
      '| `patience` | duration, 1s to 1h | `10s` | how long to wait |',
    ]);
    expect(readOptions({ what: 'one' }, {}, table)).toEqual({ patienceMs: 10_000 });
    expect(() => readOptions({ what: 'one' }, { patience: '2h' }, table)).toThrow(
      'cannot use "2h" as "patience": allowed is 1s to 1h',
    );
    expect(keysOf({ waiting: { kind: 'group', about: 'x', options: table } }, '')).toMatchObject([
      { key: 'waiting.patience', kind: 'duration', byDefault: '10s' },
    ]);
    expect(environmentName('waiting.patience')).toBe('RESPOOL_WAITING_PATIENCE');
  });
});
