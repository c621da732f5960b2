/**
 * worker — the thread that does the file work of one store, so that a slow disk never holds up the
 * event loop. thread.ts starts it and is the only one that talks to it.
 *
 * Also reads all that is there when the store opens, and removes surplus spare files.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { type State, STATES } from '../../core/state.ts';
import { systemClock } from '../../system/clock.ts';
import { factsOf } from './catalog.ts';
import type { Damage, DiskReply, DiskRequest, FoundFile, SyncMode } from './disk-protocol.ts';
import { Disk } from './disk.ts';
import { diskError, errnoOf } from './errors.ts';
import { FILE_MAX_BYTES, Files } from './files.ts';
import { listAside } from './quarantine.ts';
import { decodeContent, parseFileName, shardDirectory, SPARE } from './row.ts';

/** Removing a file takes 0.1 ms, and 1 ms beside others that fsync: so not while messages move. */
const IDLE_MS = 20;

/** How long files are removed before the next request is looked for. */
const TIDY_MS = 10;

/** Above this surplus, spares are removed even while messages move. */
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
    // These files stand for nothing any more; what cannot be removed now is removed later.
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
  for (const found of scan(files, disk)) say({ kind: 'found', found });
  disk.spares.fill();
  return listAside(files);
}

function say(reply: DiskReply, transfer: ArrayBuffer[] = []): void {
  parentPort?.postMessage(reply, transfer);
}

// Reads what is on the disk when the store opens.
//
// Every file is read and its checksum compared: what is damaged
// is put aside here and never seen by a claim. What a crash left in the spare directory goes later.

/** Files found are handed over in groups of this many. */
const GROUP = 500;

const SHARD_NAME = /^[0-9a-f]{2}$/;

/** Every entry there is, in groups; what is damaged is put aside and is reported by `listAside`. */
function* scan(files: Files, disk: Disk): Generator<readonly FoundFile[]> {
  disk.directories.make();
  // Half written files and spares of a former owner; they go when there is time.
  for (const { name } of files.names(SPARE)) disk.spares.found(name);
  let found: FoundFile[] = [];
  for (const state of STATES) {
    for (const { name: shardName, kind } of files.names(state)) {
      if (kind !== 'directory' || !SHARD_NAME.test(shardName)) continue;
      const shard = Number.parseInt(shardName, 16);
      let count = 0;
      for (const read of readShard(files, disk, state, shard)) {
        found.push(read);
        count += 1;
        if (found.length < GROUP) continue;
        yield found;
        found = [];
      }
      // ext4 never shrinks a directory; one that is empty is made again when it is needed.
      const directory = shardDirectory(state, shard);
      const isGone = count === 0 && files.removeEmptyDirectory(directory);
      if (isGone) disk.directories.removed(directory, state);
      else disk.directories.found(state, shard, count);
    }
  }
  yield found;
}

/** The entries of a shard; puts aside what is damaged. */
function* readShard(files: Files, disk: Disk, state: State, shard: number): Generator<FoundFile> {
  const directory = shardDirectory(state, shard);
  for (const { name, kind } of files.names(directory)) {
    const path = `${directory}/${name}`;
    const parsed = parseFileName(name);
    if (kind !== 'file' || parsed === undefined) {
      disk.setAside(path, parsed?.id, 'this is not a file with a name that we give');
      continue;
    }
    const read = readFound(files, path, parsed.id);
    if (typeof read === 'string') disk.setAside(path, parsed.id, read);
    else yield { state, shard, name, ...read };
  }
}

function readFound(
  files: Files,
  path: string,
  id: string,
): Pick<FoundFile, 'bytes' | 'facts'> | string {
  let bytes: Buffer;
  try {
    bytes = files.read(path);
  } catch (error) {
    // A bad sector must not keep the healthy neighbours from being delivered.
    if (errnoOf(error) === 'EIO') return 'the disk cannot read the file (EIO)';
    throw error;
  }
  if (bytes.length >= FILE_MAX_BYTES) return 'the file is longer than any file of this store';
  const content = decodeContent(bytes, id);
  if (typeof content === 'string') return content;
  return { bytes: bytes.length, facts: factsOf(content.envelope, content.status) };
}
