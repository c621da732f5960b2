/**
 * spares — files of messages that are gone, kept to be written over.
 *
 * disk.ts calls it, in the thread. Why: making a file costs 30 to 500 µs on ext4 (the more, the
 * more files were removed shortly before) and its fdatasync a journal commit; writing over a file
 * of the same length costs neither. Create, fsync, rename, remove, 50 at once: 1.8k–3.4k/s with new
 * files, 10k–15k/s with spares. (ext4 on virtio, 2 cores, Node 24, 2026-11-15.) They are also the
 * room in which messages can still move when the disk is full.
 *
 * n.b. A spare may be written over only when the rename that made it one is on the disk. Otherwise
 * a power cut could bring its old name back, with another message's bytes behind it.
 */

import type { Files } from './files.ts';
import { BLOCK_BYTES, SPARE } from './layout.ts';

/** So many stay for changes when the disk is full; new messages do not get them. */
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
