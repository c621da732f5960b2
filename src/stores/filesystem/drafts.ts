/**
 * drafts — files that are written but have no name among the entries yet.
 *
 *   write() ─▶ sync() ─▶ (disk.ts gives it its name)        or, when the call failed: discard()
 *
 * disk.ts calls it, in the thread. A draft is a spare written over, or a new file in the spare
 * directory: either way a crash leaves nothing but a file that the next opening removes.
 */

import type { Directories, Files } from './files.ts';
import type { SyncMode } from './disk-protocol.ts';
import { BLOCK_BYTES, SPARE } from './layout.ts';

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

// Files of messages that are gone, kept to be written over.
//
// disk.ts calls it, in the thread. Why: making a file costs 30 to 500 µs on ext4 (the more, the
// more files were removed shortly before) and its fdatasync a journal commit; writing over a file
// of the same length costs neither. Create, fsync, rename, remove, 50 at once: 1.8k–3.4k/s with new
// files, 10k–15k/s with spares. (ext4 on virtio, 2 cores, Node 24, 2026-11-15.) They are also the
// room in which messages can still move when the disk is full.
//
// n.b. A spare may be written over only when the rename that made it one is on the disk. Otherwise
// a power cut could bring its old name back, with another message's bytes behind it.

/** This many stay for changes when the disk is full; new messages do not get them. */
const RESERVE = 32;

/** A file in the spare directory. */
export interface Spare {
  readonly path: string;
  readonly bytes: number;
}

/** The pool of spares. */
export class Spares {
  readonly #files: Files;
  readonly #max: number;
  readonly #ready = new Map<number, Spare[]>();
  #pending: Spare[] = [];
  #surplus: string[] = [];
  #readyCount = 0;
  #made = 0;

  constructor(files: Files, max: number) {
    this.#files = files;
    this.#max = max;
  }

  /** A path in the spare directory that was never used since the store was opened. */
  newPath(): string {
    this.#made += 1;
    return `${SPARE}/${this.#made}`;
  }

  /** A spare of exactly this length, if there is one. */
  take(bytes: number, forWhat: 'message' | 'change'): Spare | undefined {
    const ready = this.#ready.get(bytes);
    if (ready === undefined || (forWhat === 'message' && ready.length <= this.#reserve(bytes))) {
      return undefined;
    }
    const spare = ready.pop();
    if (spare !== undefined) this.#readyCount -= 1;
    return spare;
  }

  /** Takes a file whose move into the spare directory is on the disk; one too many is to go. */
  add(spare: Spare): void {
    if (this.#readyCount >= this.#max) {
      // Removing costs more than a rename: what a drained backlog leaves goes bit by bit, see
      // tidy().
      if (this.#max === 0) this.#files.unlink(spare.path);
      else this.#surplus.push(spare.path);
      return;
    }
    const ready = this.#ready.get(spare.bytes);
    if (ready === undefined) this.#ready.set(spare.bytes, [spare]);
    else ready.push(spare);
    this.#readyCount += 1;
  }

  /** Takes a file whose move into the spare directory is not yet on the disk. */
  addLater(spare: Spare): void {
    this.#pending.push(spare);
  }

  /** The directories are on the disk: what was waiting can be used. */
  settle(): void {
    const settled = this.#pending;
    this.#pending = [];
    for (const spare of settled) this.add(spare);
  }

  /** How many there are too many. */
  get surplus(): number {
    return this.#surplus.length;
  }

  /** Removes one of those too many. */
  tidy(): void {
    const path = this.#surplus.pop();
    if (path !== undefined) this.#files.unlink(path);
  }

  /** Learns of a file that was left in the spare directory: it is one too many. */
  found(name: string): void {
    this.#surplus.push(`${SPARE}/${name}`);
    const number = Number(name);
    if (Number.isInteger(number)) this.#made = Math.max(this.#made, number);
  }

  /** Lays in the reserve. A disk that is full already is no reason not to open. */
  fill(): void {
    for (let count = 0; count < this.#reserve(BLOCK_BYTES); count += 1) {
      const path = this.newPath();
      try {
        const fd = this.#files.create(path);
        this.#files.write(fd, new Uint8Array(BLOCK_BYTES).fill(0x20));
        this.#files.close(fd);
      } catch {
        // The reserve is a comfort; the write that needs it will say that the disk is full.
        return;
      }
      this.add({ path, bytes: BLOCK_BYTES });
    }
  }

  /** Removes them all, or as many as it can until a time; the rest when the store opens again. */
  clear(isTimeLeft: () => boolean): void {
    this.settle();
    for (const ready of this.#ready.values()) {
      for (const { path } of ready) this.#surplus.push(path);
    }
    this.#ready.clear();
    this.#readyCount = 0;
    while (this.#surplus.length > 0 && isTimeLeft()) this.tidy();
  }

  #reserve(bytes: number): number {
    return bytes === BLOCK_BYTES ? Math.min(RESERVE, this.#max) : 0;
  }
}
