/**
 * processes — start, watch and end processes by their id, together with all they have started.
 */

import { execFile, spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** The account a process runs under. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** How to start a process. */
export interface LaunchOptions {
  readonly logFile: string;
  readonly cwd: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly account?: Account | undefined;
}

/** Our own process. */
export interface Launched {
  readonly pid: number;
  readonly hasEnded: () => boolean;
  /** Resolves when it has ended, with how. */
  readonly ended: Promise<string>;
}

/** How often a process or a server is looked at while we wait for it. */
const LOOK_EVERY_MS = 40;
/** Longest wait for a killed process, in milliseconds: its threads may wait for a busy disk. */
const KILL_MAX_MS = 120_000;
/** How much of a log is shown when a server did not start. */
const LOG_TAIL_LINES = 15;
const RUN_TIMEOUT_MS = 60_000;

/** Starts a process in a session of its own, so that a Ctrl-C at the terminal is not its end. */
export async function launch(
  command: string,
  args: readonly string[],
  { logFile, cwd, env, account }: LaunchOptions,
): Promise<Launched> {
  const log = openSync(logFile, 'a');
  try {
    const child = spawn(command, args, {
      cwd,
      env: env ?? process.env,
      detached: true,
      stdio: ['ignore', log, log],
      ...account,
    });
    let hasEnded = false;
    const ended = new Promise<string>((resolve) => {
      child.once('exit', (code, signal) => {
        hasEnded = true;
        resolve(signal === null ? `exit code ${code}` : `signal ${signal}`);
      });
    });
    await new Promise((resolve, reject) => {
      child.once('spawn', () => resolve(undefined));
      child.once('error', reject);
    });
    if (child.pid === undefined) throw new Error(`"${command}" has no process id`);
    return { pid: child.pid, hasEnded: () => hasEnded, ended };
  } finally {
    closeSync(log);
  }
}

/** How to run a command to its end. */
export interface RunOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly account?: Account | undefined;
  readonly timeoutMs?: number;
}

/** Runs a command to its end and gives what it printed; a failure tells what it said. */
export function run(
  command: string,
  args: readonly string[],
  { cwd, env, account, timeoutMs = RUN_TIMEOUT_MS }: RunOptions = {},
): Promise<string> {
  const options = { cwd, env: env ?? process.env, timeout: timeoutMs, ...account };
  return new Promise((resolve, reject) => {
    execFile(command, args, options, (error, stdout, stderr) => {
      if (error === null) return resolve(stdout);
      const said = tailOf(`${stdout}\n${stderr}`);
      reject(new Error(`"${command} ${args.join(' ')}" failed: ${said || error.message}`));
    });
  });
}

/** Waits until a probe says yes; fails when the process ends before, or the time is over. */
export async function untilReady(
  what: string,
  probe: () => Promise<boolean>,
  { process: child, logFile, timeoutMs }: ReadyOptions,
): Promise<void> {
  const until = Date.now() + timeoutMs;
  for (;;) {
    if (await probe()) return;
    if (child?.hasEnded() === true) {
      throw new Error(`${what} ended with ${await child.ended}:\n${logTail(logFile)}`);
    }
    if (Date.now() > until) {
      throw new Error(`${what} is not ready after ${timeoutMs} ms:\n${logTail(logFile)}`);
    }
    await sleep(LOOK_EVERY_MS);
  }
}

/** What is waited for, and for how long. */
export interface ReadyOptions {
  readonly process?: Launched;
  readonly logFile: string;
  readonly timeoutMs: number;
}

/** The process and everything it has started, the first first. */
export async function familyOf(pid: number): Promise<readonly number[]> {
  const parents = await parentsOfAll();
  const family = [pid];
  for (const member of family) {
    for (const [child, parent] of parents) if (parent === member) family.push(child);
  }
  return family;
}

/** Sends a signal to each of these; one that is gone is no error. */
export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch (error) {
      if (!isGone(error)) throw error;
    }
  }
}

/** Whether there is a process of this id. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return readState(pid) !== 'Z' || hasThreads(pid);
  } catch (error) {
    return !isGone(error);
  }
}

/**
 * Whether threads other than the first are still there: a killed process shows as a zombie while
 * one of them waits for the disk, and its ports are in use until that one has ended too.
 */
function hasThreads(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).length > 1;
  } catch {
    return false;
  }
}

/** Asks a family to end, and ends it by force when it has not after a while. */
export async function endFamily(
  pid: number,
  { signal, graceMs }: { readonly signal: NodeJS.Signals; readonly graceMs: number },
): Promise<void> {
  const family = await familyOf(pid);
  // A process that stands still does not hear the other signal.
  signalAll(family, 'SIGCONT');
  signalAll([pid], signal);
  if (await areGone(family, graceMs)) return;
  signalAll([...family, ...(await familyOf(pid))], 'SIGKILL');
  await areGone(family, KILL_MAX_MS);
}

/** Ends a family at once, as a crash of it does. */
export async function killFamily(pid: number, graceMs: number = KILL_MAX_MS): Promise<void> {
  const family = await familyOf(pid);
  signalAll(family, 'SIGKILL');
  await areGone(family, graceMs);
}

/** Waits until none of these is there. */
async function areGone(pids: readonly number[], graceMs: number): Promise<boolean> {
  const until = Date.now() + graceMs;
  while (pids.some(isAlive)) {
    if (Date.now() > until) return false;
    await sleep(LOOK_EVERY_MS);
  }
  return true;
}

/** When a process was started, as the system counts it; tells it from a later one of its id. */
export function birthOf(pid: number): string | undefined {
  try {
    return statOf(pid)[19];
  } catch {
    return undefined;
  }
}

/** The last lines of a log. */
function logTail(logFile: string): string {
  try {
    return tailOf(readFileSync(logFile, 'utf8'));
  } catch {
    return '(no log)';
  }
}

function tailOf(text: string): string {
  return text.trim().split('\n').slice(-LOG_TAIL_LINES).join('\n');
}

async function parentsOfAll(): Promise<ReadonlyMap<number, number>> {
  const parents = new Map<number, number>();
  if (process.platform === 'linux') {
    for (const name of readdirSync('/proc')) {
      if (!/^\d+$/.test(name)) continue;
      try {
        parents.set(Number(name), Number(statOf(Number(name))[1]));
      } catch {
        // It ended while we looked.
      }
    }
    return parents;
  }
  for (const line of (await run('ps', ['-A', '-o', 'pid=,ppid='])).split('\n')) {
    const [pid, parent] = line.trim().split(/\s+/).map(Number);
    if (pid !== undefined && parent !== undefined) parents.set(pid, parent);
  }
  return parents;
}

/** The columns of /proc/PID/stat from the third, the state, on. */
function statOf(pid: number): readonly string[] {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The second column is a name in brackets, and may hold anything, also brackets.
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}

function readState(pid: number): string | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    return statOf(pid)[0];
  } catch {
    return 'Z';
  }
}

function isGone(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ESRCH';
}
