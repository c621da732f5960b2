/**
 * run — `npm run torture -- [suite …] [--kills N] [--seed S]`.
 *
 * Runs the fault tests with their full numbers and prints a one-page verdict. Ends with 1 when a
 * promise was broken. Without a suite: all of them.
 */
import { parseArgs } from 'node:util';
import { freshSeed } from './chance.ts';
import { SUITES } from './suites.ts';
import { isClean, type Row, verdictPage } from './verdict.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { kills: { type: 'string' }, seed: { type: 'string' } },
});
const names = positionals.length === 0 ? Object.keys(SUITES) : positionals;
const unknown = names.filter((name) => !Object.hasOwn(SUITES, name));
if (unknown.length > 0) {
  const known = Object.keys(SUITES).join(', ');
  process.stderr.write(`there is no suite "${unknown.join('", "')}"; there are ${known}\n`);
  process.exit(2);
}
const seed = values.seed === undefined ? freshSeed() : wholeNumber('seed', values.seed);
const kills = values.kills === undefined ? undefined : wholeNumber('kills', values.kills);
const beganAt = performance.now();
const rows: Row[] = [];
for (const name of names) {
  process.stderr.write(`${name} (seed ${seed}) …\n`);
  rows.push(...((await SUITES[name]?.({ seed, kills })) ?? []));
}
const minutes = ((performance.now() - beganAt) / 60_000).toFixed(1);
const about = { seed: String(seed), node: process.version, took: `${minutes} min` };
process.stdout.write(`${verdictPage(rows, about)}\n`);
process.exitCode = isClean(rows) ? 0 : 1;

function wholeNumber(name: string, text: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 1) {
    process.stderr.write(`--${name} takes a whole number above 0, not "${text}"\n`);
    process.exit(2);
  }
  return number;
}
