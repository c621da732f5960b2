/**
 * options — what createSpool takes, checked once, with the defaults in one place.
 */

import { type Duration, durationMs } from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import { checkNumber } from '../core/limits.ts';
import type { Retention } from '../core/next-status.ts';
import {
  CLOCK_OPTION,
  DICE_OPTION,
  type Option,
  readGroup,
  readOptions,
} from '../core/option-table.ts';
import {
  type BackoffFunction,
  BACKOFFS_OPTION,
  checkPolicy,
  postfix,
  type RetryPolicy,
} from '../core/policy.ts';
import type { DestinationLimits } from '../engine/handler-slots.ts';
import { checkTracer } from '../engine/tracing.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Durability, EntryStore } from '../ports/entry-store.ts';
import type { Middleware } from '../ports/handler.ts';
import type { Logger } from '../ports/logger.ts';
import type { Tracer } from '../ports/tracer.ts';
import type { Transform } from '../ports/transform.ts';
import { checkTransforms } from './chain.ts';

/** How long something is kept after its end: not at all, forever, or archived for a while. */
export type Keep = 'remove' | 'keep' | { readonly archive: Duration };

const SPOOL = {
  path: {
    kind: 'text',
    type: 'a folder',
    default: './respool',
    about: 'the folder of the default stores; ignored if both stores are given',
  },
  entries: {
    kind: 'code',
    type: 'EntryStore',
    ts: 'EntryStore',
    defaultText: '`sqlite({ path })`',
    about: 'where entries are stored',
  },
  bodies: {
    kind: 'code',
    type: 'BodyStore',
    ts: 'BodyStore',
    defaultText: 'files in `path`/bodies',
    about: 'where bodies above the inline limit are stored',
  },
  transforms: {
    kind: 'code',
    type: 'a list of Transform',
    ts: 'readonly Transform[]',
    about:
      'transforms of bodies before they are stored, in this order: at most one compression and ' +
      'one encryption, compression first; your own may be anywhere',
  },
  policies: {
    kind: 'code',
    type: 'policies by name',
    ts: 'Readonly<Record<string, RetryPolicy>>',
    about:
      '`default` is for messages that name none, `notice` for bounce notices; names of 1 to 64 ' +
      'letters, digits, `.` `_` `-`',
  },
  backoffs: BACKOFFS_OPTION,
  concurrency: { kind: 'number', min: 1, max: 10_000, default: 10, about: 'handlers at once' },
  destinationConcurrency: {
    kind: 'numbers',
    type: "1 to 10,000, or numbers by destination with `'*'` for the rest",
    ts: 'DestinationLimits',
    schema: 'numbers',
    about: 'handlers at once per destination',
  },
  lease: {
    kind: 'duration',
    min: '1s',
    max: '1d',
    default: '60s',
    about: 'how long a claim lasts without a heartbeat',
  },
  settle: {
    kind: 'choice',
    choices: ['lazy', 'durable'],
    default: 'lazy',
    about:
      '`lazy`: verdicts are on disk with the next durable write or within 250 ms; `durable`: ' +
      'before they count as settled',
  },
  retention: {
    kind: 'group',
    about: 'how long messages are kept after their end',
    options: {
      delivered: {
        kind: 'keep',
        type: '`remove` or `{ archive: duration }`',
        ts: "'remove' | { readonly archive: Duration }",
        schema: 'keepDelivered',
        default: 'remove',
        about: 'what happens to a delivered message',
      },
      bounced: {
        kind: 'keep',
        type: '`keep` or `{ archive: duration }`',
        ts: "'keep' | { readonly archive: Duration }",
        schema: 'keepBounced',
        default: 'keep',
        about: 'what happens to a bounced message after its notice',
      },
      removed: {
        kind: 'duration',
        max: '3650d',
        default: '7d',
        about: 'how long a soft removal can be undone',
      },
      dedupeWindow: {
        kind: 'duration',
        max: '3650d',
        default: '24h',
        about: 'how long dedupe keys and ids of your own are known after delivery',
      },
    },
  },
  limits: {
    kind: 'group',
    about: 'sizes of messages',
    options: {
      bodyBytes: {
        kind: 'bytes',
        min: '0 bytes',
        max: '1 TiB',
        default: '64 MiB',
        about: 'the largest body',
      },
      headerBytes: {
        kind: 'bytes',
        min: '0 bytes',
        max: '1 MiB',
        default: '32 KiB',
        about: 'names and values of all headers of a message together',
      },
      inlineBodyBytes: {
        kind: 'bytes',
        min: '0 bytes',
        max: '1 MiB',
        default: '16 KiB',
        about: 'bodies up to this size are stored with their entry, if the store takes as much',
      },
    },
  },
  immediate: {
    kind: 'boolean',
    default: true,
    about: 'false: a new message does not start at once but is found at the next poll',
  },
  poll: {
    kind: 'duration',
    min: '10ms',
    max: '1h',
    default: '30s',
    about: 'how often the store is polled even without a wake-up',
  },
  unhandled: {
    kind: 'choice',
    choices: ['hold', 'leave'],
    default: 'hold',
    about:
      'what happens to topics without a handler in this process; if several processes can use ' +
      'the store, messages are held only when they have been due for five minutes and no ' +
      'process handles them',
  },
  middleware: {
    kind: 'code',
    type: 'a list of functions',
    ts: 'readonly Middleware[]',
    about: 'wrappers around every handler, the first outermost',
  },
  requireDurability: {
    kind: 'choice',
    choices: ['none', 'process', 'server', 'power-loss', 'node-loss'],
    type: '`process`, `server`, `power-loss` or `node-loss`',
    ts: "Exclude<Durability, 'none'>",
    defaultText: 'none',
    about: 'refuse to open on stores that promise less',
  },
  caretaker: {
    kind: 'group',
    about: 'periodic maintenance of the store',
    options: {
      every: {
        kind: 'duration',
        min: '1s',
        max: '1d',
        default: '1m',
        about: 'how often expired messages and orphans are removed',
      },
      orphanGrace: {
        kind: 'duration',
        default: '24h',
        about: 'how old a body without entry must be before it is removed',
      },
    },
  },
  logger: {
    kind: 'code',
    type: 'Logger',
    ts: 'Logger',
    about: 'gets a line for every event',
  },
  tracing: {
    kind: 'code',
    type: 'Tracer',
    ts: 'Tracer',
    about: 'writes [spans](traces.md), as `await openTelemetry()` of `respool/observe` does',
  },
  clock: CLOCK_OPTION,
  dice: DICE_OPTION,
} as const;

/** Every option of `createSpool`. */
export const SPOOL_OPTIONS: Readonly<Record<keyof SpoolOptions, Option>> = SPOOL;

/** What createSpool takes; everything is optional. */
export interface SpoolOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The folder of the default stores; ignored if both stores are given. Default `./respool`. */
  readonly path?: string;
  /** Where entries are stored. Default `sqlite({ path })`. */
  readonly entries?: EntryStore;
  /** Where bodies above the inline limit are stored. Default files in `path`/bodies. */
  readonly bodies?: BodyStore;
  /**
   * Transforms of bodies before they are stored, in this order: at most one compression and one
   * encryption, compression first; your own may be anywhere.
   */
  readonly transforms?: readonly Transform[];
  /**
   * `default` is for messages that name none, `notice` for bounce notices; names of 1 to 64
   * letters, digits, `.` `_` `-`.
   */
  readonly policies?: Readonly<Record<string, RetryPolicy>>;
  /** Delay functions for `custom` policies. */
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
  /** Handlers at once. 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /** Handlers at once per destination. */
  readonly destinationConcurrency?: DestinationLimits;
  /** How long a claim lasts without a heartbeat. 1s to 1d; default 60s. */
  readonly lease?: Duration;
  /**
   * `lazy`: verdicts are on disk with the next durable write or within 250 ms; `durable`: before
   * they count as settled. Default `lazy`.
   */
  readonly settle?: 'lazy' | 'durable';
  /** How long messages are kept after their end. */
  readonly retention?: {
    /** What happens to a delivered message. Default remove. */
    readonly delivered?: 'remove' | { readonly archive: Duration };
    /** What happens to a bounced message after its notice. Default keep. */
    readonly bounced?: 'keep' | { readonly archive: Duration };
    /** How long a soft removal can be undone. Up to 3650d; default 7d. */
    readonly removed?: Duration;
    /**
     * How long dedupe keys and ids of your own are known after delivery. Up to 3650d; default 24h.
     */
    readonly dedupeWindow?: Duration;
  };
  /** Sizes of messages. */
  readonly limits?: {
    /** The largest body. 0 to 1 TiB; default 64 MiB. */
    readonly bodyBytes?: number;
    /** Names and values of all headers of a message together. 0 to 1 MiB; default 32 KiB. */
    readonly headerBytes?: number;
    /**
     * Bodies up to this size are stored with their entry, if the store takes as much. 0 to 1 MiB;
     * default 16 KiB.
     */
    readonly inlineBodyBytes?: number;
  };
  /** False: a new message does not start at once but is found at the next poll. Default true. */
  readonly immediate?: boolean;
  /** How often the store is polled even without a wake-up. 10ms to 1h; default 30s. */
  readonly poll?: Duration;
  /**
   * What happens to topics without a handler in this process; if several processes can use the
   * store, messages are held only when they have been due for five minutes and no process handles
   * them. Default `hold`.
   */
  readonly unhandled?: 'hold' | 'leave';
  /** Wrappers around every handler, the first outermost. */
  readonly middleware?: readonly Middleware[];
  /** Refuse to open on stores that promise less. */
  readonly requireDurability?: Exclude<Durability, 'none'>;
  /** Periodic maintenance of the store. */
  readonly caretaker?: {
    /** How often expired messages and orphans are removed. 1s to 1d; default 1m. */
    readonly every?: Duration;
    /** How old a body without entry must be before it is removed. Default 24h. */
    readonly orphanGrace?: Duration;
  };
  /** Gets a line for every event. */
  readonly logger?: Logger;
  /** Writes spans, as `await openTelemetry()` of `respool/observe` does. */
  readonly tracing?: Tracer;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
  /** For tests. Default the system's. */
  readonly dice?: Dice;
}

/** The options, checked. */
export interface SpoolSettings {
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

/** Checks the options and fills in the defaults. */
export function spoolSettingsOf(options: SpoolOptions): SpoolSettings {
  const { retention: Retained, limits: Limits, caretaker: Caretaker } = SPOOL;
  const own = readOptions({ what: 'createSpool' }, options, SPOOL);
  const { bodyBytes, headerBytes, inlineBodyBytes } = readGroup('limits', options.limits, Limits);
  const { everyMs, orphanGraceMs } = readGroup('caretaker', options.caretaker, Caretaker);
  const policies = policiesOf(options.policies ?? {});
  const defaultPolicy = policies.get('default') ?? postfix();
  return {
    path: pathOf(options.path),
    transforms: checkTransforms(options.transforms ?? []),
    policies,
    defaultPolicy,
    noticePolicy: policies.get('notice') ?? defaultPolicy,
    backoffs: backoffsOf(options.backoffs ?? {}),
    concurrency: own.concurrency,
    destinationConcurrency: destinationLimits(options.destinationConcurrency),
    leaseMs: own.leaseMs,
    settlesDurably: own.settle === 'durable',
    retention: {
      ...readGroup('retention', options.retention, Retained),
      deliveredMs: keepMs('delivered', options.retention),
      bouncedMs: keepMs('bounced', options.retention),
    },
    bodyMaxBytes: bodyBytes,
    headerMaxBytes: headerBytes,
    inlineMaxBytes: inlineBodyBytes,
    isImmediate: own.immediate,
    pollMs: own.pollMs,
    unhandled: own.unhandled,
    middleware: checkMiddleware(options.middleware ?? []),
    requireDurability: own.requireDurability ?? 'none',
    caretakerEveryMs: everyMs,
    orphanGraceMs,
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

/**
 * From the least to the most that a store can promise; also in the choices of `requireDurability`
 * and of s3/options.ts, and in RANKS of cli/commands/doctor/storage-checks.ts.
 */
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

function policiesOf(values: Readonly<Record<string, RetryPolicy>>): Map<string, RetryPolicy> {
  const policies = new Map<string, RetryPolicy>();
  for (const [name, policy] of Object.entries(values)) {
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(name)) {
      throw invalid('policies', name, 'names of 1 to 64 letters, digits, . _ -');
    }
    policies.set(name, checkPolicy(policy, `policies.${name}`));
  }
  return policies;
}

function backoffsOf(
  values: Readonly<Record<string, BackoffFunction>>,
): Readonly<Record<string, BackoffFunction>> {
  for (const [name, ask] of Object.entries(values)) {
    if (typeof ask !== 'function') throw invalid(`backoffs.${name}`, ask, 'a function');
  }
  return { ...values };
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

/** How long an archive keeps what has ended so; null: it is never archived. */
function keepMs(
  name: 'delivered' | 'bounced',
  retention: SpoolOptions['retention'],
): number | null {
  const what = `retention.${name}`;
  const word = SPOOL.retention.options[name].default;
  const keep: Keep = retention?.[name] ?? word;
  if (keep === word) return null;
  if (typeof keep === 'object' && keep !== null && 'archive' in keep) {
    return durationMs(keep.archive, `${what}.archive`);
  }
  throw invalid(what, keep, `'${word}' or { archive: '7d' }`);
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${JSON.stringify(value) ?? String(value)} as "${what}": allowed is ${allowed}`,
  );
}
