/**
 * bench — how fast this machine and this disk are: an fsync, and enqueue and delivery in SQLite and
 * in files, in a temporary folder that is removed afterwards.
 */

import { mkdtemp, open, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { endedBy } from '../../exit-codes.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { createProgress } from '../../ui/progress.ts';
import { type Column, tableOf } from '../../ui/table.ts';
import { SECOND_MS } from '../../../core/duration.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { Clock } from '../../../ports/clock.ts';
import type { Spool } from '../../../spool/spool.ts';

/** Also in the text of `--seconds`; times CASES in docs/performance.md. */
const SECONDS_DEFAULT = 3;
const SECONDS_MAX = 60;
/** What is measured: the disk, and two things on each of two stores. */
const CASES = 5;
const FIRST_LOOK_MS = 600;

/** `respool bench` */
export const benchCommand: CommandSpec = {
  name: 'bench',
  summary: 'measure the disk and the stores of this machine',
  group: 'Maintain',
  description:
    'Measures in a temporary folder beside the configured store, and so on the same disk, ' +
    'how long an fsync takes, and how many messages of 1 KiB are enqueued and delivered ' +
    'with 50 in flight, in SQLite and in files. The handler does nothing. Your messages are ' +
    'not touched.',
  options: [
    {
      flags: '--seconds <count>',
      description:
        `seconds for each of the five measurements, 1 to ${SECONDS_MAX}; ` +
        `default ${SECONDS_DEFAULT}`,
    },
  ],
  examples: [{ line: 'respool bench --seconds 10', does: 'a longer measurement, about a minute' }],
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

async function measureAll({ io, out }: CommandContext, parts: BenchOptions): Promise<void> {
  const measured: Measured[] = [];
  const bar = createProgress(io, out);
  // Each takes seconds: the bar is shown before the first one ends.
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
  await out.line(tableOf(out, COLUMNS, rows));
  out.note('A sample of this machine at this hour: whatever else runs here is in it.');
}

async function* measureEach(parts: BenchOptions): AsyncGenerator<Measured> {
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
  const { config, folder } = await context.config({ routes: false });
  const { storesOf } = await import('../../../config/open/stores.ts');
  const { place } = await storesOf(config, folder);
  let at = place.path === undefined ? context.io.cwd : path.dirname(place.path);
  while (!(await isFolder(at)) && at !== path.dirname(at)) at = path.dirname(at);
  return at;
}

async function isFolder(at: string): Promise<boolean> {
  return stat(at).then(
    (match) => match.isDirectory(),
    () => false,
  );
}

/** Where and how long. */
interface BenchOptions {
  /** An empty folder. */
  readonly folder: string;
  readonly forMs: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** What came of one measurement. */
interface Measured extends Percentiles {
  readonly name: string;
  readonly count: number;
  readonly tookMs: number;
}

/** Both also in the description above. */
const BODY_BYTES = 1_024;
const IN_FLIGHT = 50;
const TOPIC = 'bench.one';
/** Not counted: code that was never run is slow for a while. */
const WARM_UP_MS = 300;

/** Enqueues for a while without delivering, then for as long enqueues and delivers. */
async function* benchStore(kind: 'sqlite' | 'file', parts: BenchOptions): AsyncGenerator<Measured> {
  const enqueued = await withSpool(kind, 'enqueue', parts, (spool) => enqueues(spool, parts));
  yield { name: `${kind}: enqueue`, ...enqueued };
  const delivered = await withSpool(kind, 'deliver', parts, (spool) => delivers(spool, parts));
  yield { name: `${kind}: enqueue to delivered`, ...delivered };
}

type Counted = Omit<Measured, 'name'>;

async function withSpool(
  kind: 'sqlite' | 'file',
  name: string,
  { folder, clock }: BenchOptions,
  measure: (spool: Spool) => Promise<Counted>,
): Promise<Counted> {
  const { storesOf } = await import('../../../config/open/stores.ts');
  const { createSpool } = await import('../../../spool/spool.ts');
  const place = path.join(folder, `${kind}-${name}`);
  const { entries, bodies } = await storesOf({ store: `${kind}:${place}` }, folder);
  const spool = createSpool({ entries, bodies, clock, concurrency: IN_FLIGHT });
  try {
    return await measure(spool);
  } finally {
    await spool.stop({ within: 0 });
  }
}

/** The time from the call until the message is ours. */
async function enqueues(spool: Spool, parts: BenchOptions): Promise<Counted> {
  return keepBusy(parts, async (body) => {
    await spool.enqueue({ topic: TOPIC, body });
  });
}

/** The time from the call until a message is delivered by a handler that does nothing. */
async function delivers(spool: Spool, parts: BenchOptions): Promise<Counted> {
  const early = new Set<string>();
  const waiting = new Map<string, () => void>();
  spool.handle(TOPIC, () => undefined, { concurrency: IN_FLIGHT });
  spool.on('delivered', ({ id }) => {
    const resolve = waiting.get(id);
    // A message can be delivered before its enqueue has returned the id.
    if (resolve === undefined) early.add(id);
    else resolve();
  });
  await spool.start();
  return keepBusy(parts, async (body) => {
    const { id } = await spool.enqueue({ topic: TOPIC, body });
    if (early.delete(id)) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.set(id, resolve);
    await promise;
    waiting.delete(id);
  });
}

/** Fifty callers, each with its next call when the one before is done, until the time is over. */
async function keepBusy(
  { clock, forMs, signal }: BenchOptions,
  call: (body: Uint8Array) => Promise<void>,
): Promise<Counted> {
  const body = Buffer.alloc(BODY_BYTES, 'respool');
  const beginsAt = clock.monotonic() + WARM_UP_MS;
  const spansMs: number[] = [];
  const caller = async (): Promise<void> => {
    for (;;) {
      signal.throwIfAborted();
      const before = clock.monotonic();
      // At least one is measured, also where the first calls took longer than all of the time.
      if (before >= beginsAt + forMs && spansMs.length > 0) return;
      await call(body);
      if (before >= beginsAt) spansMs.push(clock.monotonic() - before);
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, caller));
  const tookMs = clock.monotonic() - beginsAt;
  return { count: spansMs.length, tookMs, ...spreadOf(spansMs) };
}

// Percentiles of the measured durations. Pure.

/** Spans in milliseconds, by how many of them are shorter. */
interface Percentiles {
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Half and nearly all of them are not longer than this. */
function spreadOf(spansMs: readonly number[]): Percentiles {
  const sorted = spansMs.toSorted((a, b) => a - b);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] ?? 0;
  return { p50Ms: at(0.5), p99Ms: at(0.99) };
}

// How long this disk takes to say that a small write is safe.

const BLOCK_BYTES = 4_096;

/** Writes 4 KiB and syncs it, one after the other. */
async function benchFsync({ folder, forMs, clock, signal }: BenchOptions): Promise<Measured> {
  const block = Buffer.alloc(BLOCK_BYTES, 'respool');
  const handle = await open(path.join(folder, 'fsync'), 'w');
  const spansMs: number[] = [];
  const startedAt = clock.monotonic();
  try {
    while (clock.monotonic() - startedAt < forMs) {
      signal.throwIfAborted();
      const before = clock.monotonic();
      await handle.write(block);
      await handle.sync();
      spansMs.push(clock.monotonic() - before);
    }
  } finally {
    await handle.close();
  }
  const tookMs = clock.monotonic() - startedAt;
  return { name: 'fsync 4 KiB', count: spansMs.length, tookMs, ...spreadOf(spansMs) };
}
