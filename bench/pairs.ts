/**
 * pairs — entry and body stores by name, each run in a schema, bucket or folder of its own.
 */

import { join } from 'node:path';
import type { BodyStore, EntryStore } from 'respool';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { nats, natsBodies } from 'respool/stores/nats';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { s3 } from 'respool/stores/s3';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import type { StoreMaker } from './ours.ts';
import { dropBuckets, dropObjects, dropSchema, newName } from './places.ts';
import type { Servers } from './servers.ts';

export const ENTRY_STORES = ['filesystem', 'sqlite', 'postgres', 'nats'] as const;
export const BODY_STORES = ['filesystem', 'sqlite', 'postgres', 'nats', 's3'] as const;

export type EntryStoreName = (typeof ENTRY_STORES)[number];
export type BodyStoreName = (typeof BODY_STORES)[number];

/** Two stores. */
export interface Pair {
  /** `postgres+s3`, entries first; one word where both are of a kind. */
  readonly name: string;
  readonly entries: EntryStoreName;
  readonly bodies: BodyStoreName;
}

/** Every pair. */
export const PAIRS: readonly Pair[] = ENTRY_STORES.flatMap((entries) =>
  BODY_STORES.map((bodies) => ({
    name: entries === bodies ? entries : `${entries}+${bodies}`,
    entries,
    bodies,
  })),
);

/** The pair of a name. */
export function pairOf(name: string): Pair {
  const found = PAIRS.find((pair) => pair.name === name);
  if (found !== undefined) return found;
  throw new Error(`there is no pair "${name}": known are ${PAIRS.map((p) => p.name).join(', ')}`);
}

/** A way to make the stores of a pair; its servers run when it resolves. */
export async function makerOf(pair: Pair, servers: Servers): Promise<StoreMaker> {
  const urls = new Map<string, string>();
  for (const name of [pair.entries, pair.bodies]) {
    if (name === 'postgres' || name === 'nats' || name === 's3') {
      urls.set(name, await servers.url(name));
    }
  }
  const urlOf = (name: string): string => urls.get(name) ?? '';
  return (path) => {
    const name = newName();
    return {
      entries: entriesOf(pair.entries, path, name, urlOf),
      bodies: bodiesOf(pair.bodies, path, name, urlOf),
      async clean() {
        for (const [server, url] of urls) await CLEAN[server]?.(url, name);
      },
    };
  };
}

type UrlOf = (name: string) => string;

function entriesOf(store: EntryStoreName, path: string, name: string, urlOf: UrlOf): EntryStore {
  switch (store) {
    case 'filesystem':
      return filesystem({ path: join(path, 'entries') });
    case 'sqlite':
      return sqlite({ path });
    case 'postgres':
      return postgres({ url: urlOf('postgres'), schema: name });
    default:
      return nats({ url: urlOf('nats'), bucket: name });
  }
}

function bodiesOf(store: BodyStoreName, path: string, name: string, urlOf: UrlOf): BodyStore {
  switch (store) {
    case 'filesystem':
      return filesystemBodies({ path: join(path, 'bodies') });
    case 'sqlite':
      return sqliteBodies({ path });
    case 'postgres':
      return postgresBodies({ url: urlOf('postgres'), schema: name });
    case 'nats':
      return natsBodies({ url: urlOf('nats'), bucket: name });
    default:
      return s3({ endpoint: urlOf('s3'), bucket: name, createBucket: true });
  }
}

const CLEAN: Readonly<Record<string, (url: string, name: string) => Promise<void>>> = {
  postgres: dropSchema,
  nats: dropBuckets,
  s3: dropObjects,
};
