/**
 * body-store — bodies as files, one each, written as they come and seen only when they are whole.
 *
 *   <path>/<shard>/<ref>                    a body
 *   <path>/<shard>/<ref>.<random>.part      being written, or left behind by a crash
 *
 * Several processes may use one folder at once: a ref is taken by `link`, which fails when it
 * exists. Promise: a put that resolved is on the disk (unless `sync: 'none'`); nothing half written
 * has a ref. What a crash left is listed among the refs, so that the caretaker removes it.
 */

import { constants } from 'node:fs';
import { type FileHandle, link, open, opendir, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Millis } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { checkRef, REF_PATTERN } from '../../core/limits.ts';
import type { BodyStore, StoredBody } from '../../ports/body-store.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { InFlight } from '../../system/wait.ts';
import {
  ReusedBuffers,
  type ReadWindow,
  setReadWindow,
  shareWindow,
  streamWithWindow,
} from '../../system/memory.ts';
import { createBatchLine } from '../shared/batching.ts';
import { checkLocalDisk } from '../shared/local-disk.ts';
import { Operations } from '../shared/operations.ts';
import type { SyncMode } from './disk-protocol.ts';
import { errnoOf, storeError } from './errors.ts';
import { makeFolder, syncFolder } from './files.ts';
import { checkBodyOptions, type FilesystemBodiesOptions } from './options.ts';

/** How much is read at once. */
const CHUNK_BYTES = 64 * 1024;

/** Maximum number of puts that share one fsync of each of their folders. */
const FOLDERS_MAX = 256;

/** A ref as REF_PATTERN of core/limits.ts has it, and a `randomName` of system/ids.ts. */
const PART = /^[0-9a-z][0-9a-z_-]{0,127}\.[0-9a-z]{12}\.part$/;
const SHARD = /^[0-9a-f]{2}$/;
const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** Keeps bodies as files below `path`; several processes may share it. */
export function filesystemBodies(options: FilesystemBodiesOptions): BodyStore {
  const { path, sync } = checkBodyOptions(options);
  return new FilesystemBodies(path, sync);
}

class FilesystemBodies implements BodyStore {
  readonly name = 'filesystem';
  readonly traits: BodyStore['traits'];
  readonly #path: string;
  readonly #sync: SyncMode;
  readonly #madeShards = new Set<string>();
  readonly #folders = createBatchLine<string, void>(syncFolders, { batchMax: FOLDERS_MAX });
  readonly #puts = new InFlight();
  readonly #operations = new Operations('bodies', systemClock);
  readonly onOperation: NonNullable<BodyStore['onOperation']> = this.#operations.on;
  #isOpen = false;

  constructor(path: string, sync: SyncMode) {
    this.#path = path;
    this.#sync = sync;
    this.traits = { durability: sync === 'none' ? 'process' : 'power-loss' };
  }

  async open(): Promise<void> {
    try {
      await makeFolder(this.#path, this.#sync !== 'none');
      await checkLocalDisk(this.#path);
    } catch (error) {
      throw storeError(`open the bodies in "${this.#path}"`, error);
    }
    this.#isOpen = true;
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    await this.#puts.idle();
  }

  async put(ref: string, stream: AsyncIterable<Uint8Array>): Promise<{ readonly size: number }> {
    this.#checkOpen();
    checkRef(ref);
    return this.#puts.track(this.#operations.time('put', 1, () => this.#put(ref, stream)));
  }

  get(ref: string): AsyncIterable<Uint8Array> {
    const stream = streamWithWindow((window) => this.#get(ref, window));
    return shareWindow(stream, this.#operations.stream('get', stream));
  }

  async *#get(ref: string, window: ReadWindow): AsyncGenerator<Uint8Array> {
    this.#checkOpen();
    const path = join(this.#path, shardOf(checkRef(ref)), ref);
    const file = await this.#openBody(ref, path);
    // n.b. Looked at now: parameters of a generator are evaluated before its reader is there.
    const { maxBytes } = window;
    const lent = maxBytes === undefined ? undefined : new ReusedBuffers(maxBytes);
    try {
      for (;;) {
        // Else a new buffer each time: the reader may keep or change what it was given.
        const memory = lent?.take(CHUNK_BYTES) ?? Buffer.allocUnsafe(CHUNK_BYTES);
        const { bytesRead } = await file.read(memory);
        if (bytesRead === 0) return;
        yield lent?.handOut(memory, bytesRead) ?? memory.subarray(0, bytesRead);
      }
    } catch (error) {
      throw storeError(`read body "${ref}"`, error);
    } finally {
      await file.close();
    }
  }

  async remove(refs: readonly string[]): Promise<void> {
    this.#checkOpen();
    await this.#operations.time('remove', refs.length, () => this.#remove(refs));
  }

  async #remove(refs: readonly string[]): Promise<void> {
    for (const ref of refs) {
      const name = PART.test(ref) ? ref : checkRef(ref);
      try {
        // No fsync: a body that a power cut brings back is an orphan, and is found as one.
        await unlink(join(this.#path, shardOf(name), name));
      } catch (error) {
        if (errnoOf(error) !== 'ENOENT') throw storeError(`remove body "${ref}"`, error);
      }
    }
  }

  async *refs(writtenBefore: Millis): AsyncGenerator<StoredBody> {
    this.#checkOpen();
    for await (const shard of namesIn(this.#path)) {
      if (!SHARD.test(shard)) continue;
      for await (const name of namesIn(join(this.#path, shard))) {
        if (!REF_PATTERN.test(name) && !PART.test(name)) continue;
        const writtenAt = await writtenAtOf(join(this.#path, shard, name));
        if (writtenAt < writtenBefore) yield { ref: name, writtenAt };
      }
    }
  }

  async #put(ref: string, stream: AsyncIterable<Uint8Array>): Promise<{ readonly size: number }> {
    const shard = await this.#makeShard(ref);
    const path = join(shard, ref);
    if ((await writtenAtOf(path)) !== Number.POSITIVE_INFINITY) throw duplicate(ref);
    const part = `${path}.${randomName(systemDice)}.part`;
    try {
      const size = await this.#writePart(ref, part, stream);
      await this.#publish(ref, { part, path, shard });
      return { size };
    } finally {
      // Of no use any more, whatever happened; if it cannot go now, it is listed with the
      // leftovers.
      await unlink(part).catch(() => undefined);
    }
  }

  async #writePart(ref: string, part: string, stream: AsyncIterable<Uint8Array>): Promise<number> {
    const doing = `write body "${ref}"`;
    const file = await withContext(
      doing,
      open(part, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, 0o600),
    );
    let size = 0;
    // Every part is written before the next is asked for.
    setReadWindow(stream, 0);
    try {
      // An error of the stream is the caller's and passes as it is.
      for await (const chunk of stream) {
        await withContext(doing, writeAll(file, chunk, size));
        size += chunk.byteLength;
      }
      if (this.#sync !== 'none') await withContext(doing, file.sync());
    } finally {
      await withContext(doing, file.close());
    }
    return size;
  }

  async #publish(
    ref: string,
    { part, path, shard }: { readonly part: string; readonly path: string; readonly shard: string },
  ): Promise<void> {
    try {
      // Not a rename: that would replace what another process put under the same ref meanwhile.
      await link(part, path);
    } catch (error) {
      throw errnoOf(error) === 'EEXIST' ? duplicate(ref) : storeError(`write body "${ref}"`, error);
    }
    try {
      await unlink(part);
      if (this.#sync === 'full') await syncFolder(shard);
      else if (this.#sync === 'batch') await this.#folders.add([shard]);
    } catch (error) {
      // Not acknowledged, so it must not be seen either.
      await unlink(path).catch(() => undefined);
      throw storeError(`write body "${ref}"`, error);
    }
  }

  async #makeShard(ref: string): Promise<string> {
    const shard = join(this.#path, shardOf(ref));
    if (!this.#madeShards.has(shard)) {
      await withContext(`make the folder "${shard}"`, makeFolder(shard, this.#sync !== 'none'));
      this.#madeShards.add(shard);
    }
    return shard;
  }

  async #openBody(ref: string, path: string): Promise<FileHandle> {
    try {
      return await open(path, O_RDONLY | O_NOFOLLOW);
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw storeError(`read body "${ref}"`, error);
      throw new RespoolError(
        'body.missing',
        `cannot read body "${ref}": there is no such body in "${this.#path}"; hold the message`,
        { cause: error },
      );
    }
  }

  #checkOpen(): void {
    if (this.#isOpen) return;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the bodies in "${this.#path}": they are not open; call open() first`,
    );
  }
}

/** What a file call gives; its error says what we were doing. */
async function withContext<Value>(doing: string, call: Promise<Value>): Promise<Value> {
  try {
    return await call;
  } catch (error) {
    throw storeError(doing, error);
  }
}

async function syncFolders(folders: readonly string[]): Promise<readonly void[]> {
  for (const folder of new Set(folders)) await syncFolder(folder);
  return folders.map(() => undefined);
}

async function writeAll(file: FileHandle, chunk: Uint8Array, at: number): Promise<void> {
  // One call may write less than it was given.
  let written = 0;
  while (written < chunk.byteLength) {
    const rest = chunk.byteLength - written;
    written += (await file.write(chunk, written, rest, at + written)).bytesWritten;
  }
}

async function* namesIn(path: string): AsyncGenerator<string> {
  try {
    for await (const { name } of await opendir(path)) yield name;
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw storeError(`list the bodies in "${path}"`, error);
  }
}

/** When a file was last written; infinity where there is none, so that no list has it. */
async function writtenAtOf(path: string): Promise<Millis> {
  try {
    return Math.floor((await stat(path)).mtimeMs);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return Number.POSITIVE_INFINITY;
    throw storeError(`look at "${path}"`, error);
  }
}

/** By a hash of the ref: several processes must agree on it without asking each other. */
function shardOf(name: string): string {
  const ref = name.split('.', 1)[0] ?? name;
  return (process.getBuiltinModule('node:zlib').crc32(ref) & 0xff).toString(16).padStart(2, '0');
}

function duplicate(ref: string): RespoolError {
  return new RespoolError(
    'message.duplicate',
    `cannot write body "${ref}": there is one already, and bodies are never overwritten`,
  );
}
