/**
 * nats — entries in a bucket of NATS JetStream, for many processes on many machines.
 *
 *   insert(), claim(), commit() ─▶ entry-writes ─▶ one guarded write each ─▶ stream ─▶ watcher ─┐
 *   nextDueAt(), list(), tally() ─▶ catalog (facts of all entries, in memory) ◀─────────────────┘
 *
 * One key per message holds all of it; every step is one write that expects the sequence of the
 * step before, so the server decides who wins and a lost answer can be repeated. A dedupe key is a
 * second one (insert.ts). The writes of a call for different messages are on their way at once.
 * What is due, in which order, is known from a catalog in every process: fed by the stream, headers
 * only, and asked for where the stream ends before it is relied on. So nothing is ever listed on
 * the server to find work.
 *
 * The inline body is in the same value as the rest. Under its own key it would spare writing it
 * again with each step, but costs a write and a removal more: measured, a life of create, update
 * and remove runs at 14,000 per second against 9,800 with 1 KiB, and the same with 16 KiB.
 *
 * A removal is a marker over the key, taken out soon after (tombstones.ts).
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import { checkId } from '../../core/limits.ts';
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  Duplicate,
  Durability,
  EntryQuery,
  EntryStore,
  EntryStoreTraits,
  ListPage,
  ListQuery,
  TallyBy,
  TallyRow,
} from '../../ports/entry-store.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { InFlight } from '../../system/wait.ts';
import { Opening } from '../shared/lifetime.ts';
import { itemsOf, Operations } from '../shared/operations.ts';
import { openBucket } from './schema.ts';
import { Cache, Catalog } from './catalog.ts';
import { claimDue, ClaimContention } from './claim.ts';
import { commitOne } from './commit.ts';
import { EntryWrites } from './entry-writes.ts';
import { Rewind } from './feed.ts';
import { draftOf, insertAll, oneAtATime } from './insert.ts';
import { tallyEntries } from './list.ts';
import { getEntry, listEntries } from './list.ts';
import { type EntrySettings, type NatsEntryOptions, readEntryOptions } from './options.ts';
import { PendingInserts } from './entry-writes.ts';
import { createRecords } from './records.ts';
import type { Stream } from './stream.ts';
import { type JournalOptions, StreamJournal } from './stream-journal.ts';
import { Tombstones } from './tombstones.ts';
import { Watcher, type WatcherOptions } from './watcher.ts';

/**
 * The largest body that rides with its entry here: it is written with every step. It counts in
 * PAYLOAD_MIN_BYTES of diagnose.ts, and docs/reference/limits.md names that of every store.
 */
const INLINE_MAX_BYTES = 16 * 1024;
/**
 * Of `maxBytes`, what inserts may fill, as the text of that option says: claims and removals of a
 * full bucket need room too. Also in docs/guarantees.md and docs/reference/stores/nats.md.
 */
const FILL_MAX = 0.9;

/** Minimum interval between reports about the leases of others. */
const LATER_MS = 1_000;

/** Keeps entries in a bucket of NATS JetStream. */
export function nats(options: NatsEntryOptions): EntryStore {
  return new NatsStore(readEntryOptions(options));
}

class NatsStore implements EntryStore {
  readonly name = 'nats';
  readonly instance: string = randomName(systemDice);
  readonly records: RecordStore;
  readonly onOperation: NonNullable<EntryStore['onOperation']>;
  readonly #operations: Operations;
  readonly #settings: EntrySettings;
  readonly #contention = new ClaimContention(this.instance);
  readonly #onDue = new Set<() => void>();
  readonly #onTrouble = new Set<(error: RespoolError) => void>();
  readonly #inFlight = new InFlight();
  #traits: EntryStoreTraits = {
    processes: 'many',
    wakes: true,
    ordered: false,
    inlineMaxBytes: INLINE_MAX_BYTES,
    durability: 'server',
  };
  readonly #opening = new Opening(
    () => this.#open(),
    (opening) => this.#close(opening),
  );
  #opened: OpenEntries | undefined;
  #restarts = 0;
  #isDueTold = false;
  #cancelLater: (() => void) | undefined;

  constructor(settings: EntrySettings) {
    this.#settings = settings;
    this.#operations = new Operations('entries', settings.clock);
    this.onOperation = this.#operations.on;
    const records = this.#operations.records(createRecords(() => this.#checkOpen()));
    this.records = {
      append: (...value) => this.#inFlight.track(records.append(...value)),
      read: (...value) => this.#inFlight.track(records.read(...value)),
      trim: (...value) => this.#inFlight.track(records.trim(...value)),
      put: (...value) => this.#inFlight.track(records.put(...value)),
      get: (...value) => this.#inFlight.track(records.get(...value)),
      list: (...value) => this.#inFlight.track(records.list(...value)),
      remove: (...value) => this.#inFlight.track(records.remove(...value)),
    };
  }

  /** The durability is known once the store is open. */
  get traits(): EntryStoreTraits {
    return this.#traits;
  }

  open(): Promise<void> {
    return this.#opening.open();
  }

  close(): Promise<void> {
    return this.#opening.close();
  }

  /** The server's clock: the time it gives to our own message. */
  async now(): Promise<Millis> {
    const { stream, prefix, makeToken } = this.#checkOpen();
    const subject = `${prefix}g.${this.instance}.clock`;
    return this.#inFlight.track(
      (async () => {
        const seq = await stream.write(subject, '', { token: makeToken() });
        const stored = seq === undefined ? undefined : await stream.at(seq);
        const ms = Date.parse(stored?.time ?? '');
        if (Number.isFinite(ms)) return ms;
        throw new RespoolError('store.unavailable', 'cannot ask NATS for its time; try again');
      })(),
    );
  }

  async insert(entries: readonly Entry[]): Promise<readonly ('stored' | Duplicate)[]> {
    const opened = this.#checkOpen();
    if (entries.length === 0) return [];
    if (opened.room.maxBytes > 0) await this.#inFlight.track(opened.watcher.caughtUp());
    this.#checkRoom(opened, entries.length);
    const drafts = entries.map((entry) => {
      checkId(entry.envelope.id);
      this.#checkInline(entry.envelope.id, entry.inlineBody);
      return draftOf(opened.writes, entry);
    });
    const all = () => this.#ready(opened, () => insertAll(opened.writes, drafts));
    return this.#inFlight.track(this.#operations.time('insert', entries.length, all));
  }

  async claim(request: ClaimRequest): Promise<readonly Entry[]> {
    const { writes, watcher } = this.#checkOpen();
    if (request.max <= 0) return [];
    const parts = { caughtUp: () => watcher.caughtUp(), contention: this.#contention };
    const all = () => claimDue(writes, request, parts);
    return this.#inFlight.track(this.#operations.time('claim', itemsOf, all));
  }

  async nextDueAt(filter: ClaimFilter): Promise<Millis | null> {
    const { writes, watcher } = this.#checkOpen();
    return this.#read(async () => {
      await watcher.caughtUp();
      return writes.catalog.nextDueAt(filter);
    });
  }

  async commit(changes: readonly Change[]): Promise<readonly ('done' | 'stale')[]> {
    const opened = this.#checkOpen();
    for (const { id, inlineBody } of changes) this.#checkInline(id, inlineBody);
    // n.b. A lazy commit is no cheaper here: only the server can say whether it is stale.
    const all = (): Promise<readonly ('done' | 'stale')[]> =>
      Promise.all(
        oneAtATime(
          changes,
          ({ id }) => [id],
          (change) => commitOne(opened.writes, change),
        ),
      );
    const run = () => this.#ready(opened, all);
    return this.#inFlight.track(this.#operations.time('commit', changes.length, run));
  }

  /**
   * Everything that was answered is written. A server that does not sync at once may still lose it
   * with its machine; so when the server process has changed since the last time, it rejects.
   */
  async flush(): Promise<void> {
    const { stream, restartsForget } = this.#checkOpen();
    const { line } = stream;
    await this.#inFlight.track(stream.info());
    const before = this.#restarts;
    this.#restarts = line.restarts;
    if (!restartsForget || this.#traits.durability === 'power-loss') return;
    if (line.restarts === before) return;
    throw new RespoolError(
      'store.unavailable',
      'cannot say that all of it is kept: the NATS server was started again meanwhile, and one ' +
        'whose machine failed may have lost the last writes; what is there will be done again',
    );
  }

  async get(id: string): Promise<Entry | undefined> {
    const { writes } = this.#checkOpen();
    return this.#read(() => getEntry(writes, id));
  }

  async list(query: ListQuery): Promise<ListPage> {
    const { writes, watcher } = this.#checkOpen();
    return this.#read(() => watcher.caughtUp().then(() => listEntries(writes, query)));
  }

  async tally(by: TallyBy, query: EntryQuery): Promise<readonly TallyRow[]> {
    const { writes, watcher } = this.#checkOpen();
    return this.#read(() => watcher.caughtUp().then(() => tallyEntries(writes, by, query)));
  }

  watch(onDue: () => void): () => void {
    const call = (): void => onDue();
    this.#onDue.add(call);
    return () => void this.#onDue.delete(call);
  }

  onTrouble(hear: (error: RespoolError) => void): () => void {
    const call = (error: RespoolError): void => hear(error);
    this.#onTrouble.add(call);
    return () => void this.#onTrouble.delete(call);
  }

  async #open(): Promise<void> {
    await this.#opening.closing.catch(() => undefined);
    const opened = await openEntries(this.#settings, this.instance, {
      onDue: (when) => this.#tellDue(when),
      onTrouble: (error) => {
        for (const hear of this.#onTrouble) hear(error);
      },
    });
    this.#traits = { ...this.#traits, durability: opened.durability };
    this.#restarts = opened.stream.line.restarts;
    this.#opened = opened;
  }

  async #close(opening: Promise<void>): Promise<void> {
    // A store that could not be opened has nothing to close.
    await opening.catch(() => undefined);
    const opened = this.#opened;
    if (opened === undefined) return;
    this.#opened = undefined;
    this.#cancelLater?.();
    this.#cancelLater = undefined;
    await this.#inFlight.idle();
    await opened.close();
  }

  /** Once per turn of the loop, however many came; for what others claimed, once per second. */
  #tellDue(when: 'now' | 'later' = 'now'): void {
    if (this.#onDue.size === 0) return;
    if (when === 'later') {
      this.#cancelLater ??= this.#settings.clock.after(LATER_MS, () => {
        this.#cancelLater = undefined;
        this.#tellDue();
      });
      return;
    }
    if (this.#isDueTold) return;
    this.#isDueTold = true;
    this.#settings.clock.soon(() => {
      this.#isDueTold = false;
      if (this.#opened !== undefined) for (const call of this.#onDue) call();
    });
  }

  /** After a restart of the server, writes wait until what it forgot is known. */
  #ready<T>({ watcher }: OpenEntries, act: () => Promise<T>): Promise<T> {
    const ready = watcher.ready();
    return ready === undefined ? act() : ready.then(act);
  }

  #read<T>(read: () => Promise<T>): Promise<T> {
    return this.#inFlight.track(this.#operations.time('read', itemsOf, read));
  }

  #checkInline(id: string, bytes: Uint8Array | undefined): void {
    if ((bytes?.length ?? 0) <= INLINE_MAX_BYTES) return;
    throw new RespoolError(
      'limit.exceeded',
      `cannot keep the body of "${id}" with its entry: it has ${bytes?.length} bytes, allowed ` +
        `are ${INLINE_MAX_BYTES}; use a body store`,
    );
  }

  #checkRoom({ writes, room }: OpenEntries, count: number): void {
    const { entriesMax } = this.#settings;
    if (writes.catalog.rows.size + count > entriesMax) {
      throw new RespoolError(
        'store.full',
        `cannot keep ${count} more entries: this process remembers ${writes.catalog.rows.size} ` +
          `of at most ${entriesMax}; raise "entriesMax" if it has the memory`,
      );
    }
    if (room.maxBytes <= 0 || room.bytes() <= room.maxBytes * FILL_MAX) return;
    throw new RespoolError(
      'store.full',
      `cannot keep more entries: the bucket holds ${room.bytes()} of ${room.maxBytes} bytes, and ` +
        'the rest is for what is there already; raise "maxBytes"',
    );
  }

  #checkOpen(): OpenEntries {
    if (this.#opened !== undefined) return this.#opened;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the NATS bucket "${this.#settings.bucket}": it is not open; call open() first`,
    );
  }
}

// The parts of an open entry store, put together and taken apart.

/** One value per key; more would show an older one when a marker is taken out. */
const CONFIG = {
  max_msgs_per_subject: 1,
  deny_delete: false,
  deny_purge: false,
  allow_rollup_hdrs: true,
} as const;

/** An open entry store. */
interface OpenEntries {
  readonly stream: Stream;
  readonly writes: EntryWrites;
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
  readonly onDue: WatcherOptions['onDue'];
  readonly onTrouble: (error: RespoolError) => void;
}

/** Connects, makes or checks the bucket, and reads what is there. */
async function openEntries(
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
  const makeSubject = (tombstone: string) => `${prefix}g.${session}.${tombstone}`;
  const tombstones = new Tombstones({ stream, clock, makeToken, makeSubject });
  const restartsForget = bucket.replicas === 1;
  const tell = logged(settings, stream, onTrouble);
  const position = () => watcher.position;
  const journal = createJournal(settings, { stream, session, position, tell });
  const rewind = createRewind({ stream, cache, journal, tell }, () => writes);
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
  const writes = new EntryWrites({
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
    onWritten: () => journal?.noteWrite(),
    onRemoved: (id, birth) => rewind.noteRemoval(id, birth),
    caughtUp: () => watcher.caughtUp(),
  });
  const close = async (): Promise<void> => {
    await tombstones.close().catch(() => undefined);
    await journal?.close();
    watcher.close();
    await bucket.close();
  };
  await orClose(readBucket({ stream, watcher, journal, rewind }), close);
  const room = { maxBytes, bytes: () => watcher.bytes };
  return { stream, writes, watcher, prefix, durability, restartsForget, room, makeToken, close };
}

/** What could not be opened is closed. */
async function orClose(opening: Promise<void>, close: () => Promise<void>): Promise<void> {
  try {
    await opening;
  } catch (error) {
    await close();
    throw error;
  }
}

/** What goes to the log as well as to those who listen. */
function logged({ logger }: EntrySettings, { name }: Stream, tell: Heard['onTrouble']) {
  return (error: RespoolError): void => {
    logger?.error({ stream: name }, error.message);
    tell(error);
  };
}

function createJournal(
  { journal: folder, clock }: EntrySettings,
  parts: Omit<JournalOptions, 'folder' | 'clock'>,
): StreamJournal | undefined {
  return folder === undefined ? undefined : new StreamJournal({ ...parts, folder, clock });
}

interface Readers {
  readonly stream: Stream;
  readonly watcher: Watcher;
  readonly journal: StreamJournal | undefined;
  readonly rewind: Rewind;
}

/** Reads all there is, and compares it with what earlier processes of this machine have seen. */
async function readBucket({ stream, watcher, journal, rewind }: Readers): Promise<void> {
  if (journal === undefined) return watcher.open();
  await stream.info();
  const { seq: seenSeq, at: seenAt, isAnother, removals } = await journal.read();
  rewind.recall(removals);
  // Asked afterwards: what others write meanwhile is in the stream before it is in their journal.
  const lastSeq = (await stream.info())?.state.last_seq ?? 0;
  await watcher.open({ lastSeq, seenSeq, seenAt, isAnother });
  await journal.tidy();
}

interface RewindNeeds {
  readonly stream: Stream;
  readonly cache: Cache;
  readonly journal: StreamJournal | undefined;
  readonly tell: (error: RespoolError) => void;
}

function createRewind(
  { stream, cache, journal, tell }: RewindNeeds,
  writes: () => EntryWrites,
): Rewind {
  return new Rewind({
    cache,
    journal,
    tell,
    clock: stream.line.clock,
    streamName: stream.name,
    write: (content, expected) => writes().write(writes().encode(content), expected),
    remove: ({ id, seq, key }) => writes().remove(id, seq, key),
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
