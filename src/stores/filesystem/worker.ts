/**
 * worker — the thread that does the file work of one store, so that a slow disk never holds up the
 * event loop. thread.ts starts it and is the only one that talks to it.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { systemClock } from '../../system/clock.ts';
import { Disk, diskError } from './disk.ts';
import type { Damage, DiskReply, DiskRequest, SyncMode } from './disk-protocol.ts';
import { Files } from './files.ts';
import { listAside } from './quarantine.ts';
import { scan } from './scan.ts';

/** Removing a file takes 0.1 ms, and 1 ms beside others that fsync: so not while messages move. */
const IDLE_MS = 20;

/** How long files are removed before the next request is looked for. */
const TIDY_MS = 10;

/** This many files too many are removed even while messages move. */
const SURPLUS_MAX = 20_000;

const { path, sync, spareMax } = workerData as {
  readonly path: string;
  readonly sync: SyncMode;
  readonly spareMax: number;
};
const files = new Files(path);
const disk = new Disk(files, { sync, spareMax });

let last: Promise<void> = Promise.resolve();
let waiting = 0;
let requests = 0;
let isTidying = false;

// One after the other, also while a batch waits for the disk: answers carry no number.
parentPort?.on('message', (request: DiskRequest) => {
  waiting += 1;
  requests += 1;
  last = last
    .then(() => perform(request))
    .catch((error: unknown) => say({ kind: 'failed', error: diskError(error) }))
    .then(() => {
      waiting -= 1;
      tidyWhenIdle();
    });
});

/** Removes what is too much once there is nothing better to do for a while. */
function tidyWhenIdle(): void {
  if (isTidying || disk.spares.surplus === 0) return;
  isTidying = true;
  const seen = requests;
  systemClock.after(IDLE_MS, () => {
    isTidying = false;
    if (seen === requests || disk.spares.surplus > SURPLUS_MAX) tidy();
    tidyWhenIdle();
  });
}

function tidy(): void {
  if (waiting > 0) return;
  try {
    const until = systemClock.monotonic() + TIDY_MS;
    while (systemClock.monotonic() < until && disk.spares.surplus > 0) disk.spares.tidy();
  } catch {
    // These files stand for nothing any more; what cannot go now goes another time.
  }
}

async function perform(request: DiskRequest): Promise<void> {
  switch (request.kind) {
    case 'batch': {
      const done = await disk.run(request.batch);
      say({ kind: 'batch', done }, [done.contents.buffer as ArrayBuffer]);
      return;
    }
    case 'scan':
      say({ kind: 'scanned', damages: scanAll() });
      return;
    case 'discard':
      for (const path of request.paths) disk.discard(path);
      say({ kind: 'done' });
      return;
    default:
      disk.close();
      say({ kind: 'done' });
  }
}

function scanAll(): readonly Damage[] {
  for (const { found } of scan(files, disk)) say({ kind: 'found', found });
  disk.spares.fill();
  return listAside(files);
}

function say(reply: DiskReply, transfer: ArrayBuffer[] = []): void {
  parentPort?.postMessage(reply, transfer);
}
