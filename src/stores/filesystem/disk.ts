/**
 * disk — carries out batches of file work. Runs in the thread (worker.ts); knows files and what is
 * in them, not what an entry may do. Also files that are being written (`Drafts`), and spare ones
 * for the next (`Spares`).
 *
 *   prepare ─▶ sync the bytes ─▶ place (rename) ─▶ sync the directories ─▶ clear away ─▶ answer
 *
 * Promises: nothing is answered before it is as durable as asked. The steps of a call happen all or
 * none: what cannot be finished is undone, but for damaged files that were put aside. A new
 * revision is in place before the old one becomes a spare, and on the disk before that is written
 * over (but with `sync: 'none'`). After a failed fsync its call fails, and that file is not fsynced
 * again; after SYNC_FAILURES_MAX of them, or one of a directory, every call fails.
 */

import { systemClock } from '../../system/clock.ts';
import type {
  Batch,
  BatchDone,
  Damage,
  DiskError,
  DiskStep,
  StepDone,
  SyncMode,
} from './disk-protocol.ts';
import { diskError, errnoOf } from './errors.ts';
import { Directories, type Files } from './files.ts';
import { setAside } from './quarantine.ts';
import {
  FILE_BLOCK_BYTES,
  type Content,
  decodeContent,
  encodeContent,
  headLine,
  shardDirectory,
  SPARE,
  unnamedText,
} from './row.ts';

/** Time to remove spares at the end, as there may be many; the rest goes at the next opening. */
const CLEAR_MS = 200;

/**
 * This many failed fsyncs, and the disk is not trusted any more. Also in
 * test/stores/filesystem/faults.test.ts.
 */
const SYNC_FAILURES_MAX = 3;

/** One call on its way. */
interface Work {
  readonly steps: readonly DiskStep[];
  readonly done: (StepDone | undefined)[];
  readonly drafts: (Draft | undefined)[];
  /** What takes back the steps so far, the last one first. */
  readonly undo: (() => void)[];
  /** Files of the spare directory that become free when the call succeeds. */
  readonly freed: Spare[];
  /** Files of former revisions, to go when the new ones are on the disk. */
  readonly former: Spare[];
  error?: unknown;
}

/** Carries out batches below one path. */
export class Disk {
  readonly directories: Directories;
  readonly spares: Spares;
  readonly #files: Files;
  readonly #drafts: Drafts;
  readonly #mode: SyncMode;
  #contents: Buffer[] = [];
  #contentsBytes = 0;
  #syncFailures = 0;
  #broken: Error | undefined;

  constructor(files: Files, options: { readonly sync: SyncMode; readonly spareMax: number }) {
    this.#files = files;
    this.#mode = options.sync;
    this.directories = new Directories(files);
    this.spares = new Spares(files, options.spareMax);
    this.#drafts = new Drafts(files, this.spares, this.directories, options.sync);
  }

  /** Carries out a batch; one answer per call. Batches must not overlap. */
  async run(batch: Batch): Promise<BatchDone> {
    this.#contents = [];
    this.#contentsBytes = 0;
    const works = batch.calls.map(createWork);
    if (this.#mode === 'full') {
      for (const work of works) await this.#perform([work], batch, true);
      if (works.length === 0) await this.#perform([], batch, true);
    } else {
      await this.#perform(works, batch, batch.isDurable && this.#mode === 'batch');
    }
    return { calls: works.map(answer), contents: this.#takeContents() };
  }

  /** Removes an old revision that a crash left behind. */
  discard(path: string): void {
    this.#files.unlink(path);
    this.directories.touched(directoryOf(path));
  }

  /** Puts a file aside that cannot be read as an entry. */
  setAside(path: string, id: string | undefined, reason: string): Damage {
    return setAside(this.#files, this.directories, { path, id, reason });
  }

  /** Brings the names to the disk, and removes spares for CLEAR_MS. */
  close(): void {
    if (this.#broken !== undefined) return;
    if (this.#mode !== 'none') this.directories.sync();
    const until = systemClock.monotonic() + CLEAR_MS;
    this.spares.clear(() => systemClock.monotonic() < until);
  }

  async #perform(works: readonly Work[], batch: Batch, isDurable: boolean): Promise<void> {
    if (works.length === 0) this.#checkSound();
    if (this.#broken !== undefined) {
      for (const work of works) work.error = this.#broken;
      return;
    }
    await this.#prepareAll(works, batch);
    for (const work of works) this.#guard(work, () => this.#place(work));
    if (isDurable) this.#syncDirectories(works);
    for (const work of works) if (work.error === undefined) this.#clearAway(work, isDurable);
    if (works.length === 0) this.#checkSound();
  }

  async #prepareAll(works: readonly Work[], batch: Batch): Promise<void> {
    let open: [Work, Draft][] = [];
    for (const work of works) {
      for (let at = 0; at < work.steps.length && work.error === undefined; at += 1) {
        this.#guard(work, () => this.#prepare(work, at, batch));
        const draft = work.drafts[at];
        if (draft === undefined) continue;
        open.push([work, draft]);
        if (open.length < DRAFTS_OPEN_MAX) continue;
        await this.#finishDrafts(open);
        open = [];
      }
    }
    await this.#finishDrafts(open);
  }

  #prepare(work: Work, at: number, batch: Batch): void {
    const step = work.steps[at];
    if (step === undefined || step.kind === 'remove') return;
    if (step.kind === 'setAside') {
      work.done[at] = { kind: 'damaged', found: this.setAside(step.from, step.id, step.reason) };
      return;
    }
    if (step.kind === 'create') {
      const bytes = encodeContent(step.head, stretch(batch.bodies, step.body));
      this.#drafts.write(bytes, 'message', (draft) => this.#keep(work, at, draft));
      return;
    }
    const read = this.#readEntry(step.from, step.bytes, step.id);
    if ('damage' in read) {
      work.done[at] = { kind: 'damaged', found: read.damage };
      return;
    }
    if (step.kind === 'claim') {
      const content = { at: this.#contentsBytes, bytes: read.bytes.length };
      this.#contents.push(read.bytes);
      this.#contentsBytes += read.bytes.length;
      work.done[at] = { kind: 'placed', shard: -1, bytes: step.bytes, content };
      return;
    }
    const bytes = changedContent(step, read.content, batch.bodies);
    if (bytes === undefined) return;
    this.#drafts.write(bytes, 'change', (draft) => this.#keep(work, at, draft));
  }

  #keep(work: Work, at: number, draft: Draft): void {
    work.drafts[at] = draft;
    work.undo.push(() => this.#drafts.discard(draft));
  }

  #takeContents(): Uint8Array {
    // Its own memory, not a piece of a shared pool: it is transferred to the other thread.
    const contents = new Uint8Array(this.#contentsBytes);
    let at = 0;
    for (const piece of this.#contents) {
      contents.set(piece, at);
      at += piece.length;
    }
    this.#contents = [];
    return contents;
  }

  #readEntry(
    path: string,
    bytes: number,
    id: string,
  ): { readonly bytes: Buffer; readonly content: Content } | { readonly damage: Damage } {
    let content: Buffer;
    try {
      content = this.#files.read(path, bytes);
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
      // Another program removed the file; there is nothing left to quarantine.
      return { damage: { id, where: path, reason: 'the file is gone' } };
    }
    const decoded = decodeContent(content, id);
    if (typeof decoded !== 'string') return { bytes: content, content: decoded };
    return { damage: this.setAside(path, id, decoded) };
  }

  async #finishDrafts(open: readonly [Work, Draft][]): Promise<void> {
    const live = open.filter(([work]) => work.error === undefined);
    if (live.length === 0) return;
    const errors = await this.#drafts.sync(live.map(([, draft]) => draft));
    live.forEach(([work], at) => {
      const error = errors[at];
      if (error === undefined) return;
      this.#syncFailures += 1;
      if (this.#syncFailures >= SYNC_FAILURES_MAX) this.#breakDown(error);
      if (work.error === undefined) this.#fail(work, error);
    });
  }

  #place(work: Work): void {
    work.steps.forEach((step, at) => {
      if (work.done[at]?.kind === 'damaged' || step.kind === 'setAside') return;
      if (step.kind === 'remove') {
        this.#remove(work, step);
        work.done[at] = { kind: 'removed' };
        return;
      }
      const draft = work.drafts[at];
      const shard = this.directories.choose(step.state);
      const from = draft?.path ?? ('from' in step ? step.from : '');
      this.#move(work, from, `${shardDirectory(step.state, shard)}/${step.name}`);
      if (draft !== undefined && step.kind === 'change') {
        work.former.push({ path: step.from, bytes: step.bytes });
      }
      const bytes = draft?.bytes ?? ('bytes' in step ? step.bytes : 0);
      work.done[at] = { ...work.done[at], kind: 'placed', shard, bytes };
    });
  }

  #remove(work: Work, { from, bytes }: { readonly from: string; readonly bytes: number }): void {
    const path = this.spares.newPath();
    try {
      this.#move(work, from, path);
    } catch (error) {
      // A file that is gone already is what was asked for.
      if (errnoOf(error) === 'ENOENT') return;
      throw error;
    }
    work.freed.push({ path, bytes });
  }

  #move(work: Work, from: string, to: string): void {
    this.#files.rename(from, to);
    this.directories.moved(directoryOf(from), directoryOf(to));
    work.undo.push(() => {
      this.#files.rename(to, from);
      this.directories.moved(directoryOf(to), directoryOf(from));
    });
  }

  #syncDirectories(works: readonly Work[]): void {
    try {
      this.directories.sync();
      this.spares.settle();
    } catch (error) {
      // Which of the names are on the disk cannot be known any more; only a reopening can tell.
      this.#breakDown(error);
      for (const work of works) if (work.error === undefined) this.#fail(work, error);
    }
  }

  #clearAway(work: Work, isDurable: boolean): void {
    for (const spare of work.freed) {
      // Without fsync there is no promise about power cuts that using it again could break.
      if (isDurable || this.#mode === 'none') this.spares.add(spare);
      else this.spares.addLater(spare);
    }
    for (const { path, bytes } of work.former) {
      const spare = { path: this.spares.newPath(), bytes };
      try {
        this.#files.rename(path, spare.path);
      } catch (error) {
        // An old revision that stays could come back after the message is removed; one that is gone
        // is as it should be.
        if (errnoOf(error) !== 'ENOENT') this.#breakDown(error);
        continue;
      }
      this.directories.moved(directoryOf(path), SPARE);
      if (this.#mode === 'none') this.spares.add(spare);
      else this.spares.addLater(spare);
    }
  }

  #guard(work: Work, act: () => void): void {
    if (work.error !== undefined) return;
    try {
      act();
    } catch (error) {
      this.#fail(work, error);
    }
  }

  #fail(work: Work, error: unknown): void {
    work.error = error;
    for (const undo of work.undo.reverse()) {
      try {
        undo();
      } catch (undoError) {
        // Memory and disk disagree now: stop here, and let the next opening read what is there.
        this.#breakDown(undoError);
      }
    }
  }

  #checkSound(): void {
    const broken: Error | undefined = this.#broken;
    if (broken !== undefined) throw broken;
  }

  #breakDown(cause: unknown): void {
    const text = `the disk failed before (${diskError(cause).text}); open the store again`;
    this.#broken ??= Object.assign(new Error(text), { code: errnoOf(cause) });
  }
}

function createWork(steps: readonly DiskStep[]): Work {
  return { steps, done: [], drafts: [], undo: [], freed: [], former: [] };
}

function answer(work: Work): readonly StepDone[] | DiskError {
  return work.error === undefined ? (work.done as StepDone[]) : diskError(work.error);
}

/** The bytes of the changed file, or undefined when another name is all it takes. */
function changedContent(
  step: Extract<DiskStep, { kind: 'change' }>,
  content: Content,
  bodies: Uint8Array,
): Uint8Array | undefined {
  const isSame = step.envelope === undefined && step.body === 'same';
  if (isSame && unnamedText(JSON.parse(step.status)) === unnamedText(content.status)) {
    return undefined;
  }
  const envelope = step.envelope ?? JSON.stringify(content.envelope);
  const body =
    step.body === 'same'
      ? content.body
      : stretch(bodies, step.body === 'none' ? undefined : step.body);
  return encodeContent(headLine(envelope, step.status), body);
}

function stretch(
  bytes: Uint8Array,
  part: { readonly at: number; readonly bytes: number } | undefined,
): Uint8Array {
  return part === undefined ? new Uint8Array(0) : bytes.subarray(part.at, part.at + part.bytes);
}

function directoryOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/'));
}

// Files that are written but have no name among the entries yet.
//
//   write() ─▶ sync() ─▶ (Disk gives it its name)       or, when the call failed: discard()
//
// A draft is a spare written over, or a new file in the spare
// directory: either way a crash leaves nothing but a file that the next opening removes.

/** Files open for writing at once; more than a disk can use, far fewer than a process may open. */
const DRAFTS_OPEN_MAX = 64;

/** One file on its way. */
interface Draft extends Spare {
  readonly fd: number;
  isOpen: boolean;
  /** It cannot be used again, or its bytes may never reach the disk. */
  isBad: boolean;
}

/** Writes drafts and brings their bytes to the disk. */
class Drafts {
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
// Why: making a file costs 30 to 500 µs on ext4 (the more, the
// more files were removed shortly before) and its fdatasync a journal commit; writing over a file
// of the same length costs neither. Create, fsync, rename, remove, 50 at once: 1.8k–3.4k/s with new
// files, 10k–15k/s with spares. (ext4 on virtio, 2 cores, Node 24, 2026-11-15.) They are also the
// room in which messages can still move when the disk is full.
//
// n.b. A spare may be written over only when the rename that made it one is on the disk. Otherwise
// a power cut could bring its old name back, with another message's bytes behind it.

/**
 * Spares of one block that stay for changes when the disk is full: new messages do not get them.
 */
const RESERVE = 32;

/** A file in the spare directory. */
interface Spare {
  readonly path: string;
  readonly bytes: number;
}

/** The pool of spares. */
class Spares {
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
    for (let count = 0; count < this.#reserve(FILE_BLOCK_BYTES); count += 1) {
      const path = this.newPath();
      try {
        const fd = this.#files.create(path);
        this.#files.write(fd, new Uint8Array(FILE_BLOCK_BYTES).fill(0x20));
        this.#files.close(fd);
      } catch {
        // The reserve is a comfort; the write that needs it will say that the disk is full.
        return;
      }
      this.add({ path, bytes: FILE_BLOCK_BYTES });
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
    return bytes === FILE_BLOCK_BYTES ? Math.min(RESERVE, this.#max) : 0;
  }
}
