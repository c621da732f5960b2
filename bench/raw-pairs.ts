/**
 * raw-pairs — the rival of every pair.
 */

import type { Load } from './ours.ts';
import type { BodyStoreName, EntryStoreName, Pair } from './pairs.ts';
import type { RawBodies, RawEntries, RawMaker } from './raw.ts';
import { rawFileBodies, rawFileEntries, rawS3Bodies } from './raw-bodies.ts';
import { rawNatsBodies, rawNatsEntries } from './raw-nats.ts';
import { rawPostgresBodies, rawPostgresEntries } from './raw-postgres.ts';
import { rawSqliteBodies, rawSqliteEntries } from './raw-sqlite.ts';
import type { Servers } from './servers.ts';

/** As the spool has it by default. */
const INLINE_BYTES: number = 16 * 1_024;

/** The rival of a pair; bodies that ride with their entry need no second store. */
export function rawOf(pair: Pair, servers: Servers): RawMaker {
  return async (path, load) => {
    const isApart = load.bodyBytes > (load.inlineBytes ?? INLINE_BYTES);
    return {
      entries: await entriesOf(pair.entries, path, load, servers),
      bodies: isApart ? await bodiesOf(pair.bodies, path, load, servers) : undefined,
    };
  };
}

async function entriesOf(
  store: EntryStoreName,
  path: string,
  load: Load,
  servers: Servers,
): Promise<RawEntries> {
  switch (store) {
    case 'filesystem':
      return rawFileEntries(path, load);
    case 'sqlite':
      return rawSqliteEntries(path, load);
    case 'postgres':
      return rawPostgresEntries(await servers.url('postgres'), load);
    default:
      return rawNatsEntries(await servers.url('nats'), load);
  }
}

async function bodiesOf(
  store: BodyStoreName,
  path: string,
  load: Load,
  servers: Servers,
): Promise<RawBodies> {
  switch (store) {
    case 'filesystem':
      return rawFileBodies(path, load);
    case 'sqlite':
      return rawSqliteBodies(path, load);
    case 'postgres':
      return rawPostgresBodies(await servers.url('postgres'), load);
    case 'nats':
      return rawNatsBodies(await servers.url('nats'), load);
    default:
      return rawS3Bodies(await servers.url('s3'), load);
  }
}
