/**
 * file-thread — where the work on a file is done: in a thread of its own, or in the caller's.
 *
 * The store asks, the seat answers in the order asked. Promise: every question gets an answer or an
 * error, also when the thread dies; the next question then starts a new one.
 */

import { Worker } from 'node:worker_threads';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { loadSqlite } from '../shared/client.ts';
import type { FileSettings } from './connection.ts';
import { errorOf, type PlainError } from './errors.ts';
import type { CheckpointRequest } from './protocol.ts';
import type { FileKind } from './reopening-file.ts';
import { blocksOf, packRequest, type Transfer, unpackReply } from './transfer.ts';

/** Where requests go. */
export interface FileThread {
  /** Whether the work is done in a thread of its own. */
  readonly isThread: boolean;
  ask(request: FileRequest): Promise<unknown>;
  /** Closes the file and ends the thread; what was asked before is answered first. */
  close(): Promise<void>;
}

/** Any request that a kind of file knows. */
export interface FileRequest {
  readonly kind: string;
}

/** Which file, and how it is opened. */
export interface FileThreadData {
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

/** What a request did to the thread it was done in. */
interface BatchTime {
  readonly ms: number;
  /** How many operations it had. */
  readonly ops: number;
  /** The disk failed: the file is checked before the next request, which takes long. */
  readonly needsCheck: boolean;
}

/** Who hears of an own seat's work. */
interface InlineHost {
  /** Told after each request. */
  onTook(took: BatchTime): void;
  /** Where requests go from now on that have not had their turn; undefined: nowhere else. */
  elsewhere(): FileThread | undefined;
}

/** A seat in the caller's own thread. */
export async function openInline(
  data: FileThreadData,
  clock: Clock,
  host?: InlineHost,
): Promise<FileThread> {
  // Loaded when it is needed: with a thread, the work on the file is never done here.
  const { openReopeningFile } = await import('./reopening-file.ts');
  const settings = { ...data.settings, standstillMs: STANDSTILL_MS.own };
  const keeper = openReopeningFile(data.kind, await loadSqlite(), settings);
  let isClosed = false;
  return {
    isThread: false,
    async ask(request) {
      // Without a turn of the loop, callers that answer results with new writes would let no timer
      // and no socket have its turn.
      await new Promise<void>((resolve) => clock.soon(resolve));
      const other = host?.elsewhere();
      if (other !== undefined) return other.ask(request);
      if (isClosed) throw closed(data);
      const beganAt = clock.monotonic();
      try {
        return keeper.handle(request);
      } finally {
        const ops = 'ops' in request ? (request.ops as readonly unknown[]).length : 0;
        host?.onTook({ ms: clock.monotonic() - beganAt, ops, needsCheck: keeper.needsCheck });
      }
    },
    async close() {
      isClosed = true;
      keeper.close();
    },
  };
}

function closed({ settings: { path } }: FileThreadData): RespoolError {
  return new RespoolError('store.unavailable', `cannot use "${path}": its store was closed`);
}

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A seat in a thread; a test may bring its own kind of thread. */
export function startFileThread(
  data: FileThreadData,
  start: typeof startThread = startThread,
): FileThread {
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
      // What this one writes lazily, its successor has to sync; of how it ended nobody knows.
      startsDirty = true;
      needsCheck = data.settings.readsOnly !== true;
      // First: what cannot be sent throws, and nobody waits for its answer.
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
      if (isClosed) throw closed(data);
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

/** The part of a Worker that a seat uses. */
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
//   own ─three of ten requests slow, one very slow, or a disk error─▶ thread, for good
//
// A way to a thread and back costs as much as the insert of a message, so a quick disk is faster
// without; a slow one would stop the event loop at every commit.
//
// Durable inserts of 1 KiB per second against a bare loop of batched statements over the same
// tables, 50 in flight: own 0.83, thread 0.67; whole lives, 500 in flight: own 1.2, thread 1.1.
// (2026-11-15, 2 shared virtual cores, ext4, medians of five)
//
// Why: docs/decisions/0010-sqlite-starts-in-the-calling-thread.md

/** A request that takes longer is slow: callers would feel it. */
const SLOW_MS = 10;
/** What an operation may take besides: a large batch on a quick disk takes its time as well. */
const OPERATION_MS = 0.03;
/** This many slow ones of the last few: not the one that moved the log, but the disk. */
const SLOW_MAX = 3;
const LAST_FEW = 10;
/** After a single one of this length nobody waits for a second. */
const VERY_SLOW_MS = 150;

/** The log is moved beside (file-client.ts); if it gets this many times longer, here after all. */
const LOG_BACKSTOP = 4;

/** Both kinds of files know it, and it opens the file. */
const HELLO: CheckpointRequest = { kind: 'moveLog' };

/** Tells a slow disk from a slow moment. */
class Pace {
  /** Which of the last few requests were slow. */
  readonly #lastFew: boolean[] = [];

  judge({ ms, ops }: BatchTime): 'quick' | 'slow' | 'very slow' {
    this.#lastFew.push(ms > SLOW_MS + ops * OPERATION_MS);
    if (this.#lastFew.length > LAST_FEW) this.#lastFew.shift();
    if (ms > VERY_SLOW_MS) return 'very slow';
    return this.#lastFew.filter(Boolean).length >= SLOW_MAX ? 'slow' : 'quick';
  }
}

/** A seat that moves to a thread when the work in the caller's takes too long. */
export async function startsInline(
  data: FileThreadData,
  clock: Clock,
  takeThread: (data: FileThreadData) => FileThread = startFileThread,
): Promise<FileThread> {
  const { autoCheckpointPages } = data.settings;
  const settings = { ...data.settings, autoCheckpointPages: LOG_BACKSTOP * autoCheckpointPages };
  const pace = new Pace();
  const own = await openInline({ ...data, settings }, clock, {
    onTook: (took) => seat.look(pace.judge(took), took.needsCheck),
    elsewhere: () => seat.thread,
  });
  // What was written lazily here is made durable by the first sync there.
  const start = (needsCheck: boolean) =>
    takeThread({ ...data, settings: { ...data.settings, needsCheck, startsDirty: true } });
  const seat = new MovingSeat(own, start);
  return seat;
}

class MovingSeat implements FileThread {
  readonly #own: FileThread;
  readonly #start: (needsCheck: boolean) => FileThread;
  /** How many requests the own seat has not answered. */
  #open = 0;
  #hasLeft = false;
  #onAnswered: (() => void)[] = [];
  /** A thread that is being started. */
  #coming: FileThread | undefined;
  /** The thread, once the work is done there. */
  thread: FileThread | undefined;

  constructor(own: FileThread, start: (needsCheck: boolean) => FileThread) {
    this.#own = own;
    this.#start = start;
  }

  get isThread(): boolean {
    return this.thread !== undefined;
  }

  async ask(request: FileRequest): Promise<unknown> {
    if (this.thread !== undefined) {
      // What was asked before goes before: a sync must find what it is to sync.
      if (this.#open > 0) await new Promise<void>((resolve) => this.#onAnswered.push(resolve));
      const answer = await this.thread.ask(request);
      if (!this.#hasLeft) await this.#leave();
      return answer;
    }
    this.#open += 1;
    try {
      return await this.#own.ask(request);
    } finally {
      this.#open -= 1;
      if (this.#open === 0) for (const resolve of this.#onAnswered.splice(0)) resolve();
    }
  }

  async close(): Promise<void> {
    try {
      await (this.thread ?? this.#coming)?.close();
    } finally {
      await this.#own.close();
    }
  }

  /** Told after each request in the caller's thread. */
  look(pace: ReturnType<Pace['judge']>, needsCheck: boolean): void {
    // To look through the whole file is not done here either.
    if (pace === 'very slow' || needsCheck) this.thread ??= this.#start(needsCheck);
    else if (pace === 'slow') this.#moveSoon();
  }

  /** The work goes on here until the thread has the file open; if it cannot open it, it stays. */
  #moveSoon(): void {
    if (this.#coming !== undefined || this.thread !== undefined) return;
    this.#coming = this.#start(false);
    void this.#tryOut(this.#coming);
  }

  async #tryOut(started: FileThread): Promise<void> {
    const isReady = await started.ask(HELLO).then(
      () => true,
      () => false,
    );
    this.#coming = undefined;
    if (isReady && this.thread === undefined) this.thread = started;
    else await started.close().catch(() => undefined);
  }

  /** Not before the thread has the file open: the last to close it moves the whole log. */
  async #leave(): Promise<void> {
    this.#hasLeft = true;
    // Nobody waits for it; the caller that asked has an answer, which must not become an error.
    await this.#own.close().catch(() => undefined);
  }
}
