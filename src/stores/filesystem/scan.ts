/**
 * scan — reads what is on the disk when the store opens.
 *
 * worker.ts calls it, in the thread. Every file is read and its checksum compared: what is damaged
 * is put aside here and never seen by a claim. What a crash left in the spare directory goes later.
 */

import { STATES, type State } from '../../core/state.ts';
import { factsOf } from './catalog.ts';
import type { Disk } from './disk.ts';
import type { Damage, FoundFile } from './disk-protocol.ts';
import { errnoOf, FILE_MAX_BYTES, type Files } from './files.ts';
import { decodeContent, parseFileName, SPARE, shardDirectory } from './layout.ts';

/** Finds are handed over in groups of this many. */
const GROUP = 500;

const SHARD_NAME = /^[0-9a-f]{2}$/;

/** Everything that is there, in groups; what is damaged has been put aside and is told of. */
export function* scan(
  files: Files,
  disk: Disk,
): Generator<{ readonly found: readonly FoundFile[]; readonly damages: readonly Damage[] }> {
  disk.directories.make();
  // Half written files and spares of a former owner; they go when there is time.
  for (const { name } of files.names(SPARE)) disk.spares.found(name);
  let found: FoundFile[] = [];
  let damages: Damage[] = [];
  for (const state of STATES) {
    for (const { name: shardName, kind } of files.names(state)) {
      if (kind !== 'directory' || !SHARD_NAME.test(shardName)) continue;
      const shard = Number.parseInt(shardName, 16);
      let count = 0;
      for (const read of readShard(files, disk, state, shard)) {
        if ('reason' in read) damages.push(read);
        else {
          found.push(read);
          count += 1;
        }
        if (found.length < GROUP) continue;
        yield { found, damages };
        [found, damages] = [[], []];
      }
      // ext4 never shrinks a directory; one that is empty is made again when it is needed.
      const directory = shardDirectory(state, shard);
      const isGone = count === 0 && files.removeEmptyDirectory(directory);
      if (isGone) disk.directories.removed(directory, state);
      else disk.directories.found(state, shard, count);
    }
  }
  yield { found, damages };
}

function* readShard(
  files: Files,
  disk: Disk,
  state: State,
  shard: number,
): Generator<FoundFile | Damage> {
  const directory = shardDirectory(state, shard);
  for (const { name, kind } of files.names(directory)) {
    const path = `${directory}/${name}`;
    const parsed = parseFileName(name);
    if (kind !== 'file' || parsed === undefined) {
      yield disk.setAside(path, parsed?.id, 'this is not a file with a name that we give');
      continue;
    }
    const read = readFound(files, path, parsed.id);
    if (typeof read === 'string') yield disk.setAside(path, parsed.id, read);
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
