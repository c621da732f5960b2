/**
 * places — the pairs of stores that the fault tests are run on, opened the same way by the program
 * that is killed and by the one that looks afterwards.
 */
import { join } from 'node:path';
import { createSpool, type EntryStore, type Spool, type SpoolOptions } from 'respool';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { nats, natsBodies } from 'respool/stores/nats';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { s3 } from 'respool/stores/s3';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';

/**
 * SQLite with bodies as files (the default of a spool), all files, or all SQLite. `unsynced` are
 * files without fsync: what a test of power cuts must find wanting.
 */
type FilePlace = 'sqlite' | 'filesystem' | 'sqlite-bodies' | 'unsynced';

/** Entries and bodies on a server, or entries in PostgreSQL and bodies in S3. */
export type ServerPlace = 'postgres' | 'nats' | 'postgres-s3';

export type Place = FilePlace | ServerPlace;

export const PLACES: readonly Place[] = ['sqlite', 'filesystem'];

/** Short, so that faults meet the moving of the log, too. */
const autoCheckpointPages = 10;

/**
 * How long a call waits for a server that does not answer, below the defaults: a test that lets
 * connections die in silence would take minutes with those.
 */
const statementTimeout = '3s';
const connectTimeout = '3s';
const timeoutMs = 6_000;

/** The `path` of a place on servers: addresses and names in the order of `spoolAt`. */
export function joinPath(...parts: readonly string[]): string {
  return parts.join('#');
}

/** A spool in this folder, or on these servers. */
export function spoolAt(
  place: Place,
  path: string,
  options: SpoolOptions = {},
  thread: boolean | 'auto' = 'auto',
  wrap: (entries: EntryStore) => EntryStore = (entries) => entries,
): Spool {
  switch (place) {
    case 'sqlite':
      return createSpool({
        path,
        entries: wrap(sqlite({ path, autoCheckpointPages, thread })),
        ...options,
      });
    case 'filesystem':
    case 'unsynced': {
      const sync = place === 'unsynced' ? 'none' : 'batch';
      const entries = wrap(filesystem({ path: join(path, 'entries'), sync }));
      return createSpool({
        entries,
        bodies: filesystemBodies({ path: join(path, 'bodies') }),
        ...options,
      });
    }
    case 'postgres': {
      const [url = '', schema = ''] = path.split('#');
      const given = { url, schema, statementTimeout, connectTimeout } as const;
      const entries = wrap(postgres({ ...given, listenUrl: url }));
      return createSpool({ entries, bodies: postgresBodies(given), ...options });
    }
    case 'postgres-s3': {
      const [url = '', schema = '', endpoint = '', bucket = ''] = path.split('#');
      return createSpool({
        entries: wrap(postgres({ url, schema, statementTimeout, connectTimeout })),
        bodies: s3({ endpoint, bucket, createBucket: true }),
        ...options,
      });
    }
    case 'nats': {
      const [url = '', bucket = ''] = path.split('#');
      const given = { url, bucket, timeoutMs };
      return createSpool({ entries: wrap(nats(given)), bodies: natsBodies(given), ...options });
    }
    default:
      return createSpool({
        entries: wrap(sqlite({ path, autoCheckpointPages, thread })),
        bodies: sqliteBodies({ path, autoCheckpointPages, thread }),
        ...options,
      });
  }
}
