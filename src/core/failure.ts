/**
 * failure — the first family: a delivery did not work. Data, kept with the message.
 *
 * `classify` turns whatever a handler threw into a Failure. Promise: what is not positively final is
 * transient (invariant 8).
 */

import { type Duration, durationMs } from './duration.ts';
import { textOf } from './errors.ts';
import { fingerprint } from './fingerprint.ts';

/** Whether trying again can help. */
export type Permanence = 'transient' | 'permanent';

/** Why one attempt did not deliver. */
export interface Failure {
  readonly permanence: Permanence;
  /** A stable word, such as `smtp.451` or `timeout`. */
  readonly code: string;
  /** One line for people, cut at 1,000 characters. */
  readonly reason: string;
  /** How long the other side asked us to wait; replaces the policy's delay. */
  readonly retryAfterMs?: number;
  /** The same for failures that are alike: code and reason without ids, numbers and addresses. */
  readonly fingerprint: string;
}

/** The longest reason that is kept; what is longer is cut and marked. */
export const REASON_MAX_CHARS = 1_000;

/** The longest code that is kept. */
export const CODE_MAX_CHARS = 64;

/** A handler throws this when trying again can help. */
export class RetryableError extends Error {
  override readonly name: string = 'RetryableError';
  readonly code: string;
  readonly retryAfterMs: number | undefined;

  constructor(
    code: string,
    reason: string,
    options: { readonly retryAfter?: Duration; readonly cause?: unknown } = {},
  ) {
    super(reason, 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.retryAfterMs =
      options.retryAfter === undefined ? undefined : durationMs(options.retryAfter, 'retryAfter');
  }
}

/** A handler throws this when trying again cannot help: the message bounces at once. */
export class PermanentError extends Error {
  override readonly name: string = 'PermanentError';
  readonly code: string;

  constructor(code: string, reason: string, options: { readonly cause?: unknown } = {}) {
    super(reason, 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
  }
}

/** Builds a Failure with its fingerprint, its code and reason cut to their limits. */
export function failure(
  permanence: Permanence,
  code: string,
  reason: string,
  retryAfterMs?: number,
): Failure {
  const cutCode = code.slice(0, CODE_MAX_CHARS);
  const cutReason =
    reason.length <= REASON_MAX_CHARS ? reason : `${reason.slice(0, REASON_MAX_CHARS - 1)}…`;
  return {
    permanence,
    code: cutCode,
    reason: cutReason,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    fingerprint: fingerprint(cutCode, cutReason),
  };
}

/** Turns anything thrown into a Failure; only what says so itself is permanent. */
export function classify(thrown: unknown): Failure {
  const permanence = isRetryable(thrown) ? 'transient' : 'permanent';
  return failure(permanence, codeOf(thrown), textOf(thrown), retryAfterOf(thrown));
}

/**
 * Whether trying again may help. Permanent only when the error says so: a PermanentError (also as a
 * `cause`), or an own `isRetryable`, as a value or a method, that is false.
 */
export function isRetryable(thrown: unknown): boolean {
  for (const error of chainOf(thrown)) {
    if (error instanceof PermanentError) return false;
    if (error instanceof RetryableError) return true;
    const own = (error as { isRetryable?: unknown }).isRetryable;
    if (typeof own === 'boolean') return own;
    if (typeof own === 'function') return askOwn(error);
  }
  return true;
}

/** The opposite of `isRetryable`. */
export function isPermanent(thrown: unknown): boolean {
  return !isRetryable(thrown);
}

function askOwn(error: object): boolean {
  try {
    return (error as { isRetryable(): unknown }).isRetryable() !== false;
  } catch {
    // An error that cannot say what it is has not positively said that it is final.
    return true;
  }
}

/** A cause chain longer than this is a cycle or nonsense. */
const CHAIN_MAX = 10;

function* chainOf(thrown: unknown): Generator<object> {
  let link = thrown;
  for (let depth = 0; depth < CHAIN_MAX; depth += 1) {
    if (typeof link !== 'object' || link === null) return;
    yield link;
    link = (link as { cause?: unknown }).cause;
  }
}

function retryAfterOf(thrown: unknown): number | undefined {
  for (const error of chainOf(thrown)) {
    const ms = (error as { retryAfterMs?: unknown }).retryAfterMs;
    if (typeof ms === 'number' && Number.isFinite(ms) && ms >= 0) return Math.ceil(ms);
  }
  return undefined;
}

function codeOf(thrown: unknown): string {
  for (const error of chainOf(thrown)) {
    const code = (error as { code?: unknown }).code;
    if (typeof code === 'string' && code !== '') return code.toLowerCase().replaceAll(/\s+/g, '-');
  }
  if (thrown instanceof Error && thrown.name !== 'Error') {
    return `error.${thrown.name.toLowerCase().replaceAll(/[^a-z0-9._-]+/g, '-')}`;
  }
  return 'error';
}
