/**
 * sqliteBodies — bodies in a SQLite file, in chunks of 256 KiB, streamed both ways.
 *
 * No transaction is open while a caller's stream runs. A body that fits one chunk costs one batch,
 * shared with anyone who writes at the same time.
 */

import { RespoolError } from '../../core/errors.ts';
import { checkKey } from '../../core/limits.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { Operations } from '../shared/operations.ts';
import {
  bodyTakenError,
  inChunks,
  noBodyError,
  REFS_PAGE,
  readChunks,
} from '../shared/sql-body.ts';
import type { BodyTalk, WriteOp } from './protocol.ts';
import { type FileClient, type FileParts, openFileClient } from './file-client.ts';
import { BODY_FILE, checkStoreOptions, prepareFile, type SqliteOptions } from './options.ts';

type Line = FileClient<BodyTalk>;

/** A body store in a SQLite file; in a folder the file is `bodies.db`. */
export function sqliteBodies(options: SqliteOptions, parts: Partial<FileParts> = {}): BodyStore {
  const all: FileParts = { clock: systemClock, dice: systemDice, ...parts };
  const operations = new Operations('bodies', all.clock);
  const checked = checkStoreOptions('the SQLite body store', options);
  let opened: Line | undefined;
  let closing: Promise<void> = Promise.resolve();

  function use(): Line {
    if (opened !== undefined) return opened;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the body store in "${checked.path}": it is not open; call open() first`,
    );
  }

  return {
    name: 'sqlite',
    traits: { durability: checked.settings.synchronous === 'full' ? 'power-loss' : 'process' },
    async open() {
      // Its caller has learned why a close failed; the file was released anyway.
      await closing.catch(() => undefined);
      if (opened !== undefined) return;
      const path = await prepareFile(checked, BODY_FILE);
      opened = await openFileClient<BodyTalk>('bodies', path, checked, all);
    },
    close() {
      const present = opened;
      opened = undefined;
      if (present !== undefined) closing = present.close();
      return closing;
    },
    ...operations.bodies({
      async put(ref, stream) {
        checkKey('body ref', ref);
        return { size: await put({ use, ref, stream, now: () => all.clock.now() }) };
      },
      get: (ref) => read(use, ref),
      async remove(refs) {
        await use().add(refs.map((ref) => ({ op: { kind: 'remove', ref } })));
      },
    }),
    onOperation: operations.on,
    async *refs(writtenBefore) {
      let after = '';
      for (;;) {
        const page = await use().ask({ kind: 'refs', writtenBefore, after, max: REFS_PAGE });
        yield* page;
        after = page.at(-1)?.ref ?? '';
        if (page.length < REFS_PAGE) return;
      }
    },
  };
}

interface Put {
  readonly use: () => Line;
  readonly ref: string;
  readonly stream: AsyncIterable<Uint8Array>;
  readonly now: () => number;
}

async function put({ use, ref, stream, now }: Put): Promise<number> {
  // Refused before the caller's stream is touched; the first write decides again.
  if ((await use().ask({ kind: 'size', ref })) !== null) throw bodyTakenError(ref);
  let chunk: { readonly at: number; readonly bytes: Uint8Array | null } = { at: 0, bytes: null };
  let size = 0;
  let isFirst = true;
  try {
    for await (const bytes of inChunks(stream)) {
      // The newest chunk is kept back: the last one goes with the end of the body.
      if (chunk.bytes !== null) {
        const op: WriteOp = { kind: 'write', ref, now: now(), isFirst, at: chunk.at, size: null };
        await write(use(), op, chunk.bytes);
        isFirst = false;
      }
      chunk = { at: size, bytes };
      size += bytes.byteLength;
    }
    const op: WriteOp = { kind: 'write', ref, now: now(), isFirst, at: chunk.at, size };
    await write(use(), op, chunk.bytes);
    return size;
  } catch (error) {
    // If this fails too, the half body stays unseen, and the caretaker finds it through `refs`.
    if (!isFirst) await dropHalf(use, ref).catch(() => undefined);
    throw error;
  }
}

async function dropHalf(use: () => Line, ref: string): Promise<void> {
  await use().add([{ op: { kind: 'remove', ref } }]);
}

async function write(line: Line, op: WriteOp, bytes: Uint8Array | null): Promise<void> {
  const [isDone] = await line.add([{ op, bytes }]);
  if (isDone === true) return;
  if (op.isFirst) throw bodyTakenError(op.ref);
  throw new RespoolError(
    'store.unavailable',
    `cannot continue writing body "${op.ref}": it was removed meanwhile; put it again`,
  );
}

async function* read(use: () => Line, ref: string): AsyncGenerator<Uint8Array> {
  const size = await use().ask({ kind: 'size', ref });
  if (size === null) throw noBodyError(ref);
  yield* readChunks(ref, size, (at) => use().ask({ kind: 'read', ref, at }));
}
