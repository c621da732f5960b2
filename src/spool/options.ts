/**
 * options — what createSpool takes, checked once at the door, with the defaults in one place.
 */

import {
  DAY_MS,
  type Duration,
  durationMs,
  HOUR_MS,
  MINUTE_MS,
  SECOND_MS,
} from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import { checkNames, checkNumber, checkOneOf, HEADERS_MAX_BYTES } from '../core/limits.ts';
import type { Retention } from '../core/next-status.ts';
import { type BackoffFunction, checkPolicy, postfix, type RetryPolicy } from '../core/policy.ts';
import type { DestinationLimits } from '../engine/slots.ts';
import { checkTracer } from '../engine/tracing.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Durability, EntryStore } from '../ports/entry-store.ts';
import type { Middleware } from '../ports/handler.ts';
import type { Logger } from '../ports/logger.ts';
import type { Tracer } from '../ports/tracer.ts';
import type { Transform } from '../ports/transform.ts';
import { checkTransforms } from './check-transforms.ts';

/** How long something is kept after its end: not at all, for good, or archived for a while. */
export type Keep = 'remove' | 'keep' | { readonly archive: Duration };

/** What createSpool takes; everything is optional. */
export interface SpoolOptions {
  /** The folder of the embedded default; default `./respool`. */
  readonly path?: string;
  /** Where entries are kept; default SQLite in `path`. */
  readonly entries?: EntryStore;
  /** Where bodies above the inline limit are kept; default files in `path`. */
  readonly bodies?: BodyStore;
  /**
   * What is done to bodies before they are kept, in this order; default nothing. See
   * `respool/transforms`.
   */
  readonly transforms?: readonly Transform[];
  /** Policies by name; `default` serves every message that names none, `notice` the notices. */
  readonly policies?: Readonly<Record<string, RetryPolicy>>;
  /** Delay functions by name, for `custom(name, rungs)` policies. */
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
  /** Handlers that run at once, 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /** Handlers that run at once per destination: a number, or by name with `'*'` for the rest. */
  readonly destinationConcurrency?: DestinationLimits;
  /** How long a claim lasts without a heartbeat, 1s to 1d; default 60s. */
  readonly lease?: Duration;
  /** `lazy` (default): verdicts are on disk with the next durable write or within 250 ms. */
  readonly settle?: 'lazy' | 'durable';
  readonly retention?: {
    /** Default `remove`. */
    readonly delivered?: 'remove' | { readonly archive: Duration };
    /** Default `keep`: stays in bounce until an operator acts. */
    readonly bounced?: 'keep' | { readonly archive: Duration };
    /** How long a soft removal can be undone; default 7d. */
    readonly removed?: Duration;
    /** How long a delivered dedupe key or own id is remembered; default 24h. */
    readonly dedupeWindow?: Duration;
  };
  readonly limits?: {
    /** Default 64 MiB. */
    readonly bodyBytes?: number;
    /** Default 32 KiB. */
    readonly headerBytes?: number;
    /** Bodies up to this ride with their entry; default 16 KiB, capped by the store. */
    readonly inlineBodyBytes?: number;
  };
  /**
   * Whether a new message starts at once (default), or is found at the next look: for a process
   * that should rather collect than hurry.
   */
  readonly immediate?: boolean;
  /** How often the store is looked at even when nothing calls, 10ms to 1h; default 30s. */
  readonly poll?: Duration;
  /**
   * Topics without a handler: `hold` them (default; see docs) or `leave` them to other processes.
   */
  readonly unhandled?: 'hold' | 'leave';
  /** Wrapped around every handler, the first outermost. */
  readonly middleware?: readonly Middleware[];
  /** Refuses to start on stores that promise less. */
  readonly requireDurability?: Exclude<Durability, 'none'>;
  readonly caretaker?: {
    /** How often retention and leftovers are looked after, 1s to 1d; default 1m. */
    readonly every?: Duration;
    /** How old a body without entry must be before it is removed; default 24h. */
    readonly orphanGrace?: Duration;
  };
  /** Takes a line for what happens; default silent. */
  readonly logger?: Logger;
  /** Writes spans, as `await openTelemetry()` of `respool/observe` does; default none. */
  readonly tracing?: Tracer;
  /** Another clock and another chance, for tests. */
  readonly clock?: Clock;
  readonly dice?: Dice;
}

/** The options after the door. */
export interface Settings {
  readonly path: string;
  readonly transforms: readonly Transform[];
  readonly policies: ReadonlyMap<string, RetryPolicy>;
  readonly defaultPolicy: RetryPolicy;
  readonly noticePolicy: RetryPolicy;
  readonly backoffs: Readonly<Record<string, BackoffFunction>>;
  readonly concurrency: number;
  readonly destinationConcurrency: DestinationLimits | undefined;
  readonly leaseMs: number;
  readonly settlesDurably: boolean;
  readonly retention: Retention;
  readonly bodyMaxBytes: number;
  readonly headerMaxBytes: number;
  readonly inlineMaxBytes: number;
  readonly isImmediate: boolean;
  readonly pollMs: number;
  readonly unhandled: 'hold' | 'leave';
  readonly middleware: readonly Middleware[];
  readonly requireDurability: Durability;
  readonly caretakerEveryMs: number;
  readonly orphanGraceMs: number;
  readonly tracer: Tracer | undefined;
}

const NAMES = {
  spool: [
    'path',
    'entries',
    'bodies',
    'transforms',
    'policies',
    'backoffs',
    'concurrency',
    'destinationConcurrency',
    'lease',
    'settle',
    'retention',
    'limits',
    'immediate',
    'poll',
    'unhandled',
    'middleware',
    'requireDurability',
    'caretaker',
    'logger',
    'tracing',
    'clock',
    'dice',
  ],
  retention: ['delivered', 'bounced', 'removed', 'dedupeWindow'],
  limits: ['bodyBytes', 'headerBytes', 'inlineBodyBytes'],
  caretaker: ['every', 'orphanGrace'],
};

const GIB = 2 ** 30;

/** Checks the options and fills in the defaults. */
export function settingsOf(options: SpoolOptions): Settings {
  checkNames('createSpool', options, NAMES.spool);
  const policies = policiesOf(options.policies ?? {});
  const defaultPolicy = policies.get('default') ?? postfix();
  const { limits = {}, caretaker = {} } = options;
  checkNames('limits', limits, NAMES.limits);
  checkNames('caretaker', caretaker, NAMES.caretaker);
  return {
    path: pathOf(options.path),
    transforms: checkTransforms(options.transforms ?? []),
    policies,
    defaultPolicy,
    noticePolicy: policies.get('notice') ?? defaultPolicy,
    backoffs: backoffsOf(options.backoffs ?? {}),
    concurrency: checkNumber('concurrency', options.concurrency ?? 10, { min: 1, max: 10_000 }),
    destinationConcurrency: destinationLimits(options.destinationConcurrency),
    leaseMs: durationMs(options.lease ?? 60 * SECOND_MS, 'lease', {
      minMs: SECOND_MS,
      maxMs: DAY_MS,
    }),
    settlesDurably:
      checkOneOf('settle', options.settle ?? 'lazy', ['lazy', 'durable']) === 'durable',
    retention: retentionOf(options.retention ?? {}),
    bodyMaxBytes: bytes('limits.bodyBytes', limits.bodyBytes, 64 * 2 ** 20, 1024 * GIB),
    headerMaxBytes: bytes('limits.headerBytes', limits.headerBytes, HEADERS_MAX_BYTES, 2 ** 20),
    inlineMaxBytes: bytes('limits.inlineBodyBytes', limits.inlineBodyBytes, 16 * 2 ** 10, 2 ** 20),
    isImmediate: flag('immediate', options.immediate ?? true),
    pollMs: durationMs(options.poll ?? 30 * SECOND_MS, 'poll', { minMs: 10, maxMs: HOUR_MS }),
    unhandled: checkOneOf('unhandled', options.unhandled ?? 'hold', ['hold', 'leave']),
    middleware: checkMiddleware(options.middleware ?? []),
    requireDurability: checkOneOf(
      'requireDurability',
      options.requireDurability ?? 'none',
      DURABILITIES,
    ),
    caretakerEveryMs: durationMs(caretaker.every ?? MINUTE_MS, 'caretaker.every', {
      minMs: SECOND_MS,
      maxMs: DAY_MS,
    }),
    orphanGraceMs: durationMs(caretaker.orphanGrace ?? DAY_MS, 'caretaker.orphanGrace'),
    tracer: checkTracer(options.tracing),
  };
}

/** Refuses a list of middleware that holds anything but functions. */
export function checkMiddleware(middleware: unknown): readonly Middleware[] {
  const isList =
    Array.isArray(middleware) && middleware.every((wrap) => typeof wrap === 'function');
  if (isList) return middleware as readonly Middleware[];
  throw invalid('middleware', middleware, 'a list of functions');
}

/** From the least to the most that a store can promise. */
export const DURABILITIES: readonly Durability[] = [
  'none',
  'process',
  'server',
  'power-loss',
  'node-loss',
];

function pathOf(path: unknown): string {
  if (path === undefined) return './respool';
  if (typeof path === 'string' && path !== '') return path;
  throw invalid('path', path, 'the name of a folder');
}

function policiesOf(given: Readonly<Record<string, RetryPolicy>>): Map<string, RetryPolicy> {
  const policies = new Map<string, RetryPolicy>();
  for (const [name, policy] of Object.entries(given)) {
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(name)) {
      throw invalid('policies', name, 'names of 1 to 64 letters, digits, . _ -');
    }
    policies.set(name, checkPolicy(policy, `policies.${name}`));
  }
  return policies;
}

function backoffsOf(
  given: Readonly<Record<string, BackoffFunction>>,
): Readonly<Record<string, BackoffFunction>> {
  for (const [name, ask] of Object.entries(given)) {
    if (typeof ask !== 'function') throw invalid(`backoffs.${name}`, ask, 'a function');
  }
  return { ...given };
}

function destinationLimits(limits: DestinationLimits | undefined): DestinationLimits | undefined {
  if (limits === undefined) return undefined;
  const range = { min: 1, max: 10_000 };
  if (typeof limits !== 'object' || limits === null) {
    return checkNumber('destinationConcurrency', limits, range);
  }
  for (const [name, limit] of Object.entries(limits)) {
    checkNumber(`destinationConcurrency.${name}`, limit, range);
  }
  return { ...limits };
}

function retentionOf(given: NonNullable<SpoolOptions['retention']>): Retention {
  checkNames('retention', given, NAMES.retention);
  const window = { maxMs: 3_650 * DAY_MS };
  return {
    deliveredMs: keepMs('retention.delivered', given.delivered ?? 'remove', 'remove'),
    bouncedMs: keepMs('retention.bounced', given.bounced ?? 'keep', 'keep'),
    removedMs: durationMs(given.removed ?? 7 * DAY_MS, 'retention.removed', window),
    dedupeWindowMs: durationMs(
      given.dedupeWindow ?? 24 * HOUR_MS,
      'retention.dedupeWindow',
      window,
    ),
  };
}

function keepMs(what: string, keep: Keep, word: 'remove' | 'keep'): number | null {
  if (keep === word) return null;
  if (typeof keep === 'object' && keep !== null && 'archive' in keep) {
    return durationMs(keep.archive, `${what}.archive`);
  }
  throw invalid(what, keep, `'${word}' or { archive: '7d' }`);
}

function flag(what: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw invalid(what, value, 'true or false');
}

function bytes(what: string, given: number | undefined, byDefault: number, max: number): number {
  return checkNumber(what, given ?? byDefault, { min: 0, max });
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${JSON.stringify(value) ?? String(value)} as "${what}": allowed is ${allowed}`,
  );
}
