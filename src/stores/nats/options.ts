/** options — how the NATS stores are made, with every value checked. */

import { resolve } from 'node:path';
import { RespoolError, show } from '../../core/errors.ts';
import {
  CLOCK_OPTION,
  type Option,
  type OptionTable,
  readOptions,
} from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Logger } from '../../ports/logger.ts';
import { systemClock } from '../../system/clock.ts';
import type { NatsConnection } from './connection.ts';

const NATS = {
  url: {
    kind: 'text',
    type: '`nats://…`',
    secret: 'password',
    about: "the server's address; several addresses separated by commas. Reconnects forever",
  },
  connection: {
    kind: 'code',
    type: 'a connection',
    ts: 'NatsConnection',
    about:
      'your own connection instead of `url`; it is not closed with the store. Let it reconnect ' +
      'forever, too',
  },
  connect: {
    kind: 'data',
    type: 'an object',
    ts: 'object',
    schema: 'anyObject',
    default: {},
    defaultText: '`{}`',
    about: "further options for the package's `connect`: credentials, TLS; with `url` only",
  },
  bucket: {
    kind: 'text',
    type: '1 to 64 of `A-Z a-z 0-9 _ -`',
    default: 'respool',
    inUrl: true,
    about: 'the name of the bucket; the streams are `KV_<bucket>` and `OBJ_<bucket>`',
  },
  replicas: {
    kind: 'number',
    min: 1,
    max: 5,
    defaultText: '1, or what the bucket has',
    inUrl: true,
    about: 'how many servers keep each message',
  },
  maxBytes: {
    kind: 'bytes',
    min: '1 MiB',
    max: '1 PiB',
    defaultText: 'no limit',
    inUrl: true,
    about:
      'the maximum size of the stream. Inserts are refused with `store.full` from nine tenths ' +
      'on; the rest is for claims and removals',
  },
  description: {
    kind: 'text',
    type: 'up to 1,000 characters',
    inUrl: true,
    about: 'the description of a new bucket for other tools; an existing bucket keeps its own',
  },
  monitoringUrl: {
    kind: 'text',
    type: '`http://…`',
    secret: 'password',
    inUrl: true,
    about:
      "the server's monitoring address, to find out whether it syncs every write; for a cluster " +
      'those of all servers, separated by commas: all have to',
  },
  timeoutMs: {
    kind: 'number',
    min: 100,
    max: 60_000,
    default: 10_000,
    inUrl: true,
    about: 'how long an operation is retried, in milliseconds',
  },
  clock: {
    ...CLOCK_OPTION,
    about: "for waits and the dates of bodies; due times use the server's clock in any case",
  },
  logger: {
    kind: 'code',
    type: 'Logger',
    ts: 'Logger',
    about:
      'gets, when the store opens, what the server promises (info), and what is dangerous about ' +
      'it (warning)',
  },
} as const;

/** The options that both NATS stores have. */
export const NATS_OPTIONS: Readonly<Record<keyof NatsOptions, Option>> = NATS;

const NATS_ENTRY = {
  maxValueSize: {
    kind: 'bytes',
    min: '1 KiB',
    max: '64 MiB',
    defaultText: 'what the server accepts',
    inUrl: true,
    about:
      'the largest entry that can be inserted, with its headers and inline body; a larger one is ' +
      'refused with `limit.exceeded`. One that grows later, by its attempts, is not. Entries only',
  },
  entriesMax: {
    kind: 'number',
    min: 1,
    max: 100_000_000,
    default: 2_000_000,
    inUrl: true,
    about:
      'how many entries a process may have to remember; beyond it inserts are refused with ' +
      '`store.full`. Entries only',
  },
  cacheBytes: {
    kind: 'bytes',
    min: '0 bytes',
    max: '64 GiB',
    default: '32 MiB',
    inUrl: true,
    about:
      'entries kept in memory, so that our own claims and changes need not read them. Entries only',
  },
  journal: {
    kind: 'text',
    type: 'a folder',
    defaultText: 'none',
    inUrl: true,
    about:
      'a folder on a disk of this machine, one for each bucket, where processes note once a ' +
      'second how far the stream was and what was removed: one that is started later notices a ' +
      'server that went back, and does not deliver again what was removed. Entries only',
  },
} as const;

/** What only entries have. */
export const NATS_ENTRY_OPTIONS: OptionTable = NATS_ENTRY;

const NATS_BODY = {
  maxChunkSize: {
    kind: 'bytes',
    min: '1 KiB',
    max: '64 MiB',
    default: '128 KiB',
    inUrl: true,
    about:
      "the size of one chunk of a body, never more than the server's `max_payload` allows. Eight " +
      'chunks are in memory for each body that is written or read. Bodies only',
  },
} as const;

/** What only bodies have. */
export const NATS_BODY_OPTIONS: OptionTable = NATS_BODY;

/** How to keep entries or bodies in NATS JetStream. */
export interface NatsOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The server's address; several addresses separated by commas. Reconnects forever. */
  readonly url?: string;
  /**
   * Your own connection instead of `url`; it is not closed with the store. Let it reconnect
   * forever, too.
   */
  readonly connection?: NatsConnection;
  /**
   * Further options for the package's `connect`: credentials, TLS; with `url` only. Default `{}`.
   */
  readonly connect?: object;
  /**
   * The name of the bucket; the streams are `KV_<bucket>` and `OBJ_<bucket>`. Default `respool`.
   */
  readonly bucket?: string;
  /** How many servers keep each message. 1 to 5; default 1, or what the bucket has. */
  readonly replicas?: number;
  /**
   * The maximum size of the stream. Inserts are refused with `store.full` from nine tenths on; the
   * rest is for claims and removals. 1 MiB to 1 PiB; default no limit.
   */
  readonly maxBytes?: number;
  /** The description of a new bucket for other tools; an existing bucket keeps its own. */
  readonly description?: string;
  /**
   * The server's monitoring address, to find out whether it syncs every write; for a cluster those
   * of all servers, separated by commas: all have to.
   */
  readonly monitoringUrl?: string;
  /** How long an operation is retried, in milliseconds. 100 to 60,000; default 10,000. */
  readonly timeoutMs?: number;
  /**
   * For waits and the dates of bodies; due times use the server's clock in any case. Default the
   * system clock.
   */
  readonly clock?: Clock;
  /**
   * Gets, when the store opens, what the server promises (info), and what is dangerous about it
   * (warning).
   */
  readonly logger?: Logger;
}

/** What only entries have. */
export interface NatsEntryOptions extends NatsOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * The largest entry that can be inserted, with its headers and inline body; a larger one is
   * refused with `limit.exceeded`. One that grows later, by its attempts, is not. Entries only. 1
   * KiB to 64 MiB; default what the server accepts.
   */
  readonly maxValueSize?: number;
  /**
   * How many entries a process may have to remember; beyond it inserts are refused with
   * `store.full`. Entries only. 1 to 100,000,000; default 2,000,000.
   */
  readonly entriesMax?: number;
  /**
   * Entries kept in memory, so that our own claims and changes need not read them. Entries only. 0
   * to 64 GiB; default 32 MiB.
   */
  readonly cacheBytes?: number;
  /**
   * A folder on a disk of this machine, one for each bucket, where processes note once a second how
   * far the stream was and what was removed: one that is started later notices a server that went
   * back, and does not deliver again what was removed. Entries only.
   */
  readonly journal?: string;
}

/** What only bodies have. */
export interface NatsBodyOptions extends NatsOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * The size of one chunk of a body, never more than the server's `max_payload` allows. Eight
   * chunks are in memory for each body that is written or read. Bodies only. 1 KiB to 64 MiB;
   * default 128 KiB.
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
  readonly journal: string | undefined;
}

/** Options of the body store after the checks. */
export interface NatsBodySettings extends Settings {
  readonly maxChunkSize: number;
}

// As the types of `bucket` and `description` say.
const BUCKET_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
const DESCRIPTION_MAX_CHARS = 1_000;
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
  const table = { ...NATS, ...NATS_ENTRY };
  const journal = checkJournal(options.journal);
  return { ...readOptions({ what: 'nats' }, options, table), ...ownOptions(options), journal };
}

/** Checks the options of a body store. */
export function readBodyOptions(options: NatsBodyOptions): NatsBodySettings {
  refuseUnsafe(options);
  const table = { ...NATS, ...NATS_BODY };
  return { ...readOptions({ what: 'natsBodies' }, options, table), ...ownOptions(options) };
}

/** The options that a table cannot check. */
function ownOptions(options: NatsOptions): Omit<Settings, 'replicas' | 'maxBytes' | 'timeoutMs'> {
  const { url, connection, bucket = NATS.bucket.default, monitoringUrl } = options;
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
    description: checkDescription(options.description),
    monitoringUrl,
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

function checkJournal(folder: unknown): string | undefined {
  if (folder === undefined) return undefined;
  if (typeof folder === 'string' && folder !== '' && !folder.includes('\0')) return resolve(folder);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(folder)} as "journal": allowed is the path of a folder`,
  );
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
