/**
 * server-stores — from `postgres://…`, `nats://…` and `s3://…` to stores. Nothing is connected
 * here, and no package for a server is loaded before a store opens.
 *
 * Called by stores.ts; load/outbox.ts takes the options of `pg`.
 */

import { assert } from '../../core/errors.ts';
import { urlNames } from '../../core/option-table.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import type { Logger } from '../../ports/logger.ts';
import {
  NATS_BODY_OPTIONS,
  NATS_ENTRY_OPTIONS,
  NATS_OPTIONS,
  type NatsBodyOptions,
  type NatsEntryOptions,
} from '../../stores/nats/options.ts';
import { POSTGRES_OPTIONS, type PostgresOptions } from '../../stores/postgres/options.ts';
import { S3_OPTIONS, type S3Options } from '../../stores/s3/options.ts';
import type { Diagnosis } from '../../stores/shared/finding.ts';
import { checkKeys, inSection } from '../load/config-errors.ts';
import type { StoreUrl } from '../load/store-url.ts';

/** A store on a server, and the way to ask how that is. */
export interface ServerStore<Store> {
  readonly store: Store;
  /** As it may be shown: without user, password and options. */
  readonly address: string;
  /** Looks at the server, and makes nothing there. */
  readonly diagnose: () => Promise<Diagnosis>;
}

/** An entry store on a server; opening it would make what is not there. */
export interface ServerEntries extends ServerStore<EntryStore> {
  /** Whether its tables or its stream are there. */
  readonly isThere: () => Promise<boolean>;
  /** Where its tables are, if it is on PostgreSQL. */
  readonly tables?: Pick<PostgresOptions, 'schema' | 'tables'>;
}

const POSTGRES_NAMES = urlNames(POSTGRES_OPTIONS);
/** Options of the package `pg` that an address may have. */
export const PG_OPTIONS: readonly string[] = [
  'host',
  'ssl',
  'sslmode',
  'sslcert',
  'sslkey',
  'sslrootcert',
  'uselibpqcompat',
  'options',
];
const NATS_NAMES = urlNames(NATS_OPTIONS);
const NATS_ENTRY_NAMES = [...NATS_NAMES, ...urlNames(NATS_ENTRY_OPTIONS)];
const NATS_BODY_NAMES = [...NATS_NAMES, ...urlNames(NATS_BODY_OPTIONS)];

/** An entry store on a server; a logger gets a warning of its dangers when it opens. */
export async function serverEntries(
  parsed: StoreUrl,
  key: string,
  logger?: Logger,
): Promise<ServerEntries> {
  const address = addressOf(parsed);
  if (parsed.kind === 'postgres') {
    const options = postgresOptions(parsed, key);
    const { postgres } = await import('../../stores/postgres/entry-store.ts');
    const store = checked(parsed, key, () => postgres(telling(options, logger)));
    const isThere = () => hasPostgres(options);
    return { store, address, diagnose: () => lookAtPostgres(options), isThere, tables: options };
  }
  assert(parsed.kind === 'nats', `${parsed.kind} keeps no entries`);
  const options = await natsEntryOptions(parsed, key);
  const { nats } = await import('../../stores/nats/entry-store.ts');
  const store = checked(parsed, key, () => nats(telling(options, logger)));
  const isThere = () => hasNats(options);
  return { store, address, diagnose: () => lookAtNats(options, 'entries'), isThere };
}

/** A body store on a server. */
export async function serverBodies(
  parsed: StoreUrl,
  key: string,
  logger?: Logger,
): Promise<ServerStore<BodyStore>> {
  const address = addressOf(parsed);
  if (parsed.kind === 'postgres') {
    const options = postgresOptions(parsed, key);
    const { postgresBodies } = await import('../../stores/postgres/body-store.ts');
    const store = checked(parsed, key, () => postgresBodies(telling(options, logger)));
    return { store, address, diagnose: () => lookAtPostgres(options) };
  }
  if (parsed.kind === 'nats') {
    const options = await natsBodyOptions(parsed, key);
    const { natsBodies } = await import('../../stores/nats/body-store.ts');
    const store = checked(parsed, key, () => natsBodies(telling(options, logger)));
    return { store, address, diagnose: () => lookAtNats(options, 'bodies') };
  }
  assert(parsed.kind === 's3', `${parsed.kind} is on no server`);
  const options = optionsOf(parsed, key, urlNames(S3_OPTIONS)) as S3Options;
  const { s3 } = await import('../../stores/s3/body-store.ts');
  const store = checked(parsed, key, () => s3(telling(options, logger)));
  return { store, address, diagnose: () => lookAtS3(options) };
}

/** With this logger, unless the options have one, as those of a program may. */
function telling<Options extends { readonly logger?: Logger }>(
  options: Options,
  logger: Logger | undefined,
): Options {
  return logger === undefined ? options : { logger, ...options };
}

/** What is wrong with an option names the whole key: `store?schema`, `store.postgres.schema`. */
function checked<Store>({ kind, isData }: StoreUrl, key: string, make: () => Store): Store {
  return isData === true ? inSection(`${key}.${kind}`, make) : inSection(key, make, '?');
}

/** Options that are not ours go to the package, in the address. */
function postgresOptions(parsed: StoreUrl, key: string): PostgresOptions {
  if (parsed.isData === true) return parsed.options;
  checkKeys(`${key}?`, parsed.options, [...POSTGRES_NAMES, ...PG_OPTIONS]);
  const ours: Record<string, unknown> = {};
  const theirs = new URLSearchParams();
  for (const [name, value] of Object.entries(parsed.options)) {
    if (POSTGRES_NAMES.includes(name)) ours[name] = typedValue(value);
    else theirs.set(name, String(value));
  }
  const query = theirs.size === 0 ? '' : `?${theirs.toString()}`;
  return { ...ours, url: `${parsed.url ?? ''}${query}` };
}

function optionsOf(parsed: StoreUrl, key: string, texts: readonly string[]): object {
  if (parsed.isData === true) return parsed.options;
  checkKeys(`${key}?`, parsed.options, texts);
  const pairs = Object.entries(parsed.options).map(([name, value]) => [name, typedValue(value)]);
  return { ...(Object.fromEntries(pairs) as object), url: parsed.url };
}

/** As "store" one address is for both: what is for bodies alone is left out for the entries. */
async function natsEntryOptions(parsed: StoreUrl, key: string): Promise<NatsEntryOptions> {
  const known = key === 'store' ? [...NATS_BODY_NAMES, ...NATS_ENTRY_NAMES] : NATS_ENTRY_NAMES;
  const all: NatsEntryOptions & NatsBodyOptions = await natsOptions(parsed, key, known);
  if (key !== 'store') return all;
  const { maxChunkSize: _, ...options } = all;
  return options;
}

/** The other way round: what is for entries alone is left out for the bodies. */
async function natsBodyOptions(parsed: StoreUrl, key: string): Promise<NatsBodyOptions> {
  const known = key === 'store' ? [...NATS_BODY_NAMES, ...NATS_ENTRY_NAMES] : NATS_BODY_NAMES;
  const all: NatsEntryOptions & NatsBodyOptions = await natsOptions(parsed, key, known);
  if (key !== 'store') return all;
  const { maxValueSize: _, entriesMax: __, cacheBytes: ___, journal: ____, ...options } = all;
  return options;
}

/** What a bucket could do and must not is refused with its reason, not as an unknown word. */
async function natsOptions(
  parsed: StoreUrl,
  key: string,
  texts: readonly string[],
): Promise<object> {
  const { refuseUnsafe } = await import('../../stores/nats/options.ts');
  checked(parsed, key, () => refuseUnsafe(parsed.options));
  return optionsOf(parsed, key, [...new Set(texts)]);
}

/** An option of an address is a text; numbers and truth are meant as such. */
export function typedValue(value: unknown): unknown {
  if (typeof value !== 'string') return value;
  if (/^\d+$/.test(value)) return Number(value);
  return value === 'true' || value === 'false' ? value === 'true' : value;
}

function addressOf({ kind, url, options }: StoreUrl): string {
  if (url === undefined) {
    const { bucket } = options;
    return kind === 's3' && typeof bucket === 'string' ? `s3://${bucket}` : `${kind}: as given`;
  }
  return url
    .replace(/\?.*$/s, '')
    .split(',')
    .map((part) => part.replace(/^([a-z0-9]+:\/\/)?[^/]*@/i, '$1'))
    .join(',');
}

async function lookAtPostgres(options: PostgresOptions): Promise<Diagnosis> {
  const { diagnosePostgres } = await import('../../stores/postgres/diagnose.ts');
  return diagnosePostgres(options);
}

async function hasPostgres(options: PostgresOptions): Promise<boolean> {
  const { hasTables } = await import('../../stores/postgres/diagnose.ts');
  return hasTables(options);
}

async function hasNats(options: NatsEntryOptions): Promise<boolean> {
  const { hasEntries } = await import('../../stores/nats/diagnose.ts');
  return hasEntries(options);
}

async function lookAtNats(
  options: NatsEntryOptions & NatsBodyOptions,
  holds: 'entries' | 'bodies',
): Promise<Diagnosis> {
  const { diagnoseNats } = await import('../../stores/nats/diagnose.ts');
  return diagnoseNats(options, holds);
}

async function lookAtS3(options: S3Options): Promise<Diagnosis> {
  const { s3 } = await import('../../stores/s3/body-store.ts');
  // A look makes no bucket.
  const bodies = s3({ ...options, createBucket: false });
  await bodies.open();
  try {
    const { durability } = bodies.traits;
    return { durability, isThere: true, findings: await bodies.diagnose() };
  } finally {
    await bodies.close();
  }
}
