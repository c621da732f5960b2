/**
 * rows — an entry as columns, and back. Flat arrays of plain values: cheap to send to a thread.
 *
 * entry-store.ts encodes what callers give and decodes what the file returns, so this work never
 * stands in the way of the thread that waits for the disk.
 */

import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { ClaimableState } from '../../core/state.ts';
import { STATES } from '../../core/state.ts';
import { laneOfSlot, SLOT_COUNT, type Slot, slotOf, stateOfSlot } from './schema.ts';

/** The columns a step writes. */
export type StatusColumns = readonly [
  slot: Slot,
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
  slot: Slot,
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

/**
 * A row as the file returns it: seq, id, enqueued_at, the status, the envelope, the inline body.
 */
export type EntryRow = readonly [
  seq: number,
  id: string,
  ...status: StatusColumns,
  envelope: string | null,
  body: Uint8Array | null,
];

/** What an entry row looks like in SQL, from `entries e`, without the two columns of `contents`. */
export const STATUS_SQL: string =
  'slot, due_at, revision, attempts, notices, lost, postponed, replays, holder, claimed_from, ' +
  'updated_at, fingerprint, memory';

/** Everything of a status that has no column of its own. */
type Memory = Pick<Status, 'because' | 'ending' | 'lastFailure'> &
  Partial<Pick<Status, 'policy' | 'history' | 'notes'>>;

const NO_HISTORY: Status['history'] = Object.freeze([]);
const NO_NOTES: Status['notes'] = Object.freeze({});

export function statusColumns(status: Status, id: string): StatusColumns {
  const { state, lane, dueAt, holder, claimedFrom, lastFailure } = status;
  const columns: StatusColumns = [
    slotOf(state, lane),
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
  const slot = slotOf(state, lane);
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
  const text = plainText(envelope) ?? JSON.stringify(envelope);
  const key: [] | [string] = orderKey === undefined ? [] : [orderKey];
  return [topic, destination ?? '', priority, enqueuedAt, dedupeKey ?? null, text, ...key];
}

const PLAIN_KEYS = 6;
/** What needs no escape in JSON. */
const WORDS = /^[\w.:/-]*$/;
const SHA256 = /^sha256:[0-9a-f]{64}$/;

/**
 * The same as JSON for the envelope of most messages, in half the time; undefined for any other.
 */
function plainText(envelope: Envelope): string | undefined {
  const { id, topic, headers, enqueuedAt, priority, body } = envelope;
  const { ref, place, size, storedSize, digest, encodings } = body;
  const isPlain =
    Object.keys(envelope).length === PLAIN_KEYS &&
    Object.keys(body).length === PLAIN_KEYS &&
    encodings.length === 0 &&
    ref === '' &&
    place === 'inline' &&
    WORDS.test(id) &&
    WORDS.test(topic) &&
    SHA256.test(digest);
  if (!isPlain) return undefined;
  const headersText = Object.keys(headers).length === 0 ? '{}' : JSON.stringify(headers);
  return (
    `{"id":"${id}","topic":"${topic}","headers":${headersText},"enqueuedAt":${enqueuedAt},` +
    `"priority":${priority},"body":{"ref":"","place":"inline","size":${size},` +
    `"storedSize":${storedSize},"digest":"${digest}","encodings":[]}}`
  );
}

/** The entry a row holds; throws with the reason when the row cannot be one. */
export function decodeRow(row: EntryRow): Entry {
  const body = row[16];
  const envelope = decodeEnvelope(row[1], row[15]);
  const status = decodeStatus(row);
  if (body === null) return { envelope, status };
  // Plain bytes, whatever the client made them of.
  const inlineBody = new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  return { envelope, status, inlineBody };
}

function decodeEnvelope(id: string, text: string | null): Envelope {
  if (text === null) throw new Error('its contents are missing');
  const envelope = JSON.parse(text) as Envelope;
  if (typeof envelope !== 'object' || envelope === null || envelope.id !== id) {
    throw new Error('its envelope is of another message');
  }
  const isWhole =
    typeof envelope.topic === 'string' &&
    typeof envelope.headers === 'object' &&
    typeof envelope.body?.ref === 'string';
  if (!isWhole) throw new Error('its envelope is not whole');
  return envelope;
}

function decodeStatus(row: EntryRow): Status {
  const slot = row[2];
  const state = stateOfSlot(slot);
  if (state === undefined || slot < 0 || slot >= SLOT_COUNT) throw new Error(`its slot is ${slot}`);
  const claimedFrom = row[11] === null ? undefined : (STATES[row[11]] as ClaimableState);
  const memory = row[14] === null ? undefined : (JSON.parse(row[14]) as Memory);
  return {
    state,
    lane: laneOfSlot(slot),
    policy: memory?.policy ?? null,
    revision: row[4],
    attempts: row[5],
    postponed: row[8],
    lost: row[7],
    replays: row[9],
    notices: row[6],
    dueAt: row[3],
    ...(row[10] === null ? undefined : { holder: row[10] }),
    ...(claimedFrom === undefined ? undefined : { claimedFrom }),
    ...(memory?.because === undefined ? undefined : { because: memory.because }),
    ...(memory?.ending === undefined ? undefined : { ending: memory.ending }),
    ...(memory?.lastFailure === undefined ? undefined : { lastFailure: memory.lastFailure }),
    history: memory?.history ?? NO_HISTORY,
    notes: memory?.notes ?? NO_NOTES,
    updatedAt: row[12],
  };
}

function memoryText(status: Status): string | null {
  const { policy, because, ending, lastFailure, history, notes } = status;
  const hasNotes = notes !== NO_NOTES && Object.keys(notes).length > 0;
  const isEmpty =
    policy === null &&
    because === undefined &&
    ending === undefined &&
    lastFailure === undefined &&
    history.length === 0 &&
    !hasNotes;
  if (isEmpty) return null;
  // JSON leaves out what is undefined.
  return JSON.stringify({
    policy: policy ?? undefined,
    because,
    ending,
    lastFailure,
    history: history.length === 0 ? undefined : history,
    notes: hasNotes ? notes : undefined,
  });
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
