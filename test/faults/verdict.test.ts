/** The page that a torture run ends with. */
import { expect, test } from 'vitest';
import { isClean, type Row, verdictPage } from '../torture/verdict.ts';

const ROW: Row = {
  suite: 'crash',
  place: 'sqlite',
  faults: 500,
  messages: 40_000,
  lost: 0,
  duplicated: 712,
  bound: 4_100,
  unexpected: 0,
  corrupt: 0,
  worstRecoveryMs: 212,
  complaints: [],
};

test('a clean run says so, with its numbers', () => {
  const page = verdictPage([ROW], { seed: '7' });
  expect(page).toMatchInlineSnapshot(`
    "respool torture: seed 7

    suite  store   faults  messages  lost  duplicated (bound)  unexpected  corrupt  recovery  verdict
    crash  sqlite  500     40000     0     712 (4100)          0           0        212 ms    ok

    no promise was broken"
  `);
  expect(isClean([ROW])).toBe(true);
});

test('a violation is named, and many are cut short', () => {
  const bad = { ...ROW, lost: 30, complaints: Array.from({ length: 30 }, () => 'one was lost') };
  const page = verdictPage([ROW, bad], { seed: '7' });
  expect(page).toContain('VIOLATED');
  expect(page).toContain('  crash sqlite: one was lost');
  expect(page).toContain('and 5 more');
  expect(isClean([bad])).toBe(false);
});

test('what was skipped says why', () => {
  const skipped = { ...ROW, suite: 'powercut', skipped: 'only root may mount a file system' };
  const page = verdictPage([skipped], {});
  expect(page).toContain('skipped: only root may mount a file system');
});
