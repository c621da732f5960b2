/**
 * run — one run of a command: body in, start of its output out, and an end in time.
 *
 *   running ─exit─▶ ended
 *   running ─time limit, signal─▶ told to end (TERM) ─killAfterMs─▶ killed (KILL) ─▶ ended
 *
 * The command leads a process group of its own, so that what it started ends with it when it is
 * stopped, and with us when we end without waiting for it. Memory stays bounded whatever it writes.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { asError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { oneBehind } from '../whole-body.ts';

/** So much of each output is kept. */
export const OUTPUT_KEPT_BYTES = 1_024;
/** A child of the command may hold its output open for ever; so long we wait for the rest. */
const OUTPUT_GRACE_MS = 1_000;

/** What to run. */
export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly killAfterMs: number;
}

/** How it ended. */
export interface RunResult {
  /** Null when a signal ended it. */
  readonly exitCode: number | null;
  readonly endSignal: string | null;
  /** The first bytes of what it wrote. */
  readonly output: Uint8Array;
  readonly errors: Uint8Array;
  /** The last bytes of what it wrote as errors. */
  readonly errorsEnd: Uint8Array;
}

/** The command could not even be started. */
export class StartError extends Error {
  override readonly name = 'StartError';
  readonly code: string;

  constructor(cause: Error) {
    super(cause.message, { cause });
    const { code } = cause as { code?: unknown };
    this.code = typeof code === 'string' ? code : '';
  }
}

/** Runs the command over a body. Throws a StartError, or what the body threw. */
export async function runCommand(
  command: Command,
  body: AsyncIterable<Uint8Array>,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<RunResult> {
  const child = start(command);
  const ended = endOf(child, clock);
  const { stdin, stdout, stderr } = child;
  // n.b. without a free file descriptor there are no streams, and the error comes a moment later.
  if (!stdin || !stdout || !stderr) return ended.then(withoutStreams);
  const output = new Excerpt(stdout);
  const errors = new Excerpt(stderr);
  const stopper = new Stopper(child, command.killAfterMs, clock);
  const stop = (): void => stopper.stop();
  let broken: { readonly error: unknown } | undefined;
  const fed = feed(stdin, body, (error) => {
    broken = { error };
    // Before its input ends: it must not take the part that was readable for the whole.
    if (child.exitCode === null && child.signalCode === null) kill(child, 'SIGKILL');
  });
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop);
  try {
    const [exitCode, endSignal] = await ended;
    stdin.destroy();
    await fed;
    if (broken !== undefined) throw asError(broken.error);
    const { start } = output;
    return { exitCode, endSignal, output: start, errors: errors.start, errorsEnd: errors.end };
  } finally {
    signal.removeEventListener('abort', stop);
    stopper.done();
    for (const stream of [stdin, stdout, stderr]) stream.destroy();
  }
}

function start({ program, args, cwd, env }: Command): ChildProcess {
  try {
    return spawn(program, args, {
      cwd,
      env,
      stdio: 'pipe',
      shell: false,
      detached: true,
      windowsHide: true,
    });
  } catch (error) {
    // Some errors of the system are thrown, others come as an event.
    throw new StartError(asError(error));
  }
}

function withoutStreams(): never {
  throw new StartError(new Error('the command has no input and output'));
}

/** Gives the body to the command as fast as it reads; that it does not read is its own affair. */
async function feed(
  stdin: Writable,
  body: AsyncIterable<Uint8Array>,
  onError: (error: unknown) => void,
): Promise<void> {
  try {
    await pipeline(Readable.from(oneBehind(body, onError), { objectMode: false }), stdin);
  } catch {
    // EPIPE and the like: the exit code decides. An error of the body has been told.
  }
}

/** Exit code and signal, once the command has ended and said what it had to say. */
function endOf(child: ChildProcess, clock: Clock): Promise<[number | null, string | null]> {
  return new Promise((resolve, reject) => {
    child.on('error', (error) => reject(new StartError(error)));
    child.once('exit', (exitCode, endSignal) => {
      const end = (): void => {
        callOff();
        resolve([exitCode, endSignal]);
      };
      const callOff = clock.after(OUTPUT_GRACE_MS, end);
      child.once('close', end);
    });
  });
}

/** Ends a command that takes too long, with all it started. */
class Stopper {
  readonly #child: ChildProcess;
  readonly #killAfterMs: number;
  readonly #clock: Clock;
  readonly #onExit = (): void => this.#atExit();
  #isStopping = false;
  #callOff: (() => void) | undefined;

  constructor(child: ChildProcess, killAfterMs: number, clock: Clock) {
    this.#child = child;
    this.#killAfterMs = killAfterMs;
    this.#clock = clock;
    if (running.size === 0) process.once('exit', endRunning);
    running.add(this.#onExit);
  }

  stop(): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    kill(this.#child, 'SIGTERM');
    this.#callOff = this.#clock.after(this.#killAfterMs, () => kill(this.#child, 'SIGKILL'));
  }

  /** The command has ended; what it left behind ends now. */
  done(): void {
    this.#callOff?.();
    if (this.#isStopping) kill(this.#child, 'SIGKILL');
    running.delete(this.#onExit);
    if (running.size === 0) process.removeListener('exit', endRunning);
  }

  /** Our process ends now: nobody would stop the command in time, or hear how it ended. */
  #atExit(): void {
    const { exitCode, signalCode } = this.#child;
    const isRunning = exitCode === null && signalCode === null;
    if (isRunning || this.#isStopping) kill(this.#child, 'SIGKILL');
  }
}

/** One for each command that runs; one listener for all of them, and none without a command. */
const running = new Set<() => void>();

function endRunning(): void {
  for (const end of running) end();
}

function kill(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // Nobody is left in the group, or there are no groups on this machine.
    child.kill(signal);
  }
}

/** Reads a stream to its end and keeps its first and last bytes. */
class Excerpt {
  start: Uint8Array = new Uint8Array(0);
  end: Uint8Array = new Uint8Array(0);

  constructor(stream: Readable) {
    stream.on('data', (part: Buffer) => this.#take(part));
    stream.on('error', () => undefined);
  }

  #take(part: Buffer): void {
    const free = OUTPUT_KEPT_BYTES - this.start.length;
    if (free > 0) this.start = Buffer.concat([this.start, part.subarray(0, free)]);
    // Copied: a slice would keep the whole part in memory.
    this.end = Buffer.concat([this.end, part.subarray(-OUTPUT_KEPT_BYTES)]);
    if (this.end.length > OUTPUT_KEPT_BYTES) {
      this.end = Buffer.from(this.end.subarray(-OUTPUT_KEPT_BYTES));
    }
  }
}
