/**
 * policy — how long to wait before the next attempt, and when to give up. Data, not code.
 *
 * A policy can be stored, printed and turned into wait queues before the first failure. A delay may
 * be rounded up, never down; jitter only adds. The first retry uses the first delay.
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

/** What every policy constructor takes. */
export interface PolicyOptions {
  /** Attempts in all, the first included; default 10, at most 1,000. */
  readonly attempts?: number;
  /** No attempt later than this after the enqueue; default: no limit. */
  readonly maxAge?: Duration;
  /** Adds up to this share of the delay by chance; default 0, at most 1. */
  readonly jitter?: number;
}

export const ATTEMPTS_MAX = 1_000;
const ATTEMPTS_DEFAULT = 10;

/** The same wait before every retry. */
export function fixed(delay: Duration, options: PolicyOptions = {}): RetryPolicy {
  return policyOf({ kind: 'fixed', delayMs: spanMs(delay, 'delay') }, options);
}

/** First, first + step, first + 2 × step … up to max (default 24h). */
export function linear(
  options: PolicyOptions & {
    readonly first: Duration;
    readonly step?: Duration;
    readonly max?: Duration;
  },
): RetryPolicy {
  const firstMs = spanMs(options.first, 'first');
  const stepMs = options.step === undefined ? firstMs : spanMs(options.step, 'step');
  const maxMs = spanMs(options.max ?? DAY_MS, 'max');
  refuseCapBelowFirst(firstMs, maxMs);
  return policyOf({ kind: 'linear', firstMs, stepMs, maxMs }, options);
}

/** First, first × factor, first × factor² … up to max (default 24h); factor defaults to 2. */
export function exponential(
  options: PolicyOptions & {
    readonly first: Duration;
    readonly factor?: number;
    readonly max?: Duration;
  },
): RetryPolicy {
  const firstMs = spanMs(options.first, 'first');
  const factor = options.factor ?? 2;
  const maxMs = spanMs(options.max ?? DAY_MS, 'max');
  refuseOutside('factor', factor, 1, 100);
  refuseCapBelowFirst(firstMs, maxMs);
  return policyOf({ kind: 'exponential', firstMs, factor, maxMs }, options);
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
  return policyOf({ kind: 'ladder', delaysMs }, { ...options, attempts: delaysMs.length + 1 });
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
  return policyOf({ kind: 'custom', name, rungsMs: distinct(rungsMs) }, options);
}

/** Checks a policy that came from outside as data; returns it or throws `policy.invalid`. */
export function checkPolicy(policy: RetryPolicy, name: string): RetryPolicy {
  const known = ['fixed', 'linear', 'exponential', 'ladder', 'custom'];
  if (typeof policy !== 'object' || policy === null || !known.includes(policy.backoff?.kind)) {
    throw invalid(name, policy, `a policy made by ${known.join(', ')} or postfix`);
  }
  const { backoff, maxAgeMs } = policy;
  refuseOutside(`${name}.maxAttempts`, policy.maxAttempts, 1, ATTEMPTS_MAX, true);
  refuseOutside(`${name}.jitter`, policy.jitter, 0, 1);
  if (maxAgeMs !== null) refuseOutside(`${name}.maxAgeMs`, maxAgeMs, 0, DURATION_MAX_MS, true);
  if (backoff.kind === 'ladder') refuseNoList(`${name}.delaysMs`, backoff.delaysMs, 0);
  if (backoff.kind === 'custom') refuseNoList(`${name}.rungsMs`, backoff.rungsMs, 1);
  for (const rung of rungs(policy)) refuseOutside(`${name} delay`, rung, 0, DURATION_MAX_MS, true);
  return policy;
}

/** Every delay the policy can ask for, ascending, each once; jitter left out. */
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
export interface DelayInput {
  readonly policy: RetryPolicy;
  /** The attempt that just failed, 1 for the first. */
  readonly attempt: number;
  readonly failure: Failure;
  /** 0 ≤ random < 1. */
  readonly random: number;
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
}

/** How long to wait after this failure. A wait the other side asked for replaces the policy's. */
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
      // Past the end only when an operator granted more attempts than it has: the last again.
      return backoff.delaysMs[Math.min(attempt, backoff.delaysMs.length) - 1] ?? 0;
    default:
      return unreachable(backoff);
  }
}

function exponentialMs(
  { firstMs, factor, maxMs }: Extract<PolicyBackoff, { kind: 'exponential' }>,
  attempt: number,
): number {
  // Far out the power is Infinity, and zero times that is no number at all.
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
    // User code that throws must not decide the fate of a message: wait the longest rung.
    return longestMs;
  }
  return rungsMs.find((rung) => rung >= askedMs) ?? longestMs;
}

function policyOf(backoff: PolicyBackoff, options: PolicyOptions): RetryPolicy {
  const maxAttempts = options.attempts ?? ATTEMPTS_DEFAULT;
  const jitter = options.jitter ?? 0;
  refuseOutside('attempts', maxAttempts, 1, ATTEMPTS_MAX, true);
  refuseOutside('jitter', jitter, 0, 1);
  const maxAgeMs = options.maxAge === undefined ? null : spanMs(options.maxAge, 'maxAge');
  return { maxAttempts, maxAgeMs, backoff, jitter };
}

/** A duration of a policy: refused with the policy's code, so that one code covers a bad policy. */
function spanMs(duration: Duration, what: string): number {
  try {
    return durationMs(duration, what);
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    throw new RespoolError('policy.invalid', `${error.message}, in a policy`, { cause: error });
  }
}

function refuseNoList(what: string, value: unknown, min: number): void {
  if (Array.isArray(value) && value.length >= min && value.length <= ATTEMPTS_MAX) return;
  throw invalid(what, value, `a list of ${min} to ${ATTEMPTS_MAX} delays in milliseconds`);
}

function refuseOutside(what: string, value: number, min: number, max: number, whole = false): void {
  const fits =
    typeof value === 'number' &&
    value >= min &&
    value <= max &&
    (!whole || Number.isInteger(value));
  if (!fits)
    throw invalid(what, value, `${whole ? 'a whole number' : 'a number'} ${min} to ${max}`);
}

function refuseCapBelowFirst(firstMs: number, maxMs: number): void {
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
