/**
 * backlog — what a large backlog costs: claims with a million deferred messages, a paused topic with
 * a hundred thousand due ones, start-up, memory, a body of one GiB in and out; and claims beside a
 * million deferred ones in PostgreSQL. `--case claims,paused,large-body,postgres-claims` chooses.
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

const PARTS = ['claims', 'paused', 'large-body', 'postgres-claims'] as const;

/** Runs every part and prints its lines. */
export async function backlogBench({ isJson, only }: BenchOptions): Promise<void> {
  const child = fileURLToPath(new URL('backlog-child.ts', import.meta.url));
  // Memory is measured on the built package, as users run it; the source costs a compiler more.
  const build = fileURLToPath(new URL('../scripts/build.ts', import.meta.url));
  execFileSync(process.execPath, [build], { stdio: ['ignore', 'ignore', 'inherit'] });
  const parts = PARTS.filter((part) => only.parts.length === 0 || only.parts.includes(part));
  for (const part of parts) {
    const output = execFileSync(process.execPath, [child, part], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
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
