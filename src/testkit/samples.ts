/** samples — entries for tests: the fields that matter in a case, and defaults for the rest. */

import { createHash } from 'node:crypto';
import { MINUTE_MS, type Millis } from '../core/duration.ts';
import type { BodyInfo, Entry, Envelope, Status } from '../core/entry.ts';

/** The time at which samples are enqueued and due: 2026-01-01T00:00:00Z. */
export const SAMPLE_AT: Millis = Date.UTC(2026, 0, 1);

/** The lease that samples are claimed with. */
export const SAMPLE_LEASE_MS: number = MINUTE_MS;

/** What a sample may say about itself; fields of envelope and status side by side. */
export interface SampleParts
  extends Partial<Omit<Envelope, 'id' | 'body'>>,
    Partial<Omit<Status, 'holder'>> {
  readonly holder?: string;
  /** The inline body; default three bytes. */
  readonly bytes?: Uint8Array;
  /** The body is in a body store, not inline. */
  readonly isStored?: true;
}

/**
 * An incoming message of topic `mail.send`, due at SAMPLE_AT, with a small inline body.
 *
 * @example
 * import { memory } from 'respool/stores/memory';
 * import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntry } from 'respool/testkit';
 * const store = memory();
 * await store.open();
 * await store.insert([sampleEntry('a', { topic: 'orders', dueAt: SAMPLE_AT + SAMPLE_LEASE_MS })]);
 */
export function sampleEntry(id: string, parts: SampleParts = {}): Entry {
  const { bytes = SMALL, isStored, ...fields } = parts;
  const envelope: Envelope = {
    id,
    topic: 'mail.send',
    headers: {},
    enqueuedAt: SAMPLE_AT,
    priority: 5,
    ...pick(fields, ENVELOPE_FIELDS),
    body: isStored === true ? storedBody(id, bytes) : inlineBodyInfo(id, bytes),
  };
  const status: Status = {
    state: 'incoming',
    lane: 'delivery',
    policy: null,
    revision: 1,
    attempts: 0,
    postponed: 0,
    lost: 0,
    replays: 0,
    notices: 0,
    dueAt: SAMPLE_AT,
    history: [],
    notes: {},
    updatedAt: SAMPLE_AT,
    ...pick(fields, STATUS_FIELDS),
  };
  return isStored === true ? { envelope, status } : { envelope, status, inlineBody: bytes };
}

/** `count` samples with ids `prefix-00000` and up. */
export function sampleEntries(
  count: number,
  prefix: string,
  parts: SampleParts | ((index: number) => SampleParts) = {},
): Entry[] {
  return Array.from({ length: count }, (_, index) =>
    sampleEntry(
      `${prefix}-${String(index).padStart(5, '0')}`,
      typeof parts === 'function' ? parts(index) : parts,
    ),
  );
}

/** What an envelope says of an inline body with these bytes. */
export function inlineBodyInfo(ref: string, bytes: Uint8Array): BodyInfo {
  return { ...storedBody(ref, bytes), place: 'inline' };
}

function storedBody(ref: string, bytes: Uint8Array): BodyInfo {
  const size = bytes.byteLength;
  const digest = bytes === SMALL ? SMALL_DIGEST : digestOf(bytes);
  return { ref, place: 'store', size, storedSize: size, digest, encodings: [] };
}

function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

const SMALL: Uint8Array = Uint8Array.of(1, 2, 3);
const SMALL_DIGEST = digestOf(SMALL);

const ENVELOPE_FIELDS = [
  'topic',
  'headers',
  'enqueuedAt',
  'expiresAt',
  'eta',
  'priority',
  'dedupeKey',
  'ownId',
  'destination',
  'orderKey',
] as const;

const STATUS_FIELDS = [
  'state',
  'lane',
  'policy',
  'revision',
  'attempts',
  'postponed',
  'lost',
  'replays',
  'notices',
  'dueAt',
  'holder',
  'claimedFrom',
  'because',
  'ending',
  'lastFailure',
  'history',
  'notes',
  'updatedAt',
] as const;

function pick<T extends object, K extends keyof T>(from: T, names: readonly K[]): Pick<T, K> {
  const found: Partial<T> = {};
  for (const name of names) if (Object.hasOwn(from, name)) found[name] = from[name];
  return found as Pick<T, K>;
}
