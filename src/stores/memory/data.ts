/**
 * data — what memory stores keep, apart from the store objects, so that several can share it.
 *
 * Entries are plain readonly data and are kept as they come; only inline bytes are copied, on the
 * way in and on the way out, because bytes are the one part that callers fill and reuse.
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry, Status } from '../../core/entry.ts';
import type { Change } from '../../ports/entry-store.ts';
import { DueFlows, type Row } from './due-flows.ts';
import { OrderKeys } from './order-keys.ts';

/** What memory stores share: pass it to several to have them see the same entries and bodies. */
export interface MemoryData {
  /** Makes an entry undecodable, to see how what is above the store lives with it. */
  damage(id: string): void;
}

/** A log of one kind. */
export interface Log {
  /** The last sequence that was used. */
  last: number;
  readonly records: Map<number, string>;
}

/** A body and when it was written. */
interface HeldBody {
  readonly chunks: readonly Uint8Array[];
  readonly writtenAt: Millis;
}

/** The inside of MemoryData. */
export class Data implements MemoryData {
  readonly rows: Map<string, Row> = new Map();
  /** What may be claimed; of each order key only the first. */
  readonly due: DueFlows = new DueFlows();
  readonly lines: OrderKeys = new OrderKeys();
  readonly logs: Map<string, Log> = new Map();
  readonly maps: Map<string, Map<string, { readonly value: string; readonly revision: number }>> =
    new Map();
  readonly bodies: Map<string, HeldBody> = new Map();
  readonly #idByDedupeKey = new Map<string, string>();
  #opened = 0;
  #lastSeq = 0;

  /** A name for a store that opens, the same in every run of the same program. */
  nextInstance(): string {
    this.#opened += 1;
    return `memory-${this.#opened}`;
  }

  /**
   * Puts an entry in, or tells which entry has its id or its dedupe key. With the `seq` it had
   * before, it comes back to its place in the line of its order key.
   */
  insert(entry: Entry, seq?: number): string | undefined {
    const { id, dedupeKey } = entry.envelope;
    if (this.rows.has(id)) return id;
    const holder = dedupeKey === undefined ? undefined : this.#idByDedupeKey.get(dedupeKey);
    if (holder !== undefined) return holder;
    if (seq === undefined) this.#lastSeq += 1;
    const row: Row = {
      id,
      entry: copyOf(entry),
      dueAt: 0,
      flow: undefined,
      place: -1,
      seq: seq ?? this.#lastSeq,
      line: undefined,
    };
    this.rows.set(id, row);
    if (dedupeKey !== undefined) this.#idByDedupeKey.set(dedupeKey, id);
    this.#file(row);
    return undefined;
  }

  /** Gives a row its next status. */
  setStatus(row: Row, status: Status): void {
    this.due.remove(row);
    row.entry = { ...row.entry, status };
    this.#file(row);
  }

  /** Carries out a change whose guard was checked. */
  change(row: Row, { to, envelope, inlineBody }: Change): void {
    this.due.remove(row);
    if (to === 'remove') {
      this.rows.delete(row.id);
      this.#letGoOfKey(row);
      this.#refile(this.lines.update(row, true));
      return;
    }
    if (envelope !== undefined && envelope.dedupeKey !== row.entry.envelope.dedupeKey) {
      this.#letGoOfKey(row);
      if (envelope.dedupeKey !== undefined) this.#idByDedupeKey.set(envelope.dedupeKey, row.id);
    }
    row.entry = changed(row.entry, to, envelope, inlineBody);
    this.#file(row);
  }

  damage(id: string): void {
    const row = this.rows.get(id);
    if (row === undefined) return;
    row.damage = 'it was damaged on purpose';
    this.due.remove(row);
  }

  /** Files a row whose entry is new, and those of its order key whose turn came or went by it. */
  #file(row: Row): void {
    const others = this.lines.update(row);
    if (this.lines.isFirst(row)) this.due.add(row);
    this.#refile(others);
  }

  #refile(rows: readonly Row[]): void {
    for (const row of rows) {
      this.due.remove(row);
      // One that cannot be read keeps its place in the line, and is not claimed.
      if (row.damage === undefined && this.lines.isFirst(row)) this.due.add(row);
    }
  }

  #letGoOfKey({ id, entry }: Row): void {
    const { dedupeKey } = entry.envelope;
    if (dedupeKey !== undefined && this.#idByDedupeKey.get(dedupeKey) === id) {
      this.#idByDedupeKey.delete(dedupeKey);
    }
  }
}

/** The entry with bytes of its own. */
export function copyOf(entry: Entry): Entry {
  const { inlineBody } = entry;
  return inlineBody === undefined ? entry : { ...entry, inlineBody: Uint8Array.from(inlineBody) };
}

function changed(
  entry: Entry,
  status: Status,
  envelope: Change['envelope'],
  bytes: Change['inlineBody'],
): Entry {
  const next = { envelope: envelope ?? entry.envelope, status };
  if (next.envelope.body.place !== 'inline') return next;
  const inlineBody = bytes === undefined ? entry.inlineBody : Uint8Array.from(bytes);
  return inlineBody === undefined ? next : { ...next, inlineBody };
}

/** Ids in the order of their characters. */
export function compareText(one: string, other: string): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
