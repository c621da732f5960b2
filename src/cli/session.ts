/**
 * session — what a command works on: its configuration, read once, and with it a running service
 * or the store itself.
 *
 *   --url, RESPOOL_URL    the service there
 *   sqlite:               the store itself; processes share it. What only a service knows is
 *                         requested from the service that has the store open
 *   file:                 the store itself; when another process owns it, the service whose
 *                         address that left in the lock
 *   memory:               the service at the configured address; the store is in its memory
 *   postgres: nats:       the store itself; processes on any machine share it
 *   a store that a program gives    the store itself; when another process owns it, the service
 *                         at the configured address
 *
 * The store goes first, because an address may outlive its service: what answers there by then may
 * be the service of another spool.
 *
 * Also here: whether a service has our store, the name for the audit record (`byOf`), and a URL
 * apart from its credentials.
 */

import { isDeepStrictEqual } from 'node:util';
import { isTokenHash } from '../config/schema/keys.ts';
import type { LoadedConfig, LoadOptions } from '../config/load/load-config.ts';
import type { ConfiguredStores, StorePlace } from '../config/open/stores.ts';
import type { Operator } from '../spool/operator/operator.ts';
import { formatDuration, SECOND_MS } from '../core/duration.ts';
import { asError, assert, isRespoolError, RespoolError, textOf } from '../core/errors.ts';
import { IN_MEMORY, type SpoolInternals } from '../spool/internals.ts';
import type { Spool } from '../spool/spool.ts';
import { TimeLimit } from '../system/wait.ts';
import { STORE_HEADER } from '../web/http-values.ts';
import { CommandError } from './exit-codes.ts';
import type { Io, Out } from './ui/output.ts';
import { safe } from '../observe/logs/safe-text.ts';

/** Where a command works, and in whose name. */
export interface Session {
  readonly operator: Operator;
  /** An operator of another name, for automatic actions. */
  readonly as: (by: string) => Operator;
  /** The id of the store, if the session works on the store itself. */
  readonly storeId?: () => Promise<string | undefined>;
  /** The address of the service it goes through; undefined when it works on the store itself. */
  readonly url: string | undefined;
  /** Whether the configuration here has a seal; of a service that was named nothing is known. */
  readonly isSealed: boolean;
}

/** What of the configuration a command reads, and what its flags say above it. */
type ConfigRequest = Pick<LoadOptions, 'flags' | 'routes'>;

/** Reads the configuration at the first call; without a request, what was read is good enough. */
export type ConfigReader = (request?: ConfigRequest) => Promise<LoadedConfig>;

/** What opening a session needs. */
export interface SessionOptions {
  readonly config: ConfigReader;
  readonly globals: { readonly config?: string; readonly store?: string; readonly url?: string };
  readonly io: Io;
  readonly out: Out;
  readonly atEnd: (close: () => Promise<void> | void) => void;
  /** Whether a service that has the store open is asked rather than the store: it knows more. */
  readonly prefersService?: boolean | undefined;
  /** Whether the command makes a store where there is none. */
  readonly mayCreate?: boolean | undefined;
}

/** How long a service may take to say that it is there. */
const ANSWERS_WITHIN_MS: number = 2 * SECOND_MS;

/** Of a session alone: it delivers nothing, and may lack the secrets of what does. */
const FOR_SESSIONS: ConfigRequest = { routes: false };

/** A reader of file, environment and command line; it prints what is strange about them. */
export function createConfigReader({
  globals,
  io,
  out,
}: Pick<SessionOptions, 'globals' | 'io' | 'out'>): ConfigReader {
  let first:
    | { readonly request: ConfigRequest; readonly loaded: Promise<LoadedConfig> }
    | undefined;
  const load = async ({ flags, routes }: ConfigRequest): Promise<LoadedConfig> => {
    const { loadConfig } = await import('../config/load/load-config.ts');
    const loaded = await loadConfig({
      cwd: io.cwd,
      env: io.env,
      file: globals.config,
      flags: { store: globals.store, ...flags },
      routes,
    });
    for (const warning of loaded.warnings) out.warn(warning);
    return loaded;
  };
  return async (request = first?.request ?? FOR_SESSIONS) => {
    first ??= { request, loaded: load(request) };
    const { loaded } = first;
    assert(isDeepStrictEqual(request, first.request), 'the configuration is read once');
    try {
      return await loaded;
    } catch (error) {
      // Less of it may be right.
      first = undefined;
      throw error;
    }
  };
}

/** Opens the session that options and configuration lead to. */
export async function openSession(parts: SessionOptions): Promise<Session> {
  const named = namedUrl(parts);
  if (named !== undefined) return serviceSession(parts, named);
  const loaded = await parts.config();
  // A file .env may name a service too.
  const fromFile = namedUrl(parts);
  if (fromFile !== undefined) return serviceSession(parts, fromFile);
  const { refuseFiles, storesOf } = await import('../config/open/stores.ts');
  const stores = await storesOf(loaded.config, loaded.folder);
  const { place, entries, isThere } = stores;
  const url = configuredUrl(loaded);
  if (place.kind === 'memory') {
    const service = await askHealth(parts, url);
    if ('storeId' in service) {
      if (!isSameStore(service.storeId, { place })) throw otherService(url, 'memory:');
      return serviceSession(parts, url, loaded);
    }
    throw new RespoolError(
      'store.unavailable',
      `cannot open the store "memory:": it lives inside respool serve only, and no service ` +
        `answers at ${url}; start respool serve, or name a store that lasts`,
    );
  }
  await refuseFiles(stores);
  if (parts.mayCreate !== true && !((await isThere?.()) ?? true)) throw noStore(place, loaded);
  if (entries.traits.processes === 'many') {
    const shared = await sharingSession(parts, place, loaded);
    return shared ?? spoolSession(await ownSpool(parts, loaded, stores), parts.io, loaded);
  }
  const ownersUrl = async (): Promise<string | undefined> =>
    place.kind === 'given' ? url : ownerOf(place);
  return sharedSession(parts, loaded, { stores, ownersUrl });
}

/** A look must not leave a store behind: it would hide that this is the wrong folder. */
function noStore(place: StorePlace, loaded: LoadedConfig): RespoolError {
  const said = loaded.origins.get('store') ?? loaded.origins.get('entries');
  const by = said?.from === 'default' ? 'the default' : `by ${said?.name ?? 'the configuration'}`;
  const [where, first] =
    place.path === undefined
      ? [place.address, 'look at its schema or bucket']
      : [place.path, 'go to its folder'];
  return new RespoolError(
    'store.unavailable',
    `there is no Respool store in "${where}" (${by}); ${first}, name it with --config or ` +
      '--store, or make it: respool serve, respool enqueue',
  );
}

/** A session with the running service: the address that was given, was left, or is configured. */
export async function openService(parts: SessionOptions): Promise<Session> {
  const named = namedUrl(parts);
  if (named !== undefined) return serviceSession(parts, named);
  const loaded = await parts.config();
  const { storesOf } = await import('../config/open/stores.ts');
  const { place } = await storesOf(loaded.config, loaded.folder);
  const owner = await ownerOf(place);
  const fromFile = namedUrl(parts);
  if (fromFile !== undefined) return serviceSession(parts, fromFile);
  // A store that has a lock would name its service: whatever answers at the configured address may
  // be the service of another spool.
  if (owner === undefined && place.path !== undefined) throw noService(place.path);
  const url = owner ?? configuredUrl(loaded);
  if (owner === undefined) await refuseOther(parts, loaded, { url, place });
  return serviceSession(parts, url, loaded);
}

/** A server store does not record its service: one that answers may have another store. */
async function refuseOther(
  parts: SessionOptions,
  loaded: LoadedConfig,
  { url, place }: { readonly url: string; readonly place: StorePlace },
): Promise<void> {
  const service = await askHealth(parts, url);
  if (!('storeId' in service)) return;
  const storeId = place.kind === 'memory' ? undefined : await storeIdOf(loaded);
  if (isSameStore(service.storeId, { place, storeId })) return;
  throw otherService(url, place.address ?? `${place.kind}:`);
}

async function storeIdOf(loaded: LoadedConfig): Promise<string | undefined> {
  const { createConfiguredSpool } = await import('../config/open/open-spool.ts');
  const { spool } = await createConfiguredSpool(loaded, { deliver: false });
  try {
    return await (await internals(spool)).storeId();
  } finally {
    await spool.stop({ within: 0 });
  }
}

/** Whether a service with this id of a store has ours; one that says none is taken for it. */
export function isSameStore(
  theirs: string | undefined,
  { place, storeId }: { readonly place: StorePlace; readonly storeId?: string | undefined },
): boolean {
  if (theirs === undefined) return true;
  // What is in memory is in the service only.
  return place.kind === 'memory' ? theirs.startsWith(IN_MEMORY) : theirs === storeId;
}

function otherService(url: string, store: string): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `the service at ${url} has another store open, not "${store}"; give the service of this one ` +
      'another port (serve.port), or name the other one with --url',
  );
}

function noService(path: string): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `no service has the store "${path}" open; start it: respool serve, or name one with --url`,
  );
}

/** The address a service with this configuration listens on. */
export function configuredUrl({ config }: LoadedConfig): string {
  const { host, port, tls } = config.serve;
  // A service that listens everywhere is found here too.
  const name = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  const shown = name.includes(':') && !name.startsWith('[') ? `[${name}]` : name;
  return `${tls === undefined ? 'http' : 'https'}://${shown}:${port}`;
}

/** What was typed goes before what the environment says: a store that is named is meant. */
export function namedUrl({
  globals,
  io,
}: Pick<SessionOptions, 'globals' | 'io'>): string | undefined {
  if (globals.url !== undefined && globals.store !== undefined) {
    throw new CommandError(
      'usage.invalid',
      'cannot use --store together with --url: a service has its own store; give one of them',
    );
  }
  if (globals.store !== undefined) return undefined;
  return globals.url ?? (io.env['RESPOOL_URL'] || undefined);
}

async function serviceSession(
  { io, out }: SessionOptions,
  url: string,
  loaded?: LoadedConfig,
): Promise<Session> {
  const { connectOperator } = await import('../web/client/client.ts');
  // The configuration of our own service has its token; a service that was named is not sent it.
  const tokens = [io.env['RESPOOL_TOKEN'] || undefined, loaded?.config.serve.token];
  const token = tokens.find((one) => one !== undefined && !isTokenHash(one));
  const hasHash = tokens.some((one) => one !== undefined && isTokenHash(one));
  out.detail(`through the service at ${safe(url.replace(/\/\/[^/]*@/, '//'))}`);
  const as = (by: string): Operator =>
    connectOperator({
      url,
      by,
      clock: io.clock,
      tokenAdvice: tokenAdvice(token !== undefined, hasHash),
      ...(token === undefined ? {} : { token }),
    });
  const isSealed = loaded?.config.seal !== undefined;
  return { operator: as(byOf(io)), as, url, isSealed };
}

/** There is no flag for a token: every user of a machine can read the command lines of others. */
function tokenAdvice(isSent: boolean, hasHash: boolean): string {
  if (isSent) {
    return (
      'it does not know the token that was sent: set RESPOOL_TOKEN to one whose hash is in its ' +
      'configuration; a new one: respool token create'
    );
  }
  return hasHash
    ? 'it wants a token, and only the hash of one is known here: set RESPOOL_TOKEN to the token ' +
        'itself'
    : 'it wants a token: set RESPOOL_TOKEN to yours, in the environment';
}

async function spoolSession(spool: Spool, io: Io, loaded: LoadedConfig): Promise<Session> {
  const { createOperator } = await import('../spool/operator/spool-operator.ts');
  const own = await internals(spool);
  const topics = await routedTopics(loaded);
  const as = (by: string): Operator => createOperator(own, { by, topics });
  const isSealed = loaded.config.seal !== undefined;
  return { operator: as(byOf(io)), as, url: undefined, storeId: () => own.storeId(), isSealed };
}

/** The topics that have a route; undefined if the configuration does not say. */
async function routedTopics({
  config,
  origins,
  topics,
}: LoadedConfig): Promise<readonly string[] | undefined> {
  if (topics === undefined || !isOwnStore({ origins }) || config.unhandled === 'leave')
    return undefined;
  const { ALERT_TOPIC } = await import('../observe/alerts/notice.ts');
  // Receivers of alerts have handlers without being routes.
  return [...topics, `${ALERT_TOPIC}.#`];
}

/** Whether the store is that of the configuration: its routes are for no other one. */
export function isOwnStore({ origins }: Pick<LoadedConfig, 'origins'>): boolean {
  return ['store', 'entries'].every((key) => origins.get(key)?.from !== 'flag');
}

async function sharedSession(
  parts: SessionOptions,
  loaded: LoadedConfig,
  {
    stores,
    ownersUrl,
  }: {
    readonly stores: ConfiguredStores;
    readonly ownersUrl: () => Promise<string | undefined>;
  },
): Promise<Session> {
  const spool = await ownSpool(parts, loaded, stores);
  try {
    // Opens the store: only now is it known whether another process owns it.
    await (await internals(spool)).open();
  } catch (error) {
    if (!isRespoolError(error, 'store.unavailable')) throw error;
    const url = await ownersUrl();
    if (url === undefined) throw error;
    const service = await askHealth(parts, url);
    if ('storeId' in service) return serviceSession(parts, url, loaded);
    const text = `${error.message}; its service at ${url} did not answer: ${service.silence}`;
    throw new RespoolError('store.unavailable', text, { cause: error });
  }
  return spoolSession(spool, parts.io, loaded);
}

/** Loaded late: many commands go through a service and need no spool. */
async function internals(spool: Spool): Promise<SpoolInternals> {
  return (await import('../spool/internals.ts')).internalsOf(spool);
}

async function ownSpool(
  { out, atEnd }: SessionOptions,
  loaded: LoadedConfig,
  stores: ConfiguredStores,
): Promise<Spool> {
  const { createConfiguredSpool } = await import('../config/open/open-spool.ts');
  const { spool, place } = await createConfiguredSpool(loaded, { stores, deliver: false });
  atEnd(() => spool.stop({ within: 0 }));
  const where = place.path ?? place.address ?? '';
  out.detail(`on the store itself: ${place.kind} ${where}`.trimEnd());
  return spool;
}

/** The address of the service that has the store open, as it says beside its lock. */
export async function ownerOf({ kind, path }: StorePlace): Promise<string | undefined> {
  if (path === undefined) return undefined;
  if (kind === 'file') {
    const { serviceAddress } = await import('../stores/filesystem/entry-store.ts');
    return serviceAddress(path);
  }
  const { serviceAddress } = await import('../stores/sqlite/instances.ts');
  return serviceAddress(path);
}

/** A session with the service on a shared store, if it is preferred and admits us. */
async function sharingSession(
  parts: SessionOptions,
  place: StorePlace,
  loaded: LoadedConfig,
): Promise<Session | undefined> {
  const url = parts.prefersService === true ? await ownerOf(place) : undefined;
  if (url === undefined || 'silence' in (await askHealth(parts, url))) return undefined;
  const session = await serviceSession(parts, url, loaded);
  try {
    await session.operator.pauses();
    return session;
  } catch (error) {
    // Without a token of the service there is still the store.
    parts.out.detail(`the service did not let us in: ${textOf(error)}`);
    return undefined;
  }
}

/** What answers says of its store, or why nothing does; one that is stopping or busy counts. */
async function askHealth(
  { io }: SessionOptions,
  url: string,
): Promise<{ readonly storeId: string | undefined } | { readonly silence: string }> {
  const limit = new TimeLimit(io.clock, ANSWERS_WITHIN_MS);
  try {
    const answer = await fetch(new URL('/healthz', url), { signal: limit.signal });
    await answer.body?.cancel();
    return { storeId: answer.headers.get(STORE_HEADER) ?? undefined };
  } catch (error) {
    if (limit.isOver) {
      return { silence: `no answer within ${formatDuration(ANSWERS_WITHIN_MS)}` };
    }
    const { cause } = asError(error);
    return { silence: safe(textOf(cause ?? error)) };
  } finally {
    limit.stop();
  }
}

/** Whose name is written into the audit record. */
export function byOf(io: Io): string {
  return `${io.user}@cli`;
}

/** A URL without credentials, and the headers that carry them. */
export interface UrlWithHeaders {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export function urlWithHeaders(text: string | URL): UrlWithHeaders {
  const address = new URL(text);
  const { username, password } = address;
  address.username = '';
  address.password = '';
  const url = address.href;
  if (username === '' && password === '') return { url, headers: {} };
  const basic = Buffer.from(`${decoded(username)}:${decoded(password)}`).toString('base64');
  return { url, headers: { authorization: `Basic ${basic}` } };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // A "%" that stands for itself.
    return text;
  }
}
