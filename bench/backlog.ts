/**
 * backlog — what a large backlog costs: claims with a million deferred messages, a paused topic with
 * a hundred thousand due ones, start-up, memory, a body of one GiB in and out; claims beside a
 * million deferred ones in PostgreSQL; and the engine's looks beside a million messages that are not
 * due, with 1, 2 and 50 routes on every entry store.
 * `--case claims,paused,large-body,postgres-claims,routes` chooses; `--pairs sqlite,nats` chooses the
 * stores of `routes`, and `--quick` makes its backlog 100,000.
 *
 * Each part runs in a child process of its own, so that memory is its own.
 */

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { BenchOptions } from './measure.ts';
import { ENTRY_STORES } from './pairs.ts';

interface Line {
  readonly case: string;
  readonly unit: string;
  readonly ours: number;
  readonly against: string;
  readonly theirs: number;
}

const PARTS = ['claims', 'paused', 'large-body', 'postgres-claims', 'routes'] as const;
const ROUTES_BACKLOG = 1_000_000;
const ROUTES_BACKLOG_QUICK = 100_000;

/** Runs every part and prints its lines. */
export async function backlogBench({ isQuick, isJson, only }: BenchOptions): Promise<void> {
  // Memory is measured on the built package, as users run it; the source costs a compiler more.
  const build = fileURLToPath(new URL('../scripts/build.ts', import.meta.url));
  execFileSync(process.execPath, [build], { stdio: ['ignore', 'ignore', 'inherit'] });
  const parts = PARTS.filter((part) => only.parts.length === 0 || only.parts.includes(part));
  if (parts.length === 0) throw new Error(`there is no such case: known are ${PARTS.join(', ')}`);
  for (const part of parts) {
    if (part !== 'routes') await runChild([part], isJson);
    else {
      const backlog = isQuick ? ROUTES_BACKLOG_QUICK : ROUTES_BACKLOG;
      for (const store of storesOf(only.pairs)) {
        await runChild([part, store, String(backlog)], isJson);
      }
    }
  }
}

function storesOf(chosen: readonly string[]): readonly string[] {
  const unknown = chosen.find((name) => !ENTRY_STORES.some((store) => store === name));
  if (unknown !== undefined) {
    throw new Error(`there is no store "${unknown}": known are ${ENTRY_STORES.join(', ')}`);
  }
  return chosen.length === 0 ? ENTRY_STORES : chosen;
}

/** Runs a part in a process of its own and prints each line as it comes. */
async function runChild(words: readonly string[], isJson: boolean): Promise<void> {
  const child = fileURLToPath(new URL('backlog-child.ts', import.meta.url));
  const running = spawn(process.execPath, [child, ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(running, 'close');
  for await (const text of createInterface({ input: running.stdout })) print(text, isJson);
  const [code] = await closed;
  if (code !== 0) throw new Error(`the part ${words.join(' ')} ended with code ${code}`);
}

function print(text: string, isJson: boolean): void {
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
