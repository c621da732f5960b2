/**
 * output — the world outside as a command sees it (streams, environment, terminal, signals), and
 * how a command prints: results on stdout, everything about them on stderr.
 *
 * cli/main.ts makes the real `Io`; tests make their own and run commands in their process.
 * Commands pass text that is already safe (observe/logs/safe-text.ts) where it comes from
 * outside.
 */

import type { Readable, Writable } from 'node:stream';
import { styleText } from 'node:util';
import { errorCodeOf } from '../exit-codes.ts';
import { textOf } from '../../core/errors.ts';
import { jsonLine, safe, type SafeOptions } from '../../observe/logs/safe-text.ts';
import type { Clock } from '../../ports/clock.ts';

/** The world outside, as a command sees it. */
export interface Io {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** What a file `.env` says is added to it. */
  readonly env: Record<string, string | undefined>;
  readonly cwd: string;
  /** The user name on this machine. */
  readonly user: string;
  isTTY(stream: 'stdin' | 'stdout' | 'stderr'): boolean;
  /** How many columns the terminal has now; 80 where there is none. */
  columns(): number;
  readonly clock: Clock;
  /** Handles SIGINT and SIGTERM instead of being ended by them. Returns a function to stop. */
  onSignal(listener: (signal: 'SIGINT' | 'SIGTERM') => void): () => void;
  /** Ends the process at once; only for a second signal or uncaught error (lifetime.ts). */
  exit(code: number): void;
  /** Asks a person; default is a question on the terminal. */
  readonly confirm?: (question: string) => Promise<boolean>;
  /** Listens for write errors instead of being ended by them, except EPIPE. */
  onUnwritten?(listener: (error: Error) => void): () => void;
  /** Listens for uncaught errors. Returns the function that stops it. */
  onUncaught?(listener: (error: unknown) => void): () => void;
}

/** How the output of one call looks. */
interface OutOptions {
  readonly json: boolean;
  /** Tables in full, whatever the terminal. */
  readonly wide?: boolean;
  readonly quiet: boolean;
  readonly verbose: boolean;
  /** False for `--no-color`. */
  readonly color: boolean;
}

/** A way to write text: colour or weight. */
export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan' | 'magenta';

/** Printing for one call of a command. */
export interface Out extends OutOptions {
  /** A line of the result. Resolves when the reader has room for more. */
  line(text: string): Promise<void>;
  /** A piece of the result as it is. */
  write(piece: string | Uint8Array): Promise<void>;
  /** A line of JSON of the result. */
  object(value: unknown): Promise<void>;
  /** A line for people on stderr; not with `--quiet`. */
  note(text: string): void;
  /** A line for people on stderr, with `--verbose` only. */
  detail(text: string): void;
  /**
   * A line about something unsafe or unusual; also with `--quiet`. Further lines, where they are
   * kept, are indented: none of them can pass for our own warning.
   */
  warn(text: string, options?: SafeOptions): void;
  /** Says what went wrong: a sentence, or an object with `--json`. */
  error(error: unknown): void;
  /** The text in a style, where stdout shows any. */
  style(style: Style, text: string): string;
  /** Maximum columns of a line of the result; undefined where no person reads it. */
  readonly columns: number | undefined;
}

/** Below this no table is readable: the value is taken for a mistake. */
const COLUMNS_MIN = 20;

/** Printing to these streams. */
export function createOut(io: Io, options: OutOptions): Out {
  const hasStyle = showsStyle(io, options);
  const note = (text: string): void => void io.stderr.write(`${text}\n`);
  const style = (name: Style, text: string): string =>
    hasStyle ? styleText(name, text, { validateStream: false }) : text;
  return {
    ...options,
    line: (text) => write(io.stdout, `${text}\n`),
    write: (piece) => write(io.stdout, piece),
    object: (value) => write(io.stdout, `${jsonLine(value)}\n`),
    note: (text) => {
      if (!options.quiet) note(text);
    },
    detail: (text) => {
      if (options.verbose && !options.quiet) note(text);
    },
    warn: (text, how) => {
      if (options.json) note(jsonLine({ warning: { message: text } }));
      else note(`warning: ${safe(text, how).replaceAll('\n', '\n  ')}`);
    },
    error: (error) => {
      const message = safe(textOf(error), { multiline: true });
      if (options.json) note(jsonLine({ error: { code: errorCodeOf(error), message } }));
      else note(`respool: ${message}`);
      if (options.verbose && error instanceof Error && error.stack !== undefined) {
        note(safe(error.stack, { multiline: true }));
      }
    },
    style,
    get columns() {
      if (options.wide === true) return undefined;
      return io.isTTY('stdout') ? io.columns() : columnsAskedFor(io.env['COLUMNS']);
    },
  };
}

/** What `watch`, or a user, has exported for output that is no terminal. */
function columnsAskedFor(text = ''): number | undefined {
  const columns = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  return columns >= COLUMNS_MIN ? columns : undefined;
}

function showsStyle(io: Io, { color, json }: OutOptions): boolean {
  const { NO_COLOR: noColor, FORCE_COLOR: forced, TERM: term } = io.env;
  if (!color || json || (noColor !== undefined && noColor !== '')) return false;
  if (forced !== undefined && forced !== '' && forced !== '0') return true;
  return io.isTTY('stdout') && term !== 'dumb';
}

async function write(stream: Writable, piece: string | Uint8Array): Promise<void> {
  // The reader closed the pipe, as `head` does: cli/main.ts gets the error and decides.
  if (stream.destroyed || stream.write(piece)) return;
  await new Promise<void>((resolve) => {
    const goOn = (): void => {
      for (const event of GOES_ON) stream.off(event, goOn);
      resolve();
    };
    for (const event of GOES_ON) stream.on(event, goOn);
  });
}

const GOES_ON = ['drain', 'close', 'error'] as const;
