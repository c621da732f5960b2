/**
 * main — the entry point of the process: arguments in, exit code out.
 *
 * bin/respool.js loads it. Everything else of the command line takes its world as an argument.
 */

import { Console } from 'node:console';
import { userInfo } from 'node:os';
import process from 'node:process';
import { textOf } from '../core/errors.ts';
import { systemClock } from '../system/clock.ts';
import { EXIT } from './exit-codes.ts';
import type { Io } from './ui/output.ts';
import { run } from './program.ts';

const COLUMNS_DEFAULT = 80;
const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

let hasEnded = false;
let unwrittenSaid = false;
/** Callers that go on when stdout cannot be written. */
const stayers = new Set<(error: Error) => void>();

const io: Io = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  cwd: process.cwd(),
  get user() {
    return userName();
  },
  isTTY: (stream) => process[stream].isTTY,
  // A terminal that does not know its size says 0.
  columns: () => process.stdout.columns || process.stderr.columns || COLUMNS_DEFAULT,
  clock: systemClock,
  onSignal: (listener) => {
    for (const signal of SIGNALS) process.on(signal, listener);
    return () => {
      for (const signal of SIGNALS) process.off(signal, listener);
    };
  },
  onUncaught: (listener) => {
    process.on('uncaughtException', listener);
    process.on('unhandledRejection', listener);
    return () => {
      process.off('uncaughtException', listener);
      process.off('unhandledRejection', listener);
    };
  },
  onUnwritten: (listener) => {
    stayers.add(listener);
    return () => stayers.delete(listener);
  },
  exit,
};

// A configuration that is a program may print; results are not the place for it.
globalThis.console = new Console(process.stderr, process.stderr);

for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => unwritten(stream, error));
}

process.on('exit', (code) => {
  if (hasEnded || code !== 0) return;
  // Either nothing is left to run, or the process was ended from outside.
  process.exitCode = EXIT.usage;
  process.stderr.write(
    'respool: the process ended before the command did: does the configuration await what never ' +
      'comes, or call process.exit?\n',
  );
});

void run(process.argv.slice(2), io).then(end);

/** Ends once everything was printed: a configuration may have left something running. */
async function end(code: number): Promise<void> {
  await Promise.all([process.stdout, process.stderr].map(flushed));
  exit(unwrittenSaid ? EXIT.refused : code);
}

function exit(code: number): never {
  hasEnded = true;
  return process.exit(code);
}

async function flushed(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.destroyed || stream.writableLength === 0) return;
  await new Promise<void>((resolve) => {
    stream.write('', () => resolve());
  });
}

function unwritten(stream: NodeJS.WriteStream, error: NodeJS.ErrnoException): void {
  const runsUntilSignal = process.listenerCount('SIGTERM') > 0;
  // The reader has seen enough, as `head` does: that is its right, and no error of ours. What
  // runs until a signal ends in its own order.
  if (error.code === 'EPIPE') {
    // A caller that no longer reads our remarks still wants the work, its output and its exit code.
    if (stream === process.stderr) return;
    if (!runsUntilSignal) exit(EXIT.done);
    process.kill(process.pid, 'SIGTERM');
    return;
  }
  if (stayers.size > 0) {
    if (stream === process.stdout) for (const hear of stayers) hear(error);
    return;
  }
  if (unwrittenSaid) return;
  unwrittenSaid = true;
  if (stream === process.stdout) {
    process.stderr.write(`respool: cannot write to stdout: ${textOf(error)}\n`);
  }
  // Output that could not be written is an error, however well the rest went.
  if (runsUntilSignal) process.kill(process.pid, 'SIGTERM');
  else exit(EXIT.refused);
}

/** The account's name; a container may run under a number that has none. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return process.env['USER'] ?? String(process.getuid?.() ?? 'unknown');
  }
}
