/**
 * failure — failures of deliveries, as data that is stored with the message; and texts made safe to
 * store or to print: without control characters and cut at a limit (`reasonText`, `codeText`), or
 * with everything unsafe escaped and not cut (`printable`).
 *
 * `classify` turns whatever a handler threw into a Failure; it never throws itself. Promise: what
 * is not positively final is transient (invariant 8, ARCHITECTURE.md).
 *
 * A handler says by `RetryableError` or `PermanentError` which of the two it is.
 */

import { type Duration, DURATION_MAX_MS, durationMs } from './duration.ts';
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

/**
 * The longest reason that is kept; what is longer is cut and marked. Also in
 * docs/reference/limits.md.
 */
export const REASON_MAX_CHARS = 1_000;

/** The longest code that is kept. Also in docs/reference/limits.md. */
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

/** Builds a Failure with its fingerprint; code, reason and wait are cut to their limits. */
export function failure(
  permanence: Permanence,
  code: string,
  reason: string,
  retryAfterMs?: number,
): Failure {
  const cutCode = codeText(code);
  const cutReason = reasonText(reason);
  return {
    permanence,
    code: cutCode,
    reason: cutReason,
    ...(isWait(retryAfterMs)
      ? { retryAfterMs: Math.min(DURATION_MAX_MS, Math.ceil(retryAfterMs)) }
      : {}),
    fingerprint: fingerprint(cutCode, cutReason),
  };
}

/** A code as it is kept: without control characters, cut at its limit. */
export function codeText(code: string): string {
  return withoutControls(code.slice(0, CODE_MAX_CHARS), '-');
}

/** A reason as it is kept: one line, cut at its limit. */
export function reasonText(reason: string): string {
  const isLong = reason.length > REASON_MAX_CHARS;
  return withoutControls(isLong ? `${reason.slice(0, REASON_MAX_CHARS - 1)}…` : reason, ' ');
}

/** A Failure that a handler built by hand, cut to the limits; null when it is not one at all. */
export function checkedFailure(value: unknown): Failure | null {
  if (typeof value !== 'object' || value === null) return null;
  const { permanence, code, reason, retryAfterMs } = value as Partial<
    Record<keyof Failure, unknown>
  >;
  if (permanence !== 'transient' && permanence !== 'permanent') return null;
  if (typeof code !== 'string' || typeof reason !== 'string') return null;
  if (retryAfterMs !== undefined && !isWait(retryAfterMs)) return null;
  const limited = failure(permanence, code, reason, retryAfterMs);
  const { fingerprint: own } = value as Partial<Record<keyof Failure, unknown>>;
  // A handler may group its failures itself.
  return isFingerprint(own) ? { ...limited, fingerprint: own } : limited;
}

function isFingerprint(value: unknown): value is string {
  return typeof value === 'string' && /^[\w.-]{1,64}$/.test(value);
}

/** Whether a value can be a wait in milliseconds. */
export function isWait(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

// oxlint-disable-next-line no-control-regex -- control characters are exactly what is replaced.
const CONTROLS = /[\u0000-\u001f\u007f-\u009f]+/g;

function withoutControls(text: string, gap: string): string {
  // Cutting may have split a surrogate pair, and half a pair is no text that a store can keep.
  return text.replaceAll(CONTROLS, gap).toWellFormed();
}

/**
 * Turns anything thrown into a Failure; only what says so itself is permanent.
 *
 * @example
 * import { classify, failed, fingerprint, isPermanent, isRetryable } from 'respool';
 * spool.handle('orders', async () => {
 *   try {
 *     await fetch('https://example.org');
 *     return undefined;
 *   } catch (error) {
 *     if (isPermanent(error)) throw error;
 *     const failure = classify(error);
 *     const group = fingerprint(failure.code, failure.reason);
 *     console.warn(group, isRetryable(error));
 *     return failed(failure);
 *   }
 * });
 */
export function classify(thrown: unknown): Failure {
  const permanence = isRetryable(thrown) ? 'transient' : 'permanent';
  return failure(permanence, codeOf(thrown), textOf(thrown), retryAfterOf(thrown));
}

/**
 * Whether trying again may help. Permanent only when the error says so: a PermanentError (also as a
 * `cause`), or an own `isRetryable`, as a value or a method, that is false.
 */
export function isRetryable(thrown: unknown): boolean {
  // An error that cannot say what it is has not positively said that it is final.
  return orDefault(true, () => {
    for (const error of causesOf(thrown)) {
      if (error instanceof PermanentError) return false;
      if (error instanceof RetryableError) return true;
      const own = (error as { isRetryable?: unknown }).isRetryable;
      if (typeof own === 'boolean') return own;
      if (typeof own === 'function') {
        return (error as { isRetryable(): unknown }).isRetryable() !== false;
      }
    }
    return true;
  });
}

/** The opposite of `isRetryable`. */
export function isPermanent(thrown: unknown): boolean {
  return !isRetryable(thrown);
}

/** The result, or the default if it throws: getters and methods of a thrown value are user code. */
function orDefault<T>(otherwise: T, ask: () => T): T {
  try {
    return ask();
  } catch {
    return otherwise;
  }
}

/** A cause chain longer than this is a cycle or nonsense. */
const CAUSES_MAX = 10;

function* causesOf(thrown: unknown): Generator<object> {
  let cause = thrown;
  for (let depth = 0; depth < CAUSES_MAX; depth += 1) {
    if (typeof cause !== 'object' || cause === null) return;
    yield cause;
    cause = (cause as { cause?: unknown }).cause;
  }
}

function retryAfterOf(thrown: unknown): number | undefined {
  return orDefault(undefined, () => {
    for (const error of causesOf(thrown)) {
      const ms = (error as { retryAfterMs?: unknown }).retryAfterMs;
      if (isWait(ms)) return ms;
    }
    return undefined;
  });
}

function codeOf(thrown: unknown): string {
  return orDefault('error', () => {
    for (const error of causesOf(thrown)) {
      const code = (error as { code?: unknown }).code;
      if (typeof code === 'string' && code !== '') return word(code).replaceAll(/\s+/g, '-');
    }
    if (thrown instanceof Error && thrown.name !== 'Error') {
      return `error.${word(thrown.name).replaceAll(/[^a-z0-9._-]+/g, '-')}`;
    }
    return 'error';
  });
}

function word(text: string): string {
  return text.slice(0, CODE_MAX_CHARS).toLowerCase();
}

// Control characters, line ends, marks of the writing direction, halves of surrogate pairs.
const UNSAFE =
  // oxlint-disable-next-line no-control-regex -- control characters are what is escaped here.
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;

/** The text with everything escaped that could end a line, steer a terminal or not be stored. */
export function printable(text: string): string {
  return text.replaceAll(
    UNSAFE,
    (char) => `\\u${(char.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  );
}
