/**
 * slow-child — enqueues one message after the other and says how long the event loop stood still
 * during each. Started and slowed down by slow.ts.
 */
import { writeSync } from 'node:fs';
import { type Place, spoolAt } from './places.ts';

/** What it is told. */
export interface SlowOrder {
  readonly place: Place;
  readonly path: string;
  readonly messages: number;
}

/** Far less than a standstill, and long enough not to keep a core busy. */
const LOOK_MS = 10;

const { place, path, messages } = JSON.parse(process.argv[2] ?? '') as SlowOrder;
const spool = spoolAt(place, path);
await spool.enqueue({ topic: 'slow', body: 'first' });
writeSync(1, 'ready\n');
await new Promise((resolve) => process.stdin.once('data', resolve));
process.stdin.destroy();
for (let at = 0; at < messages; at += 1) {
  const longestMs = await longestTurn(spool.enqueue({ topic: 'slow', body: `m${at}` }));
  writeSync(1, `stood ${Math.round(longestMs)}\n`);
}
writeSync(1, `kept ${(await spool.count()).incoming}\n`);
await spool.stop();

/** The longest turn of the event loop until something is done. */
async function longestTurn(work: Promise<unknown>): Promise<number> {
  const turns = { areOver: false, longestMs: 0, lastAt: performance.now() };
  const turn = (): void => {
    const now = performance.now();
    turns.longestMs = Math.max(turns.longestMs, now - turns.lastAt);
    turns.lastAt = now;
    if (!turns.areOver) setTimeout(turn, LOOK_MS);
  };
  setTimeout(turn, LOOK_MS);
  await work;
  turns.areOver = true;
  turn();
  return turns.longestMs;
}
