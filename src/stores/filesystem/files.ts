/**
 * files — the file calls of the store, all relative to its path, all synchronous but for fdatasync.
 *
 * disk.ts and scan.ts call it, in the thread. Tests pass calls of their own to let a disk fail.
 */

import * as nodeFs from 'node:fs';
import { join } from 'node:path';

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

/** No file of ours is longer; what is was not written by us. */
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

/** The code of a system call's error, such as ENOSPC; empty when it has none. */
export function errnoOf(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : '';
}
