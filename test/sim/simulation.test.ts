/** simulation — many small worlds, each from its seed, each seen to its end. */
import { describe, expect, test } from 'vitest';
import { commandFor, type SimReport, simulate } from 'respool/testkit';
import { longOr } from '../long.ts';
import regressions from './regressions.json' with { type: 'json' };

const SEEDS = Number(process.env['RESPOOL_SIM_SEEDS'] ?? longOr(300, 100));
const FIRST = Number(process.env['SEED'] ?? 1);
const SEEDS_PER_TEST = 50;

/** Runs a seed and fails with the way to see it again. */
async function survive(seed: number): Promise<SimReport> {
  const report = await simulate(seed);
  if (report.violation === undefined) return report;
  const { invariant, text, atMs, step } = report.violation;
  throw new Error(`"${invariant}" at ${atMs} ms, step ${step}: ${text}\n${commandFor(seed)}`);
}

describe('every promise is kept', () => {
  const reports: SimReport[] = [];

  for (let from = FIRST; from < FIRST + SEEDS; from += SEEDS_PER_TEST) {
    const to = Math.min(from + SEEDS_PER_TEST, FIRST + SEEDS) - 1;
    test(`in the worlds of seeds ${from} to ${to}`, { timeout: 600_000 }, async () => {
      for (let seed = from; seed <= to; seed += 1) reports.push(await survive(seed));
    });
  }

  test('in the worlds that once broke one', { timeout: 600_000 }, async () => {
    for (const { seed } of regressions) await survive(seed);
  });

  test('and the worlds were not idle: there were kills, power cuts, losses and repeats', () => {
    const sum = (of: (report: SimReport) => number): number =>
      reports.reduce((total, report) => total + of(report), 0);
    expect(sum((report) => report.messages)).toBeGreaterThan(10 * reports.length);
    expect(sum((report) => report.starts)).toBeGreaterThan(20 * reports.length);
    expect(sum((report) => report.kills)).toBeGreaterThan(reports.length);
    expect(sum((report) => report.powerCuts)).toBeGreaterThan(reports.length / 4);
    expect(sum((report) => report.duplicates)).toBeGreaterThan(0);
    expect(new Set(reports.map((report) => report.plan.site)).size).toBe(3);
  });
});

test('the same seed makes the same world, event by event', async () => {
  for (const seed of [7, 8, 9]) {
    expect(await simulate(seed)).toEqual(await simulate(seed));
  }
});
