/**
 * runs — how often a property is tried: RESPOOL_PROPERTY_RUNS, by default a thousand times.
 *
 * A failure prints its seed and path; RESPOOL_PROPERTY_SEED repeats a run.
 */
import fc from 'fast-check';

const RUNS_DEFAULT = 1_000;
const { RESPOOL_PROPERTY_RUNS: runs, RESPOOL_PROPERTY_SEED: seed } = process.env;

/** Checks that the claim holds for everything the arbitraries can make. */
export function always<Ts extends [unknown, ...unknown[]]>(
  arbitraries: { [K in keyof Ts]: fc.Arbitrary<Ts[K]> },
  claim: (...values: Ts) => void,
): void {
  fc.assert(fc.property<Ts>(...arbitraries, claim), {
    numRuns: runs === undefined ? RUNS_DEFAULT : Number(runs),
    ...(seed === undefined ? {} : { seed: Number(seed) }),
  });
}
