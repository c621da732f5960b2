/**
 * sql-row — an entry as columns of SQL, and back, for every store with tables: what each of them
 * has to say about state, envelope and status in the same way.
 */

import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { RespoolError, textOf } from '../../core/errors.ts';
import { type ClaimableState, type Lane, STATES, type State } from '../../core/state.ts';

/**
 * State and lane in one number: twice the state's number, plus one in lane notice. So a claim of
 * one lane is a prefix of the indexes, also for lost leases.
 */
export type StateKey = number;

export const STATE_KEY_COUNT = 12;

// Frozen, as is the order of STATES: keys are stored, and the indexes of published tables have them
// in their conditions (schema.ts of postgres and of sqlite). Another list is a migration.

/** Keys from here on are archived; below, `entries_due` holds every entry. */
export const ARCHIVED_KEY = 10;

/** The keys of active entries, in both lanes. */
export const ACTIVE_KEYS: readonly StateKey[] = [2, 3];

/** The keys in which entries wait for a claim in numbers: incoming, deferred, bounce notices. */
export const WAITING_KEYS: readonly StateKey[] = [0, 4, 9];

/**
 * The keys in which an entry blocks those of its order key behind it: incoming, active, deferred
 * and held, in lane delivery. The same in states: `BLOCKING` of memory/order-keys.ts, and
 * `isInTheWay` of spool/source.ts and of testkit/simulator/checks/world.ts.
 */
export const BLOCKING_KEYS: readonly StateKey[] = [0, 2, 4, 6];

const STATE_NUMBERS: Readonly<Record<State, number>> = Object.fromEntries(
  STATES.map((state, number) => [state, number]),
) as Record<State, number>;

export function stateKeyOf(state: State, lane: Lane): StateKey {
  return 2 * STATE_NUMBERS[state] + (lane === 'notice' ? 1 : 0);
}

export function isActiveKey(key: StateKey): boolean {
  return ACTIVE_KEYS.includes(key);
}

export function stateOfKey(key: StateKey): State | undefined {
  return STATES[key >> 1];
}

function laneOfKey(key: StateKey): Lane {
  return key % 2 === 0 ? 'delivery' : 'notice';
}

/**
 * The largest body that may ride with its entry. Also in docs/reference/limits.md and
 * docs/how-to/choose-a-store.md.
 */
export const INLINE_MAX_BYTES: number = 1024 * 1024;

export function checkInline(bytes: Uint8Array | undefined, id: string): Uint8Array | undefined {
  if (bytes === undefined || bytes.byteLength <= INLINE_MAX_BYTES) return bytes;
  throw new RespoolError(
    'limit.exceeded',
    `cannot store "${id}": its inline body has ${bytes.byteLength} bytes, allowed are ` +
      `${INLINE_MAX_BYTES}; keep it in a body store`,
  );
}

/** Of an envelope with nothing optional, and of a `BodyInfo` (core/entry.ts). */
const PLAIN_KEYS = 6;
/** What needs no escape in JSON. */
const WORDS = /^[\w.:/-]*$/;
const SHA256 = /^sha256:[0-9a-f]{64}$/;

/** An envelope as JSON. */
export function envelopeText(envelope: Envelope): string {
  return plainText(envelope) ?? JSON.stringify(envelope);
}

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

/** The envelope of a row; throws with the reason when the row cannot have one. */
export function decodeEnvelope(id: string, text: string | null): Envelope {
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

/**
 * What the rows of every store begin with: `EntryRow` of postgres/row.ts and of sqlite/row.ts.
 * `decodeStatus` and `decodeAll` read them by position.
 */
type StatusRow = readonly [
  seq: number,
  id: string,
  key: StateKey,
  dueAt: number | null,
  revision: number,
  attempts: number,
  notices: number,
  lost: number,
  postponed: number,
  replays: number,
  /** Null or '' for none. */
  holder: string | null,
  claimedFrom: number | null,
  updatedAt: number,
  ...more: unknown[],
];

/** Everything of a status that has no column of its own. */
type Memory = Pick<Status, 'because' | 'ending' | 'lastFailure'> &
  Partial<Pick<Status, 'policy' | 'history' | 'notes'>>;

const NO_HISTORY: Status['history'] = Object.freeze([]);
const NO_NOTES: Status['notes'] = Object.freeze({});

/** The status of a row with its memory; throws with the reason when the row cannot have one. */
export function decodeStatus(row: StatusRow, memoryText: string | null): Status {
  const key = row[2];
  const state = stateOfKey(key);
  if (state === undefined || key < 0 || key >= STATE_KEY_COUNT) {
    throw new Error(`its slot is ${key}`);
  }
  const claimedFrom = row[11] === null ? undefined : (STATES[row[11]] as ClaimableState);
  const memory = memoryText === null ? undefined : (JSON.parse(memoryText) as Memory);
  return {
    state,
    lane: laneOfKey(key),
    policy: memory?.policy ?? null,
    revision: row[4],
    attempts: row[5],
    postponed: row[8],
    lost: row[7],
    replays: row[9],
    notices: row[6],
    dueAt: row[3],
    ...(row[10] === null || row[10] === '' ? undefined : { holder: row[10] }),
    ...(claimedFrom === undefined ? undefined : { claimedFrom }),
    ...(memory?.because === undefined ? undefined : { because: memory.because }),
    ...(memory?.ending === undefined ? undefined : { ending: memory.ending }),
    ...(memory?.lastFailure === undefined ? undefined : { lastFailure: memory.lastFailure }),
    history: memory?.history ?? NO_HISTORY,
    notes: memory?.notes ?? NO_NOTES,
    updatedAt: row[12],
  };
}

/** The text of what has no column of its own; null: there is nothing. */
export function memoryText(status: Status): string | null {
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

/** A row that cannot be read as an entry. */
export interface BrokenRow {
  readonly seq: number;
  readonly id: string;
  readonly reason: string;
}

/** Rows as entries, and those that cannot be one. */
export function decodeAll<Row extends readonly [seq: number, id: string, ...unknown[]]>(
  rows: readonly Row[],
  decode: (row: Row) => Entry,
): { readonly entries: Entry[]; readonly broken: BrokenRow[] } {
  const entries: Entry[] = [];
  const broken: BrokenRow[] = [];
  for (const row of rows) {
    try {
      entries.push(decode(row));
    } catch (error) {
      // Not lost: it goes into quarantine with this reason, and lists report it.
      broken.push({ seq: row[0], id: row[1], reason: textOf(error) });
    }
  }
  return { entries, broken };
}
