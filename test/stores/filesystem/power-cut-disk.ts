/**
 * A disk in memory that can lose its power, for the tests of the filesystem store.
 *
 * It keeps what a journaling file system keeps: names change in order, and a cut leaves the first so
 * many changes, at least those before the last fsync of a directory. Bytes are worse off: what was not
 * fdatasynced may be there, be missing, or be there by halves, file by file, whatever the names say.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Dice } from 'respool';
import type { FileCalls } from '../../../src/stores/filesystem/files.ts';

interface File {
  readonly number: number;
  now: Buffer;
  /** What the disk surely has. */
  safe: Buffer;
}

type Names = ReadonlyMap<string, File | 'directory'>;

/** Where the disk can be made to fail: every call, by its name and number. */
export type Trouble = (call: string, count: number) => string | undefined;

export class PowerCutDisk {
  /** What a running process sees. */
  #names = new Map<string, File | 'directory'>([['/store', 'directory']]);
  /** What it was before each change that is not safe yet. */
  #unsafe: Names[] = [];
  readonly #open = new Map<number, File | 'directory'>();
  #next = 10;
  #calls = 0;
  trouble: Trouble = () => undefined;

  /** The files of entries that a running process sees. */
  get entryFiles(): readonly string[] {
    const isEntry = /^\/store\/(?:incoming|active|deferred|hold|bounce|archived)\/../;
    const paths = [...this.#names].filter(([, file]) => file !== 'directory').map(([path]) => path);
    return paths.filter((path) => isEntry.test(path)).sort();
  }

  /** The calls made so far. */
  get calls(): number {
    return this.#calls;
  }

  readonly fileCalls: FileCalls = {
    openSync: (path: string, flags: number) => this.#openFile(path, flags),
    closeSync: (fd: number) => {
      this.#check('close');
      this.#open.delete(fd);
    },
    writeSync: (fd: number, bytes: Uint8Array, at: number, length: number, place: number) =>
      this.#write(fd, bytes.subarray(at, at + length), place),
    readSync: (fd: number, into: Uint8Array, at: number, length: number, place: number) => {
      const file = this.#fileOf(fd);
      const piece = file.now.subarray(place, place + length);
      into.set(piece, at);
      return piece.length;
    },
    fstatSync: (fd: number) => ({ size: this.#fileOf(fd).now.length }),
    fdatasyncSync: (fd: number) => this.#sync(fd),
    fdatasync: (fd: number, done: (error: Error | null) => void) => {
      try {
        this.#sync(fd);
        done(null);
      } catch (error) {
        done(error as Error);
      }
    },
    fsyncSync: () => {
      this.#check('fsync');
      this.#unsafe = [];
    },
    mkdirSync: (path: string) => {
      this.#check('mkdir');
      if (this.#names.has(path)) throw failure('EEXIST', path);
      this.#change((names) => names.set(path, 'directory'));
    },
    rmdirSync: () => {
      throw failure('ENOTEMPTY', 'rmdir');
    },
    renameSync: (from: string, to: string) => {
      this.#check('rename');
      const file = this.#names.get(from);
      if (file === undefined || !this.#names.has(dirname(to))) throw failure('ENOENT', from);
      this.#change((names) => {
        names.delete(from);
        names.set(to, file);
      });
    },
    unlinkSync: (path: string) => {
      this.#check('unlink');
      if (!this.#names.has(path)) throw failure('ENOENT', path);
      this.#change((names) => names.delete(path));
    },
    opendirSync: () => {
      throw failure('ENOENT', 'opendir');
    },
  } as unknown as FileCalls;

  /** What is left after a cut now, written below a real folder. */
  cut(dice: Dice, into: string): void {
    const histories: Names[] = [...this.#unsafe, this.#names];
    const left = histories[Math.floor(dice.random() * histories.length)] ?? this.#names;
    const contents = new Map<File, Buffer>();
    for (const [path, file] of left) {
      const real = join(into, path.slice('/store'.length));
      if (file === 'directory') {
        mkdirSync(real, { recursive: true });
        continue;
      }
      if (!contents.has(file)) contents.set(file, bytesLeft(file, dice));
      mkdirSync(dirname(real), { recursive: true });
      writeFileSync(real, contents.get(file) ?? '');
    }
  }

  #openFile(path: string, flags: number): number {
    this.#check('open');
    const isNew = (flags & 0o100) !== 0;
    if (isNew && this.#names.has(path)) throw failure('EEXIST', path);
    if (isNew) {
      const file = { number: this.#next, now: Buffer.alloc(0), safe: Buffer.alloc(0) };
      this.#change((names) => names.set(path, file));
    }
    const found = this.#names.get(path);
    if (found === undefined) throw failure('ENOENT', path);
    this.#next += 1;
    this.#open.set(this.#next, found);
    return this.#next;
  }

  #write(fd: number, bytes: Uint8Array, place: number): number {
    this.#check('write');
    const file = this.#fileOf(fd);
    const now = Buffer.alloc(Math.max(file.now.length, place + bytes.length));
    now.set(file.now);
    now.set(bytes, place);
    file.now = now;
    return bytes.length;
  }

  #sync(fd: number): void {
    this.#check('fdatasync');
    const file = this.#fileOf(fd);
    file.safe = file.now;
  }

  #fileOf(fd: number): File {
    const file = this.#open.get(fd);
    if (file === undefined || file === 'directory') throw failure('EBADF', String(fd));
    return file;
  }

  #change(act: (names: Map<string, File | 'directory'>) => void): void {
    const next = new Map(this.#names);
    act(next);
    this.#unsafe.push(this.#names);
    this.#names = next;
  }

  #check(call: string): void {
    this.#calls += 1;
    const code = this.trouble(call, this.#calls);
    if (code !== undefined) throw failure(code, call);
  }
}

function bytesLeft(file: File, dice: Dice): Buffer {
  if (file.now === file.safe) return file.now;
  const chance = dice.random();
  if (chance < 0.4) return file.safe;
  if (chance < 0.7) return file.now;
  const half = Math.floor(file.now.length / 2);
  return Buffer.concat([file.now.subarray(0, half), file.safe.subarray(half)]);
}

function failure(code: string, what: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: ${what}`), { code });
}
