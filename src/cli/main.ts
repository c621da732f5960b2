/**
 * main — the command line of this process: its words in, its exit code out.
 *
 * bin/respool.js loads it. Everything else of the command line takes its world as an argument.
 */

import { userInfo } from 'node:os';
import process from 'node:process';
import { textOf } from '../core/errors.ts';
import { systemClock } from '../system/clock.ts';
import type { Io } from './io.ts';
import { run } from './program.ts';

const COLUMNS_DEFAULT = 80;
const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

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
  exit: (code) => process.exit(code),
};

for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    // The reader has seen enough, as `head` does: that is its right, and no error of ours. What
    // runs until a signal ends in its own order.
    if (error.code === 'EPIPE' && process.listenerCount('SIGTERM') > 0) {
      process.kill(process.pid, 'SIGTERM');
      return;
    }
    if (error.code === 'EPIPE') process.exit(0);
    process.exitCode = 1;
    if (stream !== process.stderr) process.stderr.write(`respool: ${textOf(error)}\n`);
  });
}

const code = await run(process.argv.slice(2), io);
// Output that could not be written is an error, however well the rest went.
process.exitCode ||= code;

/** The account's name; a container may run under a number that has none. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return process.env['USER'] ?? String(process.getuid?.() ?? 'unknown');
  }
}
