/**
 * options — what may be said about an S3 store, with defaults and limits; and which durability a
 * server is trusted with (`promiseOf`).
 */

import type { Duration } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import { CLOCK_OPTION, type Option, readOptions, urlNames } from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Durability } from '../../ports/entry-store.ts';
import type { Logger } from '../../ports/logger.ts';
import { systemClock } from '../../system/clock.ts';
import type { S3ClientLike, S3Credentials } from './connection.ts';

const S3 = {
  client: {
    kind: 'code',
    type: 'S3Client',
    ts: 'S3ClientLike',
    defaultText: "the store's own",
    about: 'your own `S3Client`; it is not destroyed when the store closes',
  },
  url: {
    kind: 'text',
    type: '`s3://…`',
    secret: false,
    about:
      '`s3://bucket/prefix?…`; after the question mark the options below, from `region` on. ' +
      'Explicit options take precedence',
  },
  bucket: { kind: 'text', type: 'a name', about: 'the bucket; it must exist, see `createBucket`' },
  prefix: {
    kind: 'text',
    type: 'up to 512 characters',
    defaultText: 'empty',
    about: 'the prefix of all keys; a slash is added at its end',
  },
  region: {
    kind: 'text',
    type: 'a region',
    defaultText: "from the SDK's configuration; `us-east-1` with an endpoint",
    inUrl: true,
    about: 'the region',
  },
  endpoint: {
    kind: 'text',
    type: '`http://…` or `https://…`',
    defaultText:
      "from the SDK's configuration: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, profile; else AWS",
    inUrl: true,
    about: 'the URL of a server other than AWS; may contain `key:secret@`',
  },
  credentials: {
    kind: 'data',
    type: '`{ accessKeyId, secretAccessKey, sessionToken }`',
    ts: 'S3Credentials',
    schema: 's3Credentials',
    secret: true,
    defaultText: "from the SDK's configuration: environment, profile, role",
    about: 'the keys',
  },
  pathStyle: {
    kind: 'boolean',
    defaultText: "true with `endpoint`; set it if the SDK's configuration leads to another server",
    inUrl: true,
    about: '`https://host/bucket` instead of `https://bucket.host`',
  },
  storageClass: {
    kind: 'text',
    type: 'a storage class',
    defaultText: "the bucket's",
    inUrl: true,
    about: 'the storage class of new bodies, such as `STANDARD_IA`; archive classes are refused',
  },
  checksums: {
    kind: 'choice',
    choices: ['when-supported', 'when-required'],
    default: 'when-supported',
    inUrl: true,
    about: '`when-required` for servers that refuse the newer checksums',
  },
  partBytes: {
    kind: 'bytes',
    min: '5 MiB',
    max: '1 GiB',
    default: '8 MiB',
    inUrl: true,
    about: 'larger bodies are uploaded in parts of this size',
  },
  partsAtOnce: {
    kind: 'number',
    min: 1,
    max: 16,
    default: 3,
    inUrl: true,
    about: 'parts of one body in flight at once; each is held in memory',
  },
  requestTimeout: {
    kind: 'duration',
    min: '1s',
    max: '1h',
    default: '60s',
    inUrl: true,
    about: 'how long a request may take including retries',
  },
  attemptsMax: {
    kind: 'number',
    min: 1,
    max: 20,
    default: 4,
    inUrl: true,
    about: 'how often the SDK tries a request',
  },
  connections: {
    kind: 'number',
    min: 1,
    max: 500,
    default: 50,
    inUrl: true,
    about: 'connections to the server at once',
  },
  createBucket: {
    kind: 'boolean',
    default: false,
    inUrl: true,
    about: 'create the bucket if it does not exist',
  },
  durability: {
    kind: 'choice',
    choices: ['none', 'process', 'server', 'power-loss', 'node-loss'],
    ts: 'Durability',
    defaultText: '`node-loss` for AWS, `server` for any other',
    inUrl: true,
    about: 'what the server promises; only its owner knows',
  },
  logger: {
    kind: 'code',
    type: 'Logger',
    ts: 'Logger',
    about: 'gets warnings about dangers when the store opens',
  },
  clock: CLOCK_OPTION,
} as const;

/** Every option of `s3()`. */
export const S3_OPTIONS: Readonly<Record<keyof S3Options, Option>> = S3;

/** How bodies are kept in a bucket: with your own client, or with an address. */
export interface S3Options {
  // Written by `npm run options`: edit the table of options instead.
  /** Your own `S3Client`; it is not destroyed when the store closes. Default the store's own. */
  readonly client?: S3ClientLike;
  /**
   * `s3://bucket/prefix?…`; after the question mark the options below, from `region` on. Explicit
   * options take precedence.
   */
  readonly url?: string;
  /** The bucket; it must exist, see `createBucket`. */
  readonly bucket?: string;
  /** The prefix of all keys; a slash is added at its end. Default empty. */
  readonly prefix?: string;
  /** The region. Default from the SDK's configuration; `us-east-1` with an endpoint. */
  readonly region?: string;
  /**
   * The URL of a server other than AWS; may contain `key:secret@`. Default from the SDK's
   * configuration: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, profile; else AWS.
   */
  readonly endpoint?: string;
  /** The keys. Default from the SDK's configuration: environment, profile, role. */
  readonly credentials?: S3Credentials;
  /**
   * `https://host/bucket` instead of `https://bucket.host`. Default true with `endpoint`; set it if
   * the SDK's configuration leads to another server.
   */
  readonly pathStyle?: boolean;
  /**
   * The storage class of new bodies, such as `STANDARD_IA`; archive classes are refused. Default
   * the bucket's.
   */
  readonly storageClass?: string;
  /** `when-required` for servers that refuse the newer checksums. Default `when-supported`. */
  readonly checksums?: 'when-supported' | 'when-required';
  /** Larger bodies are uploaded in parts of this size. 5 MiB to 1 GiB; default 8 MiB. */
  readonly partBytes?: number;
  /** Parts of one body in flight at once; each is held in memory. 1 to 16; default 3. */
  readonly partsAtOnce?: number;
  /** How long a request may take including retries. 1s to 1h; default 60s. */
  readonly requestTimeout?: Duration;
  /** How often the SDK tries a request. 1 to 20; default 4. */
  readonly attemptsMax?: number;
  /** Connections to the server at once. 1 to 500; default 50. */
  readonly connections?: number;
  /** Create the bucket if it does not exist. Default false. */
  readonly createBucket?: boolean;
  /**
   * What the server promises; only its owner knows. Default `node-loss` for AWS, `server` for any
   * other.
   */
  readonly durability?: Durability;
  /** Gets warnings about dangers when the store opens. */
  readonly logger?: Logger;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
}

/** Options, checked, with defaults. */
export interface CheckedOptions {
  readonly client: S3ClientLike | undefined;
  readonly bucket: string;
  readonly prefix: string;
  readonly region: string | undefined;
  readonly endpoint: string | undefined;
  readonly credentials: S3Credentials | undefined;
  readonly pathStyle: boolean;
  readonly storageClass: string | undefined;
  readonly checksums: 'when-supported' | 'when-required';
  readonly partBytes: number;
  readonly partsAtOnce: number;
  readonly requestTimeoutMs: number;
  readonly attemptsMax: number;
  readonly connections: number;
  readonly createBucket: boolean;
  /** As far as it is known before the store opens. */
  readonly durability: Durability;
  /** Whether the caller said so; then nothing that is found out changes it. */
  readonly isDurabilityGiven: boolean;
  readonly logger: Logger | undefined;
  readonly clock: Clock;
}

/** Names, not rules of AWS alone: other servers allow more. */
const BUCKET = /^(?:[A-Za-z0-9][A-Za-z0-9._-]{1,253}|arn:[\w:/.-]{1,1000})$/;
const PREFIX = /^(?!\/)[A-Za-z0-9!_.*'()/-]{0,512}$/;
/** Bodies there cannot be read without being restored first. */
export const ARCHIVES: readonly string[] = ['GLACIER', 'DEEP_ARCHIVE'];

/** Checks options and fills in what was not said. */
export function checkStoreOptions(sOptions: S3Options): CheckedOptions {
  const options =
    sOptions.url === undefined ? sOptions : { ...ofUrl(sOptions.url), ...defined(sOptions) };
  const values = readOptions({ what: 's3' }, options, S3);
  const place = placeOf(options);
  return {
    ...values,
    client: options.client,
    bucket: checkText('bucket', options.bucket, BUCKET, '2 to 254 of A-Z a-z 0-9 . _ -'),
    prefix: prefixOf(options.prefix ?? ''),
    ...place,
    pathStyle: values.pathStyle ?? place.endpoint !== undefined,
    storageClass: checkStorageClass(options.storageClass),
    durability: values.durability ?? promiseOf(options),
    isDurabilityGiven: options.durability !== undefined,
    logger: options.logger,
    clock: options.clock ?? systemClock,
  };
}

/** Only AWS itself is known to keep every object on several machines. */
export function promiseOf({ client, endpoint }: S3Options): Durability {
  if (endpoint !== undefined) return isAws(endpoint) ? 'node-loss' : 'server';
  if (client === undefined) return 'node-loss';
  const config: unknown = Reflect.get(client, 'config');
  const isCustom: unknown =
    typeof config === 'object' && config !== null
      ? Reflect.get(config, 'isCustomEndpoint')
      : undefined;
  return isCustom === false ? 'node-loss' : 'server';
}

function isAws(endpoint: string): boolean {
  return /\.amazonaws\.com(?:\.cn)?$/.test(new URL(endpoint).hostname);
}

type Place = Pick<CheckedOptions, 'region' | 'endpoint' | 'credentials'>;

function placeOf({ client, region, endpoint, credentials }: S3Options): Place {
  if (client !== undefined && (region ?? endpoint ?? credentials) !== undefined) {
    throw new RespoolError(
      'config.invalid',
      'cannot use "region", "endpoint" or "credentials" of s3 beside "client": ' +
        'your own client has its own',
    );
  }
  if (endpoint === undefined) return { region, endpoint, credentials };
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    // Not shown: it may carry a secret.
    throw new RespoolError(
      'config.invalid',
      'cannot use this "endpoint" of s3: allowed is http://host:port or https://host:port',
    );
  }
  const keys = {
    accessKeyId: decodeURIComponent(url.username),
    secretAccessKey: decodeURIComponent(url.password),
  };
  const within = url.username === '' ? undefined : keys;
  const path = url.pathname === '/' ? '' : url.pathname;
  return {
    // A server that is not AWS has no regions, and the package insists on one.
    region: region ?? 'us-east-1',
    endpoint: `${url.protocol}//${url.host}${path}`,
    credentials: credentials ?? within,
  };
}

function ofUrl(text: string): S3Options {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 's3:' || url.username !== '' || url.host === '') {
    throw new RespoolError(
      'config.invalid',
      'cannot use this "url" of s3: allowed is s3://bucket/prefix?region=…&endpoint=…; ' +
        'keys belong into the environment, or into the URL of the endpoint',
    );
  }
  const found = Object.fromEntries(url.searchParams);
  checkNames('the url of s3', found, urlNames(S3));
  const options = Object.entries(found).map(([name, value]) => [name, typed(value)]);
  return {
    bucket: url.hostname,
    prefix: decodeURIComponent(url.pathname.slice(1)),
    ...Object.fromEntries(options),
  } as S3Options;
}

/** An option of an address is a text; numbers and truth are meant as such. */
function typed(text: string): unknown {
  if (/^\d+$/.test(text)) return Number(text);
  return text === 'true' || text === 'false' ? text === 'true' : text;
}

function defined(options: S3Options): S3Options {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

function prefixOf(text: string): string {
  const allowed = "up to 512 of A-Z a-z 0-9 ! _ . * ' ( ) / -, no slash at its beginning";
  const prefix = checkText('prefix', text, PREFIX, allowed);
  return prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`;
}

function checkStorageClass(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const name = checkText('storageClass', text, /^[A-Z][A-Z0-9_-]{1,63}$/, 'such as STANDARD_IA');
  if (!ARCHIVES.includes(name)) return name;
  throw new RespoolError(
    'config.invalid',
    `cannot use "${name}" as "storageClass": bodies in an archive cannot be read at once`,
  );
}

function checkText(what: string, value: unknown, pattern: RegExp, allowed: string): string {
  if (typeof value === 'string' && pattern.test(value)) return value;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}" of s3: allowed is ${allowed}`,
  );
}
