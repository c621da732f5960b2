/**
 * open-spool — from a configuration to a spool with its routes. Nothing is opened or started yet.
 */

import { type Duration, durationMs } from '../../core/duration.ts';
import { assert, isRespoolError, type RespoolError } from '../../core/errors.ts';
import { describePolicy, type RetryPolicy } from '../../core/policy.ts';
import type { Lane } from '../../core/state.ts';
import type { Logger } from '../../ports/logger.ts';
import type { Transform } from '../../ports/transform.ts';
import { createSpool, type Spool } from '../../spool/spool.ts';
import { spoolOptionsOf } from '../load/effective-config.ts';
import { checkHandlers, closeHandlers, tracingOf } from './handlers.ts';
import type { LoadedConfig } from '../load/load-config.ts';
import { describeHandler, type EffectiveRoute } from '../load/routes.ts';
import { type ConfiguredStores, refuseFiles, type StorePlace, storesOf } from './stores.ts';
import { sealedBy, transformsOf } from './transforms.ts';

/** A route as it may be shown. */
export interface RouteInfo {
  readonly lane: Lane;
  readonly topic: string;
  /** What its handler says about itself, without secrets. */
  readonly deliver: Readonly<Record<string, unknown>>;
  /** The policy's name, or the policy in one line. */
  readonly policy: string;
  readonly concurrency: number;
  readonly timeoutMs: number;
}

/** A spool made from a configuration. */
export interface ConfiguredSpool {
  readonly spool: Spool;
  readonly routes: readonly RouteInfo[];
  /** Where the entries are. */
  readonly place: StorePlace;
  readonly bodiesPlace: StorePlace;
  /** Lets go of the handlers' connections; the spool itself is stopped by its own `stop`. */
  readonly close: () => Promise<void>;
}

/** How it is made. */
interface SpoolOpenOptions {
  /** The stores of this configuration, where they are made already; no other spool has them. */
  readonly stores?: ConfiguredStores | undefined;
  /** Logs everything that happens, and warnings of the stores when they open. */
  readonly logger?: Logger | undefined;
  /** Logs only the warnings of the stores when they open; default `logger`. */
  readonly storeLogger?: Logger | undefined;
  /** Called before the routes are registered: of routes that fit a topic the first wins. */
  readonly prepare?: ((spool: Spool) => void) | undefined;
  /** True (default) registers the routes; false: for a tool that only looks and steers. */
  readonly deliver?: boolean | undefined;
}

/** Makes stores, spool and routes. */
export async function createConfiguredSpool(
  loaded: LoadedConfig,
  { stores, logger, storeLogger = logger, prepare, deliver = true }: SpoolOpenOptions = {},
): Promise<ConfiguredSpool> {
  const { config, folder } = loaded;
  const { entries, bodies, place, bodiesPlace } =
    stores ?? (await storesOf(config, folder, storeLogger));
  await refuseFiles({ place, bodiesPlace });
  const made = await transformsOf(config, folder);
  const transforms = deliver ? made : made.map(patient);
  const spool = createSpool({
    ...spoolOptionsOf(config),
    entries: await sealedBy(config, entries, folder),
    transforms,
    bodies,
    ...(logger === undefined ? {} : { logger }),
    ...(deliver ? await tracingOf(config) : {}),
  });
  prepare?.(spool);
  if (deliver) {
    checkHandlers('routes', config.routes);
    checkHandlers('bounces', config.bounces);
    for (const { topic, deliver: handler, ...options } of config.routes) {
      spool.handle(topic, handler, options);
    }
    for (const { topic, deliver: handler, ...options } of config.bounces) {
      spool.onBounce(topic, handler, options);
    }
  }
  const routes = [
    ...config.routes.map((route) => infoOf('delivery', route, loaded)),
    ...config.bounces.map((route) => infoOf('notice', route, loaded)),
  ];
  const close = (): Promise<void> => closeHandlers([...config.routes, ...config.bounces]);
  return { spool, routes, place, bodiesPlace, close };
}

/**
 * A transform whose key or package is needed only to write a body: an operator may list and hold
 * messages without the keys of the service.
 */
function patient(transform: Transform): Transform {
  const { name, kind } = transform;
  let missed: RespoolError | undefined;
  const writer: Transform['writer'] = (context) => {
    if (missed !== undefined) throw missed;
    const made = transform.writer?.(context);
    assert(made !== undefined, `the transform "${name}" cannot write any more`);
    return made;
  };
  return {
    name,
    kind,
    open: async () => {
      try {
        await transform.open?.();
      } catch (error) {
        if (!isRespoolError(error)) throw error;
        missed = error;
      }
    },
    reader: (encoding, context) => transform.reader(encoding, context),
    ...(transform.writer === undefined ? {} : { writer }),
  };
}

function infoOf(lane: Lane, route: EffectiveRoute, loaded: LoadedConfig): RouteInfo {
  return {
    lane,
    topic: route.topic,
    deliver: loaded.redact(describeHandler(route.deliver)) as Record<string, unknown>,
    policy: policyText(route.policy, lane, loaded),
    concurrency: route.concurrency,
    timeoutMs: durationMs(route.timeout satisfies Duration, 'timeout'),
  };
}

function policyText(
  policy: RetryPolicy | string | undefined,
  lane: Lane,
  { config }: LoadedConfig,
): string {
  if (typeof policy === 'object') return describePolicy(policy);
  const hasNotice = lane === 'notice' && Object.hasOwn(config.policies, 'notice');
  return policy ?? (hasNotice ? 'notice' : 'default');
}
