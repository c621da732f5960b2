/** The judge of the outbox runs sees every broken promise, and nothing where none is. */
import { expect, test } from 'vitest';
import { type Evidence, judgeOutbox, type Sight, type WriteOutcome } from './judge.ts';

const sight = (id: string, parts: Partial<Sight> = {}): Sight => ({
  id,
  redelivered: false,
  key: '',
  place: 0,
  ...parts,
});

const evidence = (parts: Partial<Evidence> = {}): Evidence => ({
  written: new Map<string, WriteOutcome>([
    ['a', 'committed'],
    ['b', 'rolled back'],
    ['c', 'unknown'],
  ]),
  kept: new Set(['a']),
  sights: [sight('a')],
  effects: new Map([['a', 1]]),
  left: 0,
  bound: 0,
  ...parts,
});

test('a run in which every committed message came once has nothing to complain about', () => {
  const verdict = judgeOutbox(evidence());
  expect(verdict).toEqual({
    messages: 1,
    rolledBack: 1,
    keyed: 0,
    lost: 0,
    unexpected: 0,
    duplicated: 0,
    bound: 0,
    complaints: [],
  });
});

const BROKEN: readonly (readonly [string, Partial<Evidence>, RegExp])[] = [
  ['a committed message never came', { sights: [] }, /1 committed and never published: a/],
  [
    'a rolled back one came',
    { sights: [sight('a'), sight('b')] },
    /published and not committed: b/,
  ],
  ['one came that nobody wrote', { sights: [sight('a'), sight('x')] }, /not committed: x/],
  [
    'a commit was forgotten',
    { kept: new Set(), sights: [], effects: new Map() },
    /forgotten by the database: a/,
  ],
  ['one had no effect', { effects: new Map() }, /1 committed without their effect: a/],
  ['one had two effects', { effects: new Map([['a', 2]]) }, /1 with an effect too many: a/],
  ['rows are left', { left: 3 }, /3 rows are left in the outbox/],
  ['there are more copies than faults', { sights: [sight('a'), sight('a')] }, /1 duplicates/],
  [
    'a commit without an answer was kept and never came',
    {
      kept: new Set(['a', 'c']),
      effects: new Map([
        ['a', 1],
        ['c', 1],
      ]),
    },
    /never published: c/,
  ],
  [
    'messages of a key came in another order',
    {
      kept: new Set(['a', 'c']),
      effects: new Map([
        ['a', 1],
        ['c', 1],
      ]),
      sights: [sight('c', { key: 'k', place: 2 }), sight('a', { key: 'k', place: 1 })],
    },
    /1 out of their order: a \(k 1\)/,
  ],
];

test.each(BROKEN)('it complains when %s', (_what, parts, complaint) => {
  const { complaints } = judgeOutbox(evidence(parts));
  expect(complaints).toHaveLength(1);
  expect(complaints[0]).toMatch(complaint);
});

test('what the broker gives again is no duplicate, and a later copy is no disorder', () => {
  const first = sight('a', { key: 'k', place: 1 });
  const second = sight('c', { key: 'k', place: 2 });
  const verdict = judgeOutbox(
    evidence({
      kept: new Set(['a', 'c']),
      effects: new Map([
        ['a', 1],
        ['c', 1],
      ]),
      sights: [first, { ...first, redelivered: true }, second, first],
      bound: 1,
    }),
  );
  expect(verdict).toMatchObject({ complaints: [], duplicated: 1, keyed: 2 });
});
