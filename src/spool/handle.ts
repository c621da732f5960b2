/**
 * handle — what `handle` and `onBounce` take, checked, and the route made of it.
 */

import type { Duration } from '../core/duration.ts';
import type { Envelope } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import { checkTopicPattern } from '../core/limits.ts';
import { type Option, readOptions } from '../core/option-table.ts';
import { checkPolicy, type RetryPolicy } from '../core/policy.ts';
import type { Lane } from '../core/state.ts';
import type { HandlerRoute } from '../engine/handler-slots.ts';
import type { Handler, Middleware } from '../ports/handler.ts';
import type { StandardSchema } from '../ports/schema.ts';
import { checkMiddleware, type SpoolSettings } from './options.ts';

const BOUNCE = {
  policy: {
    kind: 'code',
    type: 'a policy, or the name of one',
    ts: 'RetryPolicy | string',
    defaultText: "the spool's `default`, for bounces `notice`",
    about: 'for messages that name none',
  },
  concurrency: {
    kind: 'number',
    min: 1,
    max: 10_000,
    defaultText: 'no limit of its own',
    about: "how many run at once, besides the spool's own limit",
  },
  timeout: {
    kind: 'duration',
    min: '1ms',
    max: '1d',
    default: '15m',
    about: 'how long one attempt may take',
  },
  middleware: {
    kind: 'code',
    type: 'a list of middleware',
    ts: 'readonly Middleware[]',
    about: "wrapped around this handler, inside the spool's own",
  },
} as const;

const HANDLE = {
  ...BOUNCE,
  accepts: {
    kind: 'code',
    type: 'a Standard Schema, or a function of the envelope',
    ts: 'StandardSchema<Body> | ((envelope: Envelope) => boolean)',
    about:
      'a schema that the JSON body must fit (otherwise the message is held), or a function that ' +
      'picks by envelope (what it refuses goes to the next matching handler)',
  },
} as const;

/** Every option of `onBounce`. */
export const BOUNCE_OPTIONS: Readonly<Record<keyof BounceOptions, Option>> = BOUNCE;
/** Every option of `handle`. */
export const HANDLE_OPTIONS: Readonly<Record<keyof HandleOptions, Option>> = HANDLE;

/** How a bounce handler runs. */
export interface BounceOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** For messages that name none. Default the spool's `default`, for bounces `notice`. */
  readonly policy?: RetryPolicy | string;
  /**
   * How many run at once, besides the spool's own limit. 1 to 10,000; default no limit of its own.
   */
  readonly concurrency?: number;
  /** How long one attempt may take. 1ms to 1d; default 15m. */
  readonly timeout?: Duration;
  /** Wrapped around this handler, inside the spool's own. */
  readonly middleware?: readonly Middleware[];
}

/** How a handler runs. */
export interface HandleOptions<Body = unknown> extends BounceOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * A schema that the JSON body must fit (otherwise the message is held), or a function that picks
   * by envelope (what it refuses goes to the next matching handler).
   */
  readonly accepts?: StandardSchema<Body> | ((envelope: Envelope) => boolean);
}

/** The route of a handler. */
export function routeOf(
  lane: Lane,
  pattern: string,
  handler: Handler,
  options: HandleOptions,
  settings: SpoolSettings,
): HandlerRoute {
  const { concurrency, timeoutMs } =
    lane === 'delivery'
      ? readOptions({ what: 'handle' }, options, HANDLE)
      : readOptions({ what: 'onBounce' }, options, BOUNCE);
  if (typeof handler !== 'function') {
    throw new RespoolError('config.invalid', `cannot handle "${pattern}": a handler is a function`);
  }
  const { accepts, middleware = [] } = options;
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
    concurrency: concurrency ?? Number.POSITIVE_INFINITY,
    timeoutMs,
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
