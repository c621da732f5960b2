/**
 * read-replay — a replay as it lies in the store. Whoever operates through a service can write
 * there: what is none must not keep the others from being listed, nor be run.
 */

import { RespoolError } from '../core/errors.ts';
import type { KeyedRecord } from '../ports/record-store.ts';
import type { Replay, ReplayCounts, ReplayState } from './replays.ts';

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

/** The replay of this record; undefined: it is none. */
export function readReplay({ key, value }: KeyedRecord): Replay | undefined {
  return isFields(value) && isReplay(key, value) ? (value as unknown as Replay) : undefined;
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
