/**
 * raw — the honest rival of a pair of stores: the same rows, indexes, settings and bytes, driven by a
 * bare loop. Where a server takes batches, a batch of the number in flight per step; where it does
 * not (NATS), as many callers as are in flight. No checks, no counters, no retries.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sample } from './measure.ts';
import { type Load, WARM_UP_SHARE } from './ours.ts';

/** Entries without anything around them. */
export interface RawEntries {
  /** Whether callers go one by one, each for itself. */
  readonly isSingle: boolean;
  insert(count: number): Promise<readonly unknown[]>;
  /** Makes them active, and reads what a handler is given. */
  claim(inserted: readonly unknown[]): Promise<readonly unknown[]>;
  remove(claimed: readonly unknown[]): Promise<void>;
  close(): Promise<void>;
}

/** Bodies without anything around them. */
export interface RawBodies {
  put(refs: readonly string[]): Promise<void>;
  read(refs: readonly string[]): Promise<void>;
  remove(refs: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

/** The rival of one run; bodies only where they do not ride with their entry. */
export interface Raw {
  readonly entries: RawEntries;
  readonly bodies: RawBodies | undefined;
}

export type RawMaker = (path: string, load: Load) => Promise<Raw>;

/** Messages per second: stored, or with `isWhole` also claimed, read and removed. */
export async function rawRate(make: RawMaker, load: Load, isWhole: boolean): Promise<Sample> {
  const path = mkdtempSync(join(tmpdir(), 'respool-raw-'));
  const raw = await make(path, load);
  try {
    let made = 0;
    const life = async (count: number): Promise<void> => {
      const refs = Array.from({ length: count }, () => `body-${(made += 1)}`);
      await raw.bodies?.put(refs);
      const inserted = await raw.entries.insert(count);
      if (!isWhole) return;
      const claimed = await raw.entries.claim(inserted);
      await raw.bodies?.read(refs);
      await raw.entries.remove(claimed);
      await raw.bodies?.remove(refs);
    };
    return await loop(load, raw.entries.isSingle, life);
  } finally {
    await raw.entries.close();
    await raw.bodies?.close();
    rmSync(path, { recursive: true, force: true });
  }
}

async function loop(
  { inFlight, forMs }: Load,
  isSingle: boolean,
  life: (count: number) => Promise<void>,
): Promise<Sample> {
  const beganAt = performance.now();
  const warmAt = beganAt + forMs * WARM_UP_SHARE;
  const endsAt = beganAt + forMs;
  let countsFrom = Number.POSITIVE_INFINITY;
  let done = 0;
  const caller = async (count: number): Promise<void> => {
    while (performance.now() < endsAt) {
      const isWarm = performance.now() >= warmAt;
      if (isWarm) countsFrom = Math.min(countsFrom, performance.now());
      await life(count);
      if (isWarm) done += count;
    }
  };
  const callers = isSingle ? inFlight : 1;
  await Promise.all(Array.from({ length: callers }, () => caller(inFlight / callers)));
  // A first turn that took longer than all of the time was all there was.
  if (done === 0) return { value: (inFlight / (performance.now() - beganAt)) * 1_000 };
  return { value: (done / (performance.now() - countsFrom)) * 1_000 };
}
