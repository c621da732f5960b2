/**
 * disk — the data all processes of a simulated world share, and what a power cut may lose of it.
 *
 * Synchronous: a caller sees the world before and after. Every change of an entry goes through
 * `wrote`, in order, into a log of what is not durable yet. A power cut drops a suffix of that log,
 * as with a write-ahead log; killing a process drops nothing. Records are durable at once. A body
 * is durable once it is put and gone once it is removed: the worst case for both.
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry, Status } from '../../core/entry.ts';
import { claimedStatus } from '../../core/next-status.ts';
import { takesTopic } from '../../core/topic.ts';
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  Duplicate,
  EntryStore,
} from '../../ports/entry-store.ts';
import { copyOf, Data } from '../../stores/memory/data.ts';
import type { Row } from '../../stores/memory/due-flows.ts';
import { memory } from '../../stores/memory/index.ts';
import type { Chance, Timeline } from './timeline.ts';

/** One entry changed. */
export interface Write {
  readonly id: string;
  readonly before: Entry | undefined;
  readonly after: Entry | undefined;
  /** Where its insert came among all. */
  readonly seq: number;
  readonly atMs: number;
}

/** Lazy writes are durable after this long at the latest. As ports/entry-store.ts promises. */
const LAZY_MS = 250;

/** The shared data of a world. */
export class SimDisk {
  readonly timeline: Timeline;
  /** For lists, tallies and single entries, which change nothing; and for records, also written. */
  readonly reader: EntryStore;
  /** Hears of every change, as it happens. */
  onWrite: (write: Write) => void = () => undefined;
  protected readonly data: Data = new Data();
  #log: Write[] = [];
  /** How many log records have left it at its front. */
  #hardened = 0;

  constructor(timeline: Timeline) {
    this.timeline = timeline;
    this.reader = memory({ shared: this.data });
    // Memory opens at once; its promise resolves to nothing.
    void this.reader.open();
  }

  /** The entry as every process sees it now. */
  peek(id: string): Entry | undefined {
    return this.data.rows.get(id)?.entry;
  }

  /** Where the insert of an entry that is there came among all. */
  seqOf(id: string): number {
    return this.data.rows.get(id)?.seq ?? Number.NaN;
  }

  /** All entries as every process sees them now. */
  *entries(): Generator<Entry> {
    for (const row of this.data.rows.values()) yield row.entry;
  }

  get size(): number {
    return this.data.rows.size;
  }

  damage(id: string): void {
    this.data.damage(id);
  }

  /** What a power cut could undo, oldest first. */
  undurable(): readonly Write[] {
    const young = this.#log.findIndex((write) => this.timeline.nowMs - write.atMs < LAZY_MS);
    this.harden(this.#hardened + (young < 0 ? this.#log.length : young), 'time');
    return this.#log;
  }

  /** Everything written so far ends here; `harden` makes it durable. */
  get position(): number {
    return this.#hardened + this.#log.length;
  }

  insert(entries: readonly Entry[]): ('stored' | Duplicate)[] {
    return entries.map((entry) => {
      const duplicateOf = this.data.insert(entry);
      if (duplicateOf !== undefined) return { duplicateOf };
      this.wrote(entry.envelope.id, undefined);
      return 'stored';
    });
  }

  claim(request: ClaimRequest): Entry[] {
    const rows =
      request.ids === undefined
        ? this.data.due.take(request, request.now, request.max)
        : this.#byIds(request, request.now).slice(0, request.max);
    return rows.map((row) => this.take(row, claimedStatus(row.entry.status, request)));
  }

  commit(changes: readonly Change[]): ('done' | 'stale')[] {
    return changes.map((change) => {
      const row = this.data.rows.get(change.id);
      if (row === undefined || row.damage !== undefined) return 'stale';
      if (!this.isCurrent(row.entry.status, change)) return 'stale';
      this.change(row, change);
      return 'done';
    });
  }

  nextDueAt(filter: ClaimFilter): Millis | null {
    if (filter.ids === undefined) return this.data.due.nextDueAt(filter);
    const now = Number.POSITIVE_INFINITY;
    const rows = this.#byIds(filter, now).map(({ dueAt }) => dueAt);
    return rows.length === 0 ? null : Math.min(...rows);
  }

  /** Ends the leases of holders whose instance is gone. */
  expireLost(now: Millis, isGone: (holder: string) => boolean): number {
    let ended = 0;
    for (const row of this.data.rows.values()) {
      const { status } = row.entry;
      const { holder = '', dueAt } = status;
      if (status.state !== 'active' || dueAt === null || dueAt <= now) continue;
      if (!isGone(holder)) continue;
      this.change(row, {
        id: row.id,
        revision: status.revision,
        to: { ...status, dueAt: now, revision: status.revision + 1, updatedAt: now },
      });
      ended += 1;
    }
    return ended;
  }

  /** What was written up to this position survives a power cut from now on. `by`: who asked. */
  harden(position: number, _by: string): void {
    const count = position - this.#hardened;
    if (count <= 0) return;
    this.#log.splice(0, count);
    this.#hardened = position;
  }

  /** The power goes: a random suffix of what is not durable is forgotten. Returns what was. */
  powerCut(chance: Chance): readonly Write[] {
    const keep = chance.between(0, this.undurable().length);
    const dropped = this.#log.splice(keep).reverse();
    for (const write of dropped) this.#restore(write);
    this.harden(this.position, 'power');
    return dropped;
  }

  /** Whether a change is based on the present revision and holder. */
  isCurrent({ revision, holder }: Status, change: Change): boolean {
    return revision === change.revision && holder === change.holder;
  }

  /** Gives a row to a holder. */
  protected take(row: Row, status: Status): Entry {
    const before = row.entry;
    this.data.setStatus(row, status);
    this.wrote(row.id, before);
    return copyOf(row.entry);
  }

  protected change(row: Row, change: Change): void {
    const before = row.entry;
    this.data.change(row, change);
    this.wrote(row.id, before, row.seq);
  }

  protected wrote(id: string, before: Entry | undefined, seq: number = this.seqOf(id)): void {
    const write = { id, before, after: this.peek(id), seq, atMs: this.timeline.nowMs };
    this.#log.push(write);
    this.onWrite(write);
  }

  #restore({ id, before, seq }: Write): void {
    const row = this.data.rows.get(id);
    if (before === undefined) {
      if (row !== undefined) this.data.change(row, { id, revision: 0, to: 'remove' });
    } else if (row === undefined) this.data.insert(before, seq);
    else {
      const { envelope, status, inlineBody } = before;
      const bytes = inlineBody === undefined ? {} : { inlineBody };
      this.data.change(row, { id, revision: 0, to: status, envelope, ...bytes });
    }
  }

  #byIds(filter: ClaimFilter, now: Millis): Row[] {
    const { ids = [], lane, states, topics, exceptDestinations = [] } = filter;
    const rows = [...new Set(ids)].flatMap((id) => this.data.rows.get(id) ?? []);
    return rows
      .filter((row) => {
        const { envelope, status } = row.entry;
        return (
          row.flow !== undefined &&
          row.dueAt <= now &&
          status.lane === lane &&
          states.some((state) => state === status.state) &&
          takesTopic(topics, envelope.topic) &&
          !exceptDestinations.some((name) => name === envelope.destination)
        );
      })
      .sort(
        (one, other) =>
          one.entry.envelope.priority - other.entry.envelope.priority ||
          one.dueAt - other.dueAt ||
          (one.id < other.id ? -1 : 1),
      );
  }
}

/** A stored body. */
interface StoredSimBody {
  readonly bytes: Uint8Array;
  readonly writtenAt: number;
}

/** The shared bodies of a world. */
export class SimBodyDisk {
  readonly timeline: Timeline;
  readonly bodies: Map<string, StoredSimBody> = new Map();

  constructor(timeline: Timeline) {
    this.timeline = timeline;
  }

  put(ref: string, bytes: Uint8Array, writtenAt: number): 'stored' | 'taken' {
    if (this.bodies.has(ref)) return 'taken';
    this.bodies.set(ref, { bytes, writtenAt });
    return 'stored';
  }

  get(ref: string): Uint8Array | undefined {
    return this.bodies.get(ref)?.bytes;
  }

  remove(refs: readonly string[]): void {
    for (const ref of refs) this.bodies.delete(ref);
  }

  refs(writtenBefore: number): { ref: string; writtenAt: number }[] {
    const found: { ref: string; writtenAt: number }[] = [];
    for (const [ref, { writtenAt }] of this.bodies) {
      if (writtenAt < writtenBefore) found.push({ ref, writtenAt });
    }
    return found;
  }
}
