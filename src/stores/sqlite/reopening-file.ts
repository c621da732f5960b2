/**
 * reopening-file — keeps a file open for its requests, and opens it anew after a disk error.
 *
 *   closed ─handle()─▶ open ─disk error─▶ closed, to be checked ─handle()─▶ open
 *
 * Promise: after a failed write nothing of the old connection is trusted: not its cache, not its
 * log.
 */

import type { OpenDatabase } from '../shared/client.ts';
import { openBodyFile } from './body-file.ts';
import type { FileSettings } from './connection.ts';
import { openEntryFile } from './entry-file.ts';
import { type AttemptedWork, isDiskError, isFullError, storeError } from './errors.ts';
import type { BatchJoiner, OpenFile } from './protocol.ts';

/** What answers requests, in whatever thread it lives. */
interface ReopeningFile<Request> {
  /** Throws what errors.ts makes of an error. */
  handle(request: Request, joiner?: BatchJoiner<never>): unknown;
  /** Whether there was a disk error, and the file has to be checked when it is opened again. */
  readonly needsCheck: boolean;
  close(): void;
}

export function createReopeningFile<Request extends { readonly kind: string }>(
  path: string,
  open: (options: { readonly check: boolean }) => OpenFile<Request>,
  isSuspect = false,
): ReopeningFile<Request> {
  let file: OpenFile<Request> | undefined;
  let needsCheck = isSuspect;
  /** Whether the disk was full and the log has not been moved since. */
  let isShort = false;

  function giveUp(): void {
    needsCheck = true;
    const broken = file;
    file = undefined;
    closeQuietly(broken);
  }

  /**
   * A log that was not moved into the file yet may be what fills the disk. As SQLite moves it after
   * commits only, and needs room for that too, it is moved when the disk is full, and again with
   * the first request that gets through: else the log takes the room that came back, and all stands
   * still.
   */
  function handleWithRoom(
    open: OpenFile<Request>,
    request: Request,
    joiner: BatchJoiner<never> | undefined,
  ): unknown {
    try {
      const answer = open.handle(request, joiner);
      if (isShort) isShort = !hasMadeRoom(open);
      return answer;
    } catch (error) {
      if (!isFullError(error)) throw error;
      isShort = true;
      if (!hasMadeRoom(open)) throw error;
      return open.handle(request, joiner);
    }
  }

  return {
    get needsCheck() {
      return needsCheck;
    },
    handle(request, joiner) {
      try {
        file ??= open({ check: needsCheck });
        needsCheck = false;
        if (request.kind === 'moveLog') return file.checkpoint();
        return handleWithRoom(file, request, joiner);
      } catch (error) {
        const attempted = attempt(request.kind, path, file !== undefined);
        if (isDiskError(error)) giveUp();
        throw storeError(error, attempted);
      }
    },
    close() {
      const present = file;
      file = undefined;
      present?.close();
    },
  };
}

function hasMadeRoom(open: Pick<OpenFile<never>, 'makeRoom'>): boolean {
  try {
    open.makeRoom();
    return true;
  } catch {
    // No room for that either; the caller that needs it is told by the write that fails.
    return false;
  }
}

function attempt(kind: string, path: string, isOpen: boolean): AttemptedWork {
  if (!isOpen) return { doing: `open "${path}"`, path };
  if (kind === 'batch') return { doing: `write to "${path}"`, path };
  return { doing: `${kind === 'moveLog' ? 'move the log into' : 'read from'} "${path}"`, path };
}

/** Closing after a disk error may fail for the same reason; the connection is gone either way. */
function closeQuietly(file: { close(): void } | undefined): void {
  try {
    file?.close();
  } catch {
    // Said above.
  }
}

// The kinds of files a seat can keep, by name: a function cannot go to a thread.

const OPENERS = { entries: openEntryFile, bodies: openBodyFile } as const;

interface AnyRequest {
  readonly kind: string;
}

/** Entries, or bodies. */
export type FileKind = 'entries' | 'bodies';

export function openReopeningFile(
  kind: FileKind,
  openDatabase: OpenDatabase,
  settings: FileSettings,
): ReopeningFile<AnyRequest> {
  const openFile = OPENERS[kind];
  const open = (options: { readonly check: boolean }): OpenFile<AnyRequest> => {
    const file = openFile(openDatabase, settings, options);
    // The store on the other side of the seat only asks what its kind of file knows.
    return {
      handle: (request, joiner) => file.handle(request as never, joiner),
      checkpoint: () => file.checkpoint(),
      makeRoom: () => file.makeRoom(),
      close: () => file.close(),
    };
  };
  return createReopeningFile(settings.path, open, settings.needsCheck);
}
