/**
 * policy — retry policies: how long to wait before the next attempt, and when to give up. The
 * constructors of policies, the check of one that came as data, and `delayMs`, which computes a
 * wait.
 *
 * A policy can be stored, printed and turned into wait queues before the first failure. A delay is
 * rounded up, not down, except that `custom` never waits longer than its last rung; jitter only
 * adds. The first retry uses the first delay.
 */

import {
  DAY_MS,
  DURATION_MAX_MS,
  type Duration,
  durationMs,
  formatDuration,
  MINUTE_MS,
} from './duration.ts';
import { isRespoolError, RespoolError, show, unreachable } from './errors.ts';
import type { Failure } from './failure.ts';
import { isInRange, type NumberRange } from './limits.ts';
import {
  type Option,
  type OptionTable,
  type OptionValues,
  type OwnOption,
  valuesOf,
} from './option-table.ts';

/** How the delay grows from retry to retry. */
export type PolicyBackoff =
  | { readonly kind: 'fixed'; readonly delayMs: number }
  | {
      readonly kind: 'linear';
      readonly firstMs: number;
      readonly stepMs: number;
      readonly maxMs: number;
    }
  | {
      readonly kind: 'exponential';
      readonly firstMs: number;
      readonly factor: number;
      readonly maxMs: number;
    }
  | { readonly kind: 'ladder'; readonly delaysMs: readonly number[] }
  | { readonly kind: 'custom'; readonly name: string; readonly rungsMs: readonly number[] };

/** When to try again and when to stop. */
export interface RetryPolicy {
  /** Attempts in all, the first included. */
  readonly maxAttempts: number;
  /** No attempt is planned later than this after the enqueue; null: no limit of age. */
  readonly maxAgeMs: number | null;
  readonly backoff: PolicyBackoff;
  /** The share of the delay that chance may add: 0 (default) to 1. */
  readonly jitter: number;
}

/** A registered delay function: the attempt that just failed (1, 2, …) and why → the wait. */
export type BackoffFunction = (attempt: number, failure: Failure) => Duration;

/** Also in docs/reference/limits.md and docs/how-to/retry-policies.md. */
export const ATTEMPTS_MAX = 1_000;

/** What most policies take: `ladder` has no attempts of its own, `noRetry` takes nothing. */
const COMMON = {
  attempts: {
    kind: 'number',
    min: 1,
    max: ATTEMPTS_MAX,
    default: 10,
    about: 'number of attempts, including the first; a ladder has its length plus one',
  },
  maxAge: { kind: 'duration', about: 'no attempt later than this after the enqueue' },
  jitter: {
    kind: 'decimal',
    min: 0,
    max: 1,
    default: 0,
    about: 'adds up to this share of the wait at random',
  },
} as const satisfies OptionTable;

const FIRST = { kind: 'duration', required: true, about: 'the first wait' } as const;
const LONGEST = { kind: 'duration', default: '1d', about: 'the longest wait' } as const;

const FIXED = {
  delay: { kind: 'duration', required: true, about: 'every wait' },
  ...COMMON,
} as const satisfies OptionTable;

const LINEAR = {
  first: FIRST,
  step: { kind: 'duration', defaultText: '`first`', about: 'what each wait adds' },
  max: LONGEST,
  ...COMMON,
} as const satisfies OptionTable;

const EXPONENTIAL = {
  first: FIRST,
  factor: {
    kind: 'decimal',
    min: 1,
    max: 100,
    default: 2,
    about: 'what each wait is multiplied by',
  },
  max: LONGEST,
  ...COMMON,
} as const satisfies OptionTable;

const LADDER = {
  delays: {
    kind: 'data',
    type: `a list of up to ${ATTEMPTS_MAX - 1} durations`,
    ts: 'readonly Duration[]',
    schema: 'delays',
    required: true,
    about: 'the waits, one after the other',
  },
  maxAge: COMMON.maxAge,
  jitter: COMMON.jitter,
} as const satisfies OptionTable;

const CUSTOM = {
  name: { kind: 'text', type: 'a name', required: true, about: 'of the function in `backoffs`' },
  rungs: {
    kind: 'data',
    type: 'a list of 1 to 1,000 durations',
    ts: 'readonly Duration[]',
    schema: 'delays',
    required: true,
    about: 'every wait that the function can ask for',
  },
  ...COMMON,
} as const satisfies OptionTable;

/** The delay functions of a registry, for everything that has policies. */
export const BACKOFFS_OPTION: OwnOption = {
  kind: 'code',
  type: 'functions by name',
  ts: 'Readonly<Record<string, BackoffFunction>>',
  about: 'delay functions for `custom` policies',
};

/** The constructors of policies. */
export type PolicyName =
  | 'fixed'
  | 'linear'
  | 'exponential'
  | 'ladder'
  | 'postfix'
  | 'noRetry'
  | 'custom';

/** The options of each constructor, those that it takes as arguments first. */
export const POLICY_TABLES: Readonly<Record<PolicyName, OptionTable>> = {
  fixed: FIXED,
  linear: LINEAR,
  exponential: EXPONENTIAL,
  ladder: LADDER,
  postfix: COMMON,
  noRetry: {},
  custom: CUSTOM,
};

/** What every policy constructor takes. */
export interface PolicyOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Number of attempts, including the first; a ladder has its length plus one. 1 to 1,000; default
   * 10.
   */
  readonly attempts?: number;
  /** No attempt later than this after the enqueue. */
  readonly maxAge?: Duration;
  /** Adds up to this share of the wait at random. 0 to 1; default 0. */
  readonly jitter?: number;
}

/** What `linear` takes. */
export interface LinearOptions extends PolicyOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The first wait. */
  readonly first: Duration;
  /** What each wait adds. Default `first`. */
  readonly step?: Duration;
  /** The longest wait. Default 1d. */
  readonly max?: Duration;
}

/** What `exponential` takes. */
export interface ExponentialOptions extends PolicyOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The first wait. */
  readonly first: Duration;
  /** What each wait is multiplied by. 1 to 100; default 2. */
  readonly factor?: number;
  /** The longest wait. Default 1d. */
  readonly max?: Duration;
}

/** The same wait before every retry. */
export function fixed(delay: Duration, options: PolicyOptions = {}): RetryPolicy {
  const { delayMs, ...common } = readPolicyOptions({ ...options, delay }, FIXED);
  return policyOf({ kind: 'fixed', delayMs }, common);
}

/** First, first + step, first + 2 × step … up to max. */
export function linear(options: LinearOptions): RetryPolicy {
  const { firstMs, stepMs = firstMs, maxMs, ...common } = readPolicyOptions(options, LINEAR);
  checkMaxNotBelowFirst(firstMs, maxMs);
  return policyOf({ kind: 'linear', firstMs, stepMs, maxMs }, common);
}

/** First, first × factor, first × factor² … up to max. */
export function exponential(options: ExponentialOptions): RetryPolicy {
  const { firstMs, factor, maxMs, ...common } = readPolicyOptions(options, EXPONENTIAL);
  checkMaxNotBelowFirst(firstMs, maxMs);
  return policyOf({ kind: 'exponential', firstMs, factor, maxMs }, common);
}

/** An explicit list of waits: attempts are its length plus one; an empty list means no retry. */
export function ladder(
  delays: readonly Duration[],
  options: Omit<PolicyOptions, 'attempts'> = {},
): RetryPolicy {
  if (!Array.isArray(delays) || delays.length >= ATTEMPTS_MAX) {
    throw invalid('delays', delays, `a list of at most ${ATTEMPTS_MAX - 1} durations`);
  }
  const delaysMs = delays.map((delay, at) => spanMs(delay, `delays[${at}]`));
  const common = readPolicyOptions(options, LADDER);
  return policyOf({ kind: 'ladder', delaysMs }, { ...common, attempts: delaysMs.length + 1 });
}

/** 15m 30m 1h 2h 4h 8h 16h 24h 24h …, ten attempts: how a mail server waits, and our default. */
export function postfix(options: PolicyOptions = {}): RetryPolicy {
  return exponential({ first: 15 * MINUTE_MS, factor: 2, max: DAY_MS, ...options });
}

/** No retry at all: the first failure bounces. */
export function noRetry(): RetryPolicy {
  return ladder([]);
}

/**
 * A delay function from the registry (`backoffs` of createSpool), by name. `rungs` lists every
 * delay it can ask for; what it asks is rounded up to the next of them (past the last: the last).
 */
export function custom(
  name: string,
  rungs: readonly Duration[],
  options: PolicyOptions = {},
): RetryPolicy {
  if (typeof name !== 'string' || name === '') throw invalid('name', name, 'a non-empty name');
  if (!Array.isArray(rungs) || rungs.length === 0 || rungs.length > ATTEMPTS_MAX) {
    throw invalid('rungs', rungs, `a list of 1 to ${ATTEMPTS_MAX} durations`);
  }
  const rungsMs = rungs.map((rung, at) => spanMs(rung, `rungs[${at}]`));
  const common = readPolicyOptions(options, CUSTOM);
  return policyOf({ kind: 'custom', name, rungsMs: distinct(rungsMs) }, common);
}

/** Checks a policy that came from outside as data; returns it or throws `policy.invalid`. */
export function checkPolicy(policy: RetryPolicy, name: string): RetryPolicy {
  const known = ['fixed', 'linear', 'exponential', 'ladder', 'custom'];
  if (typeof policy !== 'object' || policy === null || !known.includes(policy.backoff?.kind)) {
    throw invalid(name, policy, `a policy made by ${known.join(', ')} or postfix`);
  }
  const { backoff, maxAgeMs } = policy;
  checkPolicyOption(`${name}.maxAttempts`, policy.maxAttempts, COMMON.attempts);
  checkPolicyOption(`${name}.jitter`, policy.jitter, COMMON.jitter);
  if (maxAgeMs !== null) checkRange(`${name}.maxAgeMs`, maxAgeMs, DELAY_RANGE);
  if (backoff.kind === 'ladder') checkDelayList(`${name}.delaysMs`, backoff.delaysMs, 0);
  if (backoff.kind === 'custom') checkDelayList(`${name}.rungsMs`, backoff.rungsMs, 1);
  for (const rung of rungs(policy)) checkRange(`${name} delay`, rung, DELAY_RANGE);
  return policy;
}

/** Every delay of the policy itself, ascending, each once; without jitter and `retryAfterMs`. */
export function rungs(policy: RetryPolicy): number[] {
  const { backoff } = policy;
  if (backoff.kind === 'custom') return policy.maxAttempts > 1 ? distinct(backoff.rungsMs) : [];
  const delays: number[] = [];
  for (let attempt = 1; attempt < policy.maxAttempts; attempt += 1) {
    delays.push(plainDelayMs(backoff, attempt));
  }
  return distinct(delays);
}

/** What `delayMs` needs beside the policy. */
interface DelayInput {
  readonly policy: RetryPolicy;
  /** The attempt that just failed, 1 for the first. */
  readonly attempt: number;
  readonly failure: Failure;
  /** 0 ≤ random < 1. */
  readonly random: number;
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
}

/** The wait after this failure. One that the other side asked for replaces the policy's delay. */
export function delayMs({ policy, attempt, failure, random, backoffs }: DelayInput): number {
  const { backoff } = policy;
  const plainMs =
    failure.retryAfterMs ??
    (backoff.kind === 'custom'
      ? customDelayMs(backoff, attempt, failure, backoffs)
      : plainDelayMs(backoff, attempt));
  return Math.ceil(plainMs * (1 + policy.jitter * random));
}

/** A policy in one line: `exponential 1s ×2 up to 1h, 12 attempts, jitter 0.2`. */
export function describePolicy(policy: RetryPolicy): string {
  const parts = [
    describeBackoff(policy.backoff),
    policy.maxAttempts === 1 ? '1 attempt' : `${policy.maxAttempts} attempts`,
  ];
  if (policy.maxAgeMs !== null) parts.push(`within ${formatDuration(policy.maxAgeMs)}`);
  if (policy.jitter > 0) parts.push(`jitter ${policy.jitter}`);
  return parts.join(', ');
}

function describeBackoff(backoff: PolicyBackoff): string {
  switch (backoff.kind) {
    case 'fixed':
      return `fixed ${formatDuration(backoff.delayMs)}`;
    case 'linear':
      return (
        `linear ${formatDuration(backoff.firstMs)} +${formatDuration(backoff.stepMs)} ` +
        `up to ${formatDuration(backoff.maxMs)}`
      );
    case 'exponential':
      return (
        `exponential ${formatDuration(backoff.firstMs)} ×${backoff.factor} ` +
        `up to ${formatDuration(backoff.maxMs)}`
      );
    case 'ladder':
      return `ladder ${backoff.delaysMs.map(formatDuration).join(' ') || 'without retries'}`;
    case 'custom':
      return `custom "${backoff.name}"`;
    default:
      return unreachable(backoff);
  }
}

function plainDelayMs(
  backoff: Exclude<PolicyBackoff, { kind: 'custom' }>,
  attempt: number,
): number {
  switch (backoff.kind) {
    case 'fixed':
      return backoff.delayMs;
    case 'linear':
      return Math.min(backoff.maxMs, backoff.firstMs + (attempt - 1) * backoff.stepMs);
    case 'exponential':
      return exponentialMs(backoff, attempt);
    case 'ladder':
      // Past the end only if an operator granted more attempts than delays: repeat the last one.
      return backoff.delaysMs[Math.min(attempt, backoff.delaysMs.length) - 1] ?? 0;
    default:
      return unreachable(backoff);
  }
}

function exponentialMs(
  { firstMs, factor, maxMs }: Extract<PolicyBackoff, { kind: 'exponential' }>,
  attempt: number,
): number {
  // For many attempts the power is Infinity, and 0 × Infinity is NaN.
  return firstMs === 0 ? 0 : Math.ceil(Math.min(maxMs, firstMs * factor ** (attempt - 1)));
}

function customDelayMs(
  backoff: Extract<PolicyBackoff, { kind: 'custom' }>,
  attempt: number,
  failure: Failure,
  backoffs: Readonly<Record<string, BackoffFunction>> | undefined,
): number {
  const rungsMs = distinct(backoff.rungsMs);
  const longestMs = rungsMs.at(-1) ?? 0;
  let askedMs: number;
  try {
    const ask = backoffs?.[backoff.name];
    // A function that is not registered here (another process, an older release): wait the longest.
    if (ask === undefined) return longestMs;
    askedMs = durationMs(ask(attempt, failure), `backoff "${backoff.name}"`);
  } catch {
    // User code that throws must not decide what becomes of a message: wait the longest rung.
    return longestMs;
  }
  return rungsMs.find((rung) => rung >= askedMs) ?? longestMs;
}

function policyOf(
  backoff: PolicyBackoff,
  { attempts, maxAgeMs, jitter }: OptionValues<typeof COMMON>,
): RetryPolicy {
  return { maxAttempts: attempts, maxAgeMs: maxAgeMs ?? null, backoff, jitter };
}

/** Fills in the defaults. n.b. Unknown names are refused by the types, and in a configuration. */
function readPolicyOptions<const Table extends OptionTable>(
  options: object,
  table: Table,
): OptionValues<Table> {
  return valuesOf(options, table, checkPolicyOption);
}

function checkPolicyOption(what: string, value: unknown, option: Option): unknown {
  if (option.kind === 'duration') return spanMs(value as Duration, what);
  if (option.kind === 'number') return checkRange(what, value, option);
  return option.kind === 'decimal' ? checkRange(what, value, option, false) : value;
}

/** Whole milliseconds of a policy that came as data. */
const DELAY_RANGE: NumberRange = { min: 0, max: DURATION_MAX_MS };

/** A duration of a policy: refused with the policy's code, so that one code covers a bad policy. */
function spanMs(duration: Duration, what: string): number {
  try {
    return durationMs(duration, what);
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    throw new RespoolError('policy.invalid', `${error.message}, in a policy`, { cause: error });
  }
}

function checkDelayList(what: string, value: unknown, min: number): void {
  if (Array.isArray(value) && value.length >= min && value.length <= ATTEMPTS_MAX) return;
  throw invalid(what, value, `a list of ${min} to ${ATTEMPTS_MAX} delays in milliseconds`);
}

function checkRange(what: string, value: unknown, range: NumberRange, isWhole = true): number {
  if (isInRange(value, range, isWhole)) return value;
  const { min, max } = range;
  throw invalid(what, value, `${isWhole ? 'a whole number' : 'a number'} ${min} to ${max}`);
}

function checkMaxNotBelowFirst(firstMs: number, maxMs: number): void {
  if (maxMs < firstMs) throw invalid('max', maxMs, `at least first, ${firstMs} ms`);
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'policy.invalid',
    `cannot use ${show(value)} as "${what}" of a policy: allowed is ${allowed}`,
  );
}

function distinct(delays: readonly number[]): number[] {
  return [...new Set(delays)].toSorted((a, b) => a - b);
}
