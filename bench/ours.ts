/**
 * ours — drives a spool as a program would: single enqueues, N of them in flight, each waiting for its
 * own answer before the next.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BodyStore, createSpool, type EntryStore, type Spool } from 'respool';
import { percentile, type Sample } from './measure.ts';

/** The stores of one run. */
export interface Stores {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  /** Removes what they left outside the folder. */
  readonly clean?: () => Promise<void>;
}

/** Makes the stores of a bench in a folder. */
export type StoreMaker = (path: string) => Stores;

/** How hard and how long. */
export interface Load {
  readonly inFlight: number;
  readonly bodyBytes: number;
  readonly forMs: number;
  /** The most bytes of a body that rides with its entry; default as the spool has it. */
  readonly inlineBytes?: number;
}

/** The limits of a spool under this load. */
export function limitsOf({ inlineBytes }: Load): { inlineBodyBytes?: number } {
  return inlineBytes === undefined ? {} : { inlineBodyBytes: inlineBytes };
}

/** Of each run: files grow, threads start, code gets hot. */
export const WARM_UP_SHARE = 0.4;

/** Accepted messages per second; nobody handles them. */
export function enqueueRate(make: StoreMaker, load: Load): Promise<Sample> {
  return withSpool(make, load, async (spool) => {
    const body = bytes(load.bodyBytes);
    return drive(load, async () => {
      await spool.enqueue({ topic: 'bench', body });
    });
  });
}

/** Messages per second from the call of enqueue to the end of their handler. */
export function endToEndRate(make: StoreMaker, load: Load): Promise<Sample> {
  return withSpool(make, load, async (spool) => {
    const body = bytes(load.bodyBytes);
    const waiting = new Map<string, () => void>();
    spool.handle('bench', async (delivery) => {
      await delivery.body();
      const key = delivery.headers['caller'] ?? '';
      waiting.get(key)?.();
      waiting.delete(key);
    });
    await spool.start();
    const sample = await drive(load, async (caller) => {
      const delivered = new Promise<void>((resolve) => waiting.set(caller, resolve));
      await spool.enqueue({ topic: 'bench', body, headers: { caller } });
      await delivered;
    });
    return sample;
  });
}

async function withSpool(
  make: StoreMaker,
  load: Load,
  run: (spool: Spool) => Promise<Sample>,
): Promise<Sample> {
  const path = mkdtempSync(join(tmpdir(), 'respool-bench-'));
  // Twice as many slots as callers: a caller comes back a moment before the slot of its last message
  // is free again, and slots are not what is measured.
  const { entries, bodies, clean } = make(path);
  const spool = createSpool({
    entries,
    bodies,
    concurrency: 2 * load.inFlight,
    limits: limitsOf(load),
  });
  try {
    await spool.count();
    return await run(spool);
  } finally {
    await spool.stop();
    await clean?.();
    rmSync(path, { recursive: true, force: true });
  }
}

/** N callers in a circle; counts what ends after the warm-up. */
async function drive(load: Load, one: (caller: string) => Promise<void>): Promise<Sample> {
  const latencies: number[] = [];
  const beganAt = performance.now();
  const countsFrom = beganAt + load.forMs * WARM_UP_SHARE;
  const endsAt = beganAt + load.forMs;
  const caller = async (_: unknown, at: number): Promise<void> => {
    for (let now = performance.now(); now < endsAt; ) {
      await one(String(at));
      const after = performance.now();
      if (now >= countsFrom) latencies.push(after - now);
      now = after;
    }
  };
  await Promise.all(Array.from({ length: load.inFlight }, caller));
  const tookMs = performance.now() - countsFrom;
  return {
    value: (latencies.length / tookMs) * 1_000,
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
  };
}

/** A body of this many bytes. */
export function bytes(count: number): Uint8Array {
  // Not all alike, so that nothing on the way can be clever about it.
  return Uint8Array.from({ length: count }, (_, at) => (at * 167 + (at >> 3)) & 0xff);
}
