/**
 * ledger — remembers which processes are ours, so that none of them outlives us, however we end.
 *
 * Three nets, one below the other: the keeper ends what it has started; when it is killed, the
 * guard does, a shell that waits for the end of its input; and when both are killed, whoever comes
 * next does, from the record in the folder.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { birthOf, isAlive, killFamily } from './processes.ts';
import type { Ledger } from './server.ts';

const FOLDER_PREFIX = 'respool-servers-';
const RECORD = 'record.json';
/** A folder without a record is somebody's who has only just begun, for this long. */
const BEGINNING_MS = 60_000;
const END_GRACE_MS = 5_000;

/** It hears of processes by lines, and ends those that are left when its input ends. */
const GUARD = `trap '' INT TERM HUP
pids=' '
containers=
while read -r sign pid; do
  case $sign in
    +) pids="$pids$pid " ;;
    -) pids=$(printf %s "$pids" | sed "s/ $pid / /") ;;
    container) containers="$containers $pid" ;;
  esac
done
if [ "$pids" != ' ' ]; then
  for pid in $pids; do kill -CONT "$pid"; kill -QUIT "$pid"; done
  sleep 1
  for pid in $pids; do kill -KILL -- "-$pid"; kill -KILL "$pid"; done
fi 2>/dev/null
[ -z "$containers" ] || docker rm --force --volumes $containers >/dev/null 2>&1
rm -rf "$1"`;

interface Remembered {
  readonly pid: number;
  readonly birth: string | undefined;
}

/** The processes of one keeper and their folder. */
export class FolderLedger implements Ledger {
  /** Holds everything; gone when the ledger is closed. */
  readonly dir: string;
  readonly #pids = new Map<number, Remembered>();
  readonly #guard: ChildProcess;

  constructor() {
    this.dir = mkdtempSync(path.join(tmpdir(), FOLDER_PREFIX));
    // The server of PostgreSQL runs under another account, and has to get to its folder below.
    chmodSync(this.dir, 0o711);
    this.#write();
    this.#guard = spawn('sh', ['-c', GUARD, 'respool-guard', this.dir], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    // A guard that was killed must not take us with it.
    this.#guard.stdin?.on('error', () => undefined);
  }

  /** The guard's own id: it is ours, and yet it has to stay to the end. */
  get guardPid(): number | undefined {
    return this.#guard.pid;
  }

  add(pid: number): void {
    this.#pids.set(pid, { pid, birth: birthOf(pid) });
    this.#guard.stdin?.write(`+ ${pid}\n`);
    this.#write();
  }

  remove(pid: number): void {
    if (!this.#pids.delete(pid)) return;
    this.#guard.stdin?.write(`- ${pid}\n`);
    this.#write();
  }

  addContainer(name: string): void {
    this.#guard.stdin?.write(`container ${name}\n`);
  }

  /** Ends what is left, removes the folder, and sends the guard home. */
  async close(): Promise<void> {
    await Promise.all([...this.#pids.keys()].map((pid) => killFamily(pid, END_GRACE_MS)));
    rmSync(this.dir, { recursive: true, force: true });
    const home = new Promise((resolve) => this.#guard.once('exit', resolve));
    this.#guard.stdin?.end();
    if (this.#guard.exitCode === null && this.#guard.signalCode === null) await home;
  }

  #write(): void {
    const keeper = { pid: process.pid, birth: birthOf(process.pid) };
    const record = JSON.stringify({ keeper, pids: [...this.#pids.values()] });
    try {
      writeFileSync(path.join(this.dir, RECORD), record);
    } catch {
      // Our folder is gone already: we are ending.
    }
  }
}

/** Ends and removes what keepers left that were killed together with their guards. */
export async function cleanLeftovers(): Promise<number> {
  let cleaned = 0;
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(FOLDER_PREFIX)) continue;
    const dir = path.join(tmpdir(), name);
    const pids = leftIn(dir);
    if (pids === undefined) continue;
    for (const pid of pids) await killFamily(pid, END_GRACE_MS);
    rmSync(dir, { recursive: true, force: true });
    cleaned += 1;
  }
  return cleaned;
}

/** The processes that still run, of a folder whose keeper does not; none where it is not ours. */
function leftIn(dir: string): readonly number[] | undefined {
  try {
    const { uid, mtimeMs, isDirectory } = pick(dir);
    if (!isDirectory || uid !== process.getuid?.()) return undefined;
    let text: string;
    try {
      text = readFileSync(path.join(dir, RECORD), 'utf8');
    } catch {
      return Date.now() - mtimeMs > BEGINNING_MS ? [] : undefined;
    }
    const { keeper, pids } = JSON.parse(text) as {
      readonly keeper: Remembered;
      readonly pids: readonly Remembered[];
    };
    return isSame(keeper) ? undefined : pids.filter(isSame).map(({ pid }) => pid);
  } catch {
    // It went away while we looked, or is half written by somebody who begins.
    return undefined;
  }
}

function pick(dir: string): { uid: number; mtimeMs: number; isDirectory: boolean } {
  const found = statSync(dir);
  return { uid: found.uid, mtimeMs: found.mtimeMs, isDirectory: found.isDirectory() };
}

/** An id may belong to another process by now. */
function isSame({ pid, birth }: Remembered): boolean {
  return isAlive(pid) && birthOf(pid) === birth;
}
