/**
 * examine — all checks of the doctor, in the order of its report.
 *
 * Promise: makes no store where there is none, changes nothing, and goes on with the rest when one
 * part cannot be looked at.
 */

import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { StorePlace } from '../../../config/open/stores.ts';
import { isRespoolError, textOf } from '../../../core/errors.ts';
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
import { type DoctorFinding, worthKnowing, unsafe } from './finding.ts';
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
import { examineService, examineTls, otherStore } from './service-checks.ts';

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
    return [worthKnowing('messages', `cannot look at the messages: ${textOf(error)}`, todo)];
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
