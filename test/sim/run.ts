/** run — the simulator from the command line: `npm run sim -- --seed 1 --seeds 3000`. */
import { parseArgs } from 'node:util';
import { commandFor, simulate } from 'respool/testkit';

const { values } = parseArgs({
  options: { seed: { type: 'string' }, seeds: { type: 'string' } },
});
const first = Number(values.seed ?? process.env['SEED'] ?? 1);
const count = Number(values.seeds ?? 1);
const startedAt = performance.now();
let events = 0;
let starts = 0;
let violations = 0;
for (let seed = first; seed < first + count; seed += 1) {
  const report = await simulate(seed);
  events += report.events;
  starts += report.starts;
  if (count === 1) console.log(JSON.stringify(report, undefined, 2));
  if (report.violation === undefined) continue;
  violations += 1;
  const { invariant, text, atMs, step } = report.violation;
  console.log(`seed ${seed} broke "${invariant}" at ${atMs} ms, step ${step}: ${text}`);
  console.log(`  ${commandFor(seed)}`);
}
const seconds = (performance.now() - startedAt) / 1_000;
console.log(
  `${count} seeds, ${violations} violations, ${events} events, ${starts} starts, ` +
    `${seconds.toFixed(1)} s, ${Math.round(events / seconds)} events/s`,
);
process.exitCode = violations > 0 ? 1 : 0;
