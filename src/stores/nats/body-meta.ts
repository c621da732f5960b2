/** body-meta — where the parts of an object lie, and what is written about it. */

import type { SettledAs } from '../../ports/body-store.ts';
import type { StoredMessage } from './stream.ts';

/** Where the chunks are; other tools do not know this header and do without. */
const SEQS = 'Rs-Seqs';
/** The header with an object's nuid, for lists that fetch headers only. */
export const NUID = 'Rs-Nuid';
/** The header of a marker: the message of this object has ended, and how. */
export const SETTLED = 'Rs-Settled';
/** The server removes what was under the subject before, in the same write. */
const ROLLUP = ['Nats-Rollup', 'sub'] as const;
/** Objects of more chunks are read and removed by their subject. */
const SEQS_MAX = 2_000;

/** The subjects of a bucket. */
export interface BodyPlaces {
  isMeta(subject: string): boolean;
  /** A ref as one word of a subject. */
  wordOf(ref: string): string;
  metaOf(ref: string): string;
  chunksOf(nuid: string): string;
  refOfMeta(subject: string): string;
  /** Nuid and ref of a subject of chunks; undefined for what others wrote. */
  readChunks(subject: string): { readonly nuid: string; readonly ref: string } | undefined;
}

/** The subjects of a bucket, by its name. */
export function placesOf(bucket: string): BodyPlaces {
  const metas = `$O.${bucket}.M.`;
  const chunks = `$O.${bucket}.C.`;
  const wordOf = (ref: string): string => Buffer.from(ref).toString('base64url');
  const textOf = (word: string): string => Buffer.from(word, 'base64url').toString('utf8');
  return {
    isMeta: (subject) => subject.startsWith(metas),
    wordOf,
    // Tools for object stores fill names up to a multiple of four.
    metaOf: (ref) => metas + wordOf(ref).padEnd(Math.ceil(wordOf(ref).length / 4) * 4, '='),
    chunksOf: (nuid) => chunks + nuid,
    refOfMeta: (subject) => textOf(subject.slice(metas.length).replaceAll('=', '')),
    readChunks(subject) {
      const nuid = subject.slice(chunks.length);
      const at = nuid.indexOf('.');
      return at < 0 ? undefined : { nuid, ref: textOf(nuid.slice(0, at)) };
    },
  };
}

/** What is known of an object. */
export interface Meta {
  readonly nuid: string;
  readonly size: number;
  readonly chunks: number;
  readonly digest: string;
  /** The sequences of its chunks, unless there are very many. */
  readonly seqs: readonly number[] | undefined;
}

/** An object that has been written. */
export interface NewMeta extends Omit<Meta, 'chunks' | 'seqs'> {
  readonly ref: string;
  readonly bucket: string;
  readonly seqs: readonly number[];
  readonly mtime: number;
  readonly chunkBytes: number;
}

/** What is written about an object, in the form every tool reads. */
export function writeMeta(meta: NewMeta): {
  readonly data: string;
  readonly headers: readonly (readonly [string, string])[];
} {
  const { ref, bucket, nuid, size, digest, seqs, mtime, chunkBytes } = meta;
  const data = JSON.stringify({
    name: ref,
    bucket,
    nuid,
    size,
    chunks: seqs.length,
    digest,
    mtime: isoOf(mtime),
    options: { max_chunk_size: chunkBytes },
  });
  const headers: (readonly [string, string])[] = [[NUID, nuid]];
  if (seqs.length <= SEQS_MAX) headers.push([SEQS, JSON.stringify(seqs)]);
  return { data, headers };
}

/** Reads what is written about an object; undefined when it is gone or not to be read. */
export function readMeta(stored: StoredMessage): Meta | undefined {
  try {
    const text = Buffer.from(stored.data).toString('utf8');
    const meta = JSON.parse(text) as Meta & { readonly deleted?: boolean };
    if (meta.deleted === true) return undefined;
    const seqs = stored.header(SEQS);
    return { ...meta, seqs: seqs === '' ? undefined : (JSON.parse(seqs) as number[]) };
  } catch {
    return undefined;
  }
}

/** What replaces an object whose message has ended; other tools read it as a deleted object. */
export function writeSettled(
  settled: { readonly ref: string; readonly bucket: string; readonly nuid: string },
  settledAs: SettledAs,
  mtime: number,
): {
  readonly data: string;
  readonly headers: readonly (readonly [string, string])[];
} {
  const { ref, bucket, nuid } = settled;
  const gone = { size: 0, chunks: 0, deleted: true, mtime: isoOf(mtime) };
  const data = JSON.stringify({ name: ref, bucket, nuid, ...gone });
  return { data, headers: [ROLLUP, [SETTLED, settledAs]] };
}

/** How the message of an object ended; undefined where this is no marker of ours. */
export function readSettled(stored: StoredMessage | undefined): SettledAs | undefined {
  const settledAs = stored?.header(SETTLED);
  return settledAs === 'delivered' || settledAs === 'removed' ? settledAs : undefined;
}

function isoOf(ms: number): string {
  return new Date(ms).toISOString();
}
