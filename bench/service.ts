/**
 * service — posts that `respool serve` answers with 201 on the durable store, beside a bare server
 * that reads the body and answers 201; and how many are delivered from end to end.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { postRate } from './http-load.ts';
import { type BenchOptions, runCase, type Sample } from './measure.ts';

const BODY_BYTES = 1_024;
const CONNECTIONS = [1, 50, 200];
const PATH = '/v1/topics/bench.post/messages';

/** Runs every case, or the one with a target. */
export async function serviceBench(options: BenchOptions): Promise<void> {
  const forMs = options.isQuick ? 2_000 : 4_000;
  for (const connections of options.isQuick ? [50] : CONNECTIONS) {
    const load = (port: number, ms: number) =>
      postRate({ port, path: PATH, connections, bodyBytes: BODY_BYTES, forMs: ms });
    await runCase(
      {
        bench: 'service',
        name: `service publish ${connections} 1 KiB`,
        unit: '/s',
        against: 'bare hono',
        forMs,
        ours: (ms) => withService({}, ({ port }) => load(port, ms)),
        theirs: (ms) => withChild('bare-child.ts', (port) => load(port, ms)),
      },
      options,
    );
  }
  await runCase(
    {
      bench: 'service',
      name: 'service end-to-end 50 1 KiB',
      unit: '/s',
      against: 'bare hono',
      forMs,
      ours: endToEnd,
      theirs: (ms) =>
        withChild('bare-child.ts', (port) =>
          postRate({ port, path: PATH, connections: 50, bodyBytes: BODY_BYTES, forMs: ms }),
        ),
    },
    options,
  );
}

/** Messages per second from the post to the receiver, counted there while posts go on. */
function endToEnd(forMs: number): Promise<Sample> {
  return withChild('receiver-child.ts', (receiver) => {
    const route = {
      topic: 'bench.*',
      deliver: { http: { url: `http://127.0.0.1:${receiver}/`, allow: ['127.0.0.1'] } },
      concurrency: 50,
    };
    return withService({ routes: [route] }, async ({ port }) => {
      const received = async () =>
        Number(await (await fetch(`http://127.0.0.1:${receiver}/`)).text());
      const beganAt = performance.now();
      const load = { port, path: PATH, connections: 50, bodyBytes: BODY_BYTES, forMs };
      await postRate(load);
      return { value: (await received()) / ((performance.now() - beganAt) / 1_000) };
    });
  });
}

async function withService<T>(
  config: object,
  run: (service: { readonly port: number }) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'respool-bench-service-'));
  writeFileSync(
    join(folder, 'respool.config.json'),
    JSON.stringify({ ...config, serve: { port: 0 }, log: { format: 'json' } }),
  );
  const main = join(import.meta.dirname, '../src/cli/main.ts');
  const child = start([main, 'serve', '--config', folder]);
  try {
    return await run({ port: await portOf(child) });
  } finally {
    await stop(child);
    rmSync(folder, { recursive: true, force: true });
  }
}

async function withChild<T>(file: string, run: (port: number) => Promise<T>): Promise<T> {
  const child = start([join(import.meta.dirname, file)]);
  try {
    return await run(await portOf(child));
  } finally {
    await stop(child);
  }
}

function start(words: readonly string[]): ChildProcess {
  return spawn(process.execPath, ['--conditions=respool-source', ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/** Each says on its first line where it listens. */
async function portOf(child: ChildProcess): Promise<number> {
  if (child.stdout === null) throw new Error('no output');
  for await (const line of createInterface(child.stdout)) {
    const port = /"port":\s*(\d+)|127\.0\.0\.1:(\d+)/.exec(line);
    if (port !== null) {
      child.stdout.resume();
      return Number(port[1] ?? port[2]);
    }
  }
  throw new Error('the server ended before it listened');
}

async function stop(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await ended;
}
