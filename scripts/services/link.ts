/**
 * link — how others talk to a keeper: start one, find the one that stands, ask it.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstatSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Answer, Ask } from './protocol.ts';

/** A connection to a keeper. */
export interface Link {
  /** Asks and waits for the answer; what takes long is told meanwhile. */
  ask(ask: Ask, tell?: (news: string) => void): Promise<unknown>;
  close(): void;
}

/** A keeper that was started by us. */
export interface StartedKeeper {
  readonly door: string;
  /** Ends it and everything it holds; an owned one only. */
  readonly end: () => Promise<void>;
}

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  readonly tell: (news: string) => void;
}

const KEEPER = fileURLToPath(new URL('./keeper.ts', import.meta.url));

/** Starts a keeper; an owned one ends when this process ends, in whatever way. */
export async function startKeeper(mode: 'owned' | 'standing'): Promise<StartedKeeper> {
  const child = spawn(process.execPath, [KEEPER, mode], {
    detached: true,
    // A standing one must not hold on to the terminal or pipe of the command that started it.
    stdio: mode === 'owned' ? ['pipe', 'pipe', 'inherit'] : ['ignore', 'pipe', 'ignore'],
  });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const door = await doorOf(child);
  // It must not keep us alive: we keep it.
  child.unref();
  for (const stream of [child.stdin, child.stdout]) if (stream !== null) unref(stream);
  return {
    door,
    async end() {
      child.ref();
      child.stdin?.end();
      await exited;
    },
  };
}

function unref(stream: object): void {
  if ('unref' in stream && typeof stream.unref === 'function') stream.unref();
}

function doorOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`the keeper ended with exit code ${code}`)));
    if (child.stdout === null) return reject(new Error('the keeper has no output'));
    createInterface({ input: child.stdout }).once('line', (line) => {
      resolve((JSON.parse(line) as { readonly door: string }).door);
    });
  });
}

/** Connects to a keeper's door. */
export function connectKeeper(door: string): Promise<Link> {
  return new Promise((resolve, reject) => {
    const socket = connect(door);
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(linkOver(socket));
    });
  });
}

function linkOver(socket: Socket): Link {
  const waiting = new Map<number, Waiting>();
  let count = 0;
  const fail = (): void => {
    for (const { reject } of waiting.values()) reject(new Error('the keeper is gone'));
    waiting.clear();
    unrefWhenIdle();
  };
  const unrefWhenIdle = (): void => {
    if (waiting.size === 0) socket.unref();
  };
  socket.on('error', fail);
  socket.once('close', fail);
  createInterface({ input: socket }).on('line', (line) => {
    const { id, value, error, news } = JSON.parse(line) as Answer;
    const one = waiting.get(id);
    if (one === undefined) return;
    if (news !== undefined) return one.tell(news);
    waiting.delete(id);
    unrefWhenIdle();
    if (error === undefined) one.resolve(value);
    else one.reject(new Error(error));
  });
  unrefWhenIdle();
  return {
    ask(ask, tell = () => undefined) {
      if (socket.destroyed) return Promise.reject(new Error('the keeper is gone'));
      socket.ref();
      count += 1;
      const id = count;
      return new Promise((resolve, reject) => {
        waiting.set(id, { resolve, reject, tell });
        socket.write(`${JSON.stringify({ id, ask })}\n`);
      });
    },
    close: () => void socket.destroy(),
  };
}

/** The file that names the door of the keeper that stands for this copy of the project. */
function standingFile(): string {
  const root = path.resolve(import.meta.dirname, '../..');
  const hash = createHash('sha256').update(root).digest('hex').slice(0, 12);
  return path.join(tmpdir(), `respool-standing-${process.getuid?.() ?? 0}-${hash}.json`);
}

/** Remembers the door of the keeper that stands. */
export function rememberStanding(door: string): void {
  forgetStanding();
  writeFileSync(standingFile(), JSON.stringify({ door }), { flag: 'wx', mode: 0o600 });
}

export function forgetStanding(): void {
  rmSync(standingFile(), { force: true });
}

/** The door of the keeper that stands, if one does. */
export async function standingDoor(): Promise<string | undefined> {
  let door: string;
  try {
    // Anybody can write to the folder of temporary files; only what is ours is believed.
    if (lstatSync(standingFile()).uid !== process.getuid?.()) return undefined;
    door = (JSON.parse(readFileSync(standingFile(), 'utf8')) as { door: string }).door;
  } catch {
    return undefined;
  }
  try {
    (await connectKeeper(door)).close();
    return door;
  } catch {
    forgetStanding();
    return undefined;
  }
}
