/**
 * row — how an entry is written as a message, and what its headers say of it.
 *
 *   $KV.<bucket>.e.<shard>.<id>      an entry: status, envelope, inline bytes, one after the other
 *   $KV.<bucket>.d.<shard>.<hash>    who holds a dedupe key
 *   $KV.<bucket>.g.<session>.<n>     tombstones: what was removed lately (see tombstones.ts)
 *   $KV.<bucket>.g.<instance>.clock  an empty message, to ask the server for its time
 *   $KV.<bucket>.l.<hash>.<token>    a line of a log of records; the hash is that of its kind
 *   $KV.<bucket>.m.<hash>.<hash>     a value of a map of records: of its kind, and of its key
 *
 * The facts that claims, lists and counts need ride in a header: the watcher is sent headers only,
 * never bodies.
 */

import { createHash } from 'node:crypto';
import type { Millis } from '../../core/duration.ts';
import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { textOf } from '../../core/errors.ts';
import { type Lane, type State, STATES } from '../../core/state.ts';

/** The header with the facts of an entry. */
export const FACTS = 'Rs-Facts';
/** The header with the id that holds a dedupe key. */
export const HOLDS = 'Rs-Holds';
/** The header with what is in a tombstone. */
export const TOMBSTONE = 'Rs-Grave';
/** The header every tool for KV knows a removed key by. */
export const OPERATION = 'KV-Operation';
export const REMOVE_MARK = 'DEL';
/** The header of a marker with the birth of what was removed. */
export const INSERT_MARK = 'Rs-Birth';

/** What is known of an entry without reading it. */
export interface Facts {
  readonly revision: number;
  readonly state: State;
  readonly lane: Lane;
  readonly topic: string;
  readonly destination: string | undefined;
  readonly priority: number;
  readonly dueAt: Millis | null;
  readonly enqueuedAt: Millis;
  readonly updatedAt: Millis;
  readonly attempts: number;
  readonly holder: string | undefined;
  /** The hash of the dedupe key. */
  readonly key: string | undefined;
  readonly failureCode: string | undefined;
  readonly becauseCode: string | undefined;
  readonly fingerprint: string | undefined;
  /** It lives only once its dedupe key points to it. */
  readonly isUnborn: boolean;
  /** The number its insert drew; all its steps keep it (PendingInserts). 0: not known. */
  readonly birth: number;
}

/** An entry that was read, with what is needed to write it again. */
export interface Content {
  readonly status: Status;
  readonly envelope: Envelope;
  /** The envelope as it is written, and the inline bytes behind it. */
  readonly tail: Uint8Array;
  /** Where in the tail the inline bytes begin; -1 when there are none. */
  readonly bodyAt: number;
  readonly birth: number;
}

const LANES: readonly Lane[] = ['delivery', 'notice'];
const NEWLINE = 10;

/** The facts of an entry. */
export function factsOf({ envelope, status, birth }: Known, isUnborn: boolean): Facts {
  return {
    revision: status.revision,
    state: status.state,
    lane: status.lane,
    topic: envelope.topic,
    destination: envelope.destination,
    priority: envelope.priority,
    dueAt: status.dueAt,
    enqueuedAt: envelope.enqueuedAt,
    updatedAt: status.updatedAt,
    attempts: status.attempts,
    holder: status.holder,
    key: envelope.dedupeKey === undefined ? undefined : hashOf(envelope.dedupeKey),
    failureCode: status.lastFailure?.code,
    becauseCode: status.because?.code,
    fingerprint: status.lastFailure?.fingerprint,
    isUnborn,
    birth,
  };
}

type Known = Pick<Content, 'envelope' | 'status' | 'birth'>;

/** Facts as the text of a header: ASCII only, one line. */
export function writeFacts(facts: Facts): string {
  const text = JSON.stringify([
    facts.revision,
    STATES.indexOf(facts.state),
    LANES.indexOf(facts.lane),
    facts.topic,
    facts.destination ?? null,
    facts.priority,
    facts.dueAt,
    facts.enqueuedAt,
    facts.updatedAt,
    facts.attempts,
    facts.holder ?? null,
    facts.key ?? null,
    facts.failureCode ?? null,
    facts.becauseCode ?? null,
    facts.fingerprint ?? null,
    facts.isUnborn ? 1 : 0,
    facts.birth,
  ]);
  return text.replaceAll(NOT_ASCII, escapeUnit);
}

/** Facts from the text of a header; undefined when it is not ours. */
export function readFacts(text: string): Facts | undefined {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(list) || list.length !== 17) return undefined;
  const state = STATES[list[1] as number];
  const lane = LANES[list[2] as number];
  if (state === undefined || lane === undefined || typeof list[3] !== 'string') return undefined;
  const maybe = (at: number): string | undefined => (list[at] as string | null) ?? undefined;
  return {
    revision: list[0] as number,
    state,
    lane,
    topic: list[3],
    destination: maybe(4),
    priority: list[5] as number,
    dueAt: list[6] as number | null,
    enqueuedAt: list[7] as number,
    updatedAt: list[8] as number,
    attempts: list[9] as number,
    holder: maybe(10),
    key: maybe(11),
    failureCode: maybe(12),
    becauseCode: maybe(13),
    fingerprint: maybe(14),
    isUnborn: list[15] === 1,
    birth: list[16] as number,
  };
}

/** Envelope and inline bytes as they follow the status. */
export function writeTail(envelope: Envelope, inlineBody: Uint8Array | undefined): Tail {
  const text = Buffer.from(`${JSON.stringify(envelope)}\n`);
  if (inlineBody === undefined) return { tail: text, bodyAt: -1 };
  return { tail: Buffer.concat([text, inlineBody]), bodyAt: text.length };
}

type Tail = Pick<Content, 'tail' | 'bodyAt'>;

/** An entry as it is written. */
export function writeValue(status: Status, tail: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from(`${JSON.stringify(status)}\n`), tail]);
}

/** An entry as it was written; a text that says what is wrong with it otherwise. */
export function readValue(data: Uint8Array): Omit<Content, 'birth'> | string {
  const first = data.indexOf(NEWLINE);
  const second = first < 0 ? -1 : data.indexOf(NEWLINE, first + 1);
  if (second < 0) return 'it is cut short';
  try {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    const status = JSON.parse(bytes.toString('utf8', 0, first)) as Status;
    const envelope = JSON.parse(bytes.toString('utf8', first + 1, second)) as Envelope;
    const tail = new Uint8Array(data.subarray(first + 1));
    const bodyAt = envelope.body.place === 'inline' ? second - first : -1;
    const size = bodyAt < 0 ? 0 : tail.length - bodyAt;
    const isWhole = bodyAt < 0 ? second + 1 === data.length : size === envelope.body.storedSize;
    return isWhole ? { status, envelope, tail, bodyAt } : 'its body has another size';
  } catch (error) {
    return textOf(error);
  }
}

/** The entry for the caller that asked, with bytes of its own. */
export function entryOf({ status, envelope, tail, bodyAt }: Omit<Content, 'birth'>): Entry {
  return bodyAt < 0
    ? { envelope, status }
    : { envelope, status, inlineBody: new Uint8Array(tail.subarray(bodyAt)) };
}

/** A name of fixed length for any text. */
export function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 32);
}

/** Two hex digits that spread ids evenly. */
export function shardOf(id: string): string {
  const hash = hashNumber(id);
  return ((hash >>> 24) ^ (hash & 0xff)).toString(16).padStart(2, '0');
}

/** A number of 32 bits for a text; quick, and only to spread. */
export function hashNumber(text: string): number {
  let hash = 0x81_1c_9d_c5;
  for (let at = 0; at < text.length; at += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01_00_01_93);
  }
  // Stirred once more: texts that differ in their last character only would stay neighbours.
  hash = Math.imul(hash ^ (hash >>> 16), 0x85_eb_ca_6b);
  return (hash ^ (hash >>> 13)) >>> 0;
}

const NOT_ASCII = /[^\u0020-\u007e]/g;

function escapeUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
