/**
 * long — what `npm test` leaves to the longer runs: `npm run test:long`, `npm run test:rabbit`.
 *
 * A reduced test still fails for what it is there for; the longer run looks at more of the same.
 */
import type { SuiteCase } from 'respool/testkit';

/** Whether everything is to be run, however long it takes. */
export const isLongRun: boolean = process.env['RESPOOL_TEST_LONG'] === '1';

/** A number of kills, messages or bytes: that of the longer runs, and that of `npm test`. */
export function longOr(inLongRun: number, here: number): number {
  return isLongRun ? inLongRun : here;
}

/**
 * What the way to a store can spoil: closing and opening, syncs, many calls at once, values that
 * are copied on the way, errors. What a claim or a list finds does not depend on it.
 */
const ON_THE_WAY = new RegExp(
  [
    'clos|open|surviv|flush|lazy|damaged|holder',
    'at once|same time|one call|many|in turn|seed 1\\b',
    'unchanged|read back|byte|told|refused|fails?\\b',
  ].join('|'),
);

/** Cases of a suite, for a store that has passed all of them on another way. */
export function casesOnTheWay(cases: readonly SuiteCase[]): readonly SuiteCase[] {
  return isLongRun ? cases : cases.filter(({ name }) => ON_THE_WAY.test(name));
}
