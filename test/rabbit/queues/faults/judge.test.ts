/** The judge of the fault tests of dead letters finds each fault, and none where there is none. */
import { expect, test } from 'vitest';
import { type Evidence, judgeLetters } from './judge.ts';
import type { Laid, Seen } from './stock.ts';

const LAID: readonly Laid[] = ['a', 'b', 'c', 'd'].map((id, at) => ({
  id,
  isOver: at % 2 === 1,
  sha256: `body ${id}`,
  look: `look ${id}`,
}));

const seen = (...ids: readonly string[]): Seen[] =>
  ids.map((id) => ({ id, sha256: `body ${id}`, look: `look ${id}`, headers: {} }));

function judged(change: Partial<Evidence>) {
  return judgeLetters({
    laid: LAID,
    left: seen('a', 'c'),
    moved: seen('b', 'd'),
    mayLie: ({ isOver }, where) => isOver === (where === 'moved'),
    bound: 0,
    ...change,
  });
}

test('letters that are all where they belong, in order, are well', () => {
  expect(judged({})).toEqual({
    messages: 4,
    lost: 0,
    duplicated: 0,
    bound: 0,
    unexpected: 0,
    corrupt: 0,
    complaints: [],
  });
});

test.each<[string, Partial<Evidence>, object]>([
  ['lost', { left: seen('a') }, { lost: 1 }],
  ['unknown', { moved: seen('b', 'd', 'x') }, { unexpected: 1 }],
  [
    'moved and should have stayed',
    { left: seen('a'), moved: seen('b', 'c', 'd') },
    { unexpected: 1 },
  ],
  ['left and should have gone', { left: seen('a', 'b', 'c'), moved: seen('d') }, { unexpected: 1 }],
  ['out of order', { left: seen('c', 'a') }, { unexpected: 1 }],
  ['twice beyond the bound', { moved: seen('b', 'b', 'd') }, { duplicated: 1 }],
  [
    'with another body',
    { left: [...seen('a'), { ...LAID[2], sha256: '?', headers: {} } as Seen] },
    { corrupt: 1 },
  ],
  [
    'with other headers',
    { left: [...seen('a'), { ...LAID[2], look: '?', headers: {} } as Seen] },
    { corrupt: 1 },
  ],
])('a letter that is %s is complained about', (_what, change, found) => {
  const verdict = judged(change);
  expect(verdict).toMatchObject(found);
  expect(verdict.complaints).toHaveLength(1);
});

test('a letter that is there twice within the bound is counted and no complaint', () => {
  expect(judged({ moved: seen('b', 'b', 'd'), bound: 1 })).toMatchObject({
    duplicated: 1,
    complaints: [],
  });
});
