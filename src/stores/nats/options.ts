/** options — how the NATS stores are made, with every value checked. */

import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Logger } from '../../ports/logger.ts';
import { systemClock } from '../../system/clock.ts';
import type { NatsConnection } from './client.ts';

/** How to keep entries or bodies in NATS JetStream. */
export interface NatsOptions {
  /** Where the server is, such as `nats://127.0.0.1:4222`; several are joined by commas. */
  readonly url?: string;
  /** Your own connection, instead of `url`; it is not closed with the store. */
  readonly connection?: NatsConnection;
  /** What else the package's `connect` shall know, such as credentials or TLS; with `url` only. */
  readonly connect?: object;
  /** The name of the bucket: letters, digits, `_` and `-`, up to 64; default `respool`. */
  readonly bucket?: string;
  /** How many servers keep each message, 1 to 5; default: 1 for a new bucket, else what it has. */
  readonly replicas?: number;
  /** The most bytes of the bucket; inserts are refused from nine tenths on. Default: no limit. */
  readonly maxBytes?: number;
  /** What a new bucket says of itself to other tools, up to 1,000 characters; default: nothing. */
  readonly description?: string;
  /**
   * The server's monitoring address, to learn whether it syncs every write to its disk. Of a
   * cluster those of all servers, joined by commas.
   */
  readonly monitoringUrl?: string;
  /** How long an operation is tried before it is given up, in ms, 100 to 60,000; default 10,000. */
  readonly timeoutMs?: number;
  readonly clock?: Clock;
  /** Is told what is worth knowing about the server; default: nobody. */
  readonly logger?: Logger;
}

/** What only entries have. */
export interface NatsEntryOptions extends NatsOptions {
  /**
   * The largest entry that is taken, in bytes, with its headers and inline body, 1 KiB to 64 MiB.
   * Default: what the server takes, less room for the history of attempts.
   */
  readonly maxValueSize?: number;
  /** How many entries this process may have to remember; default 2,000,000. */
  readonly entriesMax?: number;
  /** Bytes of entries kept in memory so that a claim need not read them; default 32 MiB. */
  readonly cacheBytes?: number;
}

/** What only bodies have. */
export interface NatsBodyOptions extends NatsOptions {
  /**
   * The bytes of one chunk of a body, 1 KiB to 64 MiB; default 128 KiB. Never more than the server
   * takes in one message; eight of them are in memory per body that is written or read.
   */
  readonly maxChunkSize?: number;
}

/** Options after the checks. */
export interface Settings {
  readonly url: string | undefined;
  readonly connection: NatsConnection | undefined;
  readonly connect: object;
  readonly bucket: string;
  readonly replicas: number | undefined;
  readonly maxBytes: number | undefined;
  readonly description: string | undefined;
  readonly monitoringUrl: string | undefined;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly logger: Logger | undefined;
}

/** Options of the entry store after the checks. */
export interface EntrySettings extends Settings {
  readonly maxValueSize: number | undefined;
  readonly entriesMax: number;
  readonly cacheBytes: number;
}

/** Options of the body store after the checks. */
export interface BodySettings extends Settings {
  readonly maxChunkSize: number;
}

const NAMES = [
  'url',
  'connection',
  'connect',
  'bucket',
  'replicas',
  'maxBytes',
  'description',
  'monitoringUrl',
  'timeoutMs',
  'clock',
  'logger',
];

const BUCKET_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
const BYTES_MAX = 2 ** 50;
const DESCRIPTION_MAX_CHARS = 1_000;
/** What every tool for object stores uses. */
const CHUNK_BYTES = 128 * 1024;
/** The largest message that a server can be set to take. */
const MESSAGE_MAX_BYTES = 64 * 2 ** 20;

/** What buckets can do and a spool must not: each would lose messages, or bring them back. */
const UNSAFE: Readonly<Record<string, string>> = {
  history: 'a bucket keeps one value per key, as an older one would come back with each removal',
  ttl: 'an age limit of the bucket would remove messages that wait',
};

/** Refuses what would make a bucket lose messages, with the reason. */
export function refuseUnsafe(options: object): void {
  for (const [name, reason] of Object.entries(UNSAFE)) {
    if (!Object.hasOwn(options, name)) continue;
    const value = show((options as Readonly<Record<string, unknown>>)[name]);
    throw new RespoolError(
      'config.invalid',
      `cannot use ${value} as "${name}" of a NATS bucket: ${reason}; leave it out`,
    );
  }
}

/** Checks the options of an entry store. */
export function readEntryOptions(options: NatsEntryOptions): EntrySettings {
  refuseUnsafe(options);
  checkNames('nats', options, [...NAMES, 'maxValueSize', 'entriesMax', 'cacheBytes']);
  const { maxValueSize, entriesMax = 2_000_000, cacheBytes = 32 * 2 ** 20 } = options;
  return {
    ...read(options),
    maxValueSize: optional('maxValueSize', maxValueSize, 1_024, MESSAGE_MAX_BYTES),
    entriesMax: checkNumber('entriesMax', entriesMax, { min: 1, max: 100_000_000 }),
    cacheBytes: checkNumber('cacheBytes', cacheBytes, { min: 0, max: 2 ** 36 }),
  };
}

/** Checks the options of a body store. */
export function readBodyOptions(options: NatsBodyOptions): BodySettings {
  refuseUnsafe(options);
  checkNames('natsBodies', options, [...NAMES, 'maxChunkSize']);
  const { maxChunkSize = CHUNK_BYTES } = options;
  const bounds = { min: 1_024, max: MESSAGE_MAX_BYTES };
  return { ...read(options), maxChunkSize: checkNumber('maxChunkSize', maxChunkSize, bounds) };
}

function read(options: NatsOptions): Settings {
  const { url, connection, bucket = 'respool', replicas, maxBytes, monitoringUrl } = options;
  if ((url === undefined) === (connection === undefined)) {
    throw new RespoolError(
      'config.invalid',
      'cannot make a NATS store: give either "url" or "connection"',
    );
  }
  if (typeof bucket !== 'string' || !BUCKET_PATTERN.test(bucket)) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(bucket)} as "bucket": allowed are 1 to 64 of A-Z a-z 0-9 _ -`,
    );
  }
  checkUrl('url', url, /^(?:nats|tls|wss?):\/\/|^[^:/]+(?::\d+)?$/);
  checkUrl('monitoringUrl', monitoringUrl, /^https?:\/\/[^@]+$/);
  return {
    url,
    connection,
    connect: options.connect ?? {},
    bucket,
    replicas: optional('replicas', replicas, 1, 5),
    maxBytes: optional('maxBytes', maxBytes, 2 ** 20, BYTES_MAX),
    description: checkDescription(options.description),
    monitoringUrl,
    timeoutMs: checkNumber('timeoutMs', options.timeoutMs ?? 10_000, { min: 100, max: 60_000 }),
    clock: options.clock ?? systemClock,
    logger: options.logger,
  };
}

function checkDescription(text: unknown): string | undefined {
  if (text === undefined) return undefined;
  if (typeof text === 'string' && text.length <= DESCRIPTION_MAX_CHARS) return text;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(text)} as "description": allowed is a text of up to ` +
      `${DESCRIPTION_MAX_CHARS} characters`,
  );
}

function optional(what: string, value: unknown, min: number, max: number): number | undefined {
  return value === undefined ? undefined : checkNumber(what, value, { min, max });
}

function checkUrl(what: string, value: unknown, pattern: RegExp): void {
  if (value === undefined) return;
  const isGood = (part: string): boolean =>
    pattern.test(part) && (what === 'url' || URL.canParse(part));
  if (typeof value === 'string' && value.split(',').every(isGood)) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use this as "${what}": allowed is an address such as ` +
      (what === 'url' ? 'nats://127.0.0.1:4222' : 'http://127.0.0.1:8222'),
  );
}
