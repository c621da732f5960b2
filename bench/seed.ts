/**
 * seed — the workload of a published comparison of spools: N producers that wait for nothing but
 * their own answer, N slots that deliver beside them, then the rest is drained.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool } from 'respool';
import { percentile, type Sample } from './measure.ts';
import { bytes, type Load, type StoreMaker } from './ours.ts';

/**
 * End to end per second at concurrency 5, as RetrySpool published it for its pairs; its machine and
 * size of bodies are not known, and its bodies are never brought to the disk.
 */
export const PUBLISHED: ReadonlyMap<string, number> = new Map([
  ['postgres+filesystem', 425.1],
  ['postgres', 444.6],
  ['sqlite+filesystem', 73.2],
  ['filesystem', 76.8],
  ['nats', 89.3],
]);

/** Delivered messages ÷ the time from the first enqueue to the last delivery. */
export async function seedRate(make: StoreMaker, load: Load): Promise<Sample> {
  const path = mkdtempSync(join(tmpdir(), 'respool-bench-'));
  const { entries, bodies, clean } = make(path);
  const spool = createSpool({ entries, bodies, concurrency: load.inFlight });
  const body = bytes(load.bodyBytes);
  const latencies: number[] = [];
  let sent = 0;
  let isOver = false;
  let finish = (): void => undefined;
  const drained = new Promise<void>((resolve) => {
    finish = resolve;
  });
  spool.handle('bench', async (delivery) => {
    await delivery.body();
    latencies.push(performance.now() - Number(delivery.headers['at']));
    if (isOver && latencies.length === sent) finish();
  });
  try {
    await spool.start();
    const beganAt = performance.now();
    const producer = async (): Promise<void> => {
      while (performance.now() < beganAt + load.forMs) {
        sent += 1;
        const headers = { at: String(performance.now()), one: 'first', two: 'second' };
        await spool.enqueue({ topic: 'bench', body, headers });
      }
    };
    await Promise.all(Array.from({ length: load.inFlight }, producer));
    isOver = true;
    if (latencies.length < sent) await drained;
    return {
      value: (sent / (performance.now() - beganAt)) * 1_000,
      p50Ms: percentile(latencies, 0.5),
      p99Ms: percentile(latencies, 0.99),
    };
  } finally {
    await spool.stop();
    await clean?.();
    rmSync(path, { recursive: true, force: true });
  }
}
