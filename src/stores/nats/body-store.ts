/**
 * natsBodies — bodies in an object store of NATS JetStream, as its own tools read them.
 *
 *   $O.<bucket>.C.<ref>.<unique>   chunks, in order; `<ref>.<unique>` is the object's nuid
 *   $O.<bucket>.M.<ref>            what the object is; written last, and only if there is none
 *
 * `<ref>` is in base64url here.
 *
 * A body is invisible until its second part exists, so one cut off by a crash is just chunks:
 * `refs` finds them by their subject, and `remove` takes them out. Digest and size are checked when
 * a body was read to its end. What a killed server brings back of a removed body is found by `refs`
 * again; chunks beside a marker are taken out by `refs` itself.
 *
 * A body that is removed because its message has ended leaves a marker in its place, where there is
 * room for one; `refs` takes it out after an hour. A server that lost its last writes may show the
 * entry again, and nothing else could tell that message from one whose body was lost.
 */

import { createHash, type Hash } from 'node:crypto';
import { HOUR_MS, MINUTE_MS } from '../../core/duration.ts';
import { isRespoolError, RespoolError } from '../../core/errors.ts';
import type { BodyStore, SettledAs, StoredBody } from '../../ports/body-store.ts';
import type { Durability } from '../../ports/entry-store.ts';
import { systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { InFlight } from '../../system/wait.ts';
import { Opening } from '../shared/lifetime.ts';
import { Operations } from '../shared/operations.ts';
import { type Bucket, openBucket } from './schema.ts';
import { readAll } from './feed.ts';
import { type NatsBodySettings, type NatsBodyOptions, readBodyOptions } from './options.ts';
import type { StoredMessage, Stream } from './stream.ts';

/** Room for the headers of a chunk. Those of the last write of a body: SEQS_MAX. */
const HEADERS_BYTES = 1_024;
/** Chunks on their way at once, per body read or written. Also in the text of `maxChunkSize`. */
const CHUNKS_AT_ONCE = 8;
/**
 * How long the marker of a settled message is kept, at least; servers sync every 2 minutes by
 * default. Also in docs/reference/stores/nats.md and docs/guarantees.md.
 */
export const MARKER_KEPT_MS: number = HOUR_MS;
/**
 * How long after the opening no marker is taken out: after a long outage all are old, and entries
 * that came back are tried before their markers go. Also in docs/guarantees.md.
 */
export const MARKERS_KEPT_AFTER_OPEN_MS: number = 10 * MINUTE_MS;

/** All chunks of a body have one subject: a limit of messages there would drop its beginning. */
const CONFIG = {
  max_msgs_per_subject: -1,
  deny_delete: false,
  deny_purge: false,
  allow_rollup_hdrs: true,
} as const;

/** Keeps bodies in an object store of NATS JetStream. */
export function natsBodies(options: NatsBodyOptions): BodyStore {
  return new NatsBodies(readBodyOptions(options));
}

class NatsBodies implements BodyStore {
  readonly name = 'nats';
  readonly onOperation: NonNullable<BodyStore['onOperation']>;
  readonly #operations: Operations;
  readonly #settings: NatsBodySettings;
  readonly #places: BodyPlaces;
  readonly #inFlight = new InFlight();
  #durability: Durability = 'server';
  readonly #opening = new Opening(
    () => this.#open(),
    (opening) => this.#close(opening),
  );
  #opened: Bucket | undefined;
  #openedAt = 0;

  constructor(settings: NatsBodySettings) {
    this.#settings = settings;
    this.#places = placesOf(settings.bucket);
    this.#operations = new Operations('bodies', settings.clock);
    this.onOperation = this.#operations.on;
  }

  /** Known once the store is open. */
  get traits(): { readonly durability: Durability } {
    return { durability: this.#durability };
  }

  open(): Promise<void> {
    return this.#opening.open();
  }

  close(): Promise<void> {
    return this.#opening.close();
  }

  async put(ref: string, source: AsyncIterable<Uint8Array>): Promise<{ readonly size: number }> {
    const bucket = this.#checkOpen();
    return this.#inFlight.track(
      this.#operations.time('put', 1, () => this.#put(bucket, ref, source)),
    );
  }

  get(ref: string): AsyncIterable<Uint8Array> {
    return this.#operations.stream('get', this.#get(ref));
  }

  async *#get(ref: string): AsyncGenerator<Uint8Array> {
    const { stream } = this.#checkOpen();
    const stored = await this.#inFlight.track(stream.last(this.#places.metaOf(ref)));
    const meta = stored === undefined ? undefined : readMeta(stored);
    if (meta === undefined) {
      throw new RespoolError('body.missing', `cannot read body "${ref}": it does not exist`);
    }
    const hash = createHash('sha256');
    let size = 0;
    for await (const chunk of this.#chunks(stream, meta, ref)) {
      hash.update(chunk);
      size += chunk.length;
      yield chunk;
    }
    if (size !== meta.size || digestText(hash) !== meta.digest) {
      throw corrupt(ref, `it has ${size} of ${meta.size} bytes, or others than were written`);
    }
  }

  async remove(refs: readonly string[], settledAs?: SettledAs): Promise<void> {
    const { stream } = this.#checkOpen();
    const all = () => Promise.all(refs.map((ref) => this.#removeOne(stream, ref, settledAs)));
    await this.#inFlight.track(this.#operations.time('remove', refs.length, all));
  }

  async wasSettled(ref: string): Promise<SettledAs | undefined> {
    const { stream } = this.#checkOpen();
    return readSettled(await this.#inFlight.track(stream.last(this.#places.metaOf(ref))));
  }

  async *refs(writtenBefore: number): AsyncGenerator<StoredBody> {
    const { stream } = this.#checkOpen();
    const { clock } = this.#settings;
    const isYoung = clock.monotonic() - this.#openedAt < MARKERS_KEPT_AFTER_OPEN_MS;
    const markersBefore = isYoung ? 0 : clock.now() - MARKER_KEPT_MS;
    yield* listBodies(stream, this.#places, { writtenBefore, markersBefore });
  }

  async #put(
    { stream, maxPayload }: Bucket,
    ref: string,
    source: AsyncIterable<Uint8Array>,
  ): Promise<{ readonly size: number }> {
    const metaSubject = this.#places.metaOf(ref);
    if ((await stream.last(metaSubject)) !== undefined) throw duplicate(ref);
    const nuid = `${this.#places.wordOf(ref)}.${randomName(systemDice)}`;
    const upload = new Upload(stream, this.#places.chunksOf(nuid));
    const { restarts } = stream.line;
    try {
      const chunkBytes = Math.min(this.#settings.maxChunkSize, maxPayload - HEADERS_BYTES);
      for await (const chunk of inChunks(source, chunkBytes)) await upload.add(chunk);
      const { size, seqs, digest } = await upload.end();
      const mtime = this.#settings.clock.now();
      const { bucket } = this.#settings;
      const meta = { ref, bucket, nuid, size, digest, seqs, mtime, chunkBytes };
      const { data, headers } = writeMeta(meta);
      const parts = { token: nuid, expected: 0, headers };
      const metaSeq = await stream.write(metaSubject, data, parts);
      if (metaSeq === undefined) throw duplicate(ref);
      const isSure = !stream.restartsForget || stream.line.restarts === restarts;
      if (isSure || (await upload.isKept(seqs))) return { size };
      await stream.drop(metaSeq);
      throw new RespoolError(
        'store.unavailable',
        `cannot put body "${ref}": the server was started again and lost a part of it; try again`,
      );
    } catch (error) {
      await upload.undo();
      throw error;
    }
  }

  /** The chunks of a body, some of them asked for ahead. */
  async *#chunks(stream: Stream, meta: BodyMeta, ref: string): AsyncGenerator<Uint8Array> {
    const subject = this.#places.chunksOf(meta.nuid);
    if (meta.seqs === undefined) {
      for (let at = 0, seq = 1; at < meta.chunks; at += 1) {
        const stored = await this.#inFlight.track(stream.next(subject, seq));
        if (stored === undefined) throw corrupt(ref, `chunk ${at} of ${meta.chunks} is not there`);
        seq = stored.seq + 1;
        yield new Uint8Array(stored.data);
      }
      return;
    }
    const ahead: ReturnType<Stream['at']>[] = [];
    for (let at = 0; at < meta.seqs.length; at += 1) {
      // One at first: many readers look at the beginning only.
      const wanted = Math.min(CHUNKS_AT_ONCE, at + 1, meta.seqs.length - at);
      while (ahead.length < wanted) {
        const asked = this.#inFlight.track(stream.at(meta.seqs[at + ahead.length] ?? 0));
        // A reader that leaves does not answer it; callers that await it still get the error.
        asked.catch(() => undefined);
        ahead.push(asked);
      }
      const stored = await ahead.shift();
      if (stored?.subject !== subject) {
        throw corrupt(ref, `chunk ${at} of ${meta.chunks} is not there`);
      }
      yield new Uint8Array(stored.data);
    }
  }

  async #removeOne(stream: Stream, ref: string, settledAs?: SettledAs): Promise<void> {
    const subject = this.#places.metaOf(ref);
    const stored = await stream.last(subject);
    const meta = stored === undefined ? undefined : readMeta(stored);
    // The marker stays; older messages go that a killed server has brought back.
    if (readSettled(stored) !== undefined) await stream.purge(subject, stored?.seq);
    else if (settledAs === undefined || !(await this.#mark(stream, { ref, meta, settledAs }))) {
      if (stored !== undefined) await stream.drop(stored.seq);
    }
    if (meta?.seqs !== undefined) await Promise.all(meta.seqs.map((seq) => stream.drop(seq)));
    else await stream.purge(this.#places.chunksOf(`${this.#places.wordOf(ref)}.*`));
  }

  /** Replaces what is written about an object by a marker; false where there is no room for it. */
  async #mark(
    stream: Stream,
    { ref, meta, settledAs }: { ref: string; meta: BodyMeta | undefined; settledAs: SettledAs },
  ): Promise<boolean> {
    const { bucket, clock } = this.#settings;
    const nuid = meta?.nuid ?? this.#places.wordOf(ref);
    const { data, headers } = writeSettled({ ref, bucket, nuid }, settledAs, clock.now());
    try {
      const token = randomName(systemDice);
      await stream.write(this.#places.metaOf(ref), data, { token, headers });
      return true;
    } catch (error) {
      // Removing bodies is what makes room.
      if (isRespoolError(error, 'store.full')) return false;
      throw error;
    }
  }

  async #open(): Promise<void> {
    await this.#opening.closing.catch(() => undefined);
    const { bucket } = this.#settings;
    const opened = await openBucket(this.#settings, {
      name: `OBJ_${bucket}`,
      subjects: [`$O.${bucket}.C.>`, `$O.${bucket}.M.>`],
      config: CONFIG,
    });
    this.#durability = opened.durability;
    this.#opened = opened;
    this.#openedAt = this.#settings.clock.monotonic();
  }

  async #close(opening: Promise<void>): Promise<void> {
    await opening.catch(() => undefined);
    const opened = this.#opened;
    if (opened === undefined) return;
    this.#opened = undefined;
    await this.#inFlight.idle();
    await opened.close();
  }

  #checkOpen(): Bucket {
    if (this.#opened !== undefined) return this.#opened;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the NATS bucket "${this.#settings.bucket}": it is not open; call open() first`,
    );
  }
}

/** Chunks on their way to the server, a few at a time. */
class Upload {
  readonly #stream: Stream;
  readonly #subject: string;
  readonly #hash = createHash('sha256');
  readonly #writes: Promise<number>[] = [];
  #size = 0;

  constructor(stream: Stream, subject: string) {
    this.#stream = stream;
    this.#subject = subject;
  }

  async add(chunk: Uint8Array): Promise<void> {
    this.#hash.update(chunk);
    this.#size += chunk.length;
    const write = this.#write(chunk);
    // Awaited later; a rejection before that must not count as unhandled.
    write.catch(() => undefined);
    this.#writes.push(write);
    await this.#writes.at(-CHUNKS_AT_ONCE);
  }

  async end(): Promise<{
    readonly size: number;
    readonly seqs: number[];
    readonly digest: string;
  }> {
    const seqs = await Promise.all(this.#writes);
    return { size: this.#size, seqs, digest: digestText(this.#hash) };
  }

  /** Whether a server that came back has all chunks; it could only lose the last ones. */
  async isKept(seqs: readonly number[]): Promise<boolean> {
    const last = await this.#stream.last(this.#subject);
    return last?.seq === seqs.at(-1);
  }

  /** Takes out what was written, as far as the connection allows; `refs` finds the rest. */
  async undo(): Promise<void> {
    await Promise.allSettled(this.#writes);
    if (this.#writes.length === 0 || !this.#stream.line.isConnected) return;
    await this.#stream.purge(this.#subject).catch(() => undefined);
  }

  async #write(chunk: Uint8Array): Promise<number> {
    const { length } = this.#writes;
    const former = length === 0 ? 0 : this.#writes[length - 1];
    // Each chunk expects the one before it, so none can be written twice or out of order.
    const expected = await former;
    const token = `${this.#subject}.${length}`;
    const seq = await this.#stream.write(this.#subject, chunk, { token, expected });
    if (seq !== undefined) return seq;
    throw new RespoolError('store.unavailable', 'cannot write a body: its chunks were disturbed');
  }
}

/** The stream cut into chunks of one size, each with its own memory. */
async function* inChunks(
  source: AsyncIterable<Uint8Array>,
  chunkBytes: number,
): AsyncGenerator<Uint8Array> {
  let chunk = new Uint8Array(chunkBytes);
  let filled = 0;
  for await (const piece of source) {
    for (let at = 0; at < piece.length; ) {
      const part = piece.subarray(at, at + chunkBytes - filled);
      chunk.set(part, filled);
      filled += part.length;
      at += part.length;
      if (filled < chunkBytes) continue;
      yield chunk;
      chunk = new Uint8Array(chunkBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield chunk.subarray(0, filled);
}

function digestText(hash: Hash): string {
  const text = hash.digest('base64').replaceAll('+', '-').replaceAll('/', '_');
  return `SHA-256=${text}`;
}

function duplicate(ref: string): RespoolError {
  return new RespoolError(
    'message.duplicate',
    `cannot put body "${ref}": there is one already; a ref is used once`,
  );
}

function corrupt(ref: string, reason: string): RespoolError {
  return new RespoolError('body.corrupt', `cannot read body "${ref}": ${reason}`);
}

// Every body of a bucket, and the chunks that belong to none.
//
// The stream is walked once in its order, headers only, page by page behind the last sequence:
// whatever is removed meanwhile shifts nothing, and no more than a page is in memory. What an
// object is comes behind its chunks. So only chunks whose object has not come yet are remembered:
// those of uploads that were under way at that place, and those that were never finished.

/** No filter: one that covers both kinds of subjects is refused by the server. */
const ALL = '';
/** Messages that are read at once. test/stores/nats/bodies.test.ts needs 500 or less. */
const PAGE_MAX = 500;
/** This many unfinished objects are remembered; of more, the oldest are looked at right away. */
const UNFINISHED_MAX = 10_000;
const DROPS_AT_ONCE = 64;

/** Which bodies are listed, and which markers of settled messages are removed on the way. */
interface ListLimits {
  readonly writtenBefore: number;
  readonly markersBefore: number;
}

/** Bodies written before a time; also what a crash left half written. */
async function* listBodies(
  stream: Stream,
  places: BodyPlaces,
  { writtenBefore, markersBefore }: ListLimits,
): AsyncGenerator<StoredBody> {
  const unfinished = new Map<string, string>();
  for (let from = 1; ; ) {
    const page = { filter: ALL, headersOnly: true, from, max: PAGE_MAX };
    const messages = await readAll(stream, page);
    const oldMarkers: number[] = [];
    for (const { seq, subject, headers, storedAt } of messages) {
      if (!places.isMeta(subject)) {
        const found = places.readChunks(subject);
        if (found !== undefined) unfinished.set(found.nuid, found.ref);
        continue;
      }
      if ((headers?.get(SETTLED_HEADER) ?? '') !== '') {
        if (storedAt < markersBefore) oldMarkers.push(seq);
        continue;
      }
      unfinished.delete(headers?.get(NUID) ?? '');
      const writtenAt = Math.floor(storedAt);
      if (writtenAt < writtenBefore) yield { ref: places.refOfMeta(subject), writtenAt };
    }
    for (let at = 0; at < oldMarkers.length; at += DROPS_AT_ONCE) {
      const drops = oldMarkers.slice(at, at + DROPS_AT_ONCE);
      await Promise.all(drops.map((seq) => stream.drop(seq)));
    }
    const last = messages.at(-1);
    const isEnd = last === undefined || messages.length < PAGE_MAX;
    const keptMax = isEnd ? 0 : UNFINISHED_MAX;
    yield* examine({ stream, places, writtenBefore }, takeOldest(unfinished, keptMax));
    if (isEnd) return;
    from = last.seq + 1;
  }
}

/** Takes out the oldest ones beyond this many. */
function takeOldest(unfinished: Map<string, string>, max: number): Map<string, string> {
  const taken = new Map<string, string>();
  for (const [nuid, ref] of unfinished) {
    if (unfinished.size <= max) break;
    unfinished.delete(nuid);
    taken.set(nuid, ref);
  }
  return taken;
}

interface Search {
  readonly stream: Stream;
  readonly places: BodyPlaces;
  readonly writtenBefore: number;
}

/** Unfinished objects whose upload was abandoned. */
async function* examine(
  { stream, places, writtenBefore }: Search,
  unfinished: ReadonlyMap<string, string>,
): AsyncGenerator<StoredBody> {
  const reported = new Set<string>();
  for (const [nuid, ref] of unfinished) {
    if (reported.has(ref)) continue;
    const subject = places.chunksOf(nuid);
    const last = await stream.last(subject);
    const writtenAt = Date.parse(last?.time ?? '');
    // A put that is still running has written its last chunk just now.
    if (!(writtenAt < writtenBefore)) continue;
    const stored = await stream.last(places.metaOf(ref));
    if (stored === undefined) {
      reported.add(ref);
      yield { ref, writtenAt };
      continue;
    }
    // Finished since, or left by a second put of the same ref, which lost.
    const whole = stored.header(NUID) || readMeta(stored)?.nuid;
    if (whole !== nuid) await stream.purge(subject);
  }
}

// Where the parts of an object are, and what is written about it.

/** Where the chunks are; other tools do not know this header and do without. */
const SEQS = 'Rs-Seqs';
/** The header with an object's nuid, for lists that fetch headers only. */
const NUID = 'Rs-Nuid';
/** The header of a marker: the message of this object has ended, and how: a `SettledAs`. */
const SETTLED_HEADER = 'Rs-Settled';
/** The server removes what was under the subject before, in the same write. */
const ROLLUP = ['Nats-Rollup', 'sub'] as const;
/**
 * Objects of more chunks are read and removed by their subject. n.b. JetStream refuses more than 64
 * KiB of headers, and a sequence may have 16 digits.
 */
const SEQS_MAX = 2_000;

/** The subjects of a bucket. */
interface BodyPlaces {
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
function placesOf(bucket: string): BodyPlaces {
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
interface BodyMeta {
  readonly nuid: string;
  readonly size: number;
  readonly chunks: number;
  readonly digest: string;
  /** The sequences of its chunks; undefined beyond SEQS_MAX, and where another tool wrote it. */
  readonly seqs: readonly number[] | undefined;
}

/** An object that has been written. */
interface NewMeta extends Omit<BodyMeta, 'chunks' | 'seqs'> {
  readonly ref: string;
  readonly bucket: string;
  readonly seqs: readonly number[];
  readonly mtime: number;
  readonly chunkBytes: number;
}

/** What is written about an object, in the form every tool reads. */
function writeMeta(meta: NewMeta): {
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
function readMeta(stored: StoredMessage): BodyMeta | undefined {
  try {
    const text = Buffer.from(stored.data).toString('utf8');
    const meta = JSON.parse(text) as BodyMeta & { readonly deleted?: boolean };
    if (meta.deleted === true) return undefined;
    const seqs = stored.header(SEQS);
    return { ...meta, seqs: seqs === '' ? undefined : (JSON.parse(seqs) as number[]) };
  } catch {
    return undefined;
  }
}

/** What replaces an object whose message has ended; other tools read it as a deleted object. */
function writeSettled(
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
  return { data, headers: [ROLLUP, [SETTLED_HEADER, settledAs]] };
}

/** How the message of an object ended; undefined where this is no marker of ours. */
function readSettled(stored: StoredMessage | undefined): SettledAs | undefined {
  const settledAs = stored?.header(SETTLED_HEADER);
  return settledAs === 'delivered' || settledAs === 'removed' ? settledAs : undefined;
}

function isoOf(ms: number): string {
  return new Date(ms).toISOString();
}
