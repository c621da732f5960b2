/**
 * tombstones — removed for good: markers taken out of the stream, and what was removed remembered.
 * Also what inserts that died have left behind is looked for here (`Sweeper`).
 *
 * An entry is removed by a marker over its key: a plain write, judged and kept like any other. The
 * marker itself must go too, or the bucket grows for ever. But a server that is killed may forget
 * that a message was taken out (2.9 and 2.10 both do), and the entry below a marker would be back.
 * So before markers go, one message names up to 500 of them: a tombstone. It stays for ten
 * minutes, longer than a server needs to sync its own state; a process that reads the stream after
 * a crash finds it, and removes again what came back. Tombstones also inform other processes whose
 * feed was too late to see the marker.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Catalog } from './catalog.ts';
import { TOMBSTONE } from './row.ts';
import type { Stream } from './stream.ts';

/** Maximum removals in one tombstone. Also in docs/reference/stores/nats.md. */
const GRAVE_MAX = 500;
/** How long removals are collected for one tombstone. */
const GATHER_MS = 100;
/**
 * How long a tombstone is kept; servers sync their state every 2 minutes at the latest. Also in
 * docs/reference/stores/nats.md.
 */
export const TOMBSTONE_KEPT_MS: number = 10 * 60_000;
const LEVEL_EVERY_MS = 60_000;
const MARK_EVERY_MS = 10_000;
const DROPS_AT_ONCE = 64;

/** Something that was removed as of a sequence, and the message to take out for it. */
export interface PendingTombstone {
  /** `e` and the id, or `d` and the hash of a dedupe key. */
  readonly name: string;
  readonly seq: number;
  /** Of an entry: which life of its id this was; undefined where it is not known. */
  readonly birth?: number | undefined;
}

/** What tombstones need. */
interface TombstonesOptions {
  readonly stream: Stream;
  readonly clock: Clock;
  readonly makeSubject: (name: string) => string;
  readonly makeToken: () => string;
}

/** Takes markers out, in the background. */
export class Tombstones {
  readonly #parts: TombstonesOptions;
  #queue: PendingTombstone[] = [];
  #running: Promise<void> | undefined;
  #cancel: (() => void) | undefined;
  #isClosed = false;
  #count = 0;
  #era = 0;
  /** The server process whose sequences these are. */
  #restarts: number;
  #levelledAt: number;
  /** Where the stream ended at a time: tombstones before it are as old as that. */
  #marks: { readonly at: number; readonly seq: number }[] = [];

  constructor(parts: TombstonesOptions) {
    this.#parts = parts;
    this.#levelledAt = parts.clock.monotonic();
    this.#restarts = parts.stream.line.restarts;
  }

  /** How many wait to be taken out. */
  get waiting(): number {
    return this.#queue.length;
  }

  add(burials: readonly PendingTombstone[]): void {
    if (burials.length === 0) return;
    for (const burial of burials) this.#queue.push(burial);
    this.#schedule();
  }

  /** Forgets what waits: sequences of before a restart mean nothing after it. */
  clear(): void {
    this.#era += 1;
    this.#restarts = this.#parts.stream.line.restarts;
    this.#queue = [];
    this.#marks = [];
  }

  /** Takes out all that waits, as far as the connection allows. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancel?.();
    this.#cancel = undefined;
    await this.#running;
    // Not awaited without a connection: the next process that opens the bucket finds the markers.
    if (this.#queue.length > 0 && this.#parts.stream.line.isConnected) await this.#run();
  }

  #schedule(): void {
    if (this.#isClosed || this.#running !== undefined || this.#cancel !== undefined) return;
    this.#cancel = this.#parts.clock.after(GATHER_MS, () => {
      this.#cancel = undefined;
      this.#running = this.#run().finally(() => {
        this.#running = undefined;
        if (this.#queue.length > 0) this.#schedule();
      });
    });
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      const part = this.#queue.slice(0, GRAVE_MAX);
      this.#queue = this.#queue.slice(GRAVE_MAX);
      const era = this.#era;
      try {
        await this.#bury(part);
      } catch {
        // The connection is broken or the server is full: tried again, unless we are closing; then
        // the next one to open the bucket finds the markers.
        if (this.#isClosed) return;
        if (this.#era === era) this.#queue = [...part, ...this.#queue];
        return;
      }
    }
    await this.#level().catch(() => undefined);
  }

  async #bury(part: readonly PendingTombstone[]): Promise<void> {
    const { stream, makeSubject, makeToken, clock } = this.#parts;
    const era = this.#era;
    this.#checkServer();
    this.#count += 1;
    const text = part.map(writeBurial).join(' ');
    const subject = makeSubject(String(this.#count));
    const headers = [[TOMBSTONE, text]] as const;
    const seq = await stream.write(subject, '', { token: makeToken(), headers });
    const now = clock.monotonic();
    const isDue = now - (this.#marks.at(-1)?.at ?? Number.NEGATIVE_INFINITY) > MARK_EVERY_MS;
    if (isDue) this.#marks.push({ at: now, seq: seq ?? 0 });
    for (let at = 0; at < part.length; at += DROPS_AT_ONCE) {
      if (this.#era !== era) return;
      this.#checkServer();
      const drops = part.slice(at, at + DROPS_AT_ONCE);
      await Promise.all(drops.map((burial) => stream.drop(burial.seq)));
    }
  }

  /** A server that is back may have given these sequences to others; `clear` follows soon. */
  #checkServer(): void {
    const { stream } = this.#parts;
    if (!stream.restartsForget || stream.line.restarts === this.#restarts) return;
    throw new RespoolError('store.unavailable', 'cannot take out markers: the server is another');
  }

  /** Takes out tombstones that are old enough. */
  async #level(): Promise<void> {
    const { stream, clock, makeSubject } = this.#parts;
    const now = clock.monotonic();
    if (now - this.#levelledAt < LEVEL_EVERY_MS) return;
    this.#levelledAt = now;
    const old = this.#marks.filter(({ at }) => now - at > TOMBSTONE_KEPT_MS);
    this.#marks = this.#marks.slice(old.length);
    const last = old.at(-1);
    if (last !== undefined) await stream.purge(makeSubject('*'), last.seq + 1);
  }
}

function writeBurial({ name, seq, birth = 0 }: PendingTombstone): string {
  return birth === 0 ? `${name}:${seq}` : `${name}:${seq}:${birth}`;
}

/** What a tombstone names. */
export function readTombstone(text: string): readonly PendingTombstone[] {
  return text.split(' ').flatMap((word) => {
    const [name = '', seq, birth] = word.split(':');
    if (name === '' || !Number.isSafeInteger(Number(seq))) return [];
    return [{ name, seq: Number(seq), birth: birth === undefined ? undefined : Number(birth) }];
  });
}

// What a process that died in an insert left behind: entries whose key never came, keys
// that point to nothing.
//
// No clock is trusted: what looks left behind is remembered, and removed if it looks the same
// ten minutes later. An insert that took so long makes sure of its entry before it answers.

/**
 * How long something has to look left behind. Also in docs/reference/stores/nats.md;
 * test/stores/nats/crashes.test.ts holds the timer of this length.
 */
export const PENDING_INSERT_KEPT_MS: number = 10 * 60_000;

/** Looks every ten minutes. */
export class Sweeper {
  readonly #catalog: Catalog;
  readonly #clock: Clock;
  readonly #bury: (burials: readonly PendingTombstone[]) => void;
  #suspects = new Map<string, number>();
  #cancel: (() => void) | undefined;

  constructor(
    catalog: Catalog,
    clock: Clock,
    bury: (burials: readonly PendingTombstone[]) => void,
  ) {
    this.#catalog = catalog;
    this.#clock = clock;
    this.#bury = bury;
  }

  /** Starts over: earlier sequences are no longer valid. */
  start(): void {
    this.stop();
    this.#suspects = new Map(orphansIn(this.#catalog));
    this.#cancel = this.#clock.after(PENDING_INSERT_KEPT_MS, () => this.#sweep());
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #sweep(): void {
    const present = new Map(orphansIn(this.#catalog));
    const burials: PendingTombstone[] = [];
    for (const [name, seq] of present) {
      if (this.#suspects.get(name) !== seq) continue;
      burials.push({ name, seq });
      present.delete(name);
    }
    this.#bury(burials);
    this.#suspects = present;
    this.#cancel = this.#clock.after(PENDING_INSERT_KEPT_MS, () => this.#sweep());
  }
}

function* orphansIn(catalog: Catalog): Generator<[string, number]> {
  for (const [key, { id, seq }] of catalog.keys) {
    const row = catalog.rows.get(id);
    const isHeld = row !== undefined && (row.key === key || row.damage !== undefined);
    if (!isHeld) yield [`d${key}`, seq];
  }
  for (const row of catalog.rows.values()) {
    if (row.isUnborn && !catalog.isLive(row)) yield [`e${row.id}`, row.seq];
  }
}
