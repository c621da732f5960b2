/**
 * worker — the thread that does the file work of one store, so that a slow disk never holds up the
 * event loop. thread.ts starts it and is the only one that talks to it.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { Disk, diskError } from './disk.ts';
import type { Damage, DiskReply, DiskRequest, SyncMode } from './disk-protocol.ts';
import { Files } from './files.ts';
import { listAside } from './quarantine.ts';
import { scan } from './scan.ts';

const { path, sync, spareMax } = workerData as {
  readonly path: string;
  readonly sync: SyncMode;
  readonly spareMax: number;
};
const files = new Files(path);
const disk = new Disk(files, { sync, spareMax });

let last: Promise<void> = Promise.resolve();

// One after the other, also while a batch waits for the disk: answers carry no number.
parentPort?.on('message', (request: DiskRequest) => {
  last = last
    .then(() => perform(request))
    .catch((error: unknown) => say({ kind: 'failed', error: diskError(error) }));
});

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
