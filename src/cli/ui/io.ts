/**
 * io — everything a command touches of the world outside: streams, environment, terminal, signals.
 *
 * cli/main.ts makes the real one; tests make their own and run commands in their process.
 */

import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../../ports/clock.ts';

/** The world outside, as a command sees it. */
export interface Io {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** What a file `.env` says is added to it. */
  readonly env: Record<string, string | undefined>;
  readonly cwd: string;
  /** The name of who runs the command on this machine. */
  readonly user: string;
  isTTY(stream: 'stdin' | 'stdout' | 'stderr'): boolean;
  /** How many columns the terminal has now; 80 where there is none. */
  columns(): number;
  readonly clock: Clock;
  /** Hears of SIGINT and SIGTERM instead of being ended by them. Returns the way to stop. */
  onSignal(listener: (signal: 'SIGINT' | 'SIGTERM') => void): () => void;
  /** Ends the process at once; only for a second signal and for errors that nobody caught. */
  exit(code: number): void;
  /** Asks a person; default is a question on the terminal. */
  readonly confirm?: (question: string) => Promise<boolean>;
  /** Hears of output that cannot be written instead of being ended by it; EPIPE aside. */
  onUnwritten?(listener: (error: Error) => void): () => void;
  /** Hears of errors that nobody caught. Returns the way to stop. */
  onUncaught?(listener: (error: unknown) => void): () => void;
}
