/**
 * row — where an entry is on disk, the name of its file and what is in it.
 *
 *   <path>/<state>/<shard>/<id>,r2,due-20261115T101447123Z,a1,n0,l0,at-…,from-incoming,by-<holder>
 *
 * The name carries everything a claim changes, so a claim is one rename; what the name says wins
 * over the content. The content is one JSON line, the body's bytes, blanks, and a trailer with
 * lengths, checksum and an END mark, together a multiple of 4 KiB: a torn or damaged file is known
 * as one.
 *
 * Pure. Called on both sides of the thread, so that there is one opinion of what a file means.
 */

import { crc32 } from 'node:zlib';
import type { Millis } from '../../core/duration.ts';
import type { Envelope, Status } from '../../core/entry.ts';
import { ID_PATTERN } from '../../core/limits.ts';
import type { ClaimableState, State } from '../../core/state.ts';

/** The version of this layout; a store that says another one is not opened. */
export const LAYOUT_VERSION = 1;

/** Shard directories per state. */
export const SHARDS = 256;

/**
 * Files are a whole number of these, so that a file that is used again keeps its length. Also in
 * docs/reference/filesystem.md; test/stores/filesystem/damage.test.ts flips a byte before 4,095.
 */
export const FILE_BLOCK_BYTES = 4_096;

/** Directories beside those of the states. */
export const SPARE = 'spare';
export const CORRUPT = 'corrupt';

/**
 * The part of a status that the file name carries: what a claim, a release or a heartbeat changes.
 */
export interface NamedStatus {
  readonly revision: number;
  readonly dueAt: Millis | null;
  readonly attempts: number;
  readonly notices: number;
  readonly lost: number;
  readonly updatedAt: Millis;
  readonly claimedFrom?: ClaimableState | undefined;
  readonly holder?: string | undefined;
}

/** What stands in a file. */
export interface Content {
  readonly envelope: Envelope;
  /** As it was when the file was written; the name knows better. */
  readonly status: Status;
  readonly body: Uint8Array;
}

/** The fields of a status that `fileName` writes, and the state, which is the directory. */
const NAMED_FIELDS: ReadonlySet<string> = new Set<keyof Status>([
  'state',
  'revision',
  'dueAt',
  'attempts',
  'notices',
  'lost',
  'updatedAt',
  'claimedFrom',
  'holder',
]);
const HOLDER_MAX_CHARS = 64;
/** What `fileName` makes: an id as ID_PATTERN of core/limits.ts has it, a `ClaimableState`. */
const NAME = new RegExp(
  [
    /^([0-9a-z][0-9a-z_-]{0,63}),r(\d{1,10}),due-(never|\d+|\d{8}T\d{9}Z)/,
    /,a(\d{1,7}),n(\d{1,7}),l(\d{1,7}),at-(\d+|\d{8}T\d{9}Z)/,
    /(?:,from-(incoming|deferred|bounce|active))?(?:,by-([A-Za-z0-9._:%-]{0,64}))?$/,
  ]
    .map((part) => part.source)
    .join(''),
);
const TIME = /^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})(\d{3})Z$/;
const YEAR_10000: Millis = Date.UTC(10_000, 0);
const TRAILER = /respool-end head=(\d+) body=(\d+) crc32=([0-9a-f]{8}) END\n$/;
const TRAILER_MAX_BYTES = 80;
const SUM_BYTES = '01234567 END\n'.length;
const NEWLINE = 0x0a;
const BLANK = 0x20;

/** The name of an entry's file. */
export function fileName(id: string, status: NamedStatus): string {
  const { revision, dueAt, attempts, notices, lost, updatedAt, claimedFrom, holder } = status;
  const due = dueAt === null ? 'never' : timeText(dueAt);
  let name = `${id},r${revision},due-${due},a${attempts},n${notices},l${lost}`;
  name += `,at-${timeText(updatedAt)}`;
  if (claimedFrom !== undefined) name += `,from-${claimedFrom}`;
  if (holder !== undefined) name += `,by-${holderText(holder)}`;
  return name;
}

/** What a file name says, or undefined when it is not one of ours. */
export function parseFileName(
  name: string,
): { readonly id: string; readonly status: NamedStatus } | undefined {
  const parts = NAME.exec(name);
  if (parts === null) return undefined;
  const [, id = '', revision, due = '', attempts, notices, lost, updated = '', from, holder] =
    parts;
  const status: NamedStatus = {
    revision: Number(revision),
    dueAt: due === 'never' ? null : parseTime(due),
    attempts: Number(attempts),
    notices: Number(notices),
    lost: Number(lost),
    updatedAt: parseTime(updated),
    ...(from === undefined ? {} : { claimedFrom: from as ClaimableState }),
    ...(holder === undefined ? {} : { holder: parseHolder(holder) }),
  };
  // Names are computed again from what they say, so a name with another spelling is not ours.
  return ID_PATTERN.test(id) && fileName(id, status) === name ? { id, status } : undefined;
}

/** The directory of a shard, below the store's path. */
export function shardDirectory(state: State, shard: number): string {
  return `${state}/${shard.toString(16).padStart(2, '0')}`;
}

/** The whole status: what the content says, corrected by what the name says. */
export function mergeStatus(content: Status, state: State, named: NamedStatus): Status {
  const { holder: _holder, claimedFrom: _claimedFrom, ...rest } = content;
  const { revision, dueAt, attempts, notices, lost, updatedAt, holder, claimedFrom } = named;
  return {
    ...rest,
    state,
    revision,
    dueAt,
    attempts,
    notices,
    lost,
    updatedAt,
    ...(holder === undefined ? {} : { holder }),
    ...(claimedFrom === undefined ? {} : { claimedFrom }),
  };
}

/** The half of a status that only the content holds, as text; equal texts need no new content. */
export function unnamedText(status: Status): string {
  // By leaving out what the name carries, not by naming the rest: a field that is new to us counts.
  const rest = Object.entries(status).filter(([field]) => !NAMED_FIELDS.has(field));
  return JSON.stringify(rest.sort(([one], [other]) => (one < other ? -1 : 1)));
}

/** The first line of a file, from an envelope and a status that are JSON already. */
export function headLine(envelopeJson: string, statusJson: string): string {
  return `{"respool":${LAYOUT_VERSION},"envelope":${envelopeJson},"status":${statusJson}}`;
}

/** The bytes of a file. */
export function encodeContent(head: string, body: Uint8Array): Uint8Array {
  const headBytes = Buffer.byteLength(head);
  const least = headBytes + 1 + body.length + 1 + TRAILER_MAX_BYTES;
  const bytes = Buffer.allocUnsafe(Math.ceil(least / FILE_BLOCK_BYTES) * FILE_BLOCK_BYTES);
  bytes.write(head, 0, 'utf8');
  bytes[headBytes] = NEWLINE;
  bytes.set(body, headBytes + 1);
  bytes[headBytes + 1 + body.length] = NEWLINE;
  bytes.fill(BLANK, headBytes + 1 + body.length + 1);
  // The checksum has a fixed width, so the trailer's place is known before the checksum is.
  const lengths = `respool-end head=${headBytes} body=${body.length} crc32=`;
  const sumAt = bytes.length - SUM_BYTES;
  bytes.write(lengths, sumAt - lengths.length, 'latin1');
  const sum = crc32(bytes.subarray(0, sumAt)).toString(16).padStart(8, '0');
  bytes.write(`${sum} END\n`, sumAt, 'latin1');
  return bytes;
}

/** What stands in these bytes, or in plain words why they cannot be trusted. */
export function decodeContent(bytes: Buffer, id: string): Content | string {
  const tail = bytes.toString('latin1', Math.max(0, bytes.length - TRAILER_MAX_BYTES));
  const trailer = TRAILER.exec(tail);
  if (trailer === null) return 'the END mark is missing: the file is cut off or torn';
  const [headBytes, bodyBytes] = [Number(trailer[1]), Number(trailer[2])];
  const trailerAt = bytes.length - trailer[0].length;
  if (headBytes + 1 + bodyBytes + 1 > trailerAt) return 'the lengths in the trailer do not fit';
  // The checksum covers the lengths too: a damaged length would cut the body in the wrong place.
  const sum = crc32(bytes.subarray(0, bytes.length - SUM_BYTES));
  if (sum !== Number.parseInt(trailer[3] ?? '', 16)) {
    return 'the checksum does not match: the content was damaged';
  }
  const head = parseHead(bytes.toString('utf8', 0, headBytes));
  if (typeof head === 'string') return head;
  if (head.envelope.id !== id) return `the content belongs to message "${head.envelope.id}"`;
  return { ...head, body: bytes.subarray(headBytes + 1, headBytes + 1 + bodyBytes) };
}

function parseHead(line: string): Omit<Content, 'body'> | string {
  let head: { respool?: unknown; envelope?: Envelope; status?: Status };
  try {
    head = JSON.parse(line) as typeof head;
  } catch {
    // Turned into a reason: the caller puts the file aside.
    return 'the first line is not JSON';
  }
  const { respool, envelope, status } = head;
  if (respool !== LAYOUT_VERSION) return `the content has version ${String(respool)}`;
  const isWhole = typeof envelope === 'object' && typeof status === 'object';
  return isWhole ? { envelope, status } : 'the first line lacks an envelope or a status';
}

/** A time that people can read and `ls` sorts; far ones as plain milliseconds. */
function timeText(at: Millis): string {
  if (at < 0 || at >= YEAR_10000 || !Number.isInteger(at))
    return String(Math.max(0, Math.round(at)));
  return new Date(at).toISOString().replace(/[-:.]/g, '');
}

function parseTime(text: string): Millis {
  const parts = TIME.exec(text);
  if (parts === null) return Number(text);
  const [, year, month, day, hour, minute, second, millisecond] = parts.map(Number);
  return Date.UTC(
    year ?? 0,
    (month ?? 1) - 1,
    day ?? 1,
    hour ?? 0,
    minute ?? 0,
    second ?? 0,
    millisecond ?? 0,
  );
}

/** The holder as far as it fits. It guards nothing: no holder survives the owner of the store. */
function holderText(holder: string): string {
  let text = '';
  for (const character of holder) {
    const isPlain = /[A-Za-z0-9._:-]/.test(character);
    const piece = isPlain ? character : encodeURIComponent(character).replace(/[!'()*~]/g, hex);
    if (text.length + piece.length > HOLDER_MAX_CHARS) break;
    text += piece;
  }
  return text;
}

function hex(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
}

function parseHolder(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    // Not our own name, then; the caller sees that it does not come out the same.
    return undefined;
  }
}
