/**
 * thread — the store's end of the thread that does its file work.
 *
 * entry-store.ts calls it. Requests are answered in turn. Promise: if the thread dies, every
 * waiting and every later request fails with `store.unavailable`; none waits for ever.
 */

import { Worker } from 'node:worker_threads';
import type { RespoolError } from '../../core/errors.ts';
import type {
  Batch,
  BatchDone,
  Damage,
  DiskReply,
  DiskRequest,
  FoundFile,
  SyncMode,
} from './disk-protocol.ts';
import { storeError } from './errors.ts';

/** The file work, as the store sees it. */
export interface DiskThread {
  run(batch: Batch): Promise<BatchDone>;
  /** Reads everything that is there; the answer tells what had to be put aside, now and before. */
  scan(onFound: (files: readonly FoundFile[]) => void): Promise<readonly Damage[]>;
  discard(paths: readonly string[]): Promise<void>;
  /** Brings everything to the disk, tidies up and ends the thread. */
  close(): Promise<void>;
}

interface Waiting {
  readonly doing: string;
  readonly onFound?: (files: readonly FoundFile[]) => void;
  readonly resolve: (reply: DiskReply) => void;
  readonly reject: (error: Error) => void;
}

/** Starts the thread for the store in `path`. */
export function startDiskThread(options: {
  readonly path: string;
  readonly sync: SyncMode;
  readonly spareMax: number;
}): DiskThread {
  const isSource = import.meta.url.endsWith('.ts');
  const url = isSource
    ? new URL('./worker.ts', import.meta.url)
    : new URL('./worker.js', import.meta.url);
  const worker = new Worker(url, { workerData: options, name: 'respool-disk', execArgv: [] });
  const waiting: Waiting[] = [];
  let ended: RespoolError | undefined;

  function end(cause: unknown): void {
    ended ??= storeError(`work on the files of "${options.path}"`, cause);
    for (const { reject } of waiting.splice(0)) reject(ended);
  }
  worker.on('error', end);
  worker.on('exit', () => end(new Error('the thread has ended; open the store again')));
  worker.on('message', (reply: DiskReply) => {
    const [first] = waiting;
    if (first === undefined) return;
    if (reply.kind === 'found') {
      first.onFound?.(reply.found);
      return;
    }
    waiting.shift();
    if (waiting.length === 0) worker.unref();
    if (reply.kind === 'failed') first.reject(storeError(first.doing, reply.error));
    else first.resolve(reply);
  });
  // A store that rests must not keep the process alive; one that is asked something must.
  worker.unref();

  function ask(
    request: DiskRequest,
    doing: string,
    more: { readonly transfer?: ArrayBuffer[]; readonly onFound?: Waiting['onFound'] } = {},
  ): Promise<DiskReply> {
    return new Promise((resolve, reject) => {
      if (ended !== undefined) {
        reject(ended);
        return;
      }
      const { onFound } = more;
      waiting.push({ doing, resolve, reject, ...(onFound === undefined ? {} : { onFound }) });
      worker.ref();
      worker.postMessage(request, more.transfer ?? []);
    });
  }

  return createThread(ask, () => worker.terminate(), options.path);
}

function createThread(
  ask: (
    request: DiskRequest,
    doing: string,
    more?: {
      readonly transfer?: ArrayBuffer[];
      readonly onFound?: (files: readonly FoundFile[]) => void;
    },
  ) => Promise<DiskReply>,
  terminate: () => Promise<number>,
  path: string,
): DiskThread {
  return {
    async run(batch) {
      const transfer = batch.bodies.length === 0 ? [] : [batch.bodies.buffer as ArrayBuffer];
      const reply = await ask({ kind: 'batch', batch }, `write to the store "${path}"`, {
        transfer,
      });
      return expect(reply, 'batch').done;
    },
    async scan(onFound) {
      const reply = await ask({ kind: 'scan' }, `read the store "${path}"`, { onFound });
      return expect(reply, 'scanned').damages;
    },
    async discard(paths) {
      await ask({ kind: 'discard', paths }, `remove old revisions from "${path}"`);
    },
    async close() {
      try {
        await ask({ kind: 'close' }, `close the store "${path}"`);
      } finally {
        await terminate();
      }
    },
  };
}

function expect<Kind extends DiskReply['kind']>(
  reply: DiskReply,
  kind: Kind,
): Extract<DiskReply, { kind: Kind }> {
  if (reply.kind === kind) return reply as Extract<DiskReply, { kind: Kind }>;
  throw new Error(`bug in respool: the thread answered "${reply.kind}" instead of "${kind}"`);
}
