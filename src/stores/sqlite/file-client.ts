/**
 * file-client — the way to a file: one line of batches for writes, direct questions for reads.
 *
 * Both stores of this folder use it. Also here: whether the file is still in its place
 * (`FileWatch`), and when the log is moved into it (`Checkpointer`).
 *
 * Promise: a lock of another process is waited for without stopping the event loop, up to
 * busyTimeout; lazy writes are on the disk within 250 ms.
 */

import { stat } from 'node:fs/promises';
import { RespoolError } from '../../core/errors.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import { InFlight, sleep } from '../../system/wait.ts';
import { type BatchLine, createBatchLine, type RunBatch } from '../shared/batching.ts';
import type { CountPart, Operations } from '../shared/operations.ts';
import { sqliteCode } from '../shared/client.ts';
import { isBusyError } from './errors.ts';
import {
  type FileExecutor,
  type ExecutorData,
  openInline,
  startFileThread,
  openInlineFirst,
} from './file-thread.ts';
import type { CheckedOptions } from './options.ts';
import type {
  BatchReply,
  BatchRequest,
  SharedBytes,
  CheckpointRequest,
  SyncOp,
  FileKind,
  FileRequest,
} from './protocol.ts';

/** What may be asked of a kind of file. */
interface FileTalk {
  readonly op: { readonly kind: string };
  readonly result: unknown;
  readonly request: { readonly kind: string };
  /** By kind of request. */
  readonly replies: object;
}

/** An operation and the bytes that go with it. */
interface BatchItem<Op> {
  readonly op: Op;
  readonly bytes?: SharedBytes;
}

/** One of any kind of file. */
export type AnyBatchItem = BatchItem<{ readonly kind: string }>;

/** The way to one open file. */
export interface FileClient<Talk extends FileTalk> {
  /** Resolves with the results, in order, once their batch is through. */
  add(items: readonly BatchItem<Talk['op']>[]): Promise<readonly Talk['result'][]>;
  /** The same, with what `read` makes of the results. */
  add<T>(
    items: readonly BatchItem<Talk['op']>[],
    read: (results: readonly Talk['result'][]) => T,
  ): Promise<T>;
  ask<K extends keyof Talk['replies']>(
    request: Extract<Talk['request'], { kind: K }>,
  ): Promise<Talk['replies'][K]>;
  /** Bypasses the queue, so a long answer delays no other call; as `ask` without a thread. */
  askAside: FileClient<Talk>['ask'];
  /** Whether there is such a place. */
  readonly hasAside: boolean;
  /** Resolves when everything that was added before is durable. */
  flush(): Promise<void>;
  /** Makes everything durable that was added, and closes. */
  close(): Promise<void>;
}

/** What the client of a file needs; tests replace it. */
export interface FileParts {
  readonly clock: Clock;
  readonly dice: Dice;
  /** Measures each batch while there are listeners. */
  readonly measure?: {
    readonly operations: Operations;
    readonly count: CountPart<AnyBatchItem, unknown>;
  };
  /** Only for tests: the file may not grow past this many pages. */
  readonly maxPages?: number;
}

/** The most operations of different calls in one transaction. */
const BATCH_MAX = 1_000;

/**
 * A thread begins with the first calls of an event-loop turn, before the others have come; what
 * comes while it works joins the same transaction (file.ts).
 */
const PIPELINE = { batchMax: BATCH_MAX, inFlightMax: 64, eagerAt: 16 } as const;

/** In the caller's thread there is one batch at a time. */
const ONE_BY_ONE = { batchMax: BATCH_MAX } as const;

/** Maximum memory for pages where long reads are done; named by the option `cacheBytes`. */
const ASIDE_CACHE_MAX_BYTES = 4 * 1024 * 1024;

/** Lazy writes wait this long for a durable one to take them along; the promise is 250 ms. */
const LAZY_MS = 200;

/** Pauses between two tries to get a lock: 5 to 25 ms. */
const PAUSE_MIN_MS = 5;
const PAUSE_SPREAD_MS = 20;

export async function openFileClient<Talk extends FileTalk>(
  kind: FileKind,
  path: string,
  { settings, thread, busyTimeoutMs }: CheckedOptions,
  { maxPages, ...parts }: FileParts,
): Promise<FileClient<Talk>> {
  const data = {
    kind,
    settings: { ...settings, path, ...(maxPages === undefined ? {} : { maxPages }) },
  };
  const main = await openThread(data, thread, parts.clock);
  // Its thread is started by the first question, and most stores never have one for it.
  const aside =
    thread === false
      ? undefined
      : startFileThread({ kind, settings: asideSettings(data.settings) });
  const logPages = settings.autoCheckpointPages;
  const watch = new FileWatch(path, parts.clock);
  const line = new BatchedFileClient({ main, aside }, { ...parts, busyTimeoutMs, logPages, watch });
  try {
    // The first question opens the file.
    await line.flush();
    await watch.begin();
    return line as FileClient<FileTalk> as FileClient<Talk>;
  } catch (error) {
    await Promise.allSettled([aside?.close(), main.close()]);
    throw error;
  }
}

/** Long reads pass over pages once: a large cache would be filled and not used. */
function asideSettings(settings: ExecutorData['settings']): ExecutorData['settings'] {
  const cacheBytes = Math.min(settings.cacheBytes, ASIDE_CACHE_MAX_BYTES);
  return { ...settings, cacheBytes, readsOnly: true };
}

function openThread(
  data: ExecutorData,
  thread: boolean | 'auto',
  clock: Clock,
): Promise<FileExecutor> {
  if (thread === 'auto') return openInlineFirst(data, clock);
  return thread ? Promise.resolve(startFileThread(data)) : openInline(data, clock);
}

interface ParsedOptions extends FileParts {
  readonly busyTimeoutMs: number;
  /** The log is moved when it has this many pages. */
  readonly logPages: number;
  readonly watch: FileWatch;
}

interface FileThreads {
  readonly main: FileExecutor;
  readonly aside: FileExecutor | undefined;
}

const MOVE_LOG: CheckpointRequest = { kind: 'moveLog' };
const SYNC: AnyBatchItem = { op: { kind: 'sync' } satisfies SyncOp };

class BatchedFileClient implements FileClient<FileTalk> {
  readonly #threads: FileThreads;
  readonly #parts: ParsedOptions;
  readonly #line: BatchLine<AnyBatchItem, unknown>;
  readonly #mover: Checkpointer;
  readonly #asked = new InFlight();
  #cancelSync: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  constructor(threads: FileThreads, parts: ParsedOptions) {
    this.#threads = threads;
    this.#parts = parts;
    const { measure } = parts;
    const bare: RunBatch<AnyBatchItem, unknown> = (items, isPart) => this.#run(items, isPart);
    const measured = measure?.operations.mixed(bare, measure.count) ?? bare;
    const run: typeof bare = (items, isPart) =>
      (measure?.operations.isHeard === true ? measured : bare)(items, isPart);
    this.#mover = new Checkpointer(parts.logPages, {
      aside: () => this.askAside(MOVE_LOG),
      here: () => this.ask(MOVE_LOG),
    });
    this.#line = createBatchLine(run, () => (threads.main.isThread ? PIPELINE : ONE_BY_ONE));
  }

  add<T>(
    items: readonly AnyBatchItem[],
    read: (results: readonly unknown[]) => T = (results) => results as T,
  ): Promise<T> {
    return items.length === 0 ? Promise.resolve(read([])) : this.#line.add(items, read);
  }

  get hasAside(): boolean {
    return this.#threads.aside !== undefined;
  }

  ask(request: FileRequest): Promise<never> {
    return this.#ask(this.#threads.main, request);
  }

  async askAside(request: FileRequest): Promise<never> {
    const { main, aside = main } = this.#threads;
    await this.#parts.watch.look();
    // Its thread may open the file only now, and must not make a new one in its place.
    return this.#ask(this.#parts.watch.isThere ? aside : main, request);
  }

  #ask(thread: FileExecutor, request: FileRequest): Promise<never> {
    return this.#asked.track(this.#askUntilFree(thread, request));
  }

  /** Asks until no other process is in the way, or busyTimeout is over. */
  async #askUntilFree(thread: FileExecutor, request: FileRequest): Promise<never> {
    const { clock, dice, busyTimeoutMs } = this.#parts;
    const deadline = clock.monotonic() + busyTimeoutMs;
    for (;;) {
      try {
        return (await thread.ask(request)) as never;
      } catch (error) {
        if (!isBusyError(error) || clock.monotonic() >= deadline) throw error;
      }
      const pauseMs = PAUSE_MIN_MS + dice.random() * PAUSE_SPREAD_MS;
      await sleep(clock, pauseMs);
    }
  }

  async flush(): Promise<void> {
    await this.#line.add([SYNC]);
  }

  close(): Promise<void> {
    // Once: what is asked of a closed thread would start a thread and open the file again.
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    try {
      await this.#asked.idle();
      await this.#line.idle();
      await this.flush();
    } finally {
      this.#callOffSync();
      // It has nothing of its own to lose, and must not keep the other one open.
      await this.#threads.aside?.close().catch(() => undefined);
      await this.#threads.main.close();
    }
  }

  async #run(items: readonly AnyBatchItem[], isPart: boolean): Promise<readonly unknown[]> {
    const { watch } = this.#parts;
    watch.check();
    // Meanwhile the batch is on its way: to wait before would let others overtake it.
    const looking = watch.look();
    const request: BatchRequest<AnyBatchItem['op']> = {
      kind: 'batch',
      ops: items.map(({ op }) => op),
      bytes: items.map(({ bytes }) => bytes),
      isPart,
    };
    const {
      results,
      isDirty,
      walPages: unmovedPages,
    }: BatchReply<unknown> = await this.ask(request);
    if (looking !== undefined) {
      await looking;
      watch.check();
    }
    if (!isDirty) this.#callOffSync();
    else this.#cancelSync ??= this.#parts.clock.after(LAZY_MS, () => this.#syncLate());
    // A thread moves the log itself.
    if (this.hasAside && !this.#threads.main.isThread) this.#mover.see(unmovedPages);
    return results;
  }

  #callOffSync(): void {
    this.#cancelSync?.();
    this.#cancelSync = undefined;
  }

  #syncLate(): void {
    this.#cancelSync = undefined;
    // No caller waits for this one. If it fails, what it would have synced stays lazy, and the next
    // durable write makes it durable as well, or fails.
    this.flush().catch(() => undefined);
  }
}

// Notices that a file was deleted or replaced while a store has it open.
//
// SQLite goes on writing to a file without a name and says that all is well; with the last process
// that has it open, everything in it is gone. Promise: a write that begins more than a second after
// that fails, and so does every later one.

/**
 * Minimum interval of the looks: one costs as much as a small insert. Also in docs/guarantees.md;
 * test/stores/sqlite/lost-file.test.ts waits for it.
 */
const LOOK_MS = 1_000;

/** Watches over one open file. */
class FileWatch {
  readonly #path: string;
  readonly #clock: Clock;
  #opened: string | undefined;
  #lookedAt = 0;
  #looking: Promise<void> | undefined;
  #loss: string | undefined;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /** Notes which file was opened. Not before: some file systems copy a file when it is opened. */
  async begin(): Promise<void> {
    this.#lookedAt = this.#clock.monotonic();
    this.#opened = await identity(this.#path);
  }

  /** Looks, if the last look is a second ago; undefined: no need to wait. */
  look(): Promise<void> | undefined {
    if (this.#looking !== undefined || this.#opened === undefined) return this.#looking;
    const now = this.#clock.monotonic();
    if (now - this.#lookedAt < LOOK_MS) return undefined;
    this.#lookedAt = now;
    this.#looking = this.#compare();
    return this.#looking;
  }

  /** Whether the file was in its place at the last look. */
  get isThere(): boolean {
    return this.#loss === undefined;
  }

  /** Throws when it was not. */
  check(): void {
    if (this.#loss === undefined) return;
    throw new RespoolError(
      'store.unavailable',
      `cannot write to "${this.#path}": ${this.#loss} while it was open, so nothing written now ` +
        'would last; restart the process',
    );
  }

  async #compare(): Promise<void> {
    try {
      // Final: a file that is put back was not written to meanwhile.
      if ((await identity(this.#path)) !== this.#opened) this.#loss ??= 'another file replaced it';
    } catch (error) {
      // Any other error says nothing about the file, which is still open.
      if (/^(?:ENOENT|ENOTDIR)$/.test(sqliteCode(error))) this.#loss ??= 'the file was deleted';
    } finally {
      this.#looking = undefined;
    }
  }
}

/** As long as a file is open, no other gets its number. */
async function identity(path: string): Promise<string> {
  const { dev, ino } = await stat(path, { bigint: true });
  return `${dev}:${ino}`;
}

// When the log is moved into the file while the work is done in the caller's thread.
//
// Moving it takes as long as ten commits. So the thread for long reads moves most of it, and the
// caller's thread the little that was written meanwhile.

/** How the log is moved, in two steps. */
interface CheckpointCalls {
  readonly aside: () => Promise<unknown>;
  readonly here: () => Promise<unknown>;
}

/**
 * Each time moves what was written during the one before. What is left for the caller's thread
 * stops it for 6 ms after one time, for 1 ms after three. (2026-11-15, 50,000 inserts per second)
 */
const ASIDE_TIMES = 3;

export class Checkpointer {
  readonly #logPages: number;
  readonly #moves: CheckpointCalls;
  #nextAt: number;
  #isMoving = false;

  /** Moves a log of this many pages. */
  constructor(logPages: number, moves: CheckpointCalls) {
    this.#logPages = logPages;
    this.#moves = moves;
    this.#nextAt = logPages;
  }

  /** Called after each batch, with the number of pages of the log that are not in the file. */
  see(unmovedPages: number): void {
    if (unmovedPages < this.#logPages) this.#nextAt = this.#logPages;
    if (unmovedPages < this.#nextAt || this.#isMoving) return;
    // A log that cannot be moved, for a reader or a full disk, is not tried with every batch.
    this.#nextAt = unmovedPages + this.#logPages;
    this.#isMoving = true;
    void this.#move();
  }

  async #move(): Promise<void> {
    try {
      for (let time = 0; time < ASIDE_TIMES; time += 1) await this.#moves.aside();
    } catch {
      // No thread, or it could not open the file: then all of it is done here.
    }
    try {
      await this.#moves.here();
    } catch {
      // Nothing is lost, it is all in the log. After a disk error the file is checked and its log
      // restarted before the next write (file.ts), which fails if the disk still does.
    }
    this.#isMoving = false;
  }
}
