/**
 * run-state — the state of the run of a replay: where each letter stands, in memory
 * (`LetterProgress`) and in the journal behind it (`ReplayJournal`); the lease of the process that
 * runs it (`ReplayLease`), and why the run stops (`StopReason`).
 *
 *   open ─claim─▶ busy ─▶ sent · failed · parked · unsure · gone · left
 *    ▲               └─▶ as before the claim, or open: not sent after all
 *    └─ claimed likewise: `intended` (an earlier run was about to send it: whether it did is
 *       unknown); in a new run `failed`, and `unsure` where that is to be sent
 *
 * Two copies of a message may have the same key: each has a place of its own here, and any copy
 * may stand for any of them.
 *
 * The journal of a replay has these entries:
 *
 *   plan, plan, …   the frozen keys, 500 at a time
 *   step            these are about to be sent · those came to this · the last ones are acked
 *   canaries        canaries begin again: those sent so far no longer count
 *   proven          the canaries did well
 *   canary          how one of them ended, by the process that settled it
 *
 * Letters are numbers there: their place in the plan. One append per batch: results go with the
 * next intent, since a missing result costs nothing but a look after a crash. Journals of earlier
 * versions stay readable.
 *
 * The lease is on the record of the replay, renewed by a heartbeat that also hears what is wanted:
 *
 *   begin ─▶ beat, beat, … ─▶ end
 *              └─ pause or cancel wanted · the lease is lost ─▶ halt
 *
 * `StopReason` is that halt, and why: one for all parts of a run, and the first reason counts.
 *
 * Promise: two processes never run the same replay; one that cannot renew its lease in time sends
 * nothing more.
 */

import { type Millis, SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { type CanaryEnd, replayLogKind } from '../../core/reserved-headers.ts';
import type { Clock } from '../../ports/clock.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import {
  isRunBySomebody,
  placeOfReplay,
  type Replay,
  type ReplayCanaries,
  type ReplayCounts,
  type ReplayLine,
  replayOf,
  type ReplayState,
} from '../../spool/operator/replays.ts';
import { type LeaseOptions, RecordLease } from '../../spool/record-lease.ts';

type Standing = 'open' | 'busy' | 'intended' | Exclude<ReplayLine['result'], 'again'>;

/** A letter's place in the plan, and how it stood when it was claimed. */
export interface LetterClaim {
  readonly item: number;
  readonly before: Standing;
  /** It may have been sent before. */
  readonly wasIntended: boolean;
}

/** The places of one key; those before `from` are settled for this run. */
interface Copies {
  items: number[];
  from: number;
}

/** The counts of a replay that has not begun. */
export const NO_COUNTS: Omit<ReplayCounts, 'waiting'> = {
  sent: 0,
  failed: 0,
  parked: 0,
  unsure: 0,
  gone: 0,
  left: 0,
  again: 0,
};

/** Where every letter stands. */
export class LetterProgress {
  readonly #records: RecordStore;
  readonly #id: string;
  /** The journal was read up to and including this sequence. */
  #readTo = 0;
  readonly #ids: string[] = [];
  readonly #standings: Standing[] = [];
  readonly #lines: ({ readonly at: Millis; readonly outcome: LetterOutcome } | undefined)[] = [];
  readonly #byKey = new Map<string, Copies>();
  readonly #again = new Set<number>();
  readonly #againById = new Map<string, number>();
  /** Sent, and not known to be gone from their place, in the order in which they were sent. */
  #unacked: number[] = [];
  /** Failed, or unsure and to be sent: tried once more by this run. */
  readonly #retry = new Set<number>();
  readonly #missed = new Set<number>();
  readonly #canaries = new Set<number>();
  /** By id. */
  readonly #canaryEnds = new Map<string, CanaryEnd>();
  #counts: Record<Exclude<keyof ReplayCounts, 'waiting'>, number> = { ...NO_COUNTS };
  /** Open or intended: still to be looked for. */
  #wanted = 0;
  #isProven = false;
  #hasBadCanary = false;
  /** Set at the end, if it can be determined. */
  waiting = 0;
  canaryTally: ReplayCanaries | undefined;

  private constructor(records: RecordStore, id: string) {
    this.#records = records;
    this.#id = id;
  }

  /** Reads the journal of a replay. */
  static async load(records: RecordStore, id: string): Promise<LetterProgress> {
    const progress = new LetterProgress(records, id);
    for await (const { sequence, record } of readJournal(records, id)) {
      progress.#readTo = sequence;
      progress.#apply(record);
    }
    return progress;
  }

  get counts(): ReplayCounts {
    return this.waiting === 0 ? { ...this.#counts } : { ...this.#counts, waiting: this.waiting };
  }

  /** How many are still to be looked for. */
  get wanted(): number {
    return this.#wanted + this.#retry.size;
  }

  /** Whether canaries did well already. */
  get isProven(): boolean {
    return this.#isProven;
  }

  /** Canaries of earlier runs that did not fail, as far as is known, and are not proven. */
  get canaries(): readonly number[] {
    return this.#isProven ? [] : [...this.#canaries];
  }

  /** Whether a canary of earlier runs failed, and they are not proven. */
  get hasBadCanary(): boolean {
    return this.#hasBadCanary && !this.#isProven;
  }

  /** How canaries ended, by id, as far as it is on record by now. */
  async canaryEnds(): Promise<ReadonlyMap<string, CanaryEnd>> {
    for await (const { sequence, record } of readJournal(this.#records, this.#id, this.#readTo)) {
      this.#readTo = sequence;
      // The other records were written by this run.
      if (record.kind === 'canary') this.#noteEnd(record);
    }
    return this.#canaryEnds;
  }

  idOf(item: number): string {
    return this.#ids[item] ?? '';
  }

  add(key: string, id: string): void {
    const item = this.#ids.push(id) - 1;
    const same = this.#byKey.get(key);
    if (same === undefined) this.#byKey.set(key, { items: [item], from: 0 });
    else same.items.push(item);
    this.#standings.push('open');
    this.#lines.push(undefined);
    this.#wanted += 1;
  }

  /** A new run begins: what failed is tried again, and what is unsure if it shall be. */
  begin(unsure: 'leave' | 'send'): void {
    for (const [item, standing] of this.#standings.entries()) {
      const isTried = standing === 'failed' || (unsure === 'send' && standing === 'unsure');
      if (isTried) this.#retry.add(item);
    }
    // What may have been sent goes before what surely was not: of two alike that are here after a
    // crash, one has to be left.
    const isIntended = (item: number) =>
      this.#standings[item] === 'intended' || this.#standings[item] === 'unsure';
    for (const copies of this.#byKey.values()) {
      copies.from = 0;
      if (copies.items.length === 1) continue;
      const { items } = copies;
      copies.items = [...items.filter(isIntended), ...items.filter((item) => !isIntended(item))];
    }
  }

  /** How many letters were sent and are not known to be gone from their place. */
  get unacked(): number {
    return this.#unacked.length;
  }

  /** These are gone from their place for sure, and this many of those that were sent last. */
  acknowledge({ ackedCount = 0, acked = [] }: AckedLetters): void {
    this.#unacked.length -= Math.min(ackedCount, this.#unacked.length);
    if (acked.length === 0) return;
    const gone = new Set(acked);
    this.#unacked = this.#unacked.filter((item) => !gone.has(item));
  }

  /**
   * Those that are unacked, by key; not of keys of which another letter is open, unsure or failed.
   * n.b. What only went missing is reported as sent without a destination: a consumer may hold it,
   * and it was never confirmed.
   */
  unackedByKey(): Map<string, number[]> {
    const isConfirmed = (item: number): boolean =>
      this.#standings[item] === 'sent' &&
      (this.#lines[item]?.outcome.to !== undefined || this.#again.has(item));
    const unacked = new Set(this.#unacked);
    const byKey = new Map<string, number[]>();
    for (const [key, { items }] of this.#byKey) {
      const some = items.filter((item) => unacked.has(item));
      if (some.length > 0 && items.every(isConfirmed)) byKey.set(key, some);
    }
    return byKey;
  }

  /** How many letters of this id have failed again. */
  againOf(id: string): number {
    return this.#againById.get(id) ?? 0;
  }

  /** Letters that were sent, in any run, and are not known to have failed again. */
  *sentItems(): Iterable<number> {
    for (const [item, standing] of this.#standings.entries()) {
      if (standing === 'sent' && !this.#again.has(item)) yield item;
    }
  }

  /** Whether a letter of this key is still to be looked for. */
  isWanted(key: string): boolean {
    return this.#find(key) !== undefined;
  }

  /** Takes the place of a letter of this key, if there is one left. */
  claim(key: string): LetterClaim | undefined {
    const item = this.#find(key);
    if (item === undefined) return undefined;
    const before = this.#standings[item] ?? 'open';
    this.#retry.delete(item);
    this.#set(item, 'busy');
    return { item, before, wasIntended: before === 'intended' || before === 'unsure' };
  }

  /** What came of a letter. */
  settle(item: number, outcome: LetterOutcome, at: Millis): void {
    const { result } = outcome;
    if (result === 'back') return this.#set(item, 'open');
    this.#lines[item] = { at, outcome };
    if (result === 'sent' && outcome.to !== undefined) this.#unacked.push(item);
    if (result !== 'again') return this.#set(item, result);
    if (this.#again.has(item)) return;
    this.#again.add(item);
    this.#againById.set(this.idOf(item), this.againOf(this.idOf(item)) + 1);
    this.#counts.again += 1;
  }

  /** A claim that came to nothing: as it was. */
  release({ item, before }: LetterClaim): void {
    this.#set(item, before);
    if (before === 'failed' || before === 'unsure') this.#retry.add(item);
  }

  /**
   * It was not there when it was to be sent: true the first time, when it is worth another look.
   */
  miss(item: number): boolean {
    if (this.#missed.has(item)) return false;
    this.#missed.add(item);
    return true;
  }

  /** Letters that may have been sent; their result is unknown. */
  intended(): readonly number[] {
    return [...this.#standings.keys()].filter((item) => this.#standings[item] === 'intended');
  }

  /** What a whole pass did not find: intended and unsure ones were sent, the others are gone. */
  *missing(): Iterable<{ readonly item: number; readonly result: 'sent' | 'gone' }> {
    for (const [item, standing] of this.#standings.entries()) {
      if (!this.#isWantedItem(item)) continue;
      this.#retry.delete(item);
      const wasIntended = standing === 'intended' || standing === 'unsure';
      yield { item, result: wasIntended ? 'sent' : 'gone' };
    }
  }

  /** The last word on each letter, in the order of the plan. */
  *lines(): Iterable<ReplayLine> {
    for (const [item, line] of this.#lines.entries()) {
      if (line === undefined) continue;
      const { result, ...rest } = line.outcome;
      if (result !== 'back') yield { at: line.at, id: this.idOf(item), result, ...rest };
    }
  }

  #apply(record: JournalRecord): void {
    if (record.kind === 'plan') for (const [key, id = key] of record.items) this.add(key, id);
    else if (record.kind === 'proven') this.#isProven = true;
    else if (record.kind === 'canaries') this.#forgetCanaries();
    else if (record.kind === 'canary') this.#noteEnd(record);
    else {
      // Results first: they are of what was intended before.
      for (const { items, ...outcome } of record.results ?? []) {
        for (const item of items) {
          this.settle(item, renamed(outcome), record.at);
          if (!this.#isProven) this.#noteCanary(item, outcome);
        }
      }
      this.acknowledge(record);
      for (const item of record.intent ?? []) this.#set(item, 'intended');
    }
  }

  /** What bounced may be delivered later, after a retry. */
  #noteEnd(end: CanaryEnd): void {
    if (this.#canaryEnds.get(end.id)?.result === 'delivered') return;
    this.#canaryEnds.set(end.id, end);
  }

  #noteCanary(item: number, { result }: LetterOutcome): void {
    if (result === 'sent') this.#canaries.add(item);
    if (result === 'again' || result === 'failed') this.#hasBadCanary = true;
    if (result === 'again') this.#canaries.delete(item);
  }

  #forgetCanaries(): void {
    this.#isProven = false;
    this.#hasBadCanary = false;
    this.#canaries.clear();
  }

  #find(key: string): number | undefined {
    const copies = this.#byKey.get(key);
    if (copies === undefined) return undefined;
    const { items } = copies;
    while (this.#isOver(items[copies.from])) copies.from += 1;
    for (let at = copies.from; at < items.length; at += 1) {
      const item = items[at] ?? -1;
      if (this.#isWantedItem(item)) return item;
    }
    return undefined;
  }

  #isWantedItem(item: number): boolean {
    const standing = this.#standings[item];
    return standing === 'open' || standing === 'intended' || this.#retry.has(item);
  }

  #isOver(item: number | undefined): boolean {
    if (item === undefined) return false;
    return !this.#isWantedItem(item) && this.#standings[item] !== 'busy';
  }

  #set(item: number, standing: Standing): void {
    const before = this.#standings[item];
    if (before === undefined) return;
    this.#count(before, -1);
    this.#count(standing, 1);
    this.#standings[item] = standing;
  }

  #count(standing: Standing, by: 1 | -1): void {
    if (standing === 'open' || standing === 'intended') this.#wanted += by;
    else if (standing !== 'busy') this.#counts[standing] += by;
  }
}

/** The warning about letters whose acks may be lost. */
export function unackedText(count: number): string {
  return `${count} letters were sent without a confirmed ack`;
}

/** A letter of a plan; without an id where that is the key. */
export type ReplayPlanItem = readonly [key: string, id?: string];

/** What came of letters; `back`: not sent after all, as before. */
export interface LetterOutcome {
  readonly result: ReplayLine['result'] | 'back';
  readonly to?: string;
  readonly code?: string;
  readonly reason?: string;
}

/** The same outcome of several letters. */
interface OutcomeGroup extends LetterOutcome {
  readonly items: readonly number[];
}

/** Letters that were sent and are gone from their place for sure. */
interface AckedLetters {
  /** This many of those that were sent last. */
  readonly ackedCount?: number;
  readonly acked?: readonly number[];
}

/** One record of the journal. */
type JournalRecord =
  | { readonly kind: 'plan'; readonly items: readonly ReplayPlanItem[] }
  | (AckedLetters & {
      readonly kind: 'step';
      readonly at: Millis;
      readonly intent?: readonly number[];
      readonly results?: readonly OutcomeGroup[];
    })
  | { readonly kind: 'canaries'; readonly at: Millis }
  | { readonly kind: 'proven'; readonly at: Millis }
  | CanaryEnd;

/** Earlier versions wrote `replay.homeless` for `replay.unroutable`. */
function renamed(outcome: LetterOutcome): LetterOutcome {
  return outcome.code === 'replay.homeless' ? { ...outcome, code: 'replay.unroutable' } : outcome;
}

/** Keys of a plan per record. Also in docs/reference/dead-letters.md. */
const CHUNK_MAX = 500;
/** Records per read, at most 1,000 (ports/record-store.ts); one of a plan may have 50 KiB. */
const READ_MAX = 200;

/** Writes the frozen keys into the journal. */
export async function writePlan(
  records: RecordStore,
  id: string,
  items: readonly ReplayPlanItem[],
): Promise<void> {
  for (let at = 0; at < items.length; at += CHUNK_MAX) {
    const record: JournalRecord = { kind: 'plan', items: items.slice(at, at + CHUNK_MAX) };
    await records.append(replayLogKind(id), record);
  }
}

/** The records of the journal above this sequence, oldest first. */
async function* readJournal(
  records: RecordStore,
  id: string,
  above = 0,
): AsyncIterable<{ readonly sequence: number; readonly record: JournalRecord }> {
  let after = above;
  for (;;) {
    const page = await records.read(replayLogKind(id), after, READ_MAX);
    for (const { sequence, record } of page) {
      after = sequence;
      yield { sequence, record: record as JournalRecord };
    }
    if (page.length === 0) return;
  }
}

/** Removes the journal of a replay. */
export async function removeJournal(records: RecordStore, id: string): Promise<void> {
  let last = 0;
  for await (const { sequence } of readJournal(records, id)) last = sequence;
  if (last > 0) await records.trim(replayLogKind(id), last);
}

/** Writes the journal of a replay that runs. */
export class ReplayJournal {
  readonly #records: RecordStore;
  readonly #kind: string;
  readonly #clock: Clock;
  #pending = new Map<string, { readonly outcome: LetterOutcome; readonly items: number[] }>();

  constructor(records: RecordStore, id: string, clock: Clock) {
    this.#records = records;
    this.#kind = replayLogKind(id);
    this.#clock = clock;
  }

  /** Remembers what came of a letter until the next step. */
  note(item: number, outcome: LetterOutcome): void {
    const { result, to, code, reason } = outcome;
    const key = `${result}\n${to}\n${code}\n${reason}`;
    const group = this.#pending.get(key);
    if (group === undefined) this.#pending.set(key, { outcome, items: [item] });
    else group.items.push(item);
  }

  /** Durable when it resolves: these are about to be sent, and all that was noted so far. */
  async step(intent: readonly number[], acked: AckedLetters = {}): Promise<void> {
    const groups = [...this.#pending.values()];
    const ackedCount = acked.ackedCount ?? acked.acked?.length ?? 0;
    if (intent.length + groups.length + ackedCount === 0) return;
    this.#pending = new Map();
    const results = groups.map(({ outcome, items }) => ({ ...outcome, items }));
    try {
      await this.#append({
        kind: 'step',
        at: this.#clock.now(),
        ...(intent.length === 0 ? {} : { intent }),
        ...(results.length === 0 ? {} : { results }),
        ...acked,
      });
    } catch (error) {
      // The next step may get through: what is known must not become unsure.
      for (const { outcome, items } of groups) for (const item of items) this.note(item, outcome);
      throw error;
    }
  }

  /** What was sent so far no longer counts as canaries; others will be sent. */
  async canariesAnew(): Promise<void> {
    await this.#append({ kind: 'canaries', at: this.#clock.now() });
  }

  /** The canaries did well: the rest may go, also after a pause. */
  async proven(): Promise<void> {
    await this.#append({ kind: 'proven', at: this.#clock.now() });
  }

  async #append(record: JournalRecord): Promise<void> {
    await this.#records.append(this.#kind, record);
  }
}

// The lease of the process that runs a replay.

/** Why a run stops early. */
type HaltReason =
  | { readonly kind: 'end'; readonly state: ReplayState; readonly because?: string }
  /** Another process runs it by now, or may. */
  | { readonly kind: 'lost' }
  /** Our own machinery failed. */
  | { readonly kind: 'broken'; readonly error: unknown };

/** Ends a run; the first reason counts. */
class StopReason {
  readonly #controller = new AbortController();
  #reason: HaltReason | undefined;

  get reason(): HaltReason | undefined {
    return this.#reason;
  }

  get isSet(): boolean {
    return this.#reason !== undefined;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  stop(reason: HaltReason): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#controller.abort();
  }
}

/**
 * The reason recorded when a replay is paused because its process was told to end. It stays as it
 * is: rules/run.ts knows recorded replays by this beginning.
 */
export const INTERRUPTED_REASON = 'it was interrupted';

/**
 * How long a runner keeps its lease without a heartbeat; OBEYED_WITHIN_MS of
 * cli/commands/dlq/replay/replays.ts is longer. With the two below in
 * docs/reference/dead-letters.md.
 */
export const LEASE_MS: number = 30 * SECOND_MS;
const BEAT_MS = SECOND_MS;
/** Nothing new is begun when less than this is left of the lease. */
const MARGIN_MS: number = 5 * SECOND_MS;

interface ReplayLeaseOptions {
  readonly records: RecordStore;
  readonly clock: Clock;
  readonly id: string;
  /** Identifies this runner; unique. */
  readonly name: string;
  /** What has been done so far. */
  readonly report: () => Pick<Replay, 'counts' | 'canaries'>;
  readonly onProgress: ((replay: Replay) => void) | undefined;
}

/** The time in which this process runs a replay. */
export class ReplayLease {
  readonly halt: StopReason;
  readonly #parts: ReplayLeaseOptions;
  readonly #lease: RecordLease<Replay>;

  private constructor(parts: ReplayLeaseOptions, halt: StopReason, lease: RecordLease<Replay>) {
    this.halt = halt;
    this.#parts = parts;
    this.#lease = lease;
    lease.lost.addEventListener('abort', () => halt.stop({ kind: 'lost' }));
  }

  /** Takes the lease; `move.refused` when another process has it or the replay is over. */
  static async begin(parts: ReplayLeaseOptions): Promise<ReplayLease> {
    const { clock, id } = parts;
    const halt = new StopReason();
    const lease = await RecordLease.take(leaseOf(parts, halt), (replay) => {
      checkRunnable(replay, clock);
      const { wanted: _, because: __, ...rest } = replay;
      return { ...rest, state: 'running' as const, updatedAt: clock.now() };
    });
    if (lease === undefined) throw lostError(id);
    return new ReplayLease(parts, halt, lease);
  }

  /** Whether it may begin something now. */
  get isHeld(): boolean {
    return !this.halt.isSet && this.#lease.isHeld;
  }

  /** Whether no other process runs it, also while this one comes to its end. */
  get isLeased(): boolean {
    return this.#lease.isHeld;
  }

  /** Gives the lease back, with how it ended. */
  async end(state: ReplayState, because: string | undefined): Promise<Replay> {
    const { clock, report, onProgress } = this.#parts;
    const replay = await this.#lease.release((before) => {
      const { wanted: _, because: __, ...rest } = before;
      const reason = because === undefined ? {} : { because };
      return { ...rest, ...reason, state, ...report(), updatedAt: clock.now() };
    });
    onProgress?.(replay);
    return replay;
  }

  /** Stops the heartbeat; the lease runs out by itself. */
  drop(): Promise<void> {
    return this.#lease.drop();
  }
}

function leaseOf(parts: ReplayLeaseOptions, halt: StopReason): LeaseOptions<Replay> {
  const { records, clock, id, name, report, onProgress } = parts;
  return {
    ...placeOfReplay(records, id),
    name,
    clock,
    leaseMs: LEASE_MS,
    beatMs: BEAT_MS,
    marginMs: MARGIN_MS,
    now: () => clock.now(),
    read: (record) => replayOf(record, id),
    holderOf: ({ runner }) => runner?.name,
    isHeld: isRunBySomebody,
    hold: (replay, until) => ({ ...replay, runner: { name, until } }),
    free: (replay) => {
      const { runner: _, ...rest } = replay;
      return rest;
    },
    beat: (replay) => ({ ...replay, ...report(), updatedAt: clock.now() }),
    onBeat: (replay) => {
      if (replay.wanted === 'pause') halt.stop({ kind: 'end', state: 'paused' });
      if (replay.wanted === 'cancel') halt.stop({ kind: 'end', state: 'cancelled' });
      onProgress?.(replay);
    },
    lostError: () => lostError(id),
  };
}

/**
 * Refuses what is over, or in other hands.
 *
 * n.b. A replay that is done may be run again for its letters that failed or are unsure.
 */
export function checkRunnable(replay: Replay, clock: Clock): void {
  const { id, state, counts, runner } = replay;
  if (isRunBySomebody(replay, clock.now())) {
    throw new RespoolError(
      'move.refused',
      `cannot run replay "${id}": "${runner?.name}" runs it; pause it there first, or, where it ` +
        `was killed, try again after ${new Date(runner?.until ?? 0).toISOString()}`,
    );
  }
  const isOver = state === 'cancelled' || (state === 'done' && counts.failed + counts.unsure === 0);
  if (!isOver) return;
  throw new RespoolError(
    'move.refused',
    `cannot run replay "${id}": it is ${state}; plan a new one for what is there now`,
  );
}

/** The error of a run that finds another process in its place. */
export function lostError(id: string): RespoolError {
  return new RespoolError(
    'move.refused',
    `cannot continue with replay "${id}": its lease was not renewed in time, and ` +
      'another process may be running it; check, and resume it if none does',
  );
}
