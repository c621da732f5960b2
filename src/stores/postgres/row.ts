/**
 * row — an entry as columns, and back.
 */

import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { STATES } from '../../core/state.ts';
import {
  decodeEnvelope,
  decodeStatus,
  envelopeText,
  memoryText,
  type StateKey,
  stateKeyOf,
} from '../shared/sql-row.ts';
import { checkColumns } from './arrays.ts';

/** The columns of an entry row, in the order of `ENTRY_SQL`. */
export type EntryRow = readonly [
  seq: number,
  id: string,
  slot: StateKey,
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

/** The columns that a step writes. */
export interface StatusColumns {
  readonly slot: StateKey;
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
    slot: stateKeyOf(state, lane),
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
  const text = envelopeText(envelope);
  return { topic, destination, priority, enqueuedAt, dedupeKey, orderKey, text };
}

/** The entry a row holds; throws with the reason when the row cannot be one. */
export function decodeRow(row: EntryRow): Entry {
  const body = row[15];
  const envelope = decodeEnvelope(row[1], row[14]);
  const status = decodeStatus(row, row[13]);
  if (body === null) return { envelope, status };
  const { buffer, byteOffset, byteLength } = Buffer.from(body, 'base64');
  return { envelope, status, inlineBody: new Uint8Array(buffer, byteOffset, byteLength) };
}
