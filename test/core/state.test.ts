/** The six states and the 36 pairs between them. */
import { describe, expect, test } from 'vitest';
import { type State, stateNumber, stateOfNumber, STATES } from 'respool';
import { mayMove, type Mover, TRANSITIONS } from '../../src/core/state.ts';

const MOVERS: readonly Mover[] = ['claim', 'settle', 'operator'];

/** Rows: from. Columns: to. c claim, s settle, o operator, - nobody. */
const MATRIX = `
            incoming active deferred hold bounce archived
  incoming  -        c      -        o    o      o
  active    so       cs     s        so   so     so
  deferred  o        c      -        o    o      o
  hold      o        -      -        -    o      o
  bounce    o        c      -        o    -      o
  archived  o        -      -        o    -      -
`;

function expectations(): [State, State, readonly Mover[]][] {
  const [, head, ...rows] = MATRIX.trimEnd().split('\n');
  const columns = (head ?? '').trim().split(/\s+/) as State[];
  return rows.flatMap((row) => {
    const [from, ...cells] = row.trim().split(/\s+/) as [State, ...string[]];
    return cells.map((cell, at): [State, State, readonly Mover[]] => [
      from,
      columns[at] ?? 'incoming',
      MOVERS.filter((mover) => cell.includes(mover.slice(0, 1))),
    ]);
  });
}

describe('the transition matrix', () => {
  const pairs = expectations();

  test('has all 36 pairs', () => {
    expect(pairs).toHaveLength(36);
    expect(new Set(pairs.map(([from, to]) => `${from} ${to}`)).size).toBe(36);
  });

  test.each(pairs)('from %s to %s: %j', (from, to, movers) => {
    for (const mover of MOVERS) {
      expect(mayMove(from, to, mover), mover).toBe(movers.includes(mover));
    }
  });

  test('only a claim makes an entry active, a holder at most keeps it so', () => {
    for (const from of STATES) {
      expect(mayMove(from, 'active', 'operator')).toBe(false);
      if (from !== 'active') expect(mayMove(from, 'active', 'settle')).toBe(false);
    }
  });

  test('no claim leads anywhere but to active, and none comes from hold or archived', () => {
    for (const from of STATES) {
      for (const to of STATES) if (to !== 'active') expect(mayMove(from, to, 'claim')).toBe(false);
    }
    expect(mayMove('hold', 'active', 'claim')).toBe(false);
    expect(mayMove('archived', 'active', 'claim')).toBe(false);
  });

  test('every state can be left', () => {
    for (const from of STATES) {
      const leaves = STATES.some((to) => to !== from && TRANSITIONS[from][to] !== undefined);
      expect(leaves, from).toBe(true);
    }
  });
});

describe('the number of a state', () => {
  test.each<[State, number]>([
    ['incoming', 0],
    ['active', 1],
    ['deferred', 2],
    ['hold', 3],
    ['bounce', 4],
    ['archived', 5],
  ])('%s is %d, both ways', (state, number) => {
    expect(stateNumber(state)).toBe(number);
    expect(stateOfNumber(number)).toBe(state);
  });

  test.each([-1, 6, 0.5, Number.NaN])('%d is the number of no state', (number) => {
    expect(stateOfNumber(number)).toBeUndefined();
  });
});
