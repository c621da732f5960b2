/**
 * places — the pairs of stores that the fault tests are run on, opened the same way by the program
 * that is killed and by the one that looks afterwards.
 */
import { join } from 'node:path';
import { createSpool, type Spool, type SpoolOptions } from 'respool';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';

/**
 * SQLite with bodies as files (the default of a spool), all files, or all SQLite. `unsynced` are
 * files without fsync: what a test of power cuts must find wanting.
 */
export type Place = 'sqlite' | 'filesystem' | 'sqlite-bodies' | 'unsynced';

export const PLACES: readonly Place[] = ['sqlite', 'filesystem'];

/** Short, so that faults meet the moving of the log, too. */
const autoCheckpointPages = 10;

/** A spool in this folder. */
export function spoolAt(
  place: Place,
  path: string,
  options: SpoolOptions = {},
  thread: boolean | 'auto' = 'auto',
): Spool {
  switch (place) {
    case 'sqlite':
      return createSpool({
        path,
        entries: sqlite({ path, autoCheckpointPages, thread }),
        ...options,
      });
    case 'filesystem':
    case 'unsynced': {
      const sync = place === 'unsynced' ? 'none' : 'batch';
      const entries = filesystem({ path: join(path, 'entries'), sync });
      return createSpool({
        entries,
        bodies: filesystemBodies({ path: join(path, 'bodies') }),
        ...options,
      });
    }
    default:
      return createSpool({
        entries: sqlite({ path, autoCheckpointPages, thread }),
        bodies: sqliteBodies({ path, autoCheckpointPages, thread }),
        ...options,
      });
  }
}
