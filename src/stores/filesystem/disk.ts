/**
 * disk — carries out batches of file work. Runs in the thread (worker.ts); knows paths, not
 * entries.
 *
 *   prepare ─▶ sync the bytes ─▶ place (rename) ─▶ sync the directories ─▶ clear away ─▶ answer
 *
 * Promises: nothing is answered before it is as durable as asked. The steps of a call happen all or
 * none: what cannot be finished is undone. A new revision is in place, and on the disk, before the
 * old one goes. After a failed fsync nothing is acknowledged and nothing is fsynced again.
 */

import { systemClock } from '../../system/clock.ts';
import { Directories, errnoOf, type Files } from './files.ts';
import type {
  Batch,
  BatchDone,
  Damage,
  DiskError,
  Step,
  StepDone,
  SyncMode,
} from './disk-protocol.ts';
import { type Draft, Drafts, DRAFTS_OPEN_MAX, type Spare, Spares } from './drafts.ts';
import {
  type Content,
  decodeContent,
  encodeContent,
  headLine,
  shardDirectory,
  SPARE,
  unnamedText,
} from './layout.ts';
import { setAside } from './quarantine.ts';

/** Closing must not take long because many messages came and went. */
const CLEAR_MS = 200;

/** This many failed fsyncs, and the disk is not trusted any more. */
const SYNC_FAILURES_MAX = 3;

/** One call on its way. */
interface Work {
  readonly steps: readonly Step[];
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

  /** Lets go of everything that is only useful while the store is open. */
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

/** An error in the form that crosses the thread's border. */
export function diskError(error: unknown): DiskError {
  return { code: errnoOf(error), text: error instanceof Error ? error.message : String(error) };
}

function createWork(steps: readonly Step[]): Work {
  return { steps, done: [], drafts: [], undo: [], freed: [], former: [] };
}

function answer(work: Work): readonly StepDone[] | DiskError {
  return work.error === undefined ? (work.done as StepDone[]) : diskError(work.error);
}

/** The bytes of the changed file, or undefined when another name is all it takes. */
function changedContent(
  step: Extract<Step, { kind: 'change' }>,
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
