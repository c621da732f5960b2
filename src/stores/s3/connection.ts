/**
 * connection — the part of @aws-sdk/client-s3 that Respool uses, the only way to the package, and
 * single requests with a time limit.
 *
 * Typed structurally: an `S3Client` of the user's own fits. The package is loaded when a store is
 * opened, never at import.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { importPeer } from '../../system/peer.ts';
import { TimeLimit } from '../../system/wait.ts';

/** An `S3Client`, as far as we need it. */
export interface S3ClientLike {
  // n.b. `never`: a client takes its own commands only, and these come from the same package.
  send(command: never, options?: { readonly abortSignal?: AbortSignal }): Promise<unknown>;
  destroy?(): void;
}

/** How a client of our own is made. */
interface ClientConfig {
  readonly region: string | undefined;
  readonly endpoint: string | undefined;
  readonly forcePathStyle: boolean;
  readonly credentials: S3Credentials | undefined;
  readonly maxAttempts: number;
  readonly requestChecksumCalculation: 'WHEN_SUPPORTED' | 'WHEN_REQUIRED';
  readonly responseChecksumValidation: 'WHEN_REQUIRED';
  readonly requestHandler: {
    readonly connectionTimeout: number;
    readonly httpAgent: { readonly maxSockets: number };
    readonly httpsAgent: { readonly maxSockets: number };
    /** n.b. Without one, the package writes its warnings to the console. */
    readonly logger: object;
  };
}

/** Keys of an account. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

/** The commands we send, and what comes back of each. */
export interface S3Responses {
  readonly HeadBucket: unknown;
  readonly CreateBucket: unknown;
  readonly GetBucketLifecycleConfiguration: { readonly Rules?: readonly LifecycleRule[] };
  readonly GetBucketVersioning: { readonly Status?: string };
  readonly PutObject: unknown;
  readonly GetObject: {
    readonly Body?: BodyStream;
    readonly ContentLength?: number;
    readonly Metadata?: Readonly<Record<string, string>>;
  };
  readonly HeadObject: {
    readonly ContentLength?: number;
    readonly Metadata?: Readonly<Record<string, string>>;
  };
  readonly DeleteObject: unknown;
  readonly DeleteObjects: {
    readonly Errors?: readonly { readonly Key?: string; readonly Code?: string }[];
  };
  readonly ListObjectsV2: {
    readonly Contents?: readonly { readonly Key?: string; readonly LastModified?: Date }[];
    readonly IsTruncated?: boolean;
    readonly NextContinuationToken?: string;
  };
  readonly CreateMultipartUpload: { readonly UploadId?: string };
  readonly UploadPart: {
    readonly ETag?: string;
    readonly ChecksumCRC32?: string;
    readonly ChecksumCRC32C?: string;
    readonly ChecksumCRC64NVME?: string;
    readonly ChecksumSHA1?: string;
    readonly ChecksumSHA256?: string;
  };
  readonly CompleteMultipartUpload: unknown;
  readonly AbortMultipartUpload: unknown;
  readonly ListMultipartUploads: {
    readonly Uploads?: readonly {
      readonly Key?: string;
      readonly UploadId?: string;
      readonly Initiated?: Date;
    }[];
    readonly IsTruncated?: boolean;
    readonly NextKeyMarker?: string;
    readonly NextUploadIdMarker?: string;
  };
}

/** A rule by which the server moves or removes objects. */
export interface LifecycleRule {
  readonly ID?: string;
  readonly Status?: string;
  /** Where it holds, as older servers and rules say it. */
  readonly Prefix?: string;
  readonly Filter?: {
    readonly Prefix?: string;
    readonly Tag?: unknown;
    readonly And?: { readonly Prefix?: string; readonly Tags?: readonly unknown[] };
  };
  readonly Expiration?: { readonly Days?: number; readonly Date?: Date };
  readonly Transitions?: readonly { readonly StorageClass?: string }[];
  readonly AbortIncompleteMultipartUpload?: { readonly DaysAfterInitiation?: number };
  readonly NoncurrentVersionExpiration?: unknown;
}

/** What an object's bytes come out of. */
interface BodyStream extends AsyncIterable<Uint8Array> {
  destroy(error?: Error): unknown;
}

type CommandName = keyof S3Responses;

/** The package. */
interface S3Package {
  makeClient(config: ClientConfig): S3ClientLike;
  makeCommand(name: CommandName, input: object): never;
}

/** Loads the package. */
export async function loadS3(): Promise<S3Package> {
  const loaded = await importPeer('@aws-sdk/client-s3', 'the S3 store');
  const made = (name: string, input: object): unknown => {
    const Made = loaded[name] as new (input: object) => unknown;
    return new Made(input);
  };
  return {
    makeClient: (config) => made('S3Client', withoutUndefined(config)) as S3ClientLike,
    makeCommand: (name, input) => made(`${name}Command`, withoutUndefined(input)) as never,
  };
}

/**
 * The server that the environment or a profile leads a client to that was given none: another one
 * than AWS, as a rule, and the client itself does not show it.
 */
export async function endpointFound(client: S3ClientLike): Promise<string | undefined> {
  const config: unknown = Reflect.get(client, 'config');
  if (typeof config !== 'object' || config === null) return undefined;
  const { isCustomEndpoint, ignoreConfiguredEndpointUrls, serviceConfiguredEndpoint } =
    config as Readonly<Record<string, unknown>>;
  if (isCustomEndpoint === true || ignoreConfiguredEndpointUrls === true) return undefined;
  if (typeof serviceConfiguredEndpoint !== 'function') return undefined;
  const found: unknown = await serviceConfiguredEndpoint();
  return typeof found === 'string' ? found : undefined;
}

/** An option that is there and undefined is not always the same as none. */
function withoutUndefined(options: object): object {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

// One request to the server, with an end: a server that hangs does not hang a message.
//
// The package tries again by itself what may pass, with growing pauses; the time limit is for all
// tries of a request together.

/** Sends requests to one bucket. */
export class Calls {
  readonly #client: S3ClientLike;
  readonly #package: S3Package;
  readonly #bucket: string;
  readonly #clock: Clock;
  readonly requestTimeoutMs: number;

  constructor(
    client: S3ClientLike,
    s3Package: S3Package,
    {
      bucket,
      clock,
      requestTimeoutMs,
    }: { readonly bucket: string; readonly clock: Clock; readonly requestTimeoutMs: number },
  ) {
    this.#client = client;
    this.#package = s3Package;
    this.#bucket = bucket;
    this.#clock = clock;
    this.requestTimeoutMs = requestTimeoutMs;
  }

  /** Sends one request; rejects with the package's error, or ours when the time is over. */
  async send<Name extends CommandName>(
    name: Name,
    input: object,
    signal?: AbortSignal,
  ): Promise<S3Responses[Name]> {
    const command = this.#package.makeCommand(name, { Bucket: this.#bucket, ...input });
    const limit = new TimeLimit(this.#clock, this.requestTimeoutMs, signal);
    try {
      const answer = await this.#client.send(command, { abortSignal: limit.signal });
      return answer as S3Responses[Name];
    } catch (error) {
      if (!limit.isOver) throw error;
      throw new RespoolError(
        'store.unavailable',
        `cannot reach bucket "${this.#bucket}": no answer to ${name} within ` +
          `${this.requestTimeoutMs} ms; check the server, or raise requestTimeout`,
        { cause: error },
      );
    } finally {
      limit.stop();
    }
  }

  /** Calls back when nothing has come for the time of a request; the result calls it off. */
  watch(call: () => void): () => void {
    return this.#clock.after(this.requestTimeoutMs, call);
  }
}
