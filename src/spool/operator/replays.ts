/**
 * replays — a replay: letters that are sent again as one operation, on record from its plan to its
 * last message, so that any operator can inspect, pause, resume and cancel it. Its types, and
 * reading and changing its record; who plans and runs it: dead-letters/replay/.
 *
 *   plan ─▶ planned ─run─▶ running ─▶ done
 *                           │ ▲  ├─▶ stopped   by its guard or its canaries; resume when the cause
 *                           │ │  │             is gone
 *                           ▼ │  └─▶ cancelled what was not sent is where it was
 *                          paused
 */

import { REPLAYS_RECORD_KIND } from '../../core/reserved-headers.ts';
import type { Duration, Millis } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { EventOf } from '../../core/event.ts';
import type { KeptCopy, LetterKind, LetterQuery, LetterRoute } from '../../ports/dead-letters.ts';
import type { KeyedRecord, RecordStore } from '../../ports/record-store.ts';
import { changeRecord, type RecordPlace } from '../record-lease.ts';

/** Where the letters are. */
export type ReplaySource =
  | { readonly kind: 'spool'; readonly kinds: readonly LetterKind[] }
  | { readonly kind: 'queue'; readonly queue: string; readonly broker: string };

/** How a replay is to go. */
export interface ReplayOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Which letters; fixed when it is planned: what dies later is not part of it. Default all. */
  readonly query?: LetterQuery;
  /** Where the letters go. Default the home of each. */
  readonly to?: LetterRoute;
  /** At most this many letters. 1 or more; default all. */
  readonly max?: number;
  /**
   * Letters to send first; the rest follows when an attempt of each has ended, in a queue when a
   * consumer has taken each, and not too many failed again (canaries). 0 or more; default 10.
   */
  readonly canary?: number;
  /** The time limit for an attempt of each canary. 0s to 1d; default 10s. */
  readonly canaryWait?: Duration;
  /**
   * Of a queue only: the time from the last letter to the look whether any came back (the end); 0s:
   * no look. 0s to 1d; default 10s.
   */
  readonly endWait?: Duration;
  /** Letters per second. Default unlimited. */
  readonly rate?: number;
  /** In flight at once. 1 to 1,000; default 100. */
  readonly window?: number;
  /**
   * Stops when more than this percentage fails, or fails again; 100: never. 0 to 100; default 20.
   */
  readonly stopAbove?: number;
  /**
   * A letter that was replayed this many times is parked with `replay.limit`. 1 to 1,000; default
   * 3.
   */
  readonly replaysMax?: number;
  /** What a crash may have sent: left where it is, or sent again. Default `leave`. */
  readonly unsure?: 'leave' | 'send';
  /** A program that repairs letters on their way. */
  readonly transform?: string;
}

/** Why a letter of a plan cannot be sent. */
export type CannotKind =
  | 'unroutable'
  | 'replayed-too-often'
  | 'transform-failed'
  | 'transform-skips';

/** What would happen. */
export interface ReplayPlan {
  readonly plannedAt: Millis;
  /** How many letters the place had, whether they fit or not. On record under this name. */
  readonly seen: number;
  readonly count: number;
  readonly bytes: number;
  readonly oldestAt: Millis | null;
  readonly newestAt: Millis | null;
  /** By group, the largest first, 100 at most. */
  readonly groups: readonly {
    readonly group: string;
    readonly code: string;
    readonly reason: string;
    readonly count: number;
  }[];
  /** By destination, the largest first, 100 at most. */
  readonly routes: readonly { readonly to: string; readonly count: number }[];
  /** What cannot be sent, by why, with some ids. */
  readonly cannot: readonly {
    readonly why: CannotKind;
    readonly text: string;
    readonly count: number;
    readonly ids: readonly string[];
  }[];
  /** What looking cost, where it did. */
  readonly caution?: string;
}

/** Where a replay is on its way; a stopped one stopped itself, as too much failed. */
export type ReplayState = 'planned' | 'running' | 'paused' | 'stopped' | 'cancelled' | 'done';

/** How far it is. */
export interface ReplayCounts {
  readonly sent: number;
  /** Not sent, and where they were. */
  readonly failed: number;
  /** Parked: replayed too often. */
  readonly parked: number;
  /** May have been sent; where they were. */
  readonly unsure: number;
  /** Planned, and not there any more. */
  readonly gone: number;
  /** Skipped by the transform, or because their home is unknown. */
  readonly left: number;
  /** Sent, and failed again. */
  readonly again: number;
  /** Sent, and without an ended attempt when the replay was done; where the place can tell. */
  readonly waiting?: number;
}

/** How the canaries did. */
export interface ReplayCanaries {
  /** Delivered; in a queue: taken by a consumer, and not back within the time. */
  readonly passed: number;
  readonly failed: number;
  /** No attempt of theirs has ended. */
  readonly waiting: number;
  /** Not there any more, and not known to be delivered: removed by an operator, or forgotten. */
  readonly removed?: number;
}

/** A replay as it is on record. */
export interface Replay {
  readonly id: string;
  readonly by: string;
  readonly createdAt: Millis;
  readonly updatedAt: Millis;
  readonly source: ReplaySource;
  readonly options: ReplayOptions;
  readonly plan: ReplayPlan;
  readonly state: ReplayState;
  /** Why it is in this state, if a reason was recorded. */
  readonly because?: string;
  readonly counts: ReplayCounts;
  /** Of the run that sent or watched canaries last. */
  readonly canaries?: ReplayCanaries;
  /** What the process that runs it is asked to do next. */
  readonly wanted?: 'pause' | 'cancel';
  /** Who runs it, and until when that is believed without a sign of life. */
  readonly runner?: { readonly name: string; readonly until: Millis };
  /** Of the transform, when the plan was made. */
  readonly transformDigest?: string;
}

/** What became of one letter of a replay. */
export interface ReplayLine {
  readonly at: Millis;
  readonly id: string;
  readonly result: 'sent' | 'failed' | 'parked' | 'unsure' | 'gone' | 'left' | 'again';
  readonly to?: string;
  readonly code?: string;
  readonly reason?: string;
}

/** What replays need of an operator. */
export interface ReplayOperator {
  readonly by: string;
  readonly records: RecordStore;
  /** Writes what is about to be done into the audit record. */
  recordAction(action: string, details: Readonly<Record<string, unknown>>): Promise<void>;
  /** Puts copies down as archived; the originals of what is changed or removed elsewhere. */
  keep(copies: readonly KeptCopy[]): Promise<void>;
}

// A replay as it is on record, changed by compare-and-swap only.

/** The replay of this id; `message.unknown` when there is none. */
export async function needReplay(records: RecordStore, id: string): Promise<Replay> {
  return replayOf(await records.get(REPLAYS_RECORD_KIND, id), id);
}

/** Where a replay is on record. */
export function placeOfReplay(records: RecordStore, id: string): RecordPlace {
  return { records, kind: REPLAYS_RECORD_KIND, key: id, what: `replay "${id}"` };
}

/** The replay in its record; `message.unknown` when there is none. */
export function replayOf(record: KeyedRecord | undefined, id: string): Replay {
  if (record === undefined) throw unknownReplay(id);
  return replayIn(record);
}

/** Writes what the change makes of the record; the change may be asked several times. */
export function changeReplay(
  records: RecordStore,
  id: string,
  change: (replay: Replay) => Replay,
): Promise<Replay> {
  return changeRecord(placeOfReplay(records, id), (record) => change(replayOf(record, id)));
}

/** Whether some process runs it, as far as can be told. */
export function isRunBySomebody({ state, runner }: Replay, now: Millis): boolean {
  return state === 'running' && runner !== undefined && runner.until > now;
}

/** Writes into the audit record what is about to be done to a replay. */
export function auditReplay(
  operator: ReplayOperator,
  action: string,
  { id, source, plan }: Pick<Replay, 'id' | 'source' | 'plan'>,
): Promise<void> {
  return operator.recordAction(`replay.${action}`, { replay: id, source, count: plan.count });
}

function unknownReplay(id: string): RespoolError {
  return new RespoolError(
    'message.unknown',
    `there is no replay "${id}" on record; list them with: respool dlq replays list`,
  );
}

// Events of replays: records that report each change of state that is written through them.

/** The same records; `emit` is called after a replay has come to another state. */
export function recordsWithEvents(
  records: RecordStore,
  emit: (event: EventOf<'replay'>) => void,
): RecordStore {
  return {
    ...records,
    put: async (kind, key, value, revision) => {
      const replay =
        kind === REPLAYS_RECORD_KIND ? readReplay({ key, value, revision: 0 }) : undefined;
      if (replay === undefined) return records.put(kind, key, value, revision);
      const before = await records.get(kind, key);
      const answer = await records.put(kind, key, value, revision);
      if (answer === 'done' && stateIn(before?.value) !== replay.state) emit(eventOf(replay));
      return answer;
    },
  };
}

function stateIn(value: unknown): unknown {
  return (value as Partial<Replay> | undefined)?.state;
}

function eventOf({ id, by, state, counts, because, updatedAt }: Replay): EventOf<'replay'> {
  const { sent, failed, again } = counts;
  return {
    at: updatedAt,
    kind: 'replay',
    replay: id,
    state,
    by,
    sent,
    failed,
    again,
    ...(because === undefined ? {} : { because }),
  };
}

// A replay as it is in the store. Anyone who operates through a service can write
// there: what is not a replay must not be run, nor keep the others from being listed.

type Fields = Readonly<Record<string, unknown>>;

const STATES: readonly ReplayState[] = [
  'planned',
  'running',
  'paused',
  'stopped',
  'cancelled',
  'done',
];
const COUNTS: readonly Exclude<keyof ReplayCounts, 'waiting'>[] = [
  'sent',
  'failed',
  'parked',
  'unsure',
  'gone',
  'left',
  'again',
];

/** The replay of this record; undefined if the record is not a valid replay. */
export function readReplay({ key, value }: KeyedRecord): Replay | undefined {
  if (!isFields(value) || !isReplay(key, value)) return undefined;
  const replay = value as unknown as Replay;
  const { plan } = replay;
  return { ...replay, plan: { ...plan, cannot: plan.cannot.map(renamed) } };
}

/** Earlier versions wrote `homeless` for `unroutable`. */
function renamed(row: ReplayPlan['cannot'][number]): ReplayPlan['cannot'][number] {
  return (row.why as string) === 'homeless' ? { ...row, why: 'unroutable' } : row;
}

/** The same, where it is needed; `store.corrupt` otherwise. */
export function replayIn(record: KeyedRecord): Replay {
  const replay = readReplay(record);
  if (replay !== undefined) return replay;
  throw new RespoolError(
    'store.corrupt',
    `cannot read replay "${record.key}": what is on record there is no replay; plan it again`,
  );
}

function isReplay(key: string, value: Fields): boolean {
  const { id, by, createdAt, updatedAt, source, options, plan, state, counts, runner } = value;
  return (
    id === key &&
    typeof by === 'string' &&
    areNumbers([createdAt, updatedAt]) &&
    STATES.includes(state as ReplayState) &&
    isFields(options) &&
    isSource(source) &&
    isPlan(plan) &&
    isFields(counts) &&
    areNumbers(COUNTS.map((name) => counts[name])) &&
    (runner === undefined || (isFields(runner) && areNumbers([runner['until']])))
  );
}

function isSource(source: unknown): boolean {
  if (!isFields(source)) return false;
  const { kind, kinds, queue, broker } = source;
  if (kind === 'spool') return Array.isArray(kinds);
  return kind === 'queue' && typeof queue === 'string' && typeof broker === 'string';
}

function isPlan(plan: unknown): boolean {
  if (!isFields(plan)) return false;
  const { plannedAt, seen, count, bytes, groups, routes, cannot } = plan;
  return (
    areNumbers([plannedAt, seen, count, bytes]) &&
    [groups, routes, cannot].every((rows) => Array.isArray(rows) && rows.every(isFields))
  );
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function areNumbers(values: readonly unknown[]): boolean {
  return values.every((value) => typeof value === 'number');
}
