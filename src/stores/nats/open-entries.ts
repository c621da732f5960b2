/** open-entries — the parts of an open entry store, put together and taken apart. */

import type { RespoolError } from '../../core/errors.ts';
import type { Durability } from '../../ports/entry-store.ts';
import { systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { openBucket } from './bucket.ts';
import { PendingInserts } from './pending-inserts.ts';
import { Cache } from './entry-cache.ts';
import { Catalog } from './catalog.ts';
import { Tombstones } from './tombstones.ts';
import { EntryWrites } from './entry-writes.ts';
import type { EntrySettings } from './options.ts';
import { Rewind } from './rewind.ts';
import type { Stream } from './stream.ts';
import { Watcher, type WatcherParts } from './watcher.ts';

/** One value per key; more would show an older one when a marker is taken out. */
const CONFIG = {
  max_msgs_per_subject: 1,
  deny_delete: false,
  deny_purge: false,
  allow_rollup_hdrs: true,
} as const;

/** An open entry store. */
export interface OpenEntries {
  readonly stream: Stream;
  readonly keeper: EntryWrites;
  readonly watcher: Watcher;
  readonly prefix: string;
  readonly durability: Durability;
  /** A server of one replica that comes back may have forgotten something. */
  readonly restartsForget: boolean;
  readonly room: { readonly maxBytes: number; bytes(): number };
  readonly makeToken: () => string;
  close(): Promise<void>;
}

/** Who hears of what happens in an open store. */
interface Heard {
  readonly onDue: WatcherParts['onDue'];
  readonly onTrouble: (error: RespoolError) => void;
}

/** Connects, makes or checks the bucket, and reads what is there. */
export async function openEntries(
  settings: EntrySettings,
  instance: string,
  { onDue, onTrouble }: Heard,
): Promise<OpenEntries> {
  const { bucket: name, clock } = settings;
  const prefix = `$KV.${name}.`;
  const bucket = await openBucket(settings, {
    name: `KV_${name}`,
    subjects: [`${prefix}>`],
    config: CONFIG,
  });
  const { stream, maxPayload, maxBytes, durability } = bucket;
  const catalog = new Catalog();
  const births = new PendingInserts();
  const cache = new Cache(settings.cacheBytes);
  // A store that is opened again has the same instance, and must not use its tokens again.
  const session = randomName(systemDice);
  const makeToken = createTokenMaker(`${instance}.${session}`);
  const tombstones = new Tombstones({
    stream,
    clock,
    makeToken,
    makeSubject: (tombstone) => `${prefix}g.${session}.${tombstone}`,
  });
  const restartsForget = bucket.replicas === 1;
  const rewind = createRewind(settings, { stream, cache, onTrouble, keeper: () => keeper });
  const watcher = new Watcher({
    stream,
    catalog,
    prefix,
    instance,
    restartsForget,
    isFar: bucket.isClustered,
    onBirth: (id, birth) => births.note(id, birth),
    bury: (burials) => tombstones.add(burials),
    onRestart: () => {
      births.forget();
      rewind.begin();
      tombstones.clear();
    },
    rewind,
    onDue,
  });
  const keeper = new EntryWrites({
    stream,
    catalog,
    cache,
    tombstones,
    clock,
    prefix,
    makeToken,
    maxPayload,
    maxValueSize: settings.maxValueSize,
    births,
    onRemoved: (id, birth) => rewind.noteRemoval(id, birth),
    caughtUp: () => watcher.caughtUp(),
  });
  const close = async (): Promise<void> => {
    await tombstones.close().catch(() => undefined);
    watcher.close();
    await bucket.close();
  };
  await watcher.open().catch(async (error: unknown) => {
    await close();
    throw error;
  });
  const room = { maxBytes, bytes: () => watcher.bytes };
  return { stream, keeper, watcher, prefix, durability, restartsForget, room, makeToken, close };
}

interface RewindNeeds {
  readonly stream: Stream;
  readonly cache: Cache;
  readonly onTrouble: Heard['onTrouble'];
  readonly keeper: () => EntryWrites;
}

function createRewind(
  { logger }: EntrySettings,
  { stream, cache, onTrouble, keeper }: RewindNeeds,
): Rewind {
  return new Rewind({
    cache,
    streamName: stream.name,
    write: (content, expected) => keeper().write(keeper().encode(content), expected),
    remove: ({ id, seq, key }) => keeper().remove(id, seq, key),
    tell(error) {
      logger?.error({ stream: stream.name }, error.message);
      onTrouble(error);
    },
  });
}

/** Names that are used once. */
function createTokenMaker(begin: string): () => string {
  let count = 0;
  return () => {
    count += 1;
    return `${begin}-${count.toString(36)}`;
  };
}
