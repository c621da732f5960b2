/**
 * upload — one body into the bucket: small ones in one request, larger ones in parts as they come.
 *
 *   cut() ─one part─▶ putWhole() ─▶ there
 *         ─more─────▶ begin() ─▶ PartSender ─▶ complete() ─▶ there
 *                                     └─error─▶ aborted      nothing is there
 *
 * In memory at once: `partsAtOnce` + 1 parts. Every put writes a token of its own beside its bytes:
 * when an answer was lost and the request is refused the second time, the token shows whose the
 * object is.
 *
 * n.b. Not by the `Upload` of @aws-sdk/lib-storage (read at 3.1164): when a part fails it reads and
 * sends the rest of the source anyway, it cannot cancel requests, and an abort that fails hides
 * what went wrong.
 */

import { createHash } from 'node:crypto';
import { isRespoolError, RespoolError } from '../../core/errors.ts';
import type { Calls } from './connection.ts';
import type { S3Responses } from './connection.ts';
import { isConditionFailed, isConflict, isMissing, storeError } from './errors.ts';

/** What a body is written with. */
interface UploadOptions {
  readonly calls: Calls;
  readonly partBytes: number;
  readonly partsAtOnce: number;
  readonly storageClass: string | undefined;
  /** Whether the server refuses to overwrite when it is asked to. */
  readonly isConditional: boolean;
}

/** What is written, and where. */
export interface Target {
  readonly ref: string;
  readonly key: string;
  /** Of this put alone. */
  readonly token: string;
}

/** Metadata of an object: whose put it was, and the digest of its bytes where it is known. */
const TOKEN_NAME = 'respool-put';
export const DIGEST_NAME = 'respool-sha256';

/** More the server does not take. Also in docs/reference/stores/s3.md. */
const PARTS_MAX = 10_000;
/** How often a write is tried that met another one to the same key. */
const CONFLICTS_MAX = 4;

interface Part {
  readonly bytes: Uint8Array;
  readonly isLast: boolean;
}

/**
 * Writes a body as a whole; resolves with its size when it is there. After a rejection it may be
 * there all the same, where an answer was lost, but never a part of it.
 */
export async function upload(
  parts: UploadOptions,
  target: Target,
  stream: AsyncIterable<Uint8Array>,
): Promise<number> {
  const cutter = cut(stream, parts.partBytes);
  try {
    const { value: first } = await cutter.next();
    if (first === undefined) throw new RespoolError('store.unavailable', 'a body had no part');
    if (first.isLast) return await putWhole(parts, target, first.bytes);
    return await putInParts(parts, target, { first, rest: cutter });
  } finally {
    // The source may hold a file open.
    await cutter.return(undefined);
  }
}

/** Parts of exactly this size, but for the last, which may be empty when it is the only one. */
async function* cut(
  stream: AsyncIterable<Uint8Array>,
  partBytes: number,
): AsyncGenerator<Part, undefined> {
  let held: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of stream) {
    // A copy: the source may use its buffer again.
    held.push(Uint8Array.from(chunk));
    size += chunk.byteLength;
    if (size <= partBytes) continue;
    let rest: Uint8Array = Buffer.concat(held);
    while (rest.byteLength > partBytes) {
      yield { bytes: rest.subarray(0, partBytes), isLast: false };
      rest = rest.subarray(partBytes);
    }
    held = [rest];
    size = rest.byteLength;
  }
  yield { bytes: Buffer.concat(held), isLast: true };
  return undefined;
}

async function putWhole(parts: UploadOptions, target: Target, bytes: Uint8Array): Promise<number> {
  const { calls, storageClass, isConditional } = parts;
  if (!isConditional && (await ownerOf(calls, target)) !== 'none') throw duplicate(target);
  const digest = createHash('sha256').update(bytes).digest('hex');
  const input = {
    Key: target.key,
    Body: bytes,
    ContentLength: bytes.byteLength,
    StorageClass: storageClass,
    Metadata: { [TOKEN_NAME]: target.token, [DIGEST_NAME]: digest },
    IfNoneMatch: isConditional ? '*' : undefined,
  };
  for (let left = CONFLICTS_MAX - 1; ; left -= 1) {
    try {
      await calls.send('PutObject', input);
      return bytes.byteLength;
    } catch (error) {
      if (isConflict(error) && left > 0) continue;
      if (!isConditionFailed(error) && !isConflict(error)) throw writeError(target, error);
      // The first answer may have been lost on its way: then what is there is ours.
      const owner = await ownerOf(calls, target);
      if (owner === 'us') return bytes.byteLength;
      throw owner === 'other' ? duplicate(target) : writeError(target, error);
    }
  }
}

async function putInParts(
  parts: UploadOptions,
  target: Target,
  source: { readonly first: Part; readonly rest: AsyncGenerator<Part, undefined> },
): Promise<number> {
  const { calls } = parts;
  // Asked before gigabytes are sent in vain; the end is guarded as well.
  if ((await ownerOf(calls, target)) !== 'none') throw duplicate(target);
  const uploadId = await begin(parts, target);
  const sending = new PartSender(parts, target, uploadId);
  try {
    await sending.send(source.first.bytes);
    for await (const { bytes } of source.rest) await sending.send(bytes);
    const sent = await sending.all();
    await complete(parts, target, { uploadId, sent, size: sending.size });
    return sending.size;
  } catch (error) {
    await sending.stop();
    // What cannot be aborted now is found and swept as an unfinished upload.
    const upload = { Key: target.key, UploadId: uploadId };
    await calls.send('AbortMultipartUpload', upload).catch(() => undefined);
    throw error;
  }
}

async function begin(parts: UploadOptions, target: Target): Promise<string> {
  const input = {
    Key: target.key,
    StorageClass: parts.storageClass,
    Metadata: { [TOKEN_NAME]: target.token },
  };
  try {
    const { UploadId } = await parts.calls.send('CreateMultipartUpload', input);
    if (UploadId !== undefined) return UploadId;
  } catch (error) {
    throw writeError(target, error);
  }
  throw new RespoolError(
    'store.unavailable',
    `cannot write body "${target.ref}": the server began an upload and gave it no id`,
  );
}

type SentPart = S3Responses['UploadPart'] & { readonly PartNumber: number };

/** Sends parts, a few at once, and stops all of them when one fails. */
class PartSender {
  size = 0;
  readonly #parts: UploadOptions;
  readonly #target: Target;
  readonly #uploadId: string;
  readonly #onTheWay = new Set<Promise<void>>();
  readonly #sent: SentPart[] = [];
  readonly #abort = new AbortController();
  #count = 0;
  #trouble: { readonly error: unknown } | undefined;

  constructor(parts: UploadOptions, target: Target, uploadId: string) {
    this.#parts = parts;
    this.#target = target;
    this.#uploadId = uploadId;
  }

  /** Resolves when there is room for the next one; rejects when one before it has failed. */
  async send(bytes: Uint8Array): Promise<void> {
    this.#count += 1;
    this.size += bytes.byteLength;
    if (this.#count > PARTS_MAX) {
      throw new RespoolError(
        'limit.exceeded',
        `cannot write body "${this.#target.ref}": it has more than ${PARTS_MAX} parts of ` +
          `${this.#parts.partBytes} bytes; raise partBytes`,
      );
    }
    const sending = this.#sendOne(this.#count, bytes).finally(() => {
      this.#onTheWay.delete(sending);
    });
    this.#onTheWay.add(sending);
    // A failure is kept for the caller that waits next; it must not be unhandled until then.
    sending.catch((error: unknown) => {
      this.#trouble ??= { error };
    });
    if (this.#onTheWay.size >= this.#parts.partsAtOnce) await Promise.race(this.#onTheWay);
    // Also where the others were quick: one that failed ends the whole at once.
    if (this.#trouble !== undefined) throw this.#trouble.error;
  }

  async all(): Promise<readonly SentPart[]> {
    await Promise.all(this.#onTheWay);
    if (this.#trouble !== undefined) throw this.#trouble.error;
    return this.#sent.sort((a, b) => a.PartNumber - b.PartNumber);
  }

  /** Calls off what is on its way; resolves when nothing is. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await Promise.allSettled(this.#onTheWay);
  }

  async #sendOne(number: number, bytes: Uint8Array): Promise<void> {
    const input = {
      Key: this.#target.key,
      UploadId: this.#uploadId,
      PartNumber: number,
      Body: bytes,
      ContentLength: bytes.byteLength,
    };
    try {
      const answer = await this.#parts.calls.send('UploadPart', input, this.#abort.signal);
      this.#sent.push({ PartNumber: number, ...receiptOf(answer) });
    } catch (error) {
      throw writeError(this.#target, error);
    }
  }
}

/** What the server wants to see again at the end. */
function receiptOf(answer: S3Responses['UploadPart']): S3Responses['UploadPart'] {
  const names = Object.keys(answer).filter((name) => /^(?:ETag$|Checksum[CS])/.test(name));
  return Object.fromEntries(names.map((name) => [name, Reflect.get(answer, name) as string]));
}

async function complete(
  { calls, isConditional }: UploadOptions,
  target: Target,
  {
    uploadId,
    sent,
    size,
  }: {
    readonly uploadId: string;
    readonly sent: readonly SentPart[];
    readonly size: number;
  },
): Promise<void> {
  let trouble: unknown;
  try {
    await calls.send('CompleteMultipartUpload', {
      Key: target.key,
      UploadId: uploadId,
      MultipartUpload: { Parts: sent },
      IfNoneMatch: isConditional ? '*' : undefined,
    });
  } catch (error) {
    trouble = error;
  }
  // Looked at in any case: the answer may have been lost, an answer of 200 may carry an error, and
  // not every server keeps to the condition here.
  const owner = await ownerOf(calls, target, size);
  if (owner === 'us') return;
  if (owner === 'other') throw duplicate(target);
  throw writeError(target, trouble ?? new Error('the server finished the upload and lost it'));
}

/** The owner of the object under this key; with a size other than ours it has none. */
async function ownerOf(
  calls: Calls,
  target: Target,
  size?: number,
): Promise<'us' | 'other' | 'none'> {
  try {
    const { Metadata, ContentLength } = await calls.send('HeadObject', { Key: target.key });
    if (Metadata?.[TOKEN_NAME] !== target.token) return 'other';
    return size === undefined || ContentLength === size ? 'us' : 'none';
  } catch (error) {
    if (isMissing(error)) return 'none';
    throw writeError(target, error);
  }
}

function writeError({ ref }: Target, error: unknown): RespoolError {
  return isRespoolError(error) ? error : storeError(`write body "${ref}"`, error);
}

function duplicate({ ref }: Target): RespoolError {
  return new RespoolError(
    'message.duplicate',
    `cannot write body "${ref}": there is one already, and bodies are never overwritten`,
  );
}
