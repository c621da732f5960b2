/**
 * body-store — bodies as objects in a bucket of S3 or of a server that speaks it.
 *
 *   open()   bucket there? keys good? does it refuse to overwrite?     put() get() remove() refs()
 *
 * Several processes may use one bucket and prefix. Promise: a put that resolved is what the server
 * acknowledged; nothing half written has a key; no request waits for ever.
 *
 * Also here: the keys of objects, and uploads that a crash left unfinished, which `refs` lists
 * too.
 */

import { createHash } from 'node:crypto';
import type { Millis } from '../../core/duration.ts';
import { isRespoolError, RespoolError, textOf } from '../../core/errors.ts';
import { checkRef, REF_PATTERN } from '../../core/limits.ts';
import type { BodyStore, StoredBody } from '../../ports/body-store.ts';
import type { Durability } from '../../ports/entry-store.ts';
import type { Logger } from '../../ports/logger.ts';
import { systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { InFlight } from '../../system/wait.ts';
import { Opening } from '../shared/lifetime.ts';
import { Operations } from '../shared/operations.ts';
import { type S3Responses, Calls, endpointFound, loadS3, type S3ClientLike } from './connection.ts';
import { checkBucket, inspect, probe, type S3Finding } from './diagnose.ts';
import { codeOf, isForbidden, isMissing, isUnsupported, storeError } from './errors.ts';
import { type CheckedOptions, checkStoreOptions, promiseOf, type S3Options } from './options.ts';
import { DIGEST_NAME, upload } from './upload.ts';

// Many objects with few requests, and one by one where the server cannot do that.

/** What the server takes in one request. Also in docs/reference/stores/s3.md. */
const BATCH_MAX = 1_000;
/** Requests at once, where it is one per object. */
const SINGLES_AT_ONCE = 8;

/** Removes objects; one that is not there is no error. */
async function removeKeys(calls: Calls, keys: readonly string[]): Promise<void> {
  for (let at = 0; at < keys.length; at += BATCH_MAX) {
    const batch = keys.slice(at, at + BATCH_MAX);
    if (batch.length > 1 && (await removeBatch(calls, batch))) continue;
    for (let from = 0; from < batch.length; from += SINGLES_AT_ONCE) {
      const some = batch.slice(from, from + SINGLES_AT_ONCE);
      await Promise.all(some.map((key) => removeOne(calls, key)));
    }
  }
}

/** False where the server does not know such a request, or wants a digest that is not sent. */
async function removeBatch(calls: Calls, keys: readonly string[]): Promise<boolean> {
  const input = { Delete: { Objects: keys.map((Key) => ({ Key })), Quiet: true } };
  try {
    const { Errors = [] } = await calls.send('DeleteObjects', input);
    const [failed] = Errors.filter(({ Code }) => Code !== 'NoSuchKey');
    if (failed === undefined) return true;
    throw Object.assign(new Error(`${Errors.length} of ${keys.length} were not removed`), {
      name: failed.Code ?? '',
      $metadata: { httpStatusCode: failed.Code === 'AccessDenied' ? 403 : 500 },
    });
  } catch (error) {
    if (isUnsupported(error)) return false;
    throw storeError(`remove ${keys.length} bodies`, error);
  }
}

async function removeOne(calls: Calls, key: string): Promise<void> {
  try {
    await calls.send('DeleteObject', { Key: key });
  } catch (error) {
    if (!isMissing(error)) throw storeError(`remove the body at "${key}"`, error);
  }
}

/** A body store that can also tell what its bucket is like. */
export interface S3Bodies extends BodyStore {
  /** Looks at the open bucket again: conditional writes, lifecycle, versions, sweeping. */
  diagnose(): Promise<readonly S3Finding[]>;
}

/** Keeps bodies in a bucket of S3 or of a server that speaks it; several processes may share it. */
export function s3(options: S3Options): S3Bodies {
  return new S3BodyStore(checkStoreOptions(options));
}

const CONNECT_TIMEOUT_MS = 5_000;
const LIST_PAGE_MAX = 1_000;

/** What there is while the store is open. */
interface Opened {
  readonly calls: Calls;
  readonly client: S3ClientLike;
  readonly isConditional: boolean;
}

class S3BodyStore implements S3Bodies {
  readonly name = 's3';
  readonly traits: BodyStore['traits'];
  readonly onOperation: NonNullable<BodyStore['onOperation']>;
  readonly #operations: Operations;
  readonly #options: CheckedOptions;
  readonly #inFlight = new InFlight();
  /**
   * Refs that are being written here; a second write waits for the first. Not every server keeps to
   * a condition, and Ceph 16 does so for one request, not for the end of an upload in parts.
   */
  readonly #writing = new Map<string, Promise<unknown>>();
  readonly #opening = new Opening(
    () => this.#connect(),
    (opening) => this.#disconnect(opening),
  );
  #opened: Opened | undefined;
  #durability: Durability;

  constructor(options: CheckedOptions) {
    this.#options = options;
    this.#operations = new Operations('bodies', options.clock);
    this.onOperation = this.#operations.on;
    this.#durability = options.durability;
    const promised = (): Durability => this.#durability;
    this.traits = {
      /** Which server it is may be known only once it was asked, by open(). */
      get durability() {
        return promised();
      },
    };
  }

  open(): Promise<void> {
    return this.#opening.open();
  }

  close(): Promise<void> {
    return this.#opening.close();
  }

  async #connect(): Promise<void> {
    await this.#opening.closing;
    const { client: given, bucket, prefix, createBucket, logger, clock } = this.#options;
    const { isDurabilityGiven } = this.#options;
    const s3Package = await loadS3();
    const client = given ?? s3Package.makeClient(this.#clientConfig());
    const calls = new Calls(client, s3Package, this.#options);
    const parts = { calls, bucket, prefix };
    try {
      await checkBucket(parts, createBucket);
      const isConditional = await probe(parts, randomName(systemDice), clock.now());
      const led = isDurabilityGiven ? undefined : await endpointFound(client);
      if (led !== undefined) this.#durability = promiseOf({ endpoint: led });
      if (logger !== undefined) tellAll(logger, bucket, await inspect(parts, isConditional));
      this.#opened = { calls, client, isConditional };
    } catch (error) {
      if (given === undefined) client.destroy?.();
      throw error;
    }
  }

  async #disconnect(opening: Promise<void>): Promise<void> {
    await opening.catch(() => undefined);
    const opened = this.#opened;
    this.#opened = undefined;
    await this.#inFlight.idle();
    if (this.#options.client === undefined) opened?.client.destroy?.();
  }

  async diagnose(): Promise<readonly S3Finding[]> {
    const { calls, isConditional } = this.#open();
    const { bucket, prefix } = this.#options;
    return inspect({ calls, bucket, prefix }, isConditional);
  }

  async put(ref: string, stream: AsyncIterable<Uint8Array>): Promise<{ readonly size: number }> {
    const opened = this.#open();
    const target = {
      ref,
      key: objectKeyOf(this.#options.prefix, ref),
      token: randomName(systemDice),
    };
    const parts = { ...this.#options, calls: opened.calls, isConditional: opened.isConditional };
    const put = () => this.#inLine(ref, () => upload(parts, target, stream));
    return { size: await this.#inFlight.track(this.#operations.time('put', 1, put)) };
  }

  get(ref: string): AsyncIterable<Uint8Array> {
    return this.#operations.stream('get', this.#get(ref));
  }

  async *#get(ref: string): AsyncGenerator<Uint8Array> {
    const { calls } = this.#open();
    const key = objectKeyOf(this.#options.prefix, ref);
    const stop = new AbortController();
    const object = await this.#openBody(calls, ref, { key, signal: stop.signal });
    const { Body: body, Metadata: metadata } = object;
    if (body === undefined) throw this.#missing(ref, undefined);
    const digest = metadata?.[DIGEST_NAME];
    const hash = digest === undefined ? undefined : createHash('sha256');
    const bytes = body[Symbol.asyncIterator]();
    try {
      for (;;) {
        const callOff = calls.watch(() =>
          body.destroy(new Error(`no byte within ${calls.requestTimeoutMs} ms`)),
        );
        const { done, value } = await bytes.next().finally(callOff);
        if (done === true) break;
        hash?.update(value);
        yield value;
      }
    } catch (error) {
      throw readError(ref, error);
    } finally {
      // A reader that stops early must not leave a connection behind that waits for it.
      body.destroy();
      stop.abort();
    }
    if (hash !== undefined && hash.digest('hex') !== digest) throw corrupt(ref, 'its digest');
  }

  async remove(refs: readonly string[]): Promise<void> {
    const { calls } = this.#open();
    const remove = () => this.#remove(calls, refs);
    await this.#inFlight.track(this.#operations.time('remove', refs.length, remove));
  }

  async #remove(calls: Calls, refs: readonly string[]): Promise<void> {
    const { prefix } = this.#options;
    const keys: string[] = [];
    for (const name of new Set(refs)) {
      const unfinished = uploadOfName(name);
      if (unfinished === undefined) keys.push(objectKeyOf(prefix, name));
      else await this.#abort(calls, unfinished);
    }
    await removeKeys(calls, keys);
  }

  async *refs(writtenBefore: Millis): AsyncGenerator<StoredBody> {
    this.#open();
    yield* this.#bodies(writtenBefore);
    yield* this.#unfinished(writtenBefore);
  }

  async *#bodies(writtenBefore: Millis): AsyncGenerator<StoredBody> {
    const { prefix, bucket } = this.#options;
    let after: string | undefined;
    do {
      const page: S3Responses['ListObjectsV2'] = await this.#open()
        .calls.send('ListObjectsV2', {
          Prefix: prefix,
          MaxKeys: LIST_PAGE_MAX,
          ContinuationToken: after,
        })
        .catch(rejectWith(`list the bodies in bucket "${bucket}"`));
      for (const { Key = '', LastModified } of page.Contents ?? []) {
        const ref = refOfKey(prefix, Key);
        const writtenAt = LastModified?.getTime() ?? Number.POSITIVE_INFINITY;
        if (ref !== undefined && writtenAt < writtenBefore) yield { ref, writtenAt };
      }
      after = page.IsTruncated === true ? page.NextContinuationToken : undefined;
    } while (after !== undefined);
  }

  async *#unfinished(writtenBefore: Millis): AsyncGenerator<StoredBody> {
    const { prefix } = this.#options;
    let after: { KeyMarker?: string; UploadIdMarker?: string } | undefined = {};
    while (after !== undefined) {
      const page = await this.#uploadPage(after);
      for (const { Key = '', UploadId, Initiated } of page.Uploads ?? []) {
        const ref = refOfKey(prefix, Key);
        const writtenAt = Initiated?.getTime() ?? Number.POSITIVE_INFINITY;
        if (ref === undefined || UploadId === undefined || writtenAt >= writtenBefore) continue;
        yield { ref: partNameOf({ ref, uploadId: UploadId }), writtenAt };
      }
      const { IsTruncated, NextKeyMarker, NextUploadIdMarker } = page;
      const hasMore = IsTruncated === true && NextKeyMarker !== undefined;
      after = hasMore
        ? {
            KeyMarker: NextKeyMarker,
            ...(NextUploadIdMarker === undefined ? {} : { UploadIdMarker: NextUploadIdMarker }),
          }
        : undefined;
    }
  }

  async #uploadPage(after: object): Promise<S3Responses['ListMultipartUploads']> {
    const { prefix, bucket } = this.#options;
    const input = { Prefix: prefix, MaxUploads: LIST_PAGE_MAX, ...after };
    try {
      return await this.#open().calls.send('ListMultipartUploads', input);
    } catch (error) {
      // Bodies are whole without it; `diagnose` says that nothing is swept.
      if (isForbidden(error) || isUnsupported(error)) return {};
      throw storeError(`list the unfinished uploads in bucket "${bucket}"`, error);
    }
  }

  async #openBody(
    calls: Calls,
    ref: string,
    { key, signal }: { readonly key: string; readonly signal: AbortSignal },
  ): Promise<S3Responses['GetObject']> {
    try {
      return await calls.send('GetObject', { Key: key }, signal);
    } catch (error) {
      throw isMissing(error) ? this.#missing(ref, error) : storeError(`read body "${ref}"`, error);
    }
  }

  async #abort(
    calls: Calls,
    { ref, uploadId }: { readonly ref: string; readonly uploadId: string },
  ): Promise<void> {
    const input = { Key: objectKeyOf(this.#options.prefix, ref), UploadId: uploadId };
    try {
      await calls.send('AbortMultipartUpload', input);
    } catch (error) {
      if (isMissing(error) || codeOf(error) === 'NoSuchUpload') return;
      throw storeError(`end the unfinished upload of body "${ref}"`, error);
    }
  }

  /** One after another, per ref. */
  async #inLine(ref: string, put: () => Promise<number>): Promise<number> {
    const before = this.#writing.get(ref);
    const mine = before === undefined ? put() : before.then(put, put);
    this.#writing.set(ref, mine);
    try {
      return await mine;
    } finally {
      if (this.#writing.get(ref) === mine) this.#writing.delete(ref);
    }
  }

  #open(): Opened {
    if (this.#opened !== undefined) return this.#opened;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the bodies in bucket "${this.#options.bucket}": they are not open; ` +
        'call open() first',
    );
  }

  #missing(ref: string, cause: unknown): RespoolError {
    return new RespoolError(
      'body.missing',
      `cannot read body "${ref}": there is no such body in bucket "${this.#options.bucket}"; ` +
        'hold the message',
      { cause },
    );
  }

  #clientConfig(): Parameters<Awaited<ReturnType<typeof loadS3>>['makeClient']>[0] {
    const { region, endpoint, credentials, pathStyle, checksums } = this.#options;
    const { attemptsMax, connections } = this.#options;
    return {
      region,
      endpoint,
      credentials,
      forcePathStyle: pathStyle,
      maxAttempts: attemptsMax,
      requestChecksumCalculation:
        checksums === 'when-required' ? 'WHEN_REQUIRED' : 'WHEN_SUPPORTED',
      // We check a digest of our own.
      responseChecksumValidation: 'WHEN_REQUIRED',
      // n.b. No `socketTimeout`: it also counts the time a slow reader takes. Ours do not.
      requestHandler: {
        connectionTimeout: CONNECT_TIMEOUT_MS,
        httpAgent: { maxSockets: connections },
        httpsAgent: { maxSockets: connections },
        logger: {},
      },
    };
  }
}

function tellAll(logger: Logger, bucket: string, findings: readonly S3Finding[]): void {
  for (const { id, level, text, todo } of findings) {
    const fields = { store: 's3', bucket, finding: id };
    const line = todo === undefined ? text : `${text}; ${todo}`;
    if (level === 'unsafe') logger.warn(fields, line);
    else if (level === 'note') logger.info(fields, line);
  }
}

/** Rejects with what we were doing. */
function rejectWith(doing: string): (error: unknown) => never {
  return (error) => {
    throw storeError(doing, error);
  };
}

function readError(ref: string, error: unknown): RespoolError {
  if (isRespoolError(error)) return error;
  if (/checksum mismatch/i.test(textOf(error))) return corrupt(ref, 'its checksum', error);
  return storeError(`read body "${ref}"`, error);
}

function corrupt(ref: string, what: string, cause?: unknown): RespoolError {
  return new RespoolError(
    'body.corrupt',
    `cannot read body "${ref}": ${what} differs from what was written; hold the message`,
    { cause },
  );
}

// The names of bodies in a bucket.
//
//   <prefix><shard>/<ref>           a body; written once, never changed
//   <prefix>probe/respool-<random>  for a moment, while the store opens
//
// The shard is a hash of the ref: ids that begin with the time would all go to one partition of the
// server. An upload that is not finished has no object yet; its name here is made of the ref and of
// the server's id of the upload.

/** An upload that was begun. */
interface UnfinishedUpload {
  readonly ref: string;
  readonly uploadId: string;
}

const SHARD = /^[0-9a-f]{2}$/;
/**
 * A ref as REF_PATTERN of core/limits.ts has it. n.b. No dash in what follows it: the id of a
 * message ends at the last one.
 */
const PART = /^([0-9a-z][0-9a-z_-]{0,127})\.([0-9a-f]+)\.part$/;

/** The key of a body. */
export function objectKeyOf(prefix: string, ref: string): string {
  return `${prefix}${shardOf(ref)}/${checkRef(ref)}`;
}

/** The ref of a key; undefined for what is not our own body. */
function refOfKey(prefix: string, key: string): string | undefined {
  if (!key.startsWith(prefix)) return undefined;
  const [shard = '', ref = '', ...rest] = key.slice(prefix.length).split('/');
  const isOurs = rest.length === 0 && SHARD.test(shard) && REF_PATTERN.test(ref);
  return isOurs && shard === shardOf(ref) ? ref : undefined;
}

/** The name under which an unfinished upload is listed and removed. */
function partNameOf({ ref, uploadId }: UnfinishedUpload): string {
  return `${ref}.${Buffer.from(uploadId).toString('hex')}.part`;
}

/** The upload a name stands for; undefined where it is the name of a body. */
function uploadOfName(name: string): UnfinishedUpload | undefined {
  const [, ref, hex] = PART.exec(name) ?? [];
  if (ref === undefined || hex === undefined) return undefined;
  return { ref, uploadId: Buffer.from(hex, 'hex').toString() };
}

function shardOf(ref: string): string {
  return createHash('sha256').update(ref).digest('hex').slice(0, 2);
}
