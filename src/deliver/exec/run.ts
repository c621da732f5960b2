/**
 * run — one run of a command: body in, start of its output out, and an end in time.
 *
 *   running ─exit─▶ ended
 *   running ─timeout, signal─▶ SIGTERM ─killAfterMs─▶ SIGKILL ─▶ ended
 *
 * The command leads its own process group, so that its children are stopped together with it, also
 * when our process exits first. Memory stays bounded whatever it writes.
 *
 * Called by exec.ts, and for hooks by `respool dlq watch`.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { asError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { oneBehind } from '../ready-handler.ts';

/** Bytes kept of the start and of the end of each output. Also in docs/how-to/run-a-command.md. */
export const OUTPUT_KEPT_BYTES = 1_024;
/** How long to wait for the rest of the output, which a child of the command may keep open. */
const OUTPUT_GRACE_MS = 1_000;

/** What to run. */
export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly killAfterMs: number;
}

/** How a command ended. */
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
  // n.b. Without a free file descriptor there are no streams, and the error arrives later.
  if (!stdin || !stdout || !stderr) return ended.then(throwNoStreams);
  const output = new Excerpt(stdout);
  const errors = new Excerpt(stderr);
  const stopper = new Stopper(child, command.killAfterMs, clock);
  const stop = (): void => stopper.stop();
  let broken: { readonly error: unknown } | undefined;
  const feeding = feed(stdin, body, (error) => {
    broken = { error };
    // Before its input ends: it must not mistake the readable part for the whole body.
    if (child.exitCode === null && child.signalCode === null) kill(child, 'SIGKILL');
  });
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop);
  try {
    const [exitCode, endSignal] = await ended;
    stdin.destroy();
    await feeding;
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
    // Some system errors are thrown, others arrive as an event.
    throw new StartError(asError(error));
  }
}

function throwNoStreams(): never {
  throw new StartError(new Error('the command has no input and output'));
}

/** Writes the body to the command as fast as it reads; it need not read all of it. */
async function feed(
  stdin: Writable,
  body: AsyncIterable<Uint8Array>,
  onError: (error: unknown) => void,
): Promise<void> {
  try {
    await pipeline(Readable.from(oneBehind(body, onError), { objectMode: false }), stdin);
  } catch {
    // EPIPE and the like: the exit code decides. `onError` has an error of the body already.
  }
}

/** Exit code and signal, once the command has ended and its output is complete. */
function endOf(child: ChildProcess, clock: Clock): Promise<[number | null, string | null]> {
  return new Promise((resolve, reject) => {
    child.on('error', (error) => reject(new StartError(error)));
    child.once('exit', (exitCode, endSignal) => {
      const end = (): void => {
        cancel();
        resolve([exitCode, endSignal]);
      };
      const cancel = clock.after(OUTPUT_GRACE_MS, end);
      child.once('close', end);
    });
  });
}

/** Stops a command and its children. */
class Stopper {
  readonly #child: ChildProcess;
  readonly #killAfterMs: number;
  readonly #clock: Clock;
  readonly #onExit = (): void => this.#atExit();
  #isStopping = false;
  #cancelKill: (() => void) | undefined;

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
    this.#cancelKill = this.#clock.after(this.#killAfterMs, () => kill(this.#child, 'SIGKILL'));
  }

  /** The command has ended: kills the children it left, if it was stopped. */
  done(): void {
    this.#cancelKill?.();
    if (this.#isStopping) kill(this.#child, 'SIGKILL');
    running.delete(this.#onExit);
    if (running.size === 0) process.removeListener('exit', endRunning);
  }

  /** Our process exits: nothing else would stop the command in time. */
  #atExit(): void {
    const { exitCode, signalCode } = this.#child;
    const isRunning = exitCode === null && signalCode === null;
    if (isRunning || this.#isStopping) kill(this.#child, 'SIGKILL');
  }
}

/** What to do on exit of our process, per running command; they share one listener. */
const running = new Set<() => void>();

function endRunning(): void {
  for (const end of running) end();
}

function kill(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group is empty, or the system has no process groups.
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
