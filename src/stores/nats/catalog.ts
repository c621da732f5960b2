/**
 * catalog — what this process knows of every entry: the small facts, and who holds which
 * key. Also a cache of contents (`Cache`).
 *
 * Fed by watcher.ts in the order of the stream, and by our own writes as soon as they are answered.
 * The higher sequence wins, so both may come in any order. It may be behind, never ahead: the
 * server judges every write by its sequence, and a writer that was behind reads and tries again.
 *
 * About 450 bytes per entry, and as much again for its dedupe key.
 */

import type { Entry } from '../../core/entry.ts';
import { takesTopic } from '../../core/topic.ts';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import { DueTree, type Leaf } from '../shared/due-tree.ts';
import type { Content, Facts } from './row.ts';

/** One entry. Replaced as a whole on every step but for the tree's marks. */
export interface Row extends Leaf, Facts {
  readonly topic: string;
  readonly destination: string | undefined;
  readonly priority: number;
  readonly state: Facts['state'];
  readonly lane: Facts['lane'];
  readonly seq: number;
  /** Why it cannot be read. */
  readonly damage: string | undefined;
  /** The round of reading in which it was last seen. */
  round: number;
}

/** Who holds a dedupe key, and which message says so. */
export interface KeyHolder {
  readonly id: string;
  readonly seq: number;
}

/** An entry that shows an older revision than this process had seen of it. */
export interface FallenRow {
  readonly row: Row;
  /** What was seen before. */
  readonly seen: Row;
}

/** All entries, by id, by dedupe key and by when they are due. */
export class Catalog {
  readonly rows: Map<string, Row> = new Map();
  readonly keys: Map<string, KeyHolder> = new Map();
  /** What cannot be read. */
  readonly damaged: Set<string> = new Set();
  /** Entries that show an older revision than before, since the last round that was completed. */
  #fallen = new Map<string, { row: Row; readonly seen: Row }>();
  /** Raised when the stream is read from its beginning again. */
  round = 0;
  readonly #tree = new DueTree<Row>();
  /** Ids that our own claim has in hand: other claims do not see them meanwhile. */
  readonly #busy = new Set<string>();
  /** What we removed, until the stream has shown it: older messages of it may still come. */
  readonly #removed = new Map<string, number>();
  readonly #words = new Map<string, string>();

  /** How many groups and entries were looked at so far, in search of what is due. */
  get looks(): number {
    return this.#tree.looks;
  }

  /** Records an entry as of a sequence; true when it was news. */
  put(id: string, seq: number, facts: Facts): boolean {
    if (!this.#isNews(id, seq)) return false;
    const former = this.rows.get(id);
    this.#forget(id);
    const row: Row = {
      ...facts,
      topic: this.#word(facts.topic),
      destination: facts.destination === undefined ? undefined : this.#word(facts.destination),
      id,
      seq,
      due: facts.dueAt ?? Number.MAX_SAFE_INTEGER,
      place: -1,
      group: undefined,
      damage: undefined,
      round: this.round,
    };
    this.rows.set(id, row);
    this.#list(row);
    this.#compare(row, former);
    return true;
  }

  /** Records that an entry cannot be read. */
  putDamaged(id: string, seq: number, damage: string): void {
    if ((this.rows.get(id)?.seq ?? 0) > seq) return;
    this.#forget(id);
    this.rows.set(id, { ...DAMAGED, id, seq, damage, round: this.round });
    this.damaged.add(id);
  }

  /** Records that an entry is gone as of a sequence. */
  remove(id: string, seq: number, isOurs: boolean): void {
    if (isOurs) this.#removed.set(id, seq);
    else if ((this.#removed.get(id) ?? Number.POSITIVE_INFINITY) <= seq) this.#removed.delete(id);
    const row = this.rows.get(id);
    if (row === undefined || row.seq > seq) return;
    this.#forget(id);
    this.rows.delete(id);
  }

  /** Records which entry holds a dedupe key as of a sequence. */
  putKey(key: string, holder: KeyHolder): void {
    const former = this.keys.get(key);
    if (former !== undefined && former.seq >= holder.seq) return;
    this.keys.set(key, holder);
    for (const id of new Set([former?.id, holder.id])) this.#freshen(id);
  }

  /** Notes that a dedupe key has no holder as of a sequence. */
  removeKey(key: string, seq: number): void {
    const former = this.keys.get(key);
    if (former === undefined || former.seq > seq) return;
    this.keys.delete(key);
    this.#freshen(former.id);
  }

  /** Whether an entry is there for others to see. */
  isLive(row: Row): boolean {
    return row.damage === undefined && (!row.isUnborn || this.isBorn(row.id, row.seq, row.key));
  }

  /** Whether the dedupe key of an unborn entry points to it. */
  isBorn(id: string, seq: number, key: string | undefined): boolean {
    const holder = key === undefined ? undefined : this.keys.get(key);
    return holder !== undefined && holder.id === id && holder.seq > seq;
  }

  /** The live entry of an id. */
  live(id: string): Row | undefined {
    const row = this.rows.get(id);
    return row !== undefined && this.isLive(row) ? row : undefined;
  }

  /**
   * Takes up to `max` due entries in hand, in the order of claims. With `spread`, which gives each
   * id a number, the lowest of a few times as many that are next, but of no later priority.
   */
  take(filter: ClaimFilter, now: number, max: number, spread?: (id: string) => number): Row[] {
    if (max <= 0) return [];
    const taken: Row[] = [];
    const enough = spread === undefined ? max : max * SPREAD_OVER;
    for (const row of this.#candidates(filter, now)) {
      if (taken.length >= max && row.priority > (taken[max - 1]?.priority ?? 0)) break;
      taken.push(row);
      if (taken.length >= enough) break;
    }
    const ours = spread === undefined ? taken : lowest(taken, max, spread);
    for (const row of ours) {
      this.#busy.add(row.id);
      this.#tree.remove(row);
    }
    return ours;
  }

  /** Lets go of an entry that was taken in hand. */
  release(id: string): void {
    this.#busy.delete(id);
    this.#freshen(id);
  }

  /** The earliest due time of all that the filter lets through. */
  nextDueAt(filter: ClaimFilter): number | null {
    if (filter.ids === undefined) return this.#tree.nextDueAt(filter);
    let next: number | null = null;
    for (const row of this.#byIds(filter)) next = Math.min(next ?? row.due, row.due);
    return next;
  }

  /** Begins to read the stream from its beginning: what is not seen again is gone. */
  beginRound(): void {
    this.round += 1;
    this.#removed.clear();
    this.keys.clear();
  }

  /**
   * Drops what was not seen in this round. `fallen`: entries that show an older revision than
   * before; `gone`: how many are not there although the stream ends before their last write, so
   * that no removal of theirs can have been written either.
   */
  endRound(lastSeq: number): { readonly fallen: readonly FallenRow[]; readonly gone: number } {
    let gone = 0;
    for (const [id, row] of this.rows) {
      if (row.round === this.round) {
        if (row.isUnborn) this.#freshen(id);
      } else {
        if (row.seq > lastSeq) gone += 1;
        this.#forget(id);
        this.rows.delete(id);
      }
    }
    const fallen = [...this.#fallen.values()].filter(({ row }) => this.rows.get(row.id) === row);
    this.#fallen.clear();
    return { fallen, gone };
  }

  /** Notes in a round whether an entry shows less than was seen of the same life before it. */
  #compare(row: Row, former: Row | undefined): void {
    const { id, birth, revision } = row;
    const seen = this.#fallen.get(id)?.seen ?? former;
    this.#fallen.delete(id);
    const isOfBefore = seen !== undefined && seen.round !== this.round;
    if (!isOfBefore || birth === 0 || seen.birth !== birth || seen.revision <= revision) return;
    this.#fallen.set(id, { row, seen });
  }

  #candidates(filter: ClaimFilter, now: number): Iterable<Row> {
    if (filter.ids === undefined) return this.#tree.due(filter, now);
    return this.#byIds(filter)
      .filter(({ due }) => due <= now)
      .sort(inClaimOrder);
  }

  /** The filed rows among the ids of the filter that the rest of it lets through. */
  #byIds({ ids, lane, states, topics, exceptDestinations = [] }: ClaimFilter): Row[] {
    return [...new Set(ids)].flatMap((id) => {
      const row = this.rows.get(id);
      // A row outside the tree cannot be claimed, or is claimed already.
      if (row?.group === undefined || row.lane !== lane) return [];
      const fits =
        states.some((state) => state === row.state) &&
        takesTopic(topics, row.topic) &&
        !(row.destination !== undefined && exceptDestinations.includes(row.destination));
      return fits ? [row] : [];
    });
  }

  #isNews(id: string, seq: number): boolean {
    if ((this.#removed.get(id) ?? 0) >= seq) return false;
    const row = this.rows.get(id);
    // A server that lost its last writes reuses their sequences: each round starts afresh.
    return row === undefined || row.seq < seq || row.round !== this.round;
  }

  #list(row: Row): void {
    const isClaimable = row.state !== 'hold' && row.state !== 'archived';
    if (!isClaimable || row.dueAt === null || row.group !== undefined) return;
    if (!this.#busy.has(row.id) && this.isLive(row)) this.#tree.add(row);
  }

  #freshen(id: string | undefined): void {
    const row = id === undefined ? undefined : this.rows.get(id);
    if (row === undefined) return;
    this.#tree.remove(row);
    this.#list(row);
  }

  #forget(id: string): void {
    const row = this.rows.get(id);
    if (row !== undefined) this.#tree.remove(row);
    this.damaged.delete(id);
  }

  /** The same text once in memory: topics and destinations come again and again. */
  #word(text: string): string {
    const known = this.#words.get(text);
    if (known !== undefined) return known;
    if (this.#words.size >= WORDS_MAX) this.#words.clear();
    this.#words.set(text, text);
    return text;
  }
}

const WORDS_MAX = 10_000;
/** This many times as many entries are looked at when several processes are after the same ones. */
const SPREAD_OVER = 4;

/** The `max` rows with the lowest numbers, in the order they were in. */
function lowest(rows: readonly Row[], max: number, numberOf: (id: string) => number): Row[] {
  if (rows.length <= max) return [...rows];
  const byNumber = rows
    .map((row) => ({ row, number: numberOf(row.id) }))
    .sort((one, other) => one.number - other.number);
  const chosen = new Set(byNumber.slice(0, max).map(({ row }) => row));
  return rows.filter((row) => chosen.has(row));
}

const DAMAGED = {
  revision: 0,
  state: 'hold',
  lane: 'delivery',
  topic: '',
  destination: undefined,
  priority: 0,
  dueAt: null,
  enqueuedAt: 0,
  updatedAt: 0,
  attempts: 0,
  holder: undefined,
  key: undefined,
  failureCode: undefined,
  becauseCode: undefined,
  fingerprint: undefined,
  isUnborn: false,
  birth: 0,
  due: 0,
  place: -1,
  group: undefined,
} as const;

/** A stand-in for the entry with what the catalog knows, for filters that need no more. */
export function outlineOf(row: Row): Entry {
  const { id, topic, destination, priority, enqueuedAt, lane, state, attempts, updatedAt } = row;
  const { failureCode, becauseCode, fingerprint, dueAt } = row;
  const outline = {
    envelope: { id, topic, destination, priority, enqueuedAt, headers: {} },
    status: {
      lane,
      state,
      attempts,
      updatedAt,
      dueAt,
      ...(failureCode === undefined ? {} : { lastFailure: { code: failureCode, fingerprint } }),
      ...(becauseCode === undefined ? {} : { because: { code: becauseCode } }),
    },
  };
  return outline as unknown as Entry;
}

function inClaimOrder(one: Row, other: Row): number {
  if (one.priority !== other.priority) return one.priority - other.priority;
  if (one.due !== other.due) return one.due - other.due;
  return one.id < other.id ? -1 : 1;
}

// Entries this process wrote or read lately, so that its next step need not read
// them.

/** What an entry costs beside its bytes. */
const OVERHEAD_BYTES = 1_500;

/** Contents by id and sequence, up to this many bytes; the oldest go first. */
export class Cache {
  readonly #maxBytes: number;
  readonly #contents = new Map<string, { readonly seq: number; readonly content: Content }>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get(id: string, seq: number): Content | undefined {
    const held = this.#contents.get(id);
    return held?.seq === seq ? held.content : undefined;
  }

  set(id: string, seq: number, content: Content): void {
    this.delete(id);
    this.#bytes += content.tail.length + OVERHEAD_BYTES;
    this.#contents.set(id, { seq, content });
    for (const oldest of this.#contents.keys()) {
      if (this.#bytes <= this.#maxBytes) break;
      this.delete(oldest);
    }
  }

  delete(id: string): void {
    const held = this.#contents.get(id);
    if (held === undefined) return;
    this.#contents.delete(id);
    this.#bytes -= held.content.tail.length + OVERHEAD_BYTES;
  }

  /** Empties it; what was in it. */
  takeAll(): ReadonlyMap<string, { readonly seq: number; readonly content: Content }> {
    const all = new Map(this.#contents);
    this.#contents.clear();
    this.#bytes = 0;
    return all;
  }
}
