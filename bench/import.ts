/**
 * import — how often a second the built package can be imported, each time in a process of its
 * own, beside zod, a package of about the same weight.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';
import { type BenchOptions, runCase, type Sample } from './measure.ts';

const BUILT = path.join(import.meta.dirname, '../dist/index.js');

/** In a process of its own: prints the milliseconds of one import. */
const PROGRAM = `
const before = performance.now();
await import(process.argv[1]);
process.stdout.write(String(performance.now() - before));
`;

/** Imports of both in turns. */
export async function importBench(options: BenchOptions): Promise<void> {
  if (!existsSync(BUILT)) throw new Error('there is no dist/index.js: run "npm run build" first');
  const forMs = options.isQuick ? 2_000 : 4_000;
  await runCase(
    {
      bench: 'import',
      name: 'import respool',
      unit: '/s',
      against: 'zod',
      forMs,
      wanted: 0.8,
      ours: (ms) => importsOf(pathToFileURL(BUILT).href, ms),
      theirs: (ms) => importsOf('zod', ms),
    },
    options,
  );
}

/** Imports one after the other, for about so long; the rate is that of the median import. */
async function importsOf(specifier: string, forMs: number): Promise<Sample> {
  const tookMs: number[] = [];
  const endMs = performance.now() + forMs;
  do tookMs.push(await importOnce(specifier));
  while (performance.now() < endMs);
  const p50Ms = tookMs.toSorted((a, b) => a - b)[Math.floor(tookMs.length / 2)] ?? Number.NaN;
  return { value: 1_000 / p50Ms, p50Ms };
}

async function importOnce(specifier: string): Promise<number> {
  // A compile cache would be of more use to the one that was there before.
  const env = { ...process.env, NODE_DISABLE_COMPILE_CACHE: '1' };
  const args = ['--input-type=module', '--eval', PROGRAM, specifier];
  const child = spawn(process.execPath, args, {
    cwd: path.join(import.meta.dirname, '..'),
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [printed] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  return Number(printed);
}
