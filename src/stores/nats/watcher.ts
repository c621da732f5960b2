/**
 * watcher — keeps the catalog up to the stream: all of it once, then as it comes.
 *
 * When the feed breaks it is opened again behind what was applied. It starts from the beginning
 * when that would not do: the server process is another one (it may have forgotten writes or
 * removals), the stream is shorter than we knew, we were away for half the time that tombstones are
 * kept, or the last reading from the beginning did not end.
 *
 * `caughtUp` is how one process sees what another has written: it asks where the stream ends and
 * waits until the feed has come that far. entry-store.ts makes one per store; feed.ts brings the
 * messages. The sweep for what dead inserts left (`Sweeper` of tombstones.ts) starts here.
 */

import { RespoolError } from '../../core/errors.ts';
import { createBatchLine } from '../shared/batching.ts';
import type { Catalog, Row } from './catalog.ts';
import { INSERT_MARK, FACTS, TOMBSTONE, HOLDS, OPERATION, readFacts } from './row.ts';
import { type FedMessage, type Feed, openFeed, type Rewind, type StreamEnds } from './feed.ts';
import { type PendingTombstone, readTombstone, Sweeper, TOMBSTONE_KEPT_MS } from './tombstones.ts';
import { type Stream, TOKEN } from './stream.ts';

/** A feed that could not be opened is tried again after this. */
const AGAIN_MS = 250;
/** The wait for the feed, usually a millisecond, before the end of the stream is looked at. */
const LOOK_AFTER_MS = 25;
/** Away for longer, tombstones may have been missed. */
const AWAY_MAX_MS = TOMBSTONE_KEPT_MS / 2;
/** No process has seen the stream before. */
const NOT_SEEN: StreamEnds = { lastSeq: 0, seenSeq: 0 };

/** What a watcher needs. */
export interface WatcherOptions {
  readonly stream: Stream;
  readonly catalog: Catalog;
  /** `$KV.<bucket>.` */
  readonly prefix: string;
  readonly instance: string;
  /** With one replica, a server that comes back as another process may have forgotten things. */
  readonly restartsForget: boolean;
  /** The stream may be on another server than ours, whose restart shows by a broken feed alone. */
  readonly isFar: boolean;
  /** The stream shows that this life of an id has begun, or is over. */
  readonly onBirth: (id: string, birth: number) => void;
  /** Something to take out of the stream. */
  readonly bury: (burials: readonly PendingTombstone[]) => void;
  /** Called before the stream is read from its beginning again. */
  readonly onRestart: () => void;
  /** Remembers removals, and compares with them what is read from the beginning again. */
  readonly rewind: Pick<Rewind, 'noteRemoval' | 'wasRemoved' | 'finish' | 'close'>;
  /** Another process may have made something due; `later`: not before the end of a lease. */
  readonly onDue: (when: 'now' | 'later') => void;
}

/** Follows the stream for as long as the store is open. */
export class Watcher {
  readonly #parts: WatcherOptions;
  readonly #barrier = createBatchLine<null, null>((calls) => this.#catchUp(calls), {
    batchMax: Number.POSITIVE_INFINITY,
  });
  readonly #waiting = new Set<() => void>();
  #feed: Feed | undefined;
  #applied = 0;
  #restarts: number;
  #aliveAt: number;
  #isReady = false;
  #isClosed = false;
  #isRound = false;
  /** What was read is being compared with what was seen before; others may be waited for. */
  #isComparing = false;
  #breaks = 0;
  #cancel: (() => void) | undefined;
  /** Of this round of reading: removed for good, but still or again there. */
  #leftovers: PendingTombstone[] = [];
  /** Of this round: what may go once it is old. */
  #dated: (PendingTombstone & { readonly storedAt: number })[] = [];
  /** Of this round: where the stream ended, and the last sequence of it that was seen before. */
  #ends: StreamEnds = NOT_SEEN;
  /** When the server stored the last message. */
  #newestAt = 0;
  #bytes = 0;
  readonly #sweeper: Sweeper;

  constructor(parts: WatcherOptions) {
    this.#parts = parts;
    const { line } = parts.stream;
    this.#restarts = line.restarts;
    this.#aliveAt = line.clock.monotonic();
    this.#sweeper = new Sweeper(parts.catalog, line.clock, parts.bury);
  }

  /** The size of the stream when it was last asked for. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The last sequence that was acknowledged or seen; 0 while the stream is read anew. */
  get position(): number {
    return this.#isReady ? Math.max(this.#applied, this.#parts.stream.writtenSeq) : 0;
  }

  /** Reads all there is; resolves when the catalog is complete. `ends`: what was seen before. */
  async open(ends: StreamEnds = NOT_SEEN): Promise<void> {
    this.#ends = ends;
    await this.#begin(1);
    await this.#until(() => this.#isReady);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
    this.#sweeper.stop();
    this.#parts.rewind.close();
    this.#feed?.stop();
    this.#wake();
  }

  /** Resolves when all that was written before the call has been taken in. */
  async caughtUp(): Promise<void> {
    await this.#barrier.add([null]);
  }

  /** Resolves when the catalog can be relied on; undefined: it can now. */
  ready(): Promise<void> | undefined {
    return this.#isReady ? undefined : this.#until(() => this.#isReady);
  }

  async #catchUp(calls: readonly null[]): Promise<readonly null[]> {
    const { stream } = this.#parts;
    await this.ready();
    const before = Math.max(this.#applied, stream.writtenSeq);
    const info = await stream.info();
    this.#bytes = info?.state.bytes ?? 0;
    const last = info?.state.last_seq ?? 0;
    if (last < before) this.#restart();
    if (this.#isReady && this.#applied >= last) return calls;
    // The last message may have been taken out before it was fed: then it never comes.
    const { clock } = stream.line;
    const cancel = clock.after(LOOK_AFTER_MS, () => void this.#lookBehind(last));
    try {
      await this.#until(() => this.#isReady && this.#applied >= last);
    } finally {
      cancel();
    }
    return calls;
  }

  /** Goes past sequences at the end of the stream that have no message any more. */
  async #lookBehind(last: number): Promise<void> {
    const { stream, prefix } = this.#parts;
    try {
      const next = await stream.next(`${prefix}>`, this.#applied + 1);
      if (next === undefined && this.#isReady) {
        this.#applied = Math.max(this.#applied, last);
        this.#wake();
      }
    } catch {
      // The feed will tell, or the caller's time will be over.
    }
  }

  /** Waits for something to become true; rejects when the store is closed or it takes too long. */
  #until(isTrue: () => boolean): Promise<void> {
    if (isTrue()) return Promise.resolve();
    const { line } = this.#parts.stream;
    return new Promise((resolve, reject) => {
      const stop = (): void => {
        cancel();
        this.#waiting.delete(look);
      };
      const look = (): void => {
        if (!this.#isClosed && !isTrue()) return;
        stop();
        if (this.#isClosed) reject(unavailable('the store was closed'));
        else resolve();
      };
      this.#waiting.add(look);
      let cancel = (): void => {};
      const watch = (applied: number): void => {
        cancel = line.clock.after(line.timeoutMs, () => {
          // A long stream takes its time, as long as there is progress; to compare takes its own.
          if (this.#applied > applied || this.#isComparing) watch(this.#applied);
          else {
            stop();
            reject(unavailable('the server does not send what it has'));
          }
        });
      };
      watch(this.#applied);
    });
  }

  #wake(): void {
    for (const look of this.#waiting) look();
  }

  async #begin(from: number): Promise<void> {
    const { stream, catalog, prefix } = this.#parts;
    if (from === 1) {
      this.#isReady = false;
      this.#isRound = true;
      this.#leftovers = [];
      this.#dated = [];
      this.#applied = 0;
      catalog.beginRound();
    }
    this.#feed = await openFeed(stream, {
      filter: `${prefix}>`,
      from,
      headersOnly: true,
      onMessage: (fed) => this.#apply(fed),
      onCaughtUp: () => void this.#finish(),
      onIdle: (seq) => {
        this.#aliveAt = stream.line.clock.monotonic();
        this.#applied = Math.max(this.#applied, seq);
        this.#wake();
      },
      onBroken: () => this.#again(),
    });
    if (this.#isClosed) this.#feed.stop();
  }

  /** The catalog is complete. */
  async #finish(): Promise<void> {
    const { catalog, bury, stream } = this.#parts;
    const { line } = stream;
    if (this.#isRound) {
      this.#isRound = false;
      const found = catalog.endRound(this.#ends.lastSeq);
      bury(this.#leftovers);
      this.#leftovers = [];
      const ends = this.#ends;
      this.#ends = NOT_SEEN;
      const breaks = this.#breaks;
      this.#isComparing = true;
      await this.#parts.rewind.finish({ ...ends, ...found, returned: this.#returned() });
      this.#isComparing = false;
      // A timer of a closed store would keep the process running.
      if (this.#isClosed) return;
      this.#sweeper.start();
      await this.#levelGraves();
      // Broken meanwhile: the next feed tells when it is through.
      if (this.#breaks !== breaks) return;
    }
    this.#aliveAt = line.clock.monotonic();
    this.#isReady = true;
    this.#wake();
    this.#parts.onDue('now');
  }

  /** Entries whose removal was seen, and whose tombstone was lost as well. */
  #returned(): Row[] {
    const { catalog, rewind } = this.#parts;
    return [...catalog.rows.values()].filter(({ id, birth }) => rewind.wasRemoved(id, birth));
  }

  /** Takes out tombstones and markers of records that are old by the server's own clock. */
  async #levelGraves(): Promise<void> {
    const { stream, prefix, bury } = this.#parts;
    const oldBefore = this.#newestAt - TOMBSTONE_KEPT_MS;
    const old = this.#dated.filter(({ storedAt }) => storedAt < oldBefore);
    this.#dated = [];
    bury(old.filter(({ name }) => name !== 'g'));
    const tombstone = old.findLast(({ name }) => name === 'g');
    if (tombstone === undefined) return;
    await stream.purge(`${prefix}g.>`, tombstone.seq + 1).catch(() => undefined);
  }

  #again(): void {
    if (this.#isClosed) return;
    this.#breaks += 1;
    // Until it is known how much was missed, the catalog must not be relied on.
    this.#isReady = false;
    const { line } = this.#parts.stream;
    this.#cancel?.();
    this.#cancel = line.clock.after(line.isConnected ? 0 : AGAIN_MS, () => void this.#resume());
  }

  async #resume(): Promise<void> {
    const { stream, restartsForget, isFar } = this.#parts;
    const { line } = stream;
    if (this.#isClosed) return;
    if (!line.isConnected) {
      this.#again();
      return;
    }
    try {
      const before = Math.max(this.#applied, stream.writtenSeq);
      const info = await stream.info();
      const lastSeq = info?.state.last_seq ?? 0;
      if (restartsForget && isFar) line.noteRestart();
      const isForgetful = restartsForget && line.restarts !== this.#restarts;
      const wasAway = line.clock.monotonic() - this.#aliveAt > AWAY_MAX_MS;
      const isShorter = lastSeq < before;
      this.#restarts = line.restarts;
      const isAnew = isForgetful || wasAway || isShorter || this.#isRound;
      if (isAnew) {
        // A round that broke has not reported yet what was seen before it.
        this.#ends = { ...this.#ends, lastSeq, seenSeq: Math.max(before, this.#ends.seenSeq) };
        stream.writtenSeq = 0;
        this.#parts.onRestart();
      }
      await this.#begin(isAnew ? 1 : this.#applied + 1);
    } catch {
      this.#cancel = line.clock.after(AGAIN_MS, () => void this.#resume());
    }
  }

  /** The stream is not the one we knew. */
  #restart(): void {
    this.#isReady = false;
    this.#isRound = true;
    this.#feed?.stop();
    this.#again();
  }

  #apply(fed: FedMessage): void {
    const { prefix } = this.#parts;
    // The kinds of subjects in the head of row.ts.
    const kind = fed.subject.charAt(prefix.length);
    if (kind === 'e') this.#applyEntry(fed);
    else if (kind === 'd') this.#applyKey(fed);
    else if (kind === 'g') this.#applyGrave(fed);
    else if (kind === 'm') this.#applyRecord(fed);
    this.#applied = Math.max(this.#applied, fed.seq);
    this.#newestAt = Math.max(this.#newestAt, fed.storedAt);
    if (this.#waiting.size > 0) this.#wake();
  }

  #applyEntry({ subject, headers, seq }: FedMessage): void {
    const { catalog, instance, onDue, onBirth } = this.#parts;
    const id = subject.slice(subject.lastIndexOf('.') + 1);
    if (headers?.get(OPERATION)) {
      const birth = Number(headers.get(INSERT_MARK));
      onBirth(id, birth);
      this.#parts.rewind.noteRemoval(id, birth);
      catalog.remove(id, seq, false);
      if (this.#isRound) this.#leftovers.push({ name: `e${id}`, seq, birth });
      return;
    }
    const facts = readFacts(headers?.get(FACTS) ?? '');
    if (facts === undefined) {
      catalog.putDamaged(id, seq, 'it carries no facts that can be read');
      return;
    }
    onBirth(id, facts.birth);
    const isOurs = headers?.get(TOKEN).startsWith(`${instance}.`) === true;
    const isNews = catalog.put(id, seq, facts) && !isOurs && this.#isReady;
    if (isNews && facts.dueAt !== null) onDue(facts.state === 'active' ? 'later' : 'now');
  }

  #applyKey({ subject, headers, seq }: FedMessage): void {
    const { catalog, onDue } = this.#parts;
    const key = subject.slice(subject.lastIndexOf('.') + 1);
    const id = headers?.get(HOLDS) ?? '';
    if (id === '') return;
    catalog.putKey(key, { id, seq });
    // An entry that was written before its key is born by it.
    if (this.#isReady && catalog.live(id)?.isUnborn === true) onDue('now');
  }

  #applyGrave({ headers, seq, storedAt }: FedMessage): void {
    const { catalog, onBirth } = this.#parts;
    if (this.#isRound) this.#dated.push({ name: 'g', seq, storedAt });
    for (const burial of readTombstone(headers?.get(TOMBSTONE) ?? '')) {
      const name = burial.name.slice(1);
      if (burial.name.startsWith('d')) catalog.removeKey(name, burial.seq);
      else {
        onBirth(name, burial.birth ?? 0);
        this.#parts.rewind.noteRemoval(name, burial.birth ?? 0);
        const row = catalog.rows.get(name);
        // Read from the stream in this round although it was removed: it came back, out again.
        const isBack = this.#isRound && row !== undefined && row.seq <= burial.seq;
        if (isBack) this.#leftovers.push({ ...burial, seq: row.seq });
        catalog.remove(name, burial.seq, false);
      }
    }
  }

  /** Markers of removed records go when servers have surely noted what they stand for. */
  #applyRecord({ subject, headers, seq, storedAt }: FedMessage): void {
    if (!this.#isRound || !headers?.get(OPERATION)) return;
    this.#dated.push({ name: `m${subject}`, seq, storedAt });
  }
}

function unavailable(reason: string): RespoolError {
  return new RespoolError('store.unavailable', `cannot follow the bucket: ${reason}; try again`);
}
