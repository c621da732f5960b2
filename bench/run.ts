/**
 * run — `npm run bench -- <bench> [--quick] [--json]`.
 *
 * Prints ratios measured in one run: ours ÷ the raw limit of the same storage. Never passes or fails
 * by absolute time. Measure with nothing else running.
 */

import { parseArgs } from 'node:util';
import { backlogBench } from './backlog.ts';
import { serviceBench } from './service.ts';
import { spoolBench } from './spool.ts';
import { transformsBench } from './transforms.ts';

const BENCHES = {
  spool: spoolBench,
  backlog: backlogBench,
  service: serviceBench,
  transforms: transformsBench,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { quick: { type: 'boolean' }, json: { type: 'boolean' } },
});
const name = positionals[0] ?? 'spool';
const bench = Object.entries(BENCHES).find(([known]) => known === name)?.[1];
if (bench === undefined) {
  console.error(`there is no bench "${name}": known are ${Object.keys(BENCHES).join(', ')}`);
  process.exit(2);
}
await bench({ isQuick: values.quick === true, isJson: values.json === true });
