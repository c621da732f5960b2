/**
 * file-thread — where the work on a file is done: in a thread of its own, in the caller's, or first
 * there and then in its own; and how requests and answers go from one thread to the other.
 *
 * The store asks, and is answered in the order asked. Promise: every question gets an answer or an
 * error, also when the thread dies; the next question then starts a new one.
 */

import { Worker } from 'node:worker_threads';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { loadSqlite } from '../shared/client.ts';
import type { FileSettings } from './connection.ts';
import { errorOf, type PlainError } from './errors.ts';
import type {
  BatchReply,
  BatchRequest,
  SharedBytes,
  CheckpointRequest,
  FileKind,
  FileRequest,
} from './protocol.ts';
import type { StoreFile } from './file.ts';

/** Does the work on a file, in one thread or the other. */
export interface FileExecutor {
  /** Whether the work is done in a thread of its own. */
  readonly isThread: boolean;
  ask(request: FileRequest): Promise<unknown>;
  /** Closes the file and ends the thread; what was asked before is answered first. */
  close(): Promise<void>;
}

/** Which file, and how it is opened. */
export interface ExecutorData {
  readonly kind: FileKind;
  readonly settings: Omit<FileSettings, 'standstillMs'>;
}

/** What a thread is started with. */
export interface ThreadData {
  readonly kind: FileKind;
  readonly settings: FileSettings;
  /** Counts the questions, so that the thread can wait for one in the middle of its work. */
  readonly bell: Int32Array<SharedArrayBuffer>;
}

/** What goes to the thread; null: close. */
export type ThreadQuestion = Transfer | null;

/** What comes back for one question. */
export type ThreadAnswer = Transfer | { readonly error: PlainError };

/** How long one statement may stand still: a thread can afford it, the event loop cannot. */
const STANDSTILL_MS = { thread: 100, own: 5 } as const;

function closedError(path: string): RespoolError {
  return new RespoolError('store.unavailable', `cannot use "${path}": its store was closed`);
}

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Works in a thread of its own; a test may bring its own kind of thread. */
export function startFileThread(
  data: ExecutorData,
  start: typeof startThread = startThread,
): FileExecutor {
  const waiting: Waiting[] = [];
  const bell = new Int32Array(new SharedArrayBuffer(4));
  let worker: Thread | undefined;
  let { startsDirty = false, needsCheck = false } = data.settings;
  let isClosed = false;

  function end(ended: Thread, cause: unknown): void {
    if (worker !== ended) return;
    worker = undefined;
    const error = new RespoolError(
      'store.unavailable',
      `the thread of "${data.settings.path}" has ended; what was asked may or may not be done`,
      cause === undefined ? undefined : { cause },
    );
    for (const { reject } of waiting.splice(0)) reject(error);
  }

  /** Answers come in the order asked; batches that shared a transaction are answered together. */
  function answer(answers: readonly ThreadAnswer[]): void {
    for (const [index, { resolve, reject }] of waiting.splice(0, answers.length).entries()) {
      const message = answers[index];
      if (message === undefined) continue;
      if ('error' in message) reject(errorOf(message.error));
      else resolve(unpackReply(message));
    }
    // An idle store keeps no process alive; a waiting caller does.
    if (waiting.length === 0) worker?.unref();
  }

  function send(question: ThreadQuestion): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const standstillMs = STANDSTILL_MS.thread;
      const settings = { ...data.settings, startsDirty, needsCheck, standstillMs };
      worker ??= start({ ...data, settings, bell }, answer, end);
      // How this thread ended is unknown: its successor has to sync its lazy writes.
      startsDirty = true;
      needsCheck = data.settings.readsOnly !== true;
      // First: a message that cannot be sent throws, and then no answer is awaited.
      worker.postMessage(question, question === null ? [] : blocksOf(question));
      Atomics.add(bell, 0, 1);
      Atomics.notify(bell, 0);
      if (waiting.length === 0) worker.ref();
      waiting.push({ resolve, reject });
    });
  }

  return {
    isThread: true,
    async ask(request) {
      if (isClosed) throw closedError(data.settings.path);
      return send(packRequest(request));
    },
    async close() {
      isClosed = true;
      const present = worker;
      if (present === undefined) return;
      try {
        await send(null);
      } finally {
        worker = undefined;
        await present.terminate();
      }
    },
  };
}

/** The part of a Worker that is used. */
type Thread = Pick<Worker, 'postMessage' | 'ref' | 'unref' | 'terminate'>;

function startThread(
  data: ThreadData,
  onAnswer: (answers: readonly ThreadAnswer[]) => void,
  onEnd: (thread: Thread, cause: unknown) => void,
): Thread {
  // The source runs as it is; a built package has only the .js.
  const file = `./worker.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`;
  const worker = new Worker(new URL(file, import.meta.url), {
    workerData: data,
    name: 'respool-sqlite',
    // No options of the program: what it preloads has no business in this thread.
    execArgv: [],
  });
  worker.on('message', onAnswer);
  worker.on('error', (error) => onEnd(worker, error));
  worker.on('exit', () => onEnd(worker, undefined));
  worker.unref();
  return worker;
}

// In the caller's thread while that is quick, then in a thread of its own.
//
//   inline ─three of ten requests slow, one very slow, or a disk error─▶ thread, for good
//
// The way to a thread and back costs as much as the insert of a message, so with a quick disk
// inline is faster; a slow one would stop the event loop at every commit.
//
// Rates as a share of what a bare loop of batched statements does on the same tables. Durable
// inserts of 1 KiB, 50 in flight: inline 0.83, thread 0.67. Whole lives, 500 in flight: inline 1.2,
// thread 1.1. (2026-11-15, 2 shared virtual cores, ext4, medians of five)
//
// Why: docs/decisions/0010-sqlite-starts-in-the-calling-thread.md

/**
 * A request that takes longer is slow: callers would feel it. This and the next four are also in
 * docs/how-to/choose-a-store.md and test/stores/sqlite/file-thread.test.ts, three of them in
 * decision 0010.
 */
const SLOW_MS = 10;
/** Added to that for each operation: a large batch takes its time on a quick disk as well. */
const OPERATION_MS = 0.03;
/** This many slow ones among the last few: not one checkpoint, but the disk. */
const SLOW_MAX = 3;
const LAST_FEW = 10;
/** A single request of this length is enough. */
const VERY_SLOW_MS = 150;

/**
 * The log is checkpointed in a second thread (file-client.ts); only if it grows to this many times
 * its limit, as the option `autoCheckpointPages` says, it is done here. Also in
 * docs/reference/sqlite.md.
 */
const LOG_BACKSTOP = 4;

/** The first request to a thread: both kinds of files know it, and it opens the file. */
const HELLO: CheckpointRequest = { kind: 'moveLog' };

/** Tells a slow disk from a slow moment. */
class Pace {
  /** Which of the last few requests were slow. */
  readonly #lastFew: boolean[] = [];

  judge(ms: number, ops: number): 'quick' | 'slow' | 'very slow' {
    this.#lastFew.push(ms > SLOW_MS + ops * OPERATION_MS);
    if (this.#lastFew.length > LAST_FEW) this.#lastFew.shift();
    if (ms > VERY_SLOW_MS) return 'very slow';
    return this.#lastFew.filter(Boolean).length >= SLOW_MAX ? 'slow' : 'quick';
  }
}

/** Works in the caller's thread, and stays there. */
export function openInline(data: ExecutorData, clock: Clock): Promise<FileExecutor> {
  return openHere(data, clock, undefined);
}

/** Works in the caller's thread, and moves to a thread when that takes too long. */
export function openInlineFirst(
  data: ExecutorData,
  clock: Clock,
  takeThread: (data: ExecutorData) => FileExecutor = startFileThread,
): Promise<FileExecutor> {
  const { autoCheckpointPages } = data.settings;
  const settings = { ...data.settings, autoCheckpointPages: LOG_BACKSTOP * autoCheckpointPages };
  // What was written lazily here is made durable by the first sync there.
  const start = (needsCheck: boolean): FileExecutor =>
    takeThread({ ...data, settings: { ...data.settings, needsCheck, startsDirty: true } });
  return openHere({ ...data, settings }, clock, start);
}

async function openHere(
  data: ExecutorData,
  clock: Clock,
  start: ((needsCheck: boolean) => FileExecutor) | undefined,
): Promise<FileExecutor> {
  // Loaded when it is needed: with a thread, the work on the file is never done here.
  const { StoreFile } = await import('./file.ts');
  const settings = { ...data.settings, standstillMs: STANDSTILL_MS.own };
  const file = new StoreFile(data.kind, await loadSqlite(), settings);
  return new InlineExecutor(file, { path: settings.path, clock, start });
}

/** What an inline thread works with. */
interface InlineSetup {
  readonly path: string;
  readonly clock: Clock;
  /** Starts the thread it may move to; undefined: it stays. */
  readonly start: ((needsCheck: boolean) => FileExecutor) | undefined;
}

class InlineExecutor implements FileExecutor {
  readonly #file: StoreFile;
  readonly #setup: InlineSetup;
  readonly #pace = new Pace();
  /** Requests that are not answered yet, and not given to the thread. */
  #open = 0;
  #onAnswered: (() => void)[] = [];
  /** A thread that is being started. */
  #coming: FileExecutor | undefined;
  /** The thread, once the work is done there. */
  #thread: FileExecutor | undefined;
  #isFileClosed = false;

  constructor(file: StoreFile, setup: InlineSetup) {
    this.#file = file;
    this.#setup = setup;
  }

  get isThread(): boolean {
    return this.#thread !== undefined;
  }

  async ask(request: FileRequest): Promise<unknown> {
    if (this.#thread !== undefined) return this.#askThread(this.#thread, request);
    this.#open += 1;
    try {
      // Without a turn of the loop, callers that answer results with new writes would let no timer
      // and no socket have its turn.
      await new Promise<void>((resolve) => this.#setup.clock.soon(resolve));
      return await this.#handle(request);
    } finally {
      this.#open -= 1;
      if (this.#open === 0) for (const resolve of this.#onAnswered.splice(0)) resolve();
    }
  }

  async close(): Promise<void> {
    try {
      await (this.#thread ?? this.#coming)?.close();
    } finally {
      this.#closeFile();
    }
  }

  #handle(request: FileRequest): unknown {
    // It moved meanwhile.
    if (this.#thread !== undefined) return this.#thread.ask(request);
    const { path, clock } = this.#setup;
    if (this.#isFileClosed) throw closedError(path);
    const beganAt = clock.monotonic();
    try {
      return this.#file.handle(request);
    } finally {
      const ops = 'ops' in request ? (request.ops as readonly unknown[]).length : 0;
      this.#look(this.#pace.judge(clock.monotonic() - beganAt, ops));
    }
  }

  async #askThread(thread: FileExecutor, request: FileRequest): Promise<unknown> {
    // What was asked before goes before: a sync must find what it is to sync.
    if (this.#open > 0) await new Promise<void>((resolve) => this.#onAnswered.push(resolve));
    const answer = await thread.ask(request);
    // Not before the thread has the file open: the last to close it moves the whole log.
    if (!this.#isFileClosed) this.#closeQuietly();
    return answer;
  }

  /** After each request: whether to move to a thread. */
  #look(pace: ReturnType<Pace['judge']>): void {
    const { start } = this.#setup;
    if (start === undefined) return;
    const { needsCheck } = this.#file;
    // A check of the whole file is not done in the caller's thread either.
    if (pace === 'very slow' || needsCheck) this.#thread ??= start(needsCheck);
    else if (pace === 'slow' && this.#coming === undefined && this.#thread === undefined) {
      this.#coming = start(false);
      void this.#tryOut(this.#coming);
    }
  }

  /** The work goes on here until the thread has the file open; if it cannot open it, it stays. */
  async #tryOut(started: FileExecutor): Promise<void> {
    const isReady = await started.ask(HELLO).then(
      () => true,
      () => false,
    );
    this.#coming = undefined;
    if (isReady && this.#thread === undefined) this.#thread = started;
    else await started.close().catch(() => undefined);
  }

  #closeFile(): void {
    this.#isFileClosed = true;
    this.#file.close();
  }

  /** The caller that asked has an answer, which must not become an error. */
  #closeQuietly(): void {
    try {
      this.#closeFile();
    } catch {
      // Nothing of it is used any more.
    }
  }
}

// How requests and replies cross the thread border: plain data is cloned, and all bytes
// of a batch travel in one block that changes hands without being copied again.
//
// n.b. A small Buffer is a view of a large pool; cloned by itself it takes the whole pool along.
//
// Per message of 1 KiB, both ways: one clone per body 9 µs, one block 2 µs. (2026-11-15, 2 cores,
// 50 per batch)

/** A request or reply on its way. */
interface Transfer {
  readonly data: object;
  /** The bytes of a batch, one after the other. */
  readonly block?: Uint8Array<ArrayBuffer>;
  /** How long each of them is; NONE and UNSAID have no bytes. */
  readonly sizes?: readonly number[];
}

const NONE = -1;
const UNSAID = -2;

/** Where a row of an entry has its inline body: the last column of `EntryRow` in row.ts. */
const BODY_COLUMN = 16;

function packRequest(request: object): Transfer {
  if (!isBatch(request)) return { data: request };
  const { bytes, ...data } = request;
  const { block, sizes } = join(bytes);
  return { data, block, sizes };
}

export function unpackRequest({ data, block, sizes }: Transfer): object {
  if (block === undefined || sizes === undefined) return data;
  return { ...data, bytes: split(block, sizes) };
}

/** What a thread must hand over instead of cloning it. */
export function blocksOf({ block }: Transfer): ArrayBuffer[] {
  return block === undefined || block.byteLength === 0 ? [] : [block.buffer];
}

export function packReply(reply: unknown): Transfer {
  const rows = isBatchReply(reply) ? rowsOf(reply) : [];
  if (rows.length === 0) return { data: { reply } };
  const { block, sizes } = join(rows.map((row) => row[BODY_COLUMN] as SharedBytes));
  for (const row of rows) row[BODY_COLUMN] = null;
  return { data: { reply }, block, sizes };
}

function unpackReply({ data, block, sizes }: Transfer): unknown {
  const { reply } = data as { readonly reply: unknown };
  if (block === undefined || sizes === undefined) return reply;
  const bytes = split(block, sizes);
  for (const [index, row] of rowsOf(reply as BatchReply<unknown>).entries()) {
    row[BODY_COLUMN] = bytes[index];
  }
  return reply;
}

function isBatch(request: object): request is BatchRequest<unknown> {
  return 'bytes' in request;
}

function isBatchReply(reply: unknown): reply is BatchReply<unknown> {
  return typeof reply === 'object' && reply !== null && 'results' in reply;
}

/** The rows in a batch's results: of all operations only claims return lists. */
function rowsOf({ results }: BatchReply<unknown>): unknown[][] {
  return results.filter((result) => Array.isArray(result)).flat() as unknown[][];
}

function join(bytes: readonly SharedBytes[]): Required<Pick<Transfer, 'block' | 'sizes'>> {
  const sizes = bytes.map(sizeOf);
  const block = new Uint8Array(sizes.reduce((sum, size) => sum + Math.max(size, 0), 0));
  let at = 0;
  for (const part of bytes) {
    if (part === null || part === undefined) continue;
    block.set(part, at);
    at += part.byteLength;
  }
  return { block, sizes };
}

function sizeOf(bytes: SharedBytes): number {
  if (bytes === undefined) return UNSAID;
  return bytes === null ? NONE : bytes.byteLength;
}

function split(block: Uint8Array, sizes: readonly number[]): SharedBytes[] {
  let at = 0;
  return sizes.map((size) => {
    if (size < 0) return size === NONE ? null : undefined;
    at += size;
    return block.subarray(at - size, at);
  });
}
