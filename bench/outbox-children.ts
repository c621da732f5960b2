/** outbox-children — starts relays and consumers as processes of their own, and hears them. */

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { ConsumerOrder, RelayOrder, Seen } from './outbox-words.ts';

/** A process of a run. */
export interface Crew {
  /** How many messages it has seen so far. */
  readonly count: number;
  readonly ready: Promise<void>;
  /** Ends it in order; what it saw. */
  stop(): Promise<Seen>;
}

const NOTHING: Seen = { ids: [], at: [] };

/** Starts a relay. */
export function startRelay(order: RelayOrder): Crew {
  return start('outbox-relay-child.ts', order);
}

/** Starts a consumer. */
export function startConsumer(order: ConsumerOrder): Crew {
  return start('outbox-consumer-child.ts', order);
}

function start(file: string, order: object): Crew {
  const child = spawn(
    process.execPath,
    ['--conditions=respool-source', join(import.meta.dirname, file), JSON.stringify(order)],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  );
  let count = 0;
  let seen = NOTHING;
  const { promise: ready, resolve, reject } = Promise.withResolvers<void>();
  const ended = new Promise<void>((over) => {
    child.once('close', (code) => {
      reject(new Error(`${file} ended with ${code} before it was ready`));
      over();
    });
  });
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line === 'ready') resolve();
    else if (line.startsWith('count ')) count = Number(line.slice('count '.length));
    else if (line.startsWith('seen ')) seen = JSON.parse(line.slice('seen '.length)) as Seen;
  });
  // One that is gone already is told nothing.
  child.stdin.on('error', () => undefined);
  return {
    get count() {
      return count;
    },
    ready,
    async stop() {
      child.stdin.end();
      await ended;
      return seen;
    },
  };
}
