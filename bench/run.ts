/**
 * run — `npm run bench -- <bench> [--quick] [--json]`; for `stores` also `[--pairs postgres,nats+s3]
 * [--in-flight 1,50] [--sizes "1 KiB,1 MiB"] [--case end-to-end]`, each a list with commas; the
 * last three for `outbox`, the last two for `transforms`, too.
 *
 * Prints ratios measured in one run: ours ÷ the raw limit of the same storage. Never passes or fails
 * by absolute time. Measure with nothing else running.
 */

import { parseArgs } from 'node:util';
import type { BenchOptions } from './measure.ts';

type Bench = (options: BenchOptions) => Promise<void>;

/** Only the one that is asked for: what others load would be garbage to look through. */
const BENCHES: Readonly<Record<string, () => Promise<Bench>>> = {
  spool: async () => (await import('./spool.ts')).spoolBench,
  backlog: async () => (await import('./backlog.ts')).backlogBench,
  service: async () => (await import('./service.ts')).serviceBench,
  transforms: async () => (await import('./transforms.ts')).transformsBench,
  stores: async () => (await import('./stores.ts')).storesBench,
  rabbit: async () => (await import('./rabbit.ts')).rabbitBench,
  outbox: async () => (await import('./outbox.ts')).outboxBench,
  deadletters: async () => (await import('./deadletters.ts')).deadLettersBench,
  observe: async () => (await import('./observe.ts')).observeBench,
  import: async () => (await import('./import.ts')).importBench,
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
const load = Object.entries(BENCHES).find(([known]) => known === name)?.[1];
if (load === undefined) {
  console.error(`there is no bench "${name}": known are ${Object.keys(BENCHES).join(', ')}`);
  process.exit(2);
}
const list = (text = ''): string[] =>
  text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
const bench = await load();
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
