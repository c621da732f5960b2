/**
 * transforms — bytes per second through each transform beside the one-shot call of its library, and
 * how long it keeps the event loop from turning.
 *
 * Ours goes the way of a stream: one part up to 64 KiB, parts of 64 KiB above. A new transform gets
 * its own file like transform-codecs.ts and a line in `STEPS`.
 */

import { createHash, hash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { type BenchOptions, runCase, type Sample } from './measure.ts';
import { cipherSteps } from './transform-ciphers.ts';
import { codecSteps } from './transform-codecs.ts';
import { partsOf, sampleBody, type TransformStep } from './transform-step.ts';

const KIB = 1_024;
const SIZES = [
  { words: '1 KiB', bytes: KIB, isQuick: false },
  { words: '64 KiB', bytes: 64 * KIB, isQuick: true },
  { words: '1 MiB', bytes: 1_024 * KIB, isQuick: true },
];
/**
 * Many short rounds: whoever else wants the processor takes it for longer than a body needs, and
 * spoils a few of them on either side, not the median. Short beside a drift, and long enough that
 * each side collects its own garbage, which V8 does about every 40 ms here.
 */
const ROUNDS = { forMs: 100, rounds: 15 } as const;
const QUICK_ROUNDS = { forMs: 40, rounds: 7 } as const;
/** Longer than this, nothing may keep others from their turn. */
const BLOCK_LIMIT_MS = 20;
/** Bodies while turns are watched: one that goes in one call, and one that streams. */
const WATCHED_BYTES = [1_024 * KIB, 8 * 1_024 * KIB];
const WATCHES = 3;

/** Measured apart, because it is the same for every transform. */
const digestSteps: readonly TransformStep[] = [
  {
    name: 'sha256 digest',
    prepare: async (body) => ({
      ours: async () => {
        const digest = createHash('sha256');
        for await (const part of partsOf(body)) digest.update(part);
        return digest.digest();
      },
      theirs: () => hash('sha256', body, 'buffer'),
    }),
  },
];

const STEPS: readonly TransformStep[] = [...codecSteps, ...cipherSteps, ...digestSteps];

/** Runs every case, or those with a target. */
export async function transformsBench(options: BenchOptions): Promise<void> {
  const { parts, sizes } = options.only;
  const fits = (list: readonly string[], name: string): boolean =>
    list.length === 0 || list.some((part) => name.includes(part));
  const isChosen = (name: string): boolean => fits(parts, name) && fits(sizes, name);
  const { forMs, rounds } = options.isQuick ? QUICK_ROUNDS : ROUNDS;
  for (const step of STEPS) {
    for (const { words, bytes, isQuick } of SIZES) {
      const name = `${step.name} 1 ${words}`;
      if ((options.isQuick && !isQuick) || !isChosen(name)) continue;
      const { ours, theirs } = await step.prepare(sampleBody(bytes));
      await runCase(
        {
          bench: 'transforms',
          name,
          unit: 'MB/s',
          against: 'one-shot',
          forMs,
          rounds,
          ours: (ms) => rate(ours, bytes, ms),
          theirs: (ms) => rate(theirs, bytes, ms),
        },
        options,
      );
    }
  }
  for (const step of STEPS) {
    const isAny = SIZES.some(({ words }) => isChosen(`${step.name} 1 ${words}`));
    if (isAny) reportBlock(step.name, await longestBlockMs(step), options);
  }
}

/** One body after the other. */
async function rate(call: () => unknown, bytes: number, forMs: number): Promise<Sample> {
  const beganAt = performance.now();
  let count = 0;
  let spentMs = 0;
  while (spentMs < forMs) {
    await call();
    count += 1;
    spentMs = performance.now() - beganAt;
  }
  return { value: (count * bytes) / 1e6 / (spentMs / 1_000) };
}

/** The longest work without a turn of the event loop; the median of some tries. */
async function longestBlockMs(step: TransformStep): Promise<number> {
  const works = await Promise.all(WATCHED_BYTES.map((bytes) => step.prepare(sampleBody(bytes))));
  const longest: number[] = [];
  for (let watch = 0; watch < WATCHES; watch += 1) {
    const state = { isOver: false };
    const watcher = longestTurnMs(state);
    for (const { ours } of works) {
      await ours();
      await turn();
    }
    state.isOver = true;
    longest.push(await watcher);
  }
  return longest.toSorted((a, b) => a - b)[WATCHES >> 1] ?? Number.NaN;
}

async function longestTurnMs(state: { readonly isOver: boolean }): Promise<number> {
  let longestMs = 0;
  let turnedAtMs = workedMs();
  while (!state.isOver) {
    await turn();
    const nowMs = workedMs();
    longestMs = Math.max(longestMs, nowMs - turnedAtMs);
    turnedAtMs = nowMs;
  }
  return longestMs;
}

/** What this thread has worked so far: waiting for a processor that others use is no block. */
function workedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

function reportBlock(name: string, ms: number, { isJson }: BenchOptions): void {
  const what = `${name} longest block`;
  if (isJson) {
    console.log(
      JSON.stringify({
        bench: 'transforms',
        case: what,
        unit: 'ms',
        ours: Number(ms.toFixed(2)),
        against: 'limit',
        theirs: BLOCK_LIMIT_MS,
        ratio: Number((ms / BLOCK_LIMIT_MS).toFixed(3)),
      }),
    );
    return;
  }
  console.log(`${what.padEnd(34)} ${ms.toFixed(2).padStart(9)} ms  limit ${BLOCK_LIMIT_MS}`);
}
