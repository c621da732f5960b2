/**
 * handle — what `handle` and `onBounce` take, checked, and the route made of it.
 */

import { DAY_MS, type Duration, durationMs, MINUTE_MS } from '../core/duration.ts';
import type { Envelope } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import { checkNames, checkNumber, checkTopicPattern } from '../core/limits.ts';
import { checkPolicy, type RetryPolicy } from '../core/policy.ts';
import type { Lane } from '../core/state.ts';
import type { HandlerRoute } from '../engine/handler-slots.ts';
import type { Handler, Middleware } from '../ports/handler.ts';
import type { StandardSchema } from '../ports/schema.ts';
import { checkMiddleware, type SpoolSettings } from './options.ts';

/** How a bounce handler runs. */
export interface BounceOptions {
  /** A policy, or the name of one; default: the spool's `notice` or `default`. */
  readonly policy?: RetryPolicy | string;
  /** How many run at once, besides the spool's own limit; default: no limit of its own. */
  readonly concurrency?: number;
  /** How long one attempt may take, 1ms to 1d; default 15m. */
  readonly timeout?: Duration;
  /** Wrapped around this handler, inside the spool's own. */
  readonly middleware?: readonly Middleware[];
}

/** How a handler runs. */
export interface HandleOptions<Body = unknown> extends BounceOptions {
  /**
   * A Standard Schema that the JSON body must fit (otherwise the message is held), or a function
   * that picks by envelope (what it refuses goes to the next matching handler).
   */
  readonly accepts?: StandardSchema<Body> | ((envelope: Envelope) => boolean);
}

const NAMES = ['policy', 'concurrency', 'timeout', 'middleware', 'accepts'];
const TIMEOUT_DEFAULT_MS: number = 15 * MINUTE_MS;

/** The route of a handler. */
export function routeOf(
  lane: Lane,
  pattern: string,
  handler: Handler,
  options: HandleOptions,
  settings: SpoolSettings,
): HandlerRoute {
  const known = lane === 'delivery' ? NAMES : NAMES.filter((name) => name !== 'accepts');
  checkNames(lane === 'delivery' ? 'handle' : 'onBounce', options, known);
  if (typeof handler !== 'function') {
    throw new RespoolError('config.invalid', `cannot handle "${pattern}": a handler is a function`);
  }
  const { accepts, timeout, concurrency, middleware = [] } = options;
  checkMiddleware(middleware);
  const isSchema = accepts !== undefined && isStandardSchema(accepts);
  if (accepts !== undefined && !isSchema && typeof accepts !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${JSON.stringify(accepts)} as "accepts" of "${pattern}": allowed is a Standard ` +
        'Schema (zod, valibot, …) or a function of the envelope',
    );
  }
  return {
    lane,
    pattern: checkTopicPattern(pattern),
    handler,
    middleware: [...settings.middleware, ...middleware],
    policy: policyOf(options.policy, settings),
    concurrency:
      concurrency === undefined
        ? Number.POSITIVE_INFINITY
        : checkNumber('concurrency', concurrency, { min: 1, max: 10_000 }),
    timeoutMs: durationMs(timeout ?? TIMEOUT_DEFAULT_MS, 'timeout', { minMs: 1, maxMs: DAY_MS }),
    schema: isSchema ? accepts : undefined,
    picks: accepts !== undefined && !isSchema ? accepts : undefined,
    running: 0,
  };
}

function isStandardSchema(accepts: unknown): accepts is StandardSchema {
  // A schema may itself be a function: some libraries make them callable.
  const isObject = typeof accepts === 'object' || typeof accepts === 'function';
  return isObject && accepts !== null && '~standard' in accepts;
}

function policyOf(
  policy: RetryPolicy | string | undefined,
  { policies }: SpoolSettings,
): RetryPolicy | string | undefined {
  if (policy === undefined || policy === 'default') return undefined;
  if (typeof policy !== 'string') return checkPolicy(policy, 'policy');
  if (policies.has(policy)) return policy;
  throw new RespoolError(
    'policy.unknown',
    `cannot use policy "${policy}": known are ${[...policies.keys()].join(', ') || 'default'}`,
  );
}
