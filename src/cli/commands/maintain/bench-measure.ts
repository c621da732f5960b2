/**
 * bench-measure — enqueue and delivery on one kind of store, in a folder that was made for it.
 */

import { open } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../../../ports/clock.ts';
import type { Spool } from '../../../spool/spool.ts';

/** Where and how long. */
export interface BenchParts {
  /** An empty folder. */
  readonly folder: string;
  readonly forMs: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** What came of one measurement. */
export interface Measured extends Percentiles {
  readonly name: string;
  readonly count: number;
  readonly tookMs: number;
}

const BODY_BYTES = 1_024;
const IN_FLIGHT = 50;
const TOPIC = 'bench.one';
/** Not counted: code that was never run is slow for a while. */
const WARM_UP_MS = 300;

/** Enqueues for a while without delivering, then for as long enqueues and delivers. */
export async function* benchStore(
  kind: 'sqlite' | 'file',
  parts: BenchParts,
): AsyncGenerator<Measured> {
  const enqueued = await withSpool(kind, 'enqueue', parts, (spool) => enqueues(spool, parts));
  yield { name: `${kind}: enqueue`, ...enqueued };
  const delivered = await withSpool(kind, 'deliver', parts, (spool) => delivers(spool, parts));
  yield { name: `${kind}: enqueue to delivered`, ...delivered };
}

type Counted = Omit<Measured, 'name'>;

async function withSpool(
  kind: 'sqlite' | 'file',
  name: string,
  { folder, clock }: BenchParts,
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
async function enqueues(spool: Spool, parts: BenchParts): Promise<Counted> {
  return keepBusy(parts, async (body) => {
    await spool.enqueue({ topic: TOPIC, body });
  });
}

/** The time from the call until a message is delivered by a handler that does nothing. */
async function delivers(spool: Spool, parts: BenchParts): Promise<Counted> {
  const early = new Set<string>();
  const waiting = new Map<string, () => void>();
  spool.handle(TOPIC, () => undefined, { concurrency: IN_FLIGHT });
  spool.on('delivered', ({ id }) => {
    const resolve = waiting.get(id);
    // A message can be delivered before its enqueue has told anybody its id.
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
  { clock, forMs, signal }: BenchParts,
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

// Where most of the measured spans lie. Pure.

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
export async function benchFsync({ folder, forMs, clock, signal }: BenchParts): Promise<Measured> {
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
