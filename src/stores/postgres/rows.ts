/**
 * rows — an entry as columns, and back.
 */

import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { RespoolError, textOf } from '../../core/errors.ts';
import { type ClaimableState, STATES } from '../../core/state.ts';
import { checkColumns } from './arrays.ts';
import { laneOfSlot, SLOT_COUNT, type Slot, slotOf, stateOfSlot } from './slots.ts';

/** The largest body that may ride with its entry. */
export const INLINE_MAX_BYTES: number = 1024 * 1024;

/** The columns of an entry row, in the order of `ENTRY_SQL`. */
export type EntryRow = readonly [
  seq: number,
  id: string,
  slot: Slot,
  dueAt: number | null,
  revision: number,
  attempts: number,
  notices: number,
  lost: number,
  postponed: number,
  replays: number,
  holder: string,
  claimedFrom: number | null,
  updatedAt: number,
  memory: string | null,
  envelope: string | null,
  /** In base64; see BODY_SQL. */
  body: string | null,
  ...more: unknown[],
];

/** From `entries e`; what is in CONTENTS_SQL follows. */
export const STATUS_SQL: string =
  'e.seq, e.id, e.slot, e.due_at, e.revision, e.attempts, e.notices, e.lost, e.postponed, ' +
  'e.replays, e.holder, e.claimed_from, e.updated_at, e.memory';

/**
 * Of `contents k`. n.b. Bytes come as text in any case: in hex, which is the server's way, twice
 * as many as they are, and Node takes twice as long to read them. (PostgreSQL 15, Node 24,
 * 2026-11-18)
 */
export const BODY_SQL = "encode(k.body, 'base64')";

/** From `contents k`. */
export const CONTENTS_SQL: string = `k.envelope, ${BODY_SQL}`;

/** What cannot be read as an entry. */
export interface BrokenRow {
  readonly seq: number;
  readonly id: string;
  readonly reason: string;
}

/** The columns that a step writes. */
export interface StatusColumns {
  readonly slot: Slot;
  readonly dueAt: number | null;
  readonly revision: number;
  readonly attempts: number;
  readonly notices: number;
  readonly lost: number;
  readonly postponed: number;
  readonly replays: number;
  /** '' for none. */
  readonly holder: string;
  readonly claimedFrom: number | null;
  readonly updatedAt: number;
  readonly fingerprint: string | null;
  readonly memory: string | null;
  /** No column: whether it was delivered and only rests here. */
  readonly isDelivered: boolean;
}

/** The columns that change only with the envelope. */
export interface EnvelopeColumns {
  readonly topic: string;
  /** '' for none. */
  readonly destination: string;
  readonly priority: number;
  readonly enqueuedAt: number;
  readonly dedupeKey: string | null;
  /** Written with the insert, and never again. */
  readonly orderKey: string | null;
  readonly text: string;
}

/** Everything of a status that has no column of its own. */
type Memory = Pick<Status, 'because' | 'ending' | 'lastFailure'> &
  Partial<Pick<Status, 'policy' | 'history' | 'notes'>>;

const NO_HISTORY: Status['history'] = Object.freeze([]);
const NO_NOTES: Status['notes'] = Object.freeze({});

export function statusColumns(status: Status, id: string): StatusColumns {
  const { state, lane, dueAt, holder = '', claimedFrom, lastFailure, updatedAt } = status;
  const { revision, attempts, notices, lost, postponed, replays } = status;
  const fingerprint = lastFailure?.fingerprint ?? null;
  checkColumns(id, {
    counts: [revision, attempts, notices, lost, postponed, replays],
    times: [dueAt, updatedAt],
    texts: [id, holder, fingerprint],
  });
  return {
    slot: slotOf(state, lane),
    dueAt,
    revision,
    attempts,
    notices,
    lost,
    postponed,
    replays,
    holder,
    claimedFrom: claimedFrom === undefined ? null : STATES.indexOf(claimedFrom),
    updatedAt,
    fingerprint,
    memory: memoryText(status),
    isDelivered: state === 'archived' && status.ending === 'delivered',
  };
}

export function envelopeColumns(envelope: Envelope): EnvelopeColumns {
  const { topic, destination = '', priority, enqueuedAt, id } = envelope;
  const { dedupeKey = null, orderKey = null } = envelope;
  checkColumns(id, {
    counts: [priority],
    times: [enqueuedAt],
    texts: [topic, destination, dedupeKey, orderKey],
  });
  const text = plainText(envelope) ?? JSON.stringify(envelope);
  return { topic, destination, priority, enqueuedAt, dedupeKey, orderKey, text };
}

const PLAIN_KEYS = 6;
/** What needs no escape in JSON. */
const WORDS = /^[\w.:/-]*$/;
const SHA256 = /^sha256:[0-9a-f]{64}$/;

/** The same as JSON for most envelopes, in half the time; undefined for any other. */
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

export function checkInline(bytes: Uint8Array | undefined, id: string): Uint8Array | undefined {
  if (bytes === undefined || bytes.byteLength <= INLINE_MAX_BYTES) return bytes;
  throw new RespoolError(
    'limit.exceeded',
    `cannot store "${id}": its inline body has ${bytes.byteLength} bytes, allowed are ` +
      `${INLINE_MAX_BYTES}; keep it in a body store`,
  );
}

/** The entry a row holds; throws with the reason when the row cannot be one. */
export function decodeRow(row: EntryRow): Entry {
  const body = row[15];
  const envelope = decodeEnvelope(row[1], row[14]);
  const status = decodeStatus(row);
  if (body === null) return { envelope, status };
  const { buffer, byteOffset, byteLength } = Buffer.from(body, 'base64');
  return { envelope, status, inlineBody: new Uint8Array(buffer, byteOffset, byteLength) };
}

/** Rows as entries, and those that cannot be one. */
export function decodeAll(rows: readonly EntryRow[]): {
  readonly entries: Entry[];
  readonly broken: BrokenRow[];
} {
  const entries: Entry[] = [];
  const broken: BrokenRow[] = [];
  for (const row of rows) {
    try {
      entries.push(decodeRow(row));
    } catch (error) {
      // Not lost: it goes into quarantine with this reason, and lists tell of it.
      broken.push({ seq: row[0], id: row[1], reason: textOf(error) });
    }
  }
  return { entries, broken };
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
  const memory = row[13] === null ? undefined : (JSON.parse(row[13]) as Memory);
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
    ...(row[10] === '' ? undefined : { holder: row[10] }),
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
