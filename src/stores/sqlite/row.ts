/**
 * row — an entry as columns, and back. Flat arrays of plain values: cheap to send to a thread.
 *
 * entry-store.ts encodes what callers give and decodes what the file returns, so this work never
 * stands in the way of the thread that waits for the disk. Rows are read by position, so these
 * change together: insert.ts (WHOLE, its INSERT), commit.ts, `decodeRow` here and `decodeStatus`
 * of shared/sql-row.ts.
 */

import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import { STATES } from '../../core/state.ts';
import {
  decodeEnvelope,
  decodeStatus,
  envelopeText,
  memoryText,
  type StateKey,
  stateKeyOf,
} from '../shared/sql-row.ts';

/** The columns a step writes. */
export type StatusColumns = readonly [
  slot: StateKey,
  dueAt: number | null,
  revision: number,
  attempts: number,
  notices: number,
  lost: number,
  postponed: number,
  replays: number,
  holder: string | null,
  claimedFrom: number | null,
  updatedAt: number,
  fingerprint: string | null,
  memory: string | null,
];

/**
 * The columns of an entry to which nothing has happened yet, or nothing but its first claim; what
 * is left out is 0 or null. Less to carry and to bind: 1.5 µs of 6.5 per insert. (2026-11-15)
 */
export type NewColumns = readonly [
  slot: StateKey,
  dueAt: number | null,
  revision: number,
  updatedAt: number,
  ...claim: [] | [attempts: number, holder: string, claimedFrom: number],
];

/** The columns that change only with the envelope. */
export type EnvelopeColumns = readonly [
  topic: string,
  destination: string,
  priority: number,
  enqueuedAt: number,
  dedupeKey: string | null,
  envelope: string,
  ...orderKey: [] | [string],
];

/** A row as the file returns it: seq, id, the status, the envelope, the inline body. */
export type EntryRow = readonly [
  seq: number,
  id: string,
  ...status: StatusColumns,
  envelope: string | null,
  body: Uint8Array | null,
];

/** The columns of `StatusColumns` in SQL, in their order. */
export const STATUS_SQL: string =
  'slot, due_at, revision, attempts, notices, lost, postponed, replays, holder, claimed_from, ' +
  'updated_at, fingerprint, memory';

export function statusColumns(status: Status, id: string): StatusColumns {
  const { state, lane, dueAt, holder, claimedFrom, lastFailure } = status;
  const columns: StatusColumns = [
    stateKeyOf(state, lane),
    dueAt,
    status.revision,
    status.attempts,
    status.notices,
    status.lost,
    status.postponed,
    status.replays,
    holder ?? null,
    claimedFrom === undefined ? null : STATES.indexOf(claimedFrom),
    status.updatedAt,
    lastFailure?.fingerprint ?? null,
    memoryText(status),
  ];
  checkNumbers(columns, id);
  return columns;
}

/** Those of a new entry; undefined when it has more to tell. */
export function newColumns(status: Status, id: string): NewColumns | undefined {
  const { state, lane, dueAt, revision, attempts, holder, claimedFrom, updatedAt } = status;
  const isNew =
    status.notices === 0 &&
    status.lost === 0 &&
    status.postponed === 0 &&
    status.replays === 0 &&
    memoryText(status) === null;
  if (!isNew) return undefined;
  checkNumbers([dueAt, revision, attempts, updatedAt], id);
  const slot = stateKeyOf(state, lane);
  if (holder === undefined && claimedFrom === undefined && attempts === 0) {
    return [slot, dueAt, revision, updatedAt];
  }
  if (holder === undefined || claimedFrom === undefined) return undefined;
  const from = STATES.indexOf(claimedFrom);
  return [slot, dueAt, revision, updatedAt, attempts, holder, from];
}

export function envelopeColumns(envelope: Envelope): EnvelopeColumns {
  const { topic, destination, priority, enqueuedAt, dedupeKey, orderKey, id } = envelope;
  checkNumbers([priority, enqueuedAt], id);
  const text = envelopeText(envelope);
  const key: [] | [string] = orderKey === undefined ? [] : [orderKey];
  return [topic, destination ?? '', priority, enqueuedAt, dedupeKey ?? null, text, ...key];
}

/** The entry a row holds; throws with the reason when the row cannot be one. */
export function decodeRow(row: EntryRow): Entry {
  const body = row[16];
  const envelope = decodeEnvelope(row[1], row[15]);
  const status = decodeStatus(row, row[14]);
  if (body === null) return { envelope, status };
  // Plain bytes, whatever the client made them of.
  const inlineBody = new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  return { envelope, status, inlineBody };
}

/**
 * Refused here, before the batch: one wrong number must not fail the calls it shares a batch with.
 */
function checkNumbers(columns: readonly unknown[], id: string): void {
  for (const value of columns) {
    if (typeof value !== 'number' || Number.isSafeInteger(value)) continue;
    throw new RespoolError(
      'message.invalid',
      `cannot store "${id}": ${value} is not a whole number of milliseconds or a count`,
    );
  }
}
