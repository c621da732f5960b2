/**
 * stub — a client that plays a server of S3 in memory, as good or as poor as a test needs it.
 *
 * Tests against the real server are beside; this one is for what that server never does.
 */
import { Readable } from 'node:stream';
import type { S3ClientLike } from 'respool/stores/s3';

/** What the server can do, and what goes wrong. */
export interface StubOptions {
  /** Default true. */
  readonly conditional?: boolean;
  readonly deleteObjects?: 'yes' | 'refused';
  readonly pageMax?: number;
  readonly lifecycle?: readonly object[];
  readonly versioning?: string;
  /** Called before each request; what it throws is the answer. */
  readonly before?: (name: string, input: Input) => void | Promise<void>;
  /** Called after each request was carried out; what it throws is the answer. */
  readonly after?: (name: string, input: Input) => void | Promise<void>;
}

type Input = Readonly<Record<string, unknown>>;

interface StoredObject {
  readonly bytes: Uint8Array;
  readonly metadata: Readonly<Record<string, string>>;
  readonly at: Date;
}

/** The client, what it was sent, and what it holds. */
export interface Stub extends S3ClientLike {
  readonly requests: { readonly name: string; readonly input: Input }[];
  readonly objects: Map<string, StoredObject>;
  readonly uploads: Map<string, { readonly key: string; readonly input: Input; readonly at: Date }>;
  readonly names: () => readonly string[];
}

/** An answer that is an error, as the package throws it. */
export function refusal(status: number, name: string): Error {
  return Object.assign(new Error(`refused with ${name}`), {
    name,
    $metadata: { httpStatusCode: status },
  });
}

export function stubClient(options: StubOptions = {}): Stub {
  const { before, after } = options;
  const server = new StubServer(options);
  const requests: Stub['requests'] = [];
  return {
    requests,
    objects: server.objects,
    uploads: server.uploads,
    names: () => requests.map(({ name }) => name),
    async send(command: { readonly input: Input }, { abortSignal } = {}) {
      const name = command.constructor.name.replace(/Command$/, '');
      const { input } = command;
      requests.push({ name, input });
      const aborted = new Promise<never>((_, reject) => {
        const fail = (): void =>
          reject(Object.assign(new Error('aborted'), { name: 'AbortError' }));
        if (abortSignal?.aborted === true) fail();
        abortSignal?.addEventListener('abort', fail, { once: true });
      });
      aborted.catch(() => undefined);
      await Promise.race([before?.(name, input), aborted]);
      const answer = server.answer(name, input);
      await Promise.race([after?.(name, input), aborted]);
      return answer;
    },
  };
}

class StubServer {
  readonly objects = new Map<string, StoredObject>();
  readonly uploads: Stub['uploads'] = new Map();
  readonly #parts = new Map<string, Uint8Array>();
  readonly #options: StubOptions;
  #count = 0;

  constructor(options: StubOptions) {
    this.#options = options;
  }

  answer(name: string, input: Input): unknown {
    const key = String(input['Key']);
    switch (name) {
      case 'PutObject':
        return this.#put(key, input, Uint8Array.from(input['Body'] as Uint8Array));
      case 'HeadObject':
      case 'GetObject':
        return this.#read(key);
      case 'DeleteObject':
        return this.objects.delete(key);
      case 'DeleteObjects':
        return this.#deleteAll(input);
      case 'ListObjectsV2':
        return this.#list(input);
      case 'ListMultipartUploads':
        return this.#listUploads(input);
      case 'GetBucketVersioning':
        return { Status: this.#options.versioning };
      case 'GetBucketLifecycleConfiguration':
        return { Rules: this.#options.lifecycle };
      default:
        return this.#multipart(name, key, input);
    }
  }

  #multipart(name: string, key: string, input: Input): unknown {
    const id = String(input['UploadId']);
    if (name === 'CreateMultipartUpload') {
      this.#count += 1;
      this.uploads.set(`u-${this.#count}`, { key, input, at: new Date() });
      return { UploadId: `u-${this.#count}` };
    }
    if (name === 'UploadPart') {
      const bytes = Uint8Array.from(input['Body'] as Uint8Array);
      this.#parts.set(`${id}/${String(input['PartNumber'])}`, bytes);
      return { ETag: `"${id}-${String(input['PartNumber'])}"` };
    }
    if (name === 'CompleteMultipartUpload') {
      const begun = this.uploads.get(id);
      if (begun === undefined) throw refusal(404, 'NoSuchUpload');
      const { Parts } = input['MultipartUpload'] as { Parts: { PartNumber: number }[] };
      const all = Parts.map(({ PartNumber }) => this.#parts.get(`${id}/${PartNumber}`));
      const answer = this.#put(
        key,
        { ...begun.input, IfNoneMatch: input['IfNoneMatch'] },
        Buffer.concat(all.filter((part) => part !== undefined)),
      );
      this.uploads.delete(id);
      return answer;
    }
    if (name === 'AbortMultipartUpload' && !this.uploads.delete(id)) {
      throw refusal(404, 'NoSuchUpload');
    }
    return {};
  }

  #put(key: string, input: Input, bytes: Uint8Array): object {
    const isConditional = this.#options.conditional !== false && input['IfNoneMatch'] === '*';
    if (isConditional && this.objects.has(key)) throw refusal(412, 'PreconditionFailed');
    const metadata = (input['Metadata'] ?? {}) as Record<string, string>;
    this.objects.set(key, { bytes, metadata, at: new Date() });
    return {};
  }

  #read(key: string): object {
    const found = this.objects.get(key);
    if (found === undefined) throw refusal(404, 'NoSuchKey');
    const { bytes, metadata } = found;
    const pieces = bytes.byteLength === 0 ? [] : [Buffer.from(bytes)];
    return { Body: Readable.from(pieces), ContentLength: bytes.byteLength, Metadata: metadata };
  }

  #deleteAll(input: Input): object {
    if (this.#options.deleteObjects === 'refused') throw refusal(400, 'MissingContentMD5');
    const { Objects } = input['Delete'] as { Objects: { Key: string }[] };
    for (const { Key } of Objects) this.objects.delete(Key);
    return {};
  }

  #list(input: Input): object {
    const pageMax = this.#options.pageMax ?? Number(input['MaxKeys']);
    const after = text(input['ContinuationToken']);
    const keys = [...this.objects.keys()]
      .filter((key) => key.startsWith(text(input['Prefix'])) && key > after)
      .sort();
    const page = keys.slice(0, pageMax);
    return {
      Contents: page.map((Key) => ({ Key, LastModified: this.objects.get(Key)?.at })),
      IsTruncated: keys.length > pageMax,
      NextContinuationToken: page.at(-1),
    };
  }

  #listUploads(input: Input): object {
    const pageMax = this.#options.pageMax ?? Number(input['MaxUploads']);
    const after = text(input['UploadIdMarker']);
    const all = [...this.uploads].filter(([id]) => id > after).sort(([a], [b]) => (a < b ? -1 : 1));
    const page = all.slice(0, pageMax);
    return {
      Uploads: page.map(([UploadId, { key, at }]) => ({ Key: key, UploadId, Initiated: at })),
      IsTruncated: all.length > pageMax,
      NextKeyMarker: page.at(-1)?.[1].key,
      NextUploadIdMarker: page.at(-1)?.[0],
    };
  }
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
