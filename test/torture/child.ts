/**
 * child — starts a program of ours as a process of its own, to be paused, killed or traced, and
 * listens to the lines it prints.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** How a process ended. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A running program. */
export interface Child {
  readonly pid: number;
  /** Everything it printed so far, line by line. */
  readonly lines: readonly string[];
  readonly ended: Promise<Ended>;
  /** Resolves with the first line that starts so; throws when it ends without one. */
  line(start: string): Promise<string>;
  say(text: string): void;
  signal(signal: NodeJS.Signals): void;
  /** What it wrote to its error output. */
  complaint(): string;
}

/** A child that never says a word is ended after this long, so that no test hangs. */
const LIFE_MAX_MS = 900_000;

/** One compile cache for all children, kept from run to run: starting is most of their life. */
const COMPILED: string = join(import.meta.dirname, '../../.cache/compiled');

/** Starts `file` (of this folder) with one argument, passed as JSON. */
export function startChild(
  file: string,
  argument: object,
  { env = {} }: { readonly env?: Readonly<Record<string, string>> } = {},
): Child {
  const path = join(import.meta.dirname, file);
  const started = spawn(
    process.execPath,
    ['--conditions=respool-source', path, JSON.stringify(argument)],
    {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: COMPILED, ...env },
      timeout: LIFE_MAX_MS,
      killSignal: 'SIGKILL',
    },
  );
  return listenTo(started, file);
}

function listenTo(started: ChildProcess, file: string): Child {
  const { stdout, stderr, stdin, pid } = started;
  if (stdout === null || stderr === null || stdin === null || pid === undefined) {
    throw new Error(`${file} could not be started`);
  }
  const lines: string[] = [];
  const waiting = new Set<() => void>();
  const tell = (): void => {
    for (const look of waiting) look();
  };
  let complaint = '';
  let isOver = false;
  stderr.setEncoding('utf8').on('data', (text: string) => {
    complaint = (complaint + text).slice(-8_192);
  });
  // The pipe to a killed process breaks; that is what these tests are about.
  stdin.on('error', () => undefined);
  createInterface({ input: stdout }).on('line', (line) => {
    lines.push(line);
    tell();
  });
  const ended = new Promise<Ended>((resolve) => {
    // 'close', not 'exit': by then everything it printed has been read.
    started.on('close', (code, signal) => {
      isOver = true;
      resolve({ code, signal });
      tell();
    });
  });
  return {
    pid,
    lines,
    ended,
    line: (start) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const found = lines.find((line) => line.startsWith(start));
          if (found !== undefined) resolve(found);
          else if (isOver) reject(new Error(`${file} ended without "${start}": ${complaint}`));
          else return;
          waiting.delete(look);
        };
        waiting.add(look);
        look();
      }),
    say: (text) => void stdin.write(`${text}\n`),
    signal: (signal) => void started.kill(signal),
    complaint: () => complaint,
  };
}
