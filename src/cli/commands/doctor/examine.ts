/**
 * examine — all checks of the doctor, in the order of its report.
 *
 * Promise: makes no store where there is none, leaves nothing changed, and goes on with the rest
 * when one part cannot be looked at. What it writes it removes: a file beside the store, for the
 * clock, and an object of one byte in a bucket.
 *
 * The checks themselves are in the files beside it, but for those of the running service and of
 * the TLS files, which are here.
 */

import process from 'node:process';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { StorePlace } from '../../../config/open/stores.ts';
import { isRespoolError, textOf, asError } from '../../../core/errors.ts';
import {
  type ConfigReader,
  configuredUrl,
  createConfigReader,
  type Session,
  isOwnStore,
  isSameStore,
  namedUrl,
  openSession,
  ownerOf,
} from '../../session.ts';
import type { CommandContext } from '../../spec.ts';
import { readVersion } from '../../../system/version.ts';
import { type DoctorFinding, infoFinding, unsafe, okFinding } from './finding.ts';
import {
  examineClock,
  examineEnvironment,
  examineMessages,
  examineVersions,
} from './message-checks.ts';
import {
  examineFiles,
  examineStores,
  examineTransforms,
  nearestFolder,
  type StoresFound,
} from './storage-checks.ts';
import {
  examineConfig,
  examineObservability,
  examineRoutes,
  examineServe,
  examineUrl,
} from './settings-checks.ts';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { span } from '../../ui/times.ts';
import { DAY_MS, type Millis, SECOND_MS } from '../../../core/duration.ts';
import type { Clock } from '../../../ports/clock.ts';
import { TimeLimit } from '../../../system/wait.ts';
import { STORE_HEADER } from '../../../web/http-values.ts';

/** Looks at everything. */
export async function* examine(context: CommandContext): AsyncGenerator<DoctorFinding> {
  const { globals, io } = context;
  // Its warnings are findings here.
  const config = createConfigReader({ ...context, out: { ...context.out, warn: () => undefined } });
  yield* await examineVersions(readVersion());
  yield* examineEnvironment(io.env);
  const { loaded, problem } = await load(config);
  if (problem !== undefined) yield problem;
  if (loaded === undefined) return;
  yield* await attempt('config', () => examineConfig(loaded));
  yield* await attempt('serve', async () => examineServe(loaded));
  yield* await attempt('serve', () => examineTls(loaded, io.clock.now()));
  if (problem === undefined) yield* await attempt('routes', () => examineRoutes(loaded));
  yield* await attempt('transforms', () => examineTransforms(loaded));
  yield* await attempt('seeing', () => examineObservability(loaded));
  const named = namedUrl({ globals, io });
  yield* examineUrl(named);
  const { storesOf } = await import('../../../config/open/stores.ts');
  const stores = await storesOf(loaded.config, loaded.folder);
  // With an address the stores of this folder are not the ones that commands work on.
  let hasEntries = named !== undefined;
  const { requireDurability } = loaded.config;
  if (named === undefined) {
    yield* await attempt('store', async () => {
      const misplaced = await examineFiles(stores);
      if (misplaced.length > 0) return misplaced;
      const found: StoresFound = await examineStores(stores, requireDurability);
      ({ hasEntries } = found);
      return found.findings.map((finding) => hidden(finding, loaded));
    });
  }
  const { path: at } = stores.place;
  const folder = at === undefined ? io.cwd : await nearestFolder(at);
  yield* await attempt('clock', () => examineClock(io.clock, folder));
  const owner = await ownerOf(stores.place);
  const url = named ?? owner ?? configuredUrl(loaded);
  const service = await examineService(url, { clock: io.clock, version: readVersion() });
  yield* service.findings;
  // With an address there is nothing to look at where no service answers.
  if (named !== undefined && !service.isThere) return;
  let opened: Promise<Session> | undefined;
  const session = (): Promise<Session> => (opened ??= openSession({ ...context, config }));
  let isServed = service.isThere;
  // Whatever has the configured address may be the service of another store.
  if (named === undefined && owner === undefined && isServed) {
    yield* await attempt('service', async () => {
      const { place } = stores;
      const storeId = hasEntries ? await (await session()).storeId?.() : undefined;
      if (isSameStore(service.storeId, { place, storeId })) return [];
      isServed = false;
      return [otherStore(url, place.path ?? place.address ?? `${place.kind}:`)];
    });
  }
  yield* await attempt('messages', () =>
    look(context, loaded, { place: stores.place, isServed, hasEntries, session }),
  );
}

/** What a server or its package says is not in our hand. */
function hidden(finding: DoctorFinding, { hide }: LoadedConfig): DoctorFinding {
  return { ...finding, text: hide(finding.text) };
}

/** The configuration; where only its routes are wrong, what is left of it. */
async function load(
  config: ConfigReader,
): Promise<{ loaded?: LoadedConfig; problem?: DoctorFinding }> {
  try {
    return { loaded: await config({ routes: true }) };
  } catch (error) {
    const problem = unsafe('config', textOf(error), 'fix it; then: respool config check');
    try {
      return { loaded: await config({ routes: false }), problem };
    } catch {
      // The problem is already reported.
      return { problem };
    }
  }
}

interface Looking {
  readonly place: StorePlace;
  readonly isServed: boolean;
  readonly hasEntries: boolean;
  readonly session: () => Promise<Session>;
}

async function look(
  context: CommandContext,
  loaded: LoadedConfig,
  { place, isServed, hasEntries, session }: Looking,
): Promise<DoctorFinding[]> {
  if (!hasEntries && place.kind !== 'memory') return [];
  if (place.kind === 'memory' && !isServed) return [];
  try {
    const { operator, url } = await session();
    const isOwn = namedUrl(context) === undefined && isOwnStore(loaded);
    return await examineMessages(operator, {
      clock: context.io.clock,
      isServed: isServed || url !== undefined,
      routes: isOwn ? loaded.config.routes : [],
    });
  } catch (error) {
    if (!isRespoolError(error, 'store.unavailable')) throw error;
    const todo = 'look again when it is free, or with --url when its owner is a service';
    return [infoFinding('messages', `cannot look at the messages: ${textOf(error)}`, todo)];
  }
}

/** One part that fails must not hide the others. */
async function attempt(
  id: string,
  part: () => Promise<DoctorFinding[]>,
): Promise<readonly DoctorFinding[]> {
  try {
    return await part();
  } catch (error) {
    const text = `cannot look at this: ${textOf(error)}`;
    return [unsafe(`${id}.failed`, text, 'fix what the message names, then check again')];
  }
}

// Whether a service answers at an address, whether it is ready, its version, and whether its TLS
// key and certificate can be used, by whom, and for how long.

const ANSWERS_WITHIN_MS: number = 2 * SECOND_MS;
const LATE = `not within ${span(ANSWERS_WITHIN_MS)}`;
/** Maximum number of a service's reasons and notes that are printed. */
const TOLD_MAX = 10;

/** What was found out. */
interface ServiceFound {
  readonly isThere: boolean;
  /** The id of its store; undefined where it does not say. */
  readonly storeId?: string | undefined;
  readonly findings: readonly DoctorFinding[];
}

/** Queries only public endpoints; no token is sent. */
async function examineService(
  url: string,
  { clock, version }: { readonly clock: Clock; readonly version: string },
): Promise<ServiceFound> {
  const health = await ask(url, '/healthz', clock);
  if ('failed' in health) {
    return { isThere: false, findings: [silentFinding(url, health.failed)] };
  }
  if (health.status !== 200 || (health.body as { ok?: unknown } | undefined)?.ok !== true) {
    const text = `something answers at ${url} that is not respool (status ${health.status})`;
    const todo = 'give the service another port, or stop the program on this one';
    return { isThere: false, findings: [unsafe('service', text, todo)] };
  }
  const ready = await ask(url, '/readyz', clock);
  const api = await ask(url, '/openapi.json', clock);
  const { info } = (('body' in api ? api.body : undefined) ?? {}) as {
    info?: { version?: unknown };
  };
  const theirs = typeof info?.version === 'string' ? info.version : 'of an unknown version';
  const text = `respool ${theirs} answers at ${url}`;
  const { reasons, notes } = toldBy('body' in ready ? ready.body : undefined);
  const why = reasons.length === 0 ? '' : `: ${reasons.join('; ')}`;
  const todo = 'it is starting or stopping, or has lost its store: look at its log';
  const findings = [
    'status' in ready && ready.status === 200
      ? okFinding('service', `${text}, ready`)
      : unsafe('service', `${text}, but is not ready${why}`, todo),
    ...notes.map((one) =>
      infoFinding('service.note', one, 'look at what it talks to; it tries again'),
    ),
  ];
  if (theirs !== version) {
    const other = `the service is respool ${theirs}, this is ${version}`;
    findings.push(infoFinding('service.version', other, 'start the service again after an update'));
  }
  return { isThere: true, storeId: health.storeId, findings };
}

function silentFinding(url: string, failed: string): DoctorFinding {
  if (failed !== LATE) {
    const why = failed === 'ECONNREFUSED' ? '' : ` (${failed})`;
    return infoFinding('service', `no service answers at ${url}${why}`);
  }
  const todo = 'look at what listens there: another program has the port, or the service hangs';
  return unsafe('service', `what listens at ${url} does not answer (${failed})`, todo);
}

/** A service has the port that answers for another store: here nothing is delivered. */
function otherStore(url: string, store: string): DoctorFinding {
  return unsafe(
    'service.store',
    `the service at ${url} has another store open, not "${store}"`,
    'give the service of this store another port (serve.port, or --port), or end the other one',
  );
}

/** Why it is not ready and what else is wrong, as far as it says so. */
function toldBy(body: unknown): { readonly reasons: string[]; readonly notes: string[] } {
  const { reasons, notes } = (body ?? {}) as { reasons?: unknown; notes?: unknown };
  return { reasons: textsOf(reasons), notes: textsOf(notes) };
}

function textsOf(list: unknown): string[] {
  if (!Array.isArray(list)) return [];
  const texts = list.map((one: unknown) => (one as { text?: unknown } | null)?.text);
  return texts.filter((text): text is string => typeof text === 'string').slice(0, TOLD_MAX);
}

async function ask(
  url: string,
  where: string,
  clock: Clock,
): Promise<{ status: number; body: unknown; storeId?: string } | { failed: string }> {
  const limit = new TimeLimit(clock, ANSWERS_WITHIN_MS);
  try {
    const answer = await fetch(new URL(where, url), { signal: limit.signal, redirect: 'error' });
    const text = await answer.text();
    const storeId = answer.headers.get(STORE_HEADER) ?? undefined;
    const { status } = answer;
    return { status, body: parsed(text), ...(storeId === undefined ? {} : { storeId }) };
  } catch (error) {
    if (limit.isOver) return { failed: LATE };
    // The error itself says "fetch failed"; why is in its cause.
    const { cause } = asError(error);
    const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
    return { failed: typeof code === 'string' ? code : textOf(cause ?? error) };
  } finally {
    limit.stop();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Not ours then; the status says enough.
    return undefined;
  }
}

/** A certificate is renewed in time if it is renewed before this. */
const EXPIRES_SOON_MS: number = 21 * DAY_MS;
const OTHERS_READ = 0o004;

/** Looks at both files; nothing where there is no TLS. */
async function examineTls({ config }: LoadedConfig, now: Millis): Promise<DoctorFinding[]> {
  const { tls } = config.serve;
  if (tls === undefined) return [];
  const id = 'serve.tls';
  const certificate = await read(tls.cert, (text) => new X509Certificate(text));
  const key = await read(tls.key, (text) => createPrivateKey(text));
  for (const one of [certificate, key]) {
    if (typeof one === 'string') return [unsafe(id, one, 'see serve.tls')];
  }
  if (certificate instanceof X509Certificate && typeof key !== 'string') {
    if (!certificate.checkPrivateKey(key)) {
      const text = `the key "${tls.key}" is not that of the certificate "${tls.cert}"`;
      return [unsafe(id, text, 'name the two files of one pair')];
    }
    return [validity(Date.parse(certificate.validTo), now), ...(await keyRights(tls.key))];
  }
  return [];
}

async function read<T>(file: string, parse: (text: string) => T): Promise<T | string> {
  try {
    return parse(await readFile(file, 'utf8'));
  } catch (error) {
    return `cannot use "${file}": ${textOf(error)}`;
  }
}

function validity(validToMs: Millis, now: Millis): DoctorFinding {
  const id = 'serve.tls';
  const leftMs = validToMs - now;
  const todo = 'renew it, and start the service again';
  if (leftMs <= 0) return unsafe(id, `the certificate ended ${span(-leftMs)} ago`, todo);
  const text = `the certificate is valid for ${span(leftMs)}`;
  return leftMs < EXPIRES_SOON_MS ? infoFinding(id, text, todo) : okFinding(id, text);
}

async function keyRights(file: string): Promise<DoctorFinding[]> {
  if (process.platform === 'win32') return [];
  const { mode } = await stat(file);
  if ((mode & OTHERS_READ) === 0) return [];
  const text = `every user of this machine can read the private key "${file}"`;
  return [unsafe('serve.tls.key', text, `chmod 600 "${file}"`)];
}
