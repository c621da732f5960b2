/**
 * run — `npm run bench -- <bench> [--quick] [--json]`; for `stores` also `[--pairs postgres,nats+s3]
 * [--in-flight 1,50] [--sizes "1 KiB,1 MiB"] [--case end-to-end]`, each a list with commas; the
 * last three for `outbox`, too.
 *
 * Prints ratios measured in one run: ours ÷ the raw limit of the same storage. Never passes or fails
 * by absolute time. Measure with nothing else running.
 */

import { parseArgs } from 'node:util';
import { backlogBench } from './backlog.ts';
import { deadLettersBench } from './deadletters.ts';
import { observeBench } from './observe.ts';
import { outboxBench } from './outbox.ts';
import { rabbitBench } from './rabbit.ts';
import { serviceBench } from './service.ts';
import { spoolBench } from './spool.ts';
import { storesBench } from './stores.ts';
import { transformsBench } from './transforms.ts';

const BENCHES = {
  spool: spoolBench,
  backlog: backlogBench,
  service: serviceBench,
  transforms: transformsBench,
  stores: storesBench,
  rabbit: rabbitBench,
  outbox: outboxBench,
  deadletters: deadLettersBench,
  observe: observeBench,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean' },
    json: { type: 'boolean' },
    pairs: { type: 'string' },
    'in-flight': { type: 'string' },
    sizes: { type: 'string' },
    case: { type: 'string' },
  },
});
const name = positionals[0] ?? 'spool';
const bench = Object.entries(BENCHES).find(([known]) => known === name)?.[1];
if (bench === undefined) {
  console.error(`there is no bench "${name}": known are ${Object.keys(BENCHES).join(', ')}`);
  process.exit(2);
}
const list = (text = ''): string[] =>
  text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
await bench({
  isQuick: values.quick === true,
  isJson: values.json === true,
  only: {
    pairs: list(values.pairs),
    inFlight: list(values['in-flight']),
    sizes: list(values.sizes),
    parts: list(values.case),
  },
});
