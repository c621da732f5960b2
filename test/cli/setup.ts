/**
 * setup — a command line in this process: a folder of its own, streams that are read as text, and
 * a terminal where a test wants one.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { Readable, Writable } from 'node:stream';
import { createSpool, type Spool, type SpoolOptions } from 'respool';
import { onTestFinished } from 'vitest';
import type { Io } from '../../src/cli/ui/output.ts';
import { run } from '../../src/cli/program.ts';
import { systemClock } from '../time.ts';

/** How a folder differs from the usual one. */
export interface SetupOptions {
  readonly hasStore?: boolean;
}

/** How one call differs from the usual one. */
export interface CallOptions {
  readonly stdin?: string | Uint8Array | Readable;
  readonly env?: Readonly<Record<string, string>>;
  /** Which streams are a terminal; default none. */
  readonly tty?: readonly ('stdin' | 'stdout' | 'stderr')[];
  readonly columns?: number;
  readonly clock?: Io['clock'];
  readonly confirm?: Io['confirm'];
  /** Hears of everything that was printed so far. */
  readonly onOutput?: (text: string) => void;
}

/** What came of a call. */
export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly bytes: Buffer;
  /** The lines of stdout as JSON. */
  readonly objects: () => Record<string, unknown>[];
}

/** A call that still runs. */
export interface Running {
  readonly ended: Promise<Ran>;
  readonly signal: (name: 'SIGINT' | 'SIGTERM') => void;
  /** As if something had thrown this where nobody catches. */
  readonly fail: (error: unknown) => void;
  /** Resolves as soon as the output fits. */
  readonly printed: (what: RegExp) => Promise<RegExpExecArray>;
  /** The codes with which the process was to end at once. */
  readonly exits: readonly number[];
}

/** A folder, and the command line in it. */
export interface Shell {
  readonly folder: string;
  readonly cli: (argv: readonly string[], options?: CallOptions) => Promise<Ran>;
  readonly start: (argv: readonly string[], options?: CallOptions) => Running;
  /** A spool on the store of the folder, to fill it; call stop() before a command needs it. */
  readonly spool: (options?: SpoolOptions) => Spool;
}

/** An empty store. */
async function makeStore(at: string): Promise<void> {
  const spool = createSpool({ path: at });
  await spool.count();
  await spool.stop();
}

/** A fresh folder with the command line in it, perhaps with a store; gone after the test. */
export async function setup({ hasStore = false }: SetupOptions = {}): Promise<Shell> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'respool-cli-'));
  if (hasStore) await makeStore(path.join(folder, 'respool'));
  const spools: Spool[] = [];
  onTestFinished(async () => {
    for (const spool of spools) await spool.stop({ within: 0 });
    await rm(folder, { recursive: true, force: true });
  });
  const start = (argv: readonly string[], options: CallOptions = {}): Running =>
    running(folder, argv, options);
  return {
    folder,
    start,
    cli: (argv, options) => start(argv, options).ended,
    spool: (options = {}) => {
      const spool = createSpool({ path: path.join(folder, 'respool'), ...options });
      spools.push(spool);
      return spool;
    },
  };
}

function running(cwd: string, argv: readonly string[], options: CallOptions): Running {
  const listeners = new Set<Parameters<Io['onSignal']>[0]>();
  const failures = new Set<(error: unknown) => void>();
  const exits: number[] = [];
  const looks = new Set<() => void>();
  const look = (): void => {
    for (const one of looks) one();
    options.onOutput?.(stdout.text());
  };
  const stdout = collector(look);
  const stderr = collector(look);
  const { stdin = '' } = options;
  const io: Io = {
    stdin: stdin instanceof Readable ? stdin : Readable.from([Buffer.from(stdin)]),
    stdout: stdout.stream,
    stderr: stderr.stream,
    env: { ...options.env },
    cwd,
    user: 'tester',
    isTTY: (stream) => options.tty?.includes(stream) ?? false,
    columns: () => options.columns ?? 80,
    clock: options.clock ?? systemClock,
    onSignal: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    onUncaught: (listener) => {
      failures.add(listener);
      return () => failures.delete(listener);
    },
    exit: (code) => void exits.push(code),
    ...(options.confirm === undefined ? {} : { confirm: options.confirm }),
  };
  const ended = run(argv, io).then((code) => ({
    code,
    stdout: stdout.text(),
    stderr: stderr.text(),
    bytes: stdout.bytes(),
    objects: () => objectsOf(stdout.text()),
  }));
  return {
    ended,
    exits,
    signal: (name) => {
      for (const listener of listeners) listener(name);
    },
    fail: (error) => {
      for (const listener of failures) listener(error);
    },
    printed: async (what) => {
      const { promise, resolve, reject } = Promise.withResolvers<RegExpExecArray>();
      const check = (): void => {
        const found = what.exec(`${stdout.text()}\n${stderr.text()}`);
        if (found !== null) resolve(found);
      };
      looks.add(check);
      check();
      ended.then(
        () => reject(new Error(`ended before it printed ${String(what)}: ${stderr.text()}`)),
        reject,
      );
      return promise.finally(() => looks.delete(check));
    },
  };
}

function collector(look: () => void): {
  stream: Writable;
  text: () => string;
  bytes: () => Buffer;
} {
  const pieces: Buffer[] = [];
  const stream = new Writable({
    write: (piece: Buffer, _encoding, done) => {
      pieces.push(piece);
      done();
      look();
    },
  });
  const bytes = (): Buffer => Buffer.concat(pieces);
  return { stream, bytes, text: () => bytes().toString('utf8') };
}

function objectsOf(text: string): Record<string, unknown>[] {
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}
