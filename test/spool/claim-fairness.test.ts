/** kinds — whose turn it is when slots are free. */

import { expect, test } from 'vitest';
import { type ClaimKind, KINDS, FairTurns, ClaimMixture } from '../../src/spool/claim-fairness.ts';

const [DEFERRED, INCOMING, BOUNCE] = KINDS as readonly [ClaimKind, ClaimKind, ClaimKind];
const ALL = new Set(KINDS);

test('every kind has a right to a quarter of the slots, deferred ones to half', () => {
  const shares = new FairTurns().shares(40, ALL);
  expect([DEFERRED, INCOMING, BOUNCE].map((kind) => shares.get(kind))).toEqual([20, 10, 10]);
});

test('turns go on where the last round ended', () => {
  const turns = new FairTurns();
  const rounds = [1, 2, 3, 4].map(() => [...turns.shares(1, ALL).keys()][0]);
  expect(rounds).toEqual([DEFERRED, INCOMING, DEFERRED, BOUNCE]);
});

test('rounds of one kind alone use up no turns of the others', () => {
  const turns = new FairTurns();
  const chosen = [1, 2, 3, 4].map(() => {
    const [[kind] = []] = turns.shares(1, ALL);
    // The handler is busy for as long as five rounds of notices take.
    for (let round = 0; round < 5; round += 1) turns.shares(1, new Set([BOUNCE]));
    return kind;
  });
  expect(chosen).toEqual([DEFERRED, INCOMING, DEFERRED, BOUNCE]);
});

test('a kind that had nothing due has no turn, and is looked at every 100 ms', () => {
  const turns = new FairTurns();
  turns.note(DEFERRED, 0, 1_000);
  turns.note(BOUNCE, 0, 1_000);
  expect([...turns.shares(8, ALL)]).toEqual([[INCOMING, 8]]);
  expect(turns.looks(ALL, 1_099)).toEqual([]);
  expect(turns.looks(ALL, 1_100)).toEqual([DEFERRED, BOUNCE]);
});

test('a retry that is known to be due has its turn without waiting for that', () => {
  const turns = new FairTurns();
  turns.note(DEFERRED, 0, 1_000);
  turns.noteRetry(1_030);
  turns.noteRetry(1_050);
  expect(turns.looks(ALL, 1_029)).toEqual([]);
  expect(turns.shares(4, ALL).has(DEFERRED)).toBe(false);
  expect(turns.looks(ALL, 1_030)).toEqual([]);
  expect(turns.shares(4, ALL).get(DEFERRED)).toBe(2);
  turns.note(DEFERRED, 0, 1_031);
  expect(turns.looks(ALL, 1_040)).toEqual([]);
  expect(turns.shares(4, ALL).has(DEFERRED)).toBe(false);
});

// Regression: a relay whose target comes and goes restarted them each time, and sent only retries.
test('restarts that come quicker than the turns go round leave every kind its turn', () => {
  const turns = new FairTurns();
  const taken = new Set<unknown>();
  for (let round = 0; round < 8; round += 1) {
    turns.restart();
    for (const kind of turns.shares(1, ALL).keys()) {
      taken.add(kind);
      turns.note(kind, 1, 1_000);
    }
  }
  expect(taken).toEqual(ALL);
});

test('after a restart the turns begin with retries, and all kinds have theirs', () => {
  const turns = new FairTurns();
  turns.shares(3, ALL);
  turns.note(DEFERRED, 0, 1_000);
  turns.restart();
  const rounds = [1, 2, 3, 4].map(() => [...turns.shares(1, ALL).keys()][0]);
  expect(rounds).toEqual([DEFERRED, INCOMING, DEFERRED, BOUNCE]);
});

test('a kind that had something has its turn again at once', () => {
  const turns = new FairTurns();
  turns.note(DEFERRED, 0, 1_000);
  turns.note(DEFERRED, 3, 1_010);
  expect(turns.shares(4, ALL).get(DEFERRED)).toBe(2);
});

test('when no kind had anything, all have their turns', () => {
  const turns = new FairTurns();
  for (const kind of KINDS) turns.note(kind, 0, 1_000);
  expect(turns.looks(ALL, 2_000)).toEqual([]);
  expect(turns.shares(4, ALL).size).toBe(3);
});

test('what was claimed of several kinds begins in turn', () => {
  const mixture = new ClaimMixture<string, number>(['a', 'b', 'c']);
  mixture.add('c', [7]);
  mixture.add('a', [1, 2]);
  mixture.add('a', [3]);
  mixture.add('b', [4, 5]);
  expect(mixture.size).toBe(6);
  expect(mixture.inTurn()).toEqual([1, 4, 7, 2, 5, 3]);
  expect(new ClaimMixture(['a']).inTurn()).toEqual([]);
  const twice = new ClaimMixture<string, number>(['a', 'b', 'a', 'c']);
  twice.add('c', [7, 8]);
  twice.add('a', [1, 2, 3]);
  twice.add('b', [4]);
  expect(twice.inTurn()).toEqual([1, 4, 2, 7, 3, 8]);
});

test('a clock that is set back keeps no kind from being looked at', () => {
  const turns = new FairTurns();
  turns.note(DEFERRED, 0, 3_600_000);
  turns.note(INCOMING, 8, 3_600_000);
  expect(turns.looks(ALL, 1_000)).toEqual([DEFERRED]);
});
