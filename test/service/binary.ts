/** The real command line as its own process, as a user runs it. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { onTestFinished, vi } from 'vitest';

const ROOT = path.join(import.meta.dirname, '../..');
const BINARY = path.join(ROOT, 'bin/respool.js');

/** The command of the package as users install it, built for this test. */
export async function packaged(): Promise<string> {
  const made = await folder();
  await promisify(execFile)(process.execPath, [
    path.join(ROOT, 'scripts/build.ts'),
    path.join(made, 'dist'),
  ]);
  await cp(path.join(ROOT, 'bin'), path.join(made, 'bin'), { recursive: true });
  await copyFile(path.join(ROOT, 'package.json'), path.join(made, 'package.json'));
  await symlink(path.join(ROOT, 'node_modules'), path.join(made, 'node_modules'));
  return path.join(made, 'bin/respool.js');
}

/** A folder of its own, gone after the test. */
export async function folder(config?: object): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), 'respool-service-'));
  onTestFinished(() => rm(made, { recursive: true, force: true }));
  if (config !== undefined) {
    await writeFile(path.join(made, 'respool.config.json'), JSON.stringify(config));
  }
  return made;
}

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command to its end. */
export async function respool(
  cwd: string,
  args: readonly string[],
  { input = '', env = {} }: { readonly input?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Promise<Ended> {
  const child = launch(cwd, args, env);
  child.stdin?.end(input);
  const [stdout, stderr] = await Promise.all([output(child.stdout), output(child.stderr)]);
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  return { code: child.exitCode, stdout, stderr };
}

/** A service that listens. */
export interface Running {
  readonly url: string;
  readonly pid: number;
  /** What it printed so far, both streams. */
  printed(): string;
  /** Resolves when it has printed this. */
  prints(pattern: RegExp): Promise<void>;
  kill(signal: NodeJS.Signals): void;
  /** Its exit code, or the signal that ended it. */
  readonly ended: Promise<number | NodeJS.Signals | null>;
}

/** Starts `respool serve` in this folder, on a free port. */
export async function serve(
  cwd: string,
  args: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
  binary: string = BINARY,
): Promise<Running> {
  const child = launch(cwd, ['serve', '--port', '0', ...args], env, binary);
  child.stdin?.end();
  let printed = '';
  const waiting = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (part: string) => {
      printed += part;
      for (const look of waiting) look();
    });
  }
  const ended = once(child, 'exit').then(([code, signal]) => code ?? signal);
  const prints = async (pattern: RegExp): Promise<void> => {
    let look = (): void => undefined;
    const seen = new Promise<'seen'>((resolve) => {
      look = () => {
        if (pattern.test(printed)) resolve('seen');
      };
    });
    waiting.add(look);
    look();
    const first = await Promise.race([seen, ended]);
    waiting.delete(look);
    if (first !== 'seen')
      throw new Error(`it ended with ${first} before it printed ${pattern}:\n${printed}`);
  };
  onTestFinished(() => {
    child.kill('SIGKILL');
  });
  await prints(/https?:\/\/127\.0\.0\.1:\d+/);
  const url = /https?:\/\/127\.0\.0\.1:\d+/.exec(printed)?.[0] ?? '';
  return {
    url,
    pid: child.pid ?? 0,
    printed: () => printed,
    prints,
    kill: (signal) => void child.kill(signal),
    ended,
  };
}

function launch(
  cwd: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  binary: string = BINARY,
): ChildProcess {
  return spawn(process.execPath, [binary, ...args], {
    cwd,
    env: { ...process.env, NO_COLOR: '1', ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

async function output(stream: NodeJS.ReadableStream | null): Promise<string> {
  return stream === null ? '' : text(stream);
}

/** A receiver on this machine, closed after the test. */
export async function receiver(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ readonly port: number; readonly url: string; readonly server: Server }> {
  const server = createServer(answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, url: `http://127.0.0.1:${port}`, server };
}

/** A route to a receiver on this machine, as a configuration file has it. */
export function route(topic: string, url: string, more: object = {}, http: object = {}): object {
  return { topic, deliver: { http: { url, allow: ['127.0.0.1'], ...http } }, ...more };
}

const UNTIL_MAX_MS = 600_000;

/** Waits for something that another process makes true; looks again until the test's time is over. */
export async function until(isTrue: () => Promise<boolean>): Promise<void> {
  await vi.waitUntil(isTrue, { timeout: UNTIL_MAX_MS, interval: 50 });
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createTcpServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}
