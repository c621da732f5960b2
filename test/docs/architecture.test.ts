/** ARCHITECTURE.md draws the floors that test/tidy.test.ts holds, and says which rooms are built. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, readPage, tableUnder } from './pages.ts';

const page = readPage('ARCHITECTURE.md');

/** The rooms of a cell; those in brackets are planned. */
const rooms = tableUnder(page, 'Floors').flatMap(([floor = '', cell = '']) =>
  [...cell.matchAll(/`([^`]+)`/g)].map(([, room = '']) => ({
    floor,
    room,
    isPlanned: cell.startsWith('('),
  })),
);

test('every room is drawn on the floor where the tidy test keeps it', () => {
  const tidy = readFileSync(path.join(ROOT, 'test/tidy.test.ts'), 'utf8');
  const table = /const FLOORS[^=]*= \{([\s\S]*?)\n\};/.exec(tidy)?.[1] ?? '';
  const kept: string[] = [];
  for (const [, floor = '', list = ''] of table.matchAll(/(\d): \[([\s\S]*?)\]/g)) {
    for (const [, room = ''] of list.matchAll(/'([^']+)'/g)) kept.push(`${floor} ${room}`);
  }
  expect(kept.length).toBeGreaterThan(15);
  expect(rooms.map(({ floor, room }) => `${floor} ${room}`).toSorted()).toEqual(kept.toSorted());
});

test('a room in brackets is not built, every other one is', () => {
  const wrong = rooms.filter(
    ({ room, isPlanned }) => existsSync(path.join(ROOT, 'src', room)) === isPlanned,
  );
  expect(wrong).toEqual([]);
});

test('the eleven invariants are numbered', () => {
  const from = page.text.indexOf('## Invariants');
  const list = page.text.slice(from, page.text.indexOf('\n## ', from + 1));
  const numbers = [...list.matchAll(/^(\d+)\. /gm)].map(([, number]) => Number(number));
  expect(numbers).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
});
