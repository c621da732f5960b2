/** Tables on narrow terminals: none is wider, and what it is read for has the room. */
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Out } from '../../src/cli/ui/output.ts';
import { type Column, pagedTable, tableOf } from '../../src/cli/ui/table.ts';
import { fill } from './fill.ts';
import { setup } from './setup.ts';

const CLI = path.join(import.meta.dirname, '../../src/cli');
const REASON = 'the other side answered 503 Service Unavailable, as it does since Monday';
const ID = '01a1e06c-024e-7719-9c3b-8ad06b36cc9c';

function outOf(columns: number | undefined): Out {
  return { columns, style: (_: string, text: string) => text } as unknown as Out;
}

function drawn(columns: readonly Column[], rows: string[][], width: number): string[] {
  return tableOf(outOf(width), columns, rows).split('\n');
}

const COLUMNS: readonly Column[] = [
  { head: 'id', isId: true },
  { head: 'died', align: 'right' },
  { head: 'place', isFlexible: true },
  { head: 'code' },
  { head: 'reason', isFlexible: true, isReason: true },
  { head: 'deaths', align: 'right', isOptional: true },
];

describe('a table that is too wide', () => {
  test('cuts places and codes, leaves columns out, and gives the rest to the reason', () => {
    const row = [ID, '3d12h', 'orders.of.the.shop', 'validation.country_missing', REASON, '12'];
    const [head, line = ''] = drawn(COLUMNS, [row], 80);
    expect(head).toMatch(/^id +died +place +code +reason$/);
    expect(line).toMatch(/^01a1e06c-024e {2}3d12h {2}orders\.… {2}validation\.… {2}the other side/);
    expect(line).toHaveLength(80);
  });

  test('takes shorter forms of its cells before anything is cut', () => {
    const when: Column = { head: 'when', shorter: (cell) => cell.slice(0, 2) };
    const columns: Column[] = [when, { head: 'why', isFlexible: true, isReason: true }];
    expect(drawn(columns, [['2m (2026-05-30)', 'away']], 20)).toEqual(['when  why', '2m    away']);
    expect(drawn(columns, [['2m (2026-05-30)', 'away']], 80)[1]).toContain('(2026-05-30)');
  });

  test('that comes in pages has one heading, and the widths of its first page', () => {
    const columns: readonly Column[] = [{ head: 'id' }, { head: 'count', align: 'right' }];
    const draw = pagedTable(outOf(40), columns);
    expect(draw([['first', '1']])).toBe('id     count\nfirst      1');
    expect(draw([['a', '22']])).toBe('a         22');
  });

  test('is never wider than the terminal, whatever is in its text', () => {
    const text = fc.string({ minLength: 0, maxLength: 90, unit: 'grapheme-ascii' });
    const rowOf = fc.tuple(text, fc.nat(99_999), text, text, text, fc.nat(99));
    fc.assert(
      fc.property(
        fc.array(rowOf, { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 72, max: 140 }),
        (given, width) => {
          const rows = given.map(([, age, place, code, reason, deaths], at) =>
            [`${ID.slice(0, 12)}${at}`, String(age), place, code, reason, String(deaths)].map(
              (cell) => cell.trim(),
            ),
          );
          for (const line of drawn(COLUMNS, rows, width)) {
            expect(line.length).toBeLessThanOrEqual(width);
          }
        },
      ),
    );
  });
});

/** Every column that is written down in the source, with its file. */
async function columnsInSource(): Promise<readonly { file: string; text: string }[]> {
  const files = (await readdir(CLI, { recursive: true })).filter((name) => name.endsWith('.ts'));
  const found: { file: string; text: string }[] = [];
  for (const file of files) {
    const source = await readFile(path.join(CLI, file), 'utf8');
    if (!/\b(?:tableOf|pagedTable|Column)\b/.test(source)) continue;
    for (const [text] of source.matchAll(/\{\s*head: [^{}]*\}/g)) found.push({ file, text });
  }
  return found;
}

test('in every table a reason is marked as what the table is read for, and an id as an id', async () => {
  const columns = await columnsInSource();
  expect(columns.length).toBeGreaterThan(80);
  for (const { file, text } of columns) {
    const head = /head: '([^']*)'/.exec(text)?.[1] ?? '';
    if (['why', 'reason', 'policy'].includes(head)) expect(text, file).toContain('isReason');
    if (['id', 'such as', 'first'].includes(head) && !text.includes('RIGHT')) {
      expect(text, file).toContain('isId');
    }
  }
});

describe('COLUMNS', () => {
  test.each(['list', 'dlq list', 'dlq groups', 'audit', 'show in-bounce in-deferred', 'config'])(
    'makes the tables of respool %s fit where stdout is no terminal',
    async (words) => {
      const shell = await setup();
      await fill(shell);
      await shell.cli(['hold', 'in-incoming', '--reason', REASON]);
      const env = { COLUMNS: '80' };
      const { stdout, code } = await shell.cli(words.split(' '), { env });
      expect(code).toBe(0);
      // Names and values in two columns are no table: nothing of them is cut.
      const tables = stdout.replaceAll(/^(?:why|last failure|digest) .*$/gm, '');
      for (const line of tables.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    },
  );

  test.each([{}, { COLUMNS: '0' }, { COLUMNS: 'wide' }])(
    'without a width of use, as in %j, nothing is cut',
    async (env) => {
      const shell = await setup();
      await fill(shell);
      await shell.cli(['hold', 'in-incoming', '--reason', REASON.repeat(3)]);
      const { stdout } = await shell.cli(['list'], { env });
      expect(stdout).toContain(REASON.repeat(3));
    },
  );

  test('is not asked with --wide', async () => {
    const shell = await setup();
    await fill(shell);
    await shell.cli(['hold', 'in-incoming', '--reason', REASON.repeat(3)]);
    const { stdout } = await shell.cli(['list', '--wide'], { env: { COLUMNS: '80' } });
    expect(stdout).toContain(REASON.repeat(3));
  });
});
