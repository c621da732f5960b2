/**
 * tracing — records the system calls of a running program's threads, and tampers with them: a kill
 * or an error at the n-th call of a kind.
 *
 * It is attached when the program has started and waits, so only what the test is about is counted.
 * n.b. strace counts per thread and per system call; so do we.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import type { ToolName } from '../../scripts/services/words.ts';

/** The calls that change what is on the disk, or bring it there. */
const WRITING_CALLS =
  'write writev pwrite64 pwritev fsync fdatasync ftruncate fallocate rename renameat renameat2 ' +
  'link linkat unlink unlinkat rmdir mkdir mkdirat';

const TRACER: ToolName = 'strace';

/** One call that was recorded. */
export interface Call {
  /** The thread, by name and number among those of that name: the same in every run. */
  readonly thread: string;
  readonly name: string;
  /** The how-manieth of its name in its thread, from 1. */
  readonly count: number;
  /** Its arguments, shortened. */
  readonly text: string;
}

/** A strace that is attached. */
export interface Tracer {
  /** Resolves when the program is gone, with everything that strace printed. */
  readonly output: Promise<string>;
}

/** Attaches to all threads of a process and writes down their calls. */
export async function record(pid: number): Promise<{ readonly calls: Promise<readonly Call[]> }> {
  const threads = threadsOf(pid);
  const expression = `trace=${WRITING_CALLS.split(' ')
    .map((name) => `?${name}`)
    .join(',')}`;
  const args = ['-f', '-y', '-s', '80', '-p', String(pid), '-e', expression];
  const tracer = await attach(args, threads.size);
  return { calls: tracer.output.then((output) => parse(output, threads)) };
}

/** Attaches to one thread: at its n-th call of this name the process is killed, before the call. */
export async function killAt(pid: number, { thread, name, count }: Call): Promise<Tracer> {
  const tid = [...threadsOf(pid)].find(([, known]) => known === thread)?.[0];
  if (tid === undefined) throw new Error(`process ${pid} has no thread "${thread}"`);
  const inject = `inject=${name}:signal=KILL:when=${count}`;
  return attach(['-p', String(tid), '-e', `trace=${name}`, '-e', inject], 1);
}

/** Attaches to all threads, also those to come: the first to make this many such calls is the last. */
export async function killAtAny(pid: number, name: string, count: number): Promise<Tracer> {
  return inject(pid, `${name}:signal=KILL:when=${count}`);
}

/** Attaches to all threads: what `inject` says happens to their calls. */
export async function inject(pid: number, what: string): Promise<Tracer> {
  const names = what.slice(0, what.indexOf(':'));
  const args = ['-f', '-p', String(pid), '-e', `trace=${names}`, '-e', `inject=${what}`];
  return attach(args, threadsOf(pid).size);
}

/** Threads by id, each with a name that is the same in every run of the program. */
function threadsOf(pid: number): ReadonlyMap<number, string> {
  const threads = new Map<number, string>();
  const counts = new Map<string, number>();
  const tids = readdirSync(`/proc/${pid}/task`).map(Number);
  for (const tid of tids.sort((a, b) => a - b)) {
    const comm = readFileSync(`/proc/${pid}/task/${tid}/comm`, 'utf8').trim();
    const count = (counts.get(comm) ?? 0) + 1;
    counts.set(comm, count);
    threads.set(tid, `${comm} ${count}`);
  }
  return threads;
}

/** Starts strace and resolves when it has hold of so many threads. */
function attach(args: readonly string[], threads: number): Promise<Tracer> {
  const tracer: ChildProcess = spawn(TRACER, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  return new Promise((resolve, reject) => {
    const output = new Promise<string>((done) => tracer.on('close', () => done(text)));
    tracer.on('error', reject);
    tracer.on('close', () => reject(new Error(`strace ended before it was attached: ${text}`)));
    tracer.stderr?.setEncoding('utf8').on('data', (part: string) => {
      text += part;
      // "Process 1 attached", or with several threads "Process 1 attached with 9 threads".
      const attached = text.match(/Process \d+ attached/g)?.length ?? 0;
      if (attached >= 1 || threads === 0) resolve({ output });
    });
  });
}

/** What threads are called that were not there when we attached. */
export const NEW_THREAD = 'new';

function parse(output: string, threads: ReadonlyMap<number, string>): readonly Call[] {
  const counts = new Map<string, number>();
  const calls: Call[] = [];
  for (const line of output.split('\n')) {
    const found = /^\[pid +(\d+)\] (\w+)\((.*)$/.exec(line);
    if (found === null) continue;
    const [, tid = '', name = '', text = ''] = found;
    const thread = threads.get(Number(tid)) ?? `${NEW_THREAD} ${tid}`;
    const count = (counts.get(`${thread} ${name}`) ?? 0) + 1;
    counts.set(`${thread} ${name}`, count);
    calls.push({ thread, name, count, text });
  }
  return calls;
}
