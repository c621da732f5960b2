/** kinds — the kinds of files a seat can keep, by name: a function cannot go to a thread. */

import type { OpenDatabase } from '../shared/client.ts';
import type { OpenFile } from './batch.ts';
import { openBodyFile } from './body-file.ts';
import type { FileSettings } from './connection.ts';
import { openEntryFile } from './entry-file.ts';
import { createKeeper, type Keeper } from './reopening-file.ts';

const OPENERS = { entries: openEntryFile, bodies: openBodyFile } as const;

interface AnyRequest {
  readonly kind: string;
}

/** Entries, or bodies. */
export type FileKind = 'entries' | 'bodies';

export function openKeeper(
  kind: FileKind,
  openDatabase: OpenDatabase,
  settings: FileSettings,
): Keeper<AnyRequest> {
  const openFile = OPENERS[kind];
  const open = (options: { readonly check: boolean }): OpenFile<AnyRequest> => {
    const file = openFile(openDatabase, settings, options);
    // The store on the other side of the seat only asks what its kind of file knows.
    return {
      handle: (request, joiner) => file.handle(request as never, joiner),
      moveLog: () => file.moveLog(),
      makeRoom: () => file.makeRoom(),
      close: () => file.close(),
    };
  };
  return createKeeper(settings.path, open, settings.needsCheck);
}
