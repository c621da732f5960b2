/** src/<room>/README.md lists the files of the room as their heads describe them. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from './pages.ts';
import { COMMAND, roomReadmes, summaryOf } from './room-readmes.ts';

test('each room has a README, and it is current', () => {
  const stale = [...roomReadmes()].flatMap(([file, text]) => {
    const full = path.join(ROOT, file);
    return existsSync(full) && readFileSync(full, 'utf8') === text ? [] : [file];
  });
  expect(stale, `not current; write them again with: ${COMMAND}`).toEqual([]);
});

test('every file has a head that says in a sentence what it is', () => {
  const rows = [...roomReadmes()].flatMap(([file, text]) =>
    [...text.matchAll(/^\| \[(.+?)\].*? \| (.*) \|$/gm)].map(([, name, what = '']) => ({
      file: `${path.dirname(file)}/${name}`,
      what,
    })),
  );
  expect(rows.length).toBeGreaterThan(300);
  expect(rows.filter(({ what }) => what.length < 10)).toEqual([]);
});

test('a summary is the first sentence of a head, without the name of the file', () => {
  const head =
    '/**\n * table — rows under headings, e.g. `a|b`. Cut\n * to the terminal.\n *\n * More.\n */';
  expect(summaryOf(head)).toBe('Rows under headings, e.g. `a\\|b`');
  expect(summaryOf('/** pull — takes what is due */\nexport {};')).toBe('Takes what is due');
});
