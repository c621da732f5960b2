/**
 * drafts — files that are written but have no name among the entries yet.
 *
 *   write() ─▶ sync() ─▶ (disk.ts gives it its name)        or, when the call failed: discard()
 *
 * disk.ts calls it, in the thread. A draft is a spare written over, or a new file in the spare
 * directory: either way a crash leaves nothing but a file that the next opening removes.
 */

import type { Directories } from './directories.ts';
import type { SyncMode } from './disk-protocol.ts';
import type { Files } from './files.ts';
import { SPARE } from './layout.ts';
import type { Spare, Spares } from './spares.ts';

/** Files open for writing at once; more than a disk can use, far fewer than a process may open. */
export const DRAFTS_OPEN_MAX = 64;

/** One file on its way. */
export interface Draft extends Spare {
  readonly fd: number;
  isOpen: boolean;
  /** It cannot be used again, or its bytes may never reach the disk. */
  isBad: boolean;
}

/** Writes drafts and brings their bytes to the disk. */
export class Drafts {
  readonly #files: Files;
  readonly #spares: Spares;
  readonly #directories: Directories;
  readonly #mode: SyncMode;

  constructor(files: Files, spares: Spares, directories: Directories, mode: SyncMode) {
    this.#files = files;
    this.#spares = spares;
    this.#directories = directories;
    this.#mode = mode;
  }

  /** Writes a file; `keep` gets it before its first byte, so that it can be discarded. */
  write(bytes: Uint8Array, forWhat: 'message' | 'change', keep: (draft: Draft) => void): void {
    const spare = this.#spares.take(bytes.length, forWhat);
    const path = spare?.path ?? this.#spares.newPath();
    const fd = spare === undefined ? this.#files.create(path) : this.#files.openAgain(path);
    // Bad until it is written: half a draft has not the length that the pool would trust.
    const draft: Draft = { path, bytes: bytes.length, fd, isOpen: true, isBad: true };
    keep(draft);
    if (spare === undefined) this.#directories.touched(SPARE);
    this.#files.write(fd, bytes);
    draft.isBad = false;
  }

  /** Brings drafts to the disk and closes them; an error per draft, or undefined. */
  async sync(drafts: readonly Draft[]): Promise<readonly (Error | undefined)[]> {
    const errors = this.#mode === 'none' ? [] : await this.#syncBytes(drafts);
    return drafts.map((draft, at) => {
      const error = errors[at];
      // The kernel may call these pages clean now: the file is thrown away, never synced again.
      if (error !== undefined) draft.isBad = true;
      draft.isOpen = false;
      return error ?? attempt(() => this.#files.close(draft.fd));
    });
  }

  /** Lets go of a draft that will not get a name. */
  discard(draft: Draft): void {
    if (draft.isOpen) {
      draft.isOpen = false;
      this.#files.close(draft.fd);
    }
    if (draft.isBad) this.#files.unlink(draft.path);
    else this.#spares.addLater(draft);
  }

  #syncBytes(
    drafts: readonly Draft[],
  ): readonly (Error | undefined)[] | Promise<readonly (Error | undefined)[]> {
    if (drafts.length === 1 || this.#mode === 'full') {
      return drafts.map(({ fd }) => attempt(() => this.#files.sync(fd)));
    }
    // At once, on the threads of libuv: the disk takes several flushes together. 50 files of
    // 4 KiB one after the other: 6k–8k/s, at once: 10k–15k/s. (2 cores, Node 24, 2026-11-15.)
    return this.#files.syncAll(drafts.map(({ fd }) => fd));
  }
}

function attempt(act: () => void): Error | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    return error as Error;
  }
}
