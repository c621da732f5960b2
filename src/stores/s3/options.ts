/**
 * options — what may be said about an S3 store, with defaults and limits.
 */

import { type Duration, durationMs, HOUR_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Durability } from '../../ports/entry-store.ts';
import type { Logger } from '../../ports/logger.ts';
import { systemClock } from '../../system/clock.ts';
import type { S3ClientLike, S3Credentials } from './client.ts';

/** How bodies are kept in a bucket: with your own client, or with an address. */
export interface S3Options {
  /** An `S3Client` that you own: it is used, and not destroyed when the store closes. */
  readonly client?: S3ClientLike;
  /**
   * `s3://bucket/prefix?region=eu-central-1&endpoint=https://host`; the other options may follow
   * the question mark, and win where they are given beside it.
   */
  readonly url?: string;
  /** The bucket; it has to be there, see `createBucket`. */
  readonly bucket?: string;
  /** What keys begin with, such as `app/`; default nothing. A slash is added at its end. */
  readonly prefix?: string;
  /** The region; default as the package finds it, `us-east-1` with an endpoint. */
  readonly region?: string;
  /** The URL of a server that is not AWS; may carry `key:secret@`. */
  readonly endpoint?: string;
  /** Keys; default as the package finds them: environment, profile, role of the machine. */
  readonly credentials?: S3Credentials;
  /** `https://host/bucket` instead of `https://bucket.host`; default true with an endpoint. */
  readonly pathStyle?: boolean;
  /** The storage class of new bodies, such as `STANDARD_IA`; default the bucket's. No archives. */
  readonly storageClass?: string;
  /**
   * Whether requests carry checksums of the newer kind: `when-supported` (default), or
   * `when-required` for servers that refuse them. Ignored with your own client.
   */
  readonly checksums?: 'when-supported' | 'when-required';
  /** Larger bodies go in parts of this many bytes, 5 MiB to 1 GiB; default 8 MiB. */
  readonly partBytes?: number;
  /** Parts of one body on their way at once, 1 to 16; default 3. Each is held in memory. */
  readonly partsAtOnce?: number;
  /** How long a request may take with all its tries, `'1s'` to `'1h'`; default `'60s'`. */
  readonly requestTimeout?: Duration;
  /** How often the package tries a request, 1 to 20; default 4. Ignored with your own client. */
  readonly attemptsMax?: number;
  /** Connections to the server at once, 1 to 500; default 50. Ignored with your own client. */
  readonly connections?: number;
  /** Makes the bucket when it is not there; default false. */
  readonly createBucket?: boolean;
  /**
   * What the server promises; default `node-loss` for AWS, `server` for any other: only its owner
   * knows.
   */
  readonly durability?: Durability;
  /** Told when the store opens and something about the bucket is a danger; default nobody. */
  readonly logger?: Logger;
  /** Time; for tests. */
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
  /** As far as it can be told before the store opens. */
  readonly durability: Durability;
  /** Whether the caller said so; then nothing that is found out changes it. */
  readonly isDurabilityGiven: boolean;
  readonly logger: Logger | undefined;
  readonly clock: Clock;
}

const MIB: number = 2 ** 20;
const PART_BYTES = { min: 5 * MIB, max: 1_024 * MIB, default: 8 * MIB } as const;
const PARTS_AT_ONCE = { min: 1, max: 16, default: 3 } as const;
const ATTEMPTS = { min: 1, max: 20, default: 4 } as const;
const CONNECTIONS = { min: 1, max: 500, default: 50 } as const;
const TIMEOUT_MS = { minMs: 1_000, maxMs: HOUR_MS, default: 60_000 } as const;
const DURABILITIES = ['none', 'process', 'server', 'power-loss', 'node-loss'] as const;

/** Names, not rules of AWS alone: other servers allow more. */
const BUCKET = /^(?:[A-Za-z0-9][A-Za-z0-9._-]{1,253}|arn:[\w:/.-]{1,1000})$/;
const PREFIX = /^(?!\/)[A-Za-z0-9!_.*'()/-]{0,512}$/;
/** Bodies there cannot be read without being restored first. */
const ARCHIVES = ['GLACIER', 'DEEP_ARCHIVE'];

const NAMES = [
  'client',
  'url',
  'bucket',
  'prefix',
  'region',
  'endpoint',
  'credentials',
  'pathStyle',
  'storageClass',
  'checksums',
  'partBytes',
  'partsAtOnce',
  'requestTimeout',
  'attemptsMax',
  'connections',
  'createBucket',
  'durability',
  'logger',
  'clock',
] as const satisfies readonly (keyof S3Options)[];

/** What may follow the question mark of a URL. */
const URL_NAMES = [
  'region',
  'endpoint',
  'pathStyle',
  'storageClass',
  'checksums',
  'partBytes',
  'partsAtOnce',
  'requestTimeout',
  'attemptsMax',
  'connections',
  'createBucket',
  'durability',
] as const satisfies readonly (keyof S3Options)[];

/** Checks options and fills in what was not said. */
export function checkOptions(given: S3Options): CheckedOptions {
  checkNames('s3', given, NAMES);
  const options = given.url === undefined ? given : { ...ofUrl(given.url), ...defined(given) };
  const place = placeOf(options);
  return {
    client: options.client,
    bucket: checkText('bucket', options.bucket, BUCKET, '2 to 254 of A-Z a-z 0-9 . _ -'),
    prefix: prefixOf(options.prefix ?? ''),
    ...place,
    pathStyle: options.pathStyle ?? place.endpoint !== undefined,
    storageClass: checkStorageClass(options.storageClass),
    checksums: checkOneOf('checksums', options.checksums ?? 'when-supported', [
      'when-supported',
      'when-required',
    ]),
    partBytes: checkNumber('partBytes', options.partBytes ?? PART_BYTES.default, PART_BYTES),
    partsAtOnce: checkNumber(
      'partsAtOnce',
      options.partsAtOnce ?? PARTS_AT_ONCE.default,
      PARTS_AT_ONCE,
    ),
    requestTimeoutMs: durationMs(
      options.requestTimeout ?? TIMEOUT_MS.default,
      'requestTimeout',
      TIMEOUT_MS,
    ),
    attemptsMax: checkNumber('attemptsMax', options.attemptsMax ?? ATTEMPTS.default, ATTEMPTS),
    connections: checkNumber(
      'connections',
      options.connections ?? CONNECTIONS.default,
      CONNECTIONS,
    ),
    createBucket: options.createBucket ?? false,
    durability: checkOneOf('durability', options.durability ?? promiseOf(options), DURABILITIES),
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
  checkNames('the url of s3', found, URL_NAMES);
  const options = Object.entries(found).map(([name, value]) => [name, typed(name, value)]);
  return {
    bucket: url.hostname,
    prefix: decodeURIComponent(url.pathname.slice(1)),
    ...Object.fromEntries(options),
  } as S3Options;
}

/** An option of an address is a text; numbers and truth are meant as such. */
function typed(name: string, text: string): unknown {
  if (/^\d+$/.test(text)) return Number(text);
  const isFlag = name === 'pathStyle' || name === 'createBucket';
  return isFlag ? checkOneOf(name, text, ['true', 'false']) === 'true' : text;
}

function defined(options: S3Options): S3Options {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

function prefixOf(given: string): string {
  const allowed = "up to 512 of A-Z a-z 0-9 ! _ . * ' ( ) / -, no slash at its beginning";
  const prefix = checkText('prefix', given, PREFIX, allowed);
  return prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`;
}

function checkStorageClass(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  const name = checkText('storageClass', given, /^[A-Z][A-Z0-9_-]{1,63}$/, 'such as STANDARD_IA');
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
