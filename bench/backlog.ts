/**
 * backlog — what a large backlog costs: claims with a million deferred messages, a paused topic with
 * a hundred thousand due ones, start-up, memory, and a body of one GiB in and out.
 *
 * Each part runs in a child process of its own, so that memory is its own.
 */

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { BenchOptions } from './measure.ts';

interface Line {
  readonly case: string;
  readonly unit: string;
  readonly ours: number;
  readonly against: string;
  readonly theirs: number;
}

const PARTS = ['claims', 'paused', 'large-body'] as const;

/** Runs every part and prints its lines. */
export async function backlogBench({ isJson, isQuick }: BenchOptions): Promise<void> {
  const child = fileURLToPath(new URL('backlog-child.ts', import.meta.url));
  for (const part of PARTS) {
    // The large ones take minutes; the quick form keeps the shape and a tenth of the size.
    const scale = isQuick ? '0.1' : '1';
    const output = execFileSync(
      process.execPath,
      ['--conditions=respool-source', '--expose-gc', child, part, scale],
      { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] },
    );
    for (const text of output.trim().split('\n')) {
      const line = JSON.parse(text) as Line;
      const ratio = Number((line.ours / line.theirs).toFixed(3));
      if (isJson) console.log(JSON.stringify({ bench: 'backlog', ...line, ratio }));
      else {
        console.log(
          `${line.case.padEnd(52)} ${line.ours} ${line.unit}  ${line.against} ${line.theirs}  ` +
            `ratio ${ratio}`,
        );
      }
    }
  }
}
