/** bench — how fast this machine and this disk are, in a folder of its own that goes away again. */

import { mkdtemp, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { SECOND_MS } from '../../../core/duration.ts';
import type { BenchParts, Measured } from './bench-measure.ts';
import { readConfig } from '../../config.ts';
import { endedBy } from '../../exit-codes.ts';
import { createProgress } from '../../ui/progress.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';

const SECONDS_DEFAULT = 3;
const SECONDS_MAX = 60;
/** What is measured: the disk, and two things on each of two stores. */
const CASES = 5;
const FIRST_LOOK_MS = 600;

/** `respool bench` */
export const bench: CommandSpec = {
  name: 'bench',
  summary: 'measure the disk and the stores of this machine',
  group: 'Maintain',
  description:
    'Measures in a temporary folder beside the configured store, so on the same disk: how long ' +
    'an fsync takes, and how many messages of 1 KiB are enqueued and delivered with 50 in ' +
    'flight, in SQLite and in files. The handler does nothing. Your messages are not touched.',
  options: [
    {
      flags: '--seconds <count>',
      description: `for each of the five, 1 to ${SECONDS_MAX}; default ${SECONDS_DEFAULT}`,
    },
  ],
  examples: [{ line: 'respool bench --seconds 10', does: 'a longer look, about a minute' }],
  run: async (context) => {
    const { options, io, out } = context;
    const seconds = options.number('seconds', { min: 1, max: SECONDS_MAX }) ?? SECONDS_DEFAULT;
    const stop = new AbortController();
    let stoppedBy: 'SIGINT' | 'SIGTERM' | undefined;
    context.atEnd(
      io.onSignal((signal) => {
        stoppedBy ??= signal;
        stop.abort();
      }),
    );
    const folder = await mkdtemp(path.join(await besideStore(context), '.respool-bench-'));
    try {
      out.note(`measuring in ${safe(folder)}, ${seconds} s each`);
      await measureAll(context, {
        folder,
        forMs: seconds * SECOND_MS,
        clock: io.clock,
        signal: stop.signal,
      });
    } catch (error) {
      if (stoppedBy === undefined) throw error;
      throw endedBy(stoppedBy, '; the temporary folder is removed');
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
    return undefined;
  },
};

async function measureAll({ io, out }: CommandContext, parts: BenchParts): Promise<void> {
  const measured: Measured[] = [];
  const bar = createProgress(io, out);
  // Each takes seconds: nobody should wait for the end of the first to see that there is a bar.
  const callOff = io.clock.after(FIRST_LOOK_MS, () => bar.show(measured.length, CASES));
  try {
    for await (const one of measureEach(parts)) {
      measured.push(one);
      bar.show(measured.length, CASES);
    }
  } finally {
    callOff();
    bar.clear();
  }
  if (out.json) {
    for (const one of measured) {
      const { name, count, tookMs, p50Ms, p99Ms } = one;
      const spans = { tookMs: micros(tookMs), p50Ms: micros(p50Ms), p99Ms: micros(p99Ms) };
      await out.object({ id: name, perSecond: perSecond(one), count, ...spans });
    }
    return;
  }
  const rows = measured.map((one) => [
    one.name,
    perSecond(one).toLocaleString('en'),
    millis(one.p50Ms),
    millis(one.p99Ms),
  ]);
  await out.line(await tableOf(out, COLUMNS, rows));
  out.note('A sample of this machine at this hour: whatever else runs here is in it.');
}

async function* measureEach(parts: BenchParts): AsyncGenerator<Measured> {
  const { benchFsync } = await import('./bench-measure.ts');
  const { benchStore } = await import('./bench-measure.ts');
  yield await benchFsync(parts);
  yield* benchStore('sqlite', parts);
  yield* benchStore('file', parts);
}

const COLUMNS: readonly Column[] = [
  { head: 'what' },
  { head: 'per second', align: 'right' },
  { head: 'p50', align: 'right' },
  { head: 'p99', align: 'right' },
];

function perSecond({ count, tookMs }: Measured): number {
  return tookMs <= 0 ? 0 : Math.round((count * SECOND_MS) / tookMs);
}

/** Milliseconds to three places: more is noise. */
function micros(ms: number): number {
  return Number(ms.toFixed(3));
}

function millis(ms: number): string {
  return `${ms.toFixed(2)} ms`;
}

/** The nearest folder above the store that is there; the working directory for memory. */
async function besideStore(context: CommandContext): Promise<string> {
  const { config, folder } = await readConfig(context, {}, { routes: false });
  const { storesOf } = await import('../../../config/open/stores.ts');
  const { place } = await storesOf(config, folder);
  let at = place.path === undefined ? context.io.cwd : path.dirname(place.path);
  while (!(await isFolder(at)) && at !== path.dirname(at)) at = path.dirname(at);
  return at;
}

async function isFolder(at: string): Promise<boolean> {
  return stat(at).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
