/**
 * files — the file calls of the store (`Files`): all relative to its path, all synchronous but for
 * `syncAll`; and the directories it spreads files over (`Directories`).
 *
 * disk.ts, worker.ts and quarantine.ts call them, in the thread. `makeFolder`, `syncFolder` and
 * `writeWhole` are for the other side: asynchronous, and with whole paths. Tests pass calls of
 * their own to let a disk fail.
 */

import * as nodeFs from 'node:fs';
import { mkdir, open, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type State, STATES } from '../../core/state.ts';
import { errnoOf } from './errors.ts';
import { CORRUPT, shardDirectory, SHARDS, SPARE } from './row.ts';

/** The calls of node:fs that the store makes. */
export type FileCalls = Pick<
  typeof nodeFs,
  | 'closeSync'
  | 'fdatasync'
  | 'fdatasyncSync'
  | 'fstatSync'
  | 'fsyncSync'
  | 'mkdirSync'
  | 'opendirSync'
  | 'openSync'
  | 'readSync'
  | 'renameSync'
  | 'rmdirSync'
  | 'unlinkSync'
  | 'writeSync'
>;

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = nodeFs.constants;

/** Maximum length of our own files; a longer one was written by another program. */
export const FILE_MAX_BYTES: number = 64 * 1024 * 1024;

/** File calls below one path. */
export class Files {
  readonly root: string;
  readonly #calls: FileCalls;

  constructor(root: string, calls: FileCalls = nodeFs) {
    this.root = root;
    this.#calls = calls;
  }

  /** Opens a file that must not exist. */
  create(path: string): number {
    return this.#calls.openSync(
      join(this.root, path),
      O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW,
      0o600,
    );
  }

  /** Opens a file that exists, to write over it. */
  openAgain(path: string): number {
    return this.#calls.openSync(join(this.root, path), O_WRONLY | O_NOFOLLOW);
  }

  /** Writes all bytes from the start of the file. */
  write(fd: number, bytes: Uint8Array): void {
    // One call may write less than it was given.
    let at = 0;
    while (at < bytes.length) {
      at += this.#calls.writeSync(fd, bytes, at, bytes.length - at, at);
    }
  }

  /** Reads a whole file; `bytes` is its length where it is known. */
  read(path: string, bytes?: number): Buffer {
    const fd = this.#calls.openSync(join(this.root, path), O_RDONLY | O_NOFOLLOW);
    try {
      const length = Math.min(bytes ?? this.#calls.fstatSync(fd).size, FILE_MAX_BYTES);
      const content = Buffer.allocUnsafe(length);
      let at = 0;
      while (at < length) {
        const got = this.#calls.readSync(fd, content, at, length - at, at);
        if (got === 0) break;
        at += got;
      }
      return content.subarray(0, at);
    } finally {
      this.#calls.closeSync(fd);
    }
  }

  /**
   * Brings one file's bytes to the disk. Never to be called again for the same file after an error.
   */
  sync(fd: number): void {
    // The bytes and the length are all that a reader needs; the times may come later.
    this.#calls.fdatasyncSync(fd);
  }

  /** The same for many files at once; an error per file, or undefined. */
  syncAll(fds: readonly number[]): Promise<readonly (Error | undefined)[]> {
    const syncs = fds.map(
      (fd) =>
        new Promise<Error | undefined>((resolve) => {
          this.#calls.fdatasync(fd, (error) => resolve(error ?? undefined));
        }),
    );
    return Promise.all(syncs);
  }

  close(fd: number): void {
    this.#calls.closeSync(fd);
  }

  rename(from: string, to: string): void {
    this.#calls.renameSync(join(this.root, from), join(this.root, to));
  }

  unlink(path: string): void {
    this.#calls.unlinkSync(join(this.root, path));
  }

  syncDirectory(path: string): void {
    const fd = this.#calls.openSync(join(this.root, path), O_RDONLY | O_DIRECTORY);
    try {
      this.#calls.fsyncSync(fd);
    } finally {
      this.#calls.closeSync(fd);
    }
  }

  /** Whether the directory is new. */
  makeDirectory(path: string): boolean {
    try {
      this.#calls.mkdirSync(join(this.root, path), { mode: 0o700 });
      return true;
    } catch (error) {
      if (errnoOf(error) === 'EEXIST') return false;
      throw error;
    }
  }

  /** Removes a directory if nothing is in it; whether it did. */
  removeEmptyDirectory(path: string): boolean {
    try {
      this.#calls.rmdirSync(join(this.root, path));
      return true;
    } catch (error) {
      if (errnoOf(error) === 'ENOTEMPTY' || errnoOf(error) === 'EEXIST') return false;
      throw error;
    }
  }

  /** The names in a directory, as they come; none when there is no such directory. */
  *names(
    path: string,
  ): Generator<{ readonly name: string; readonly kind: 'file' | 'directory' | 'other' }> {
    let directory: nodeFs.Dir;
    try {
      directory = this.#calls.opendirSync(join(this.root, path), { bufferSize: 256 });
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return;
      throw error;
    }
    try {
      for (let found = directory.readSync(); found !== null; found = directory.readSync()) {
        const kind = found.isFile() ? 'file' : found.isDirectory() ? 'directory' : 'other';
        yield { name: found.name, kind };
      }
    } finally {
      directory.closeSync();
    }
  }
}

// Small files written whole, folders made and brought to the disk; with promises,
// on the event loop's threads. For what is not on the fast path: layout, records, bodies.

/** Makes a folder and those above it; with `isDurable`, what is new is on the disk. */
export async function makeFolder(path: string, isDurable: boolean): Promise<void> {
  const made = await mkdir(path, { recursive: true, mode: 0o700 });
  if (made === undefined || !isDurable) return;
  // Every folder that is new is an entry of the one above it.
  for (let at = path; at.length >= made.length; at = dirname(at)) await syncFolder(dirname(at));
}

/** Brings a folder's list of names to the disk. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Writes a file so that a reader sees the old text or the new one, never half of it. */
export async function writeWhole(path: string, text: string, isDurable: boolean): Promise<void> {
  const draft = `${path}.draft`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(text);
    if (isDurable) await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
  if (isDurable) await syncFolder(dirname(path));
}

// The shard directories of the states, and which of them the disk has yet to learn of.
//
// Called in the thread. New files of a state go into one shard until it is full, not by a hash of
// the id: so a batch touches one directory, and one fsync of it serves the whole batch.
//
// n.b. A directory that received a file is synced before the one that gave it away: whatever moment
// the power goes, the file has at least one of its two names.

/**
 * A shard takes this many files before the next one is used; `ls` stays quick, and so does fsync.
 */
const SHARD_FILLS_AT = 1_000;

/** How many more than the emptiest a shard may get, once all are full. */
const SHARD_STEP = 250;

/** Keeps the directories below a store's path. */
export class Directories {
  readonly #files: Files;
  readonly #counts = new Map<string, number>();
  readonly #known = new Set<string>();
  readonly #current = new Map<State, { shard: number; fullAt: number }>();
  readonly #received = new Set<string>();
  readonly #gave = new Set<string>();

  constructor(files: Files) {
    this.#files = files;
  }

  /** Makes the fixed directories; those that are there are left as they are. */
  make(): void {
    for (const directory of [...STATES, SPARE, CORRUPT]) this.#ensure(directory, '.');
  }

  /** Learns of a shard that was found with this many files. */
  found(state: State, shard: number, count: number): void {
    const directory = shardDirectory(state, shard);
    this.#known.add(directory);
    this.#counts.set(directory, count);
  }

  /** The shard that the next file of this state goes to. */
  choose(state: State): number {
    let current = this.#current.get(state);
    if (current === undefined || this.#count(state, current.shard) >= current.fullAt) {
      current = this.#emptiest(state);
      this.#current.set(state, current);
      this.#ensure(shardDirectory(state, current.shard), state);
    }
    return current.shard;
  }

  /** A file was moved; both directories have something to tell the disk. */
  moved(from: string, to: string): void {
    this.#gave.add(from);
    this.#received.add(to);
    this.#counts.set(from, (this.#counts.get(from) ?? 0) - 1);
    this.#counts.set(to, (this.#counts.get(to) ?? 0) + 1);
  }

  /** A file was made or removed here. */
  touched(directory: string): void {
    this.#received.add(directory);
  }

  /** An empty directory was removed: what moved out of it is the parent's to tell. */
  removed(directory: string, parent: string): void {
    this.#counts.delete(directory);
    this.#received.delete(directory);
    this.#gave.delete(directory);
    this.#received.add(parent);
  }

  /**
   * Brings all of it to the disk. After an error nothing is known, and fsync must not be tried
   * again.
   *
   * Not the spare directory: its files have no owner, and are removed when the store opens.
   * A message that came out of it has its new name on the disk, and one that went there may be gone
   * altogether. One fsync instead of two for a life at one in flight: 90 of 630 µs. (ext4 on
   * virtio, 2026-11-18)
   */
  sync(): void {
    this.#gave.delete(SPARE);
    this.#received.delete(SPARE);
    for (const directory of this.#received) this.#files.syncDirectory(directory);
    for (const directory of this.#gave) {
      if (!this.#received.has(directory)) this.#files.syncDirectory(directory);
    }
    this.#received.clear();
    this.#gave.clear();
  }

  #count(state: State, shard: number): number {
    return this.#counts.get(shardDirectory(state, shard)) ?? 0;
  }

  #emptiest(state: State): { shard: number; fullAt: number } {
    // The first that has room, so that a small store stays in few directories and is easy to look
    // at.
    let best = 0;
    let bestCount = Number.POSITIVE_INFINITY;
    for (let shard = 0; shard < SHARDS && bestCount >= SHARD_FILLS_AT / 2; shard += 1) {
      const count = this.#count(state, shard);
      if (count < bestCount) [best, bestCount] = [shard, count];
    }
    return { shard: best, fullAt: Math.max(SHARD_FILLS_AT, bestCount + SHARD_STEP) };
  }

  #ensure(directory: string, parent: string): void {
    if (this.#known.has(directory)) return;
    if (this.#files.makeDirectory(directory)) this.#received.add(parent);
    this.#known.add(directory);
  }
}
