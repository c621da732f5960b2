/**
 * errors — RespoolError: an error of the machinery, with a code from a closed list. Also how any
 * thrown value becomes an error or a text (`asError`, `textOf`, `show`), and assertions.
 *
 * A failed delivery is a Failure (failure.ts), never a RespoolError. Codes are API and documented
 * one by one in docs/reference/errors.md; texts may change, but for ` as "name"` of a setting:
 * config/load/config-errors.ts puts the whole key there. Text: what we were doing, what went wrong,
 * what to do.
 *
 * Why: docs/decisions/0001-message-invalid-has-its-own-code.md
 */

/** Every code a RespoolError can carry. */
export const ERROR_CODES = [
  'store.unavailable',
  'store.corrupt',
  'store.version',
  'store.full',
  'body.missing',
  'body.corrupt',
  'move.refused',
  'message.unknown',
  'message.duplicate',
  'message.invalid',
  'policy.unknown',
  'policy.invalid',
  'handler.missing',
  'config.invalid',
  'peer.missing',
  'broker.unavailable',
  'broker.unroutable',
  'broker.unconfirmed',
  'topology.mismatch',
  'key.unavailable',
  'transform.missing',
  'limit.exceeded',
  'engine.stopping',
] as const;

/** What went wrong, as a stable word to switch on. */
export type ErrorCode = (typeof ERROR_CODES)[number];

/**
 * The one error class of our own machinery.
 *
 * @example
 * import { ERROR_CODES, isRespoolError, RespoolError } from 'respool';
 * try {
 *   await spool.enqueue({ topic: 'orders' });
 * } catch (error) {
 *   if (isRespoolError(error, 'store.full')) console.error('free some space');
 *   else if (error instanceof RespoolError) console.error(ERROR_CODES.indexOf(error.code));
 * }
 */
export class RespoolError extends Error {
  override readonly name = 'RespoolError';
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** True for a RespoolError, optionally of one code. */
export function isRespoolError(value: unknown, code?: ErrorCode): value is RespoolError {
  return value instanceof RespoolError && (code === undefined || value.code === code);
}

/** The code of an error as a field beside its text; nothing where it has none. */
export function codeIn(error: object): { readonly code?: string } {
  const { code } = error as { readonly code?: unknown };
  return typeof code === 'string' ? { code } : {};
}

/** Throws if the condition is false: that is a bug in Respool, never bad input. */
export function assert(condition: unknown, text: string): asserts condition {
  if (!condition) throw new Error(`bug in respool: ${text}`);
}

/** The default branch of a switch over a union: reached only through a bug. */
export function unreachable(value: never): never {
  throw new Error(`bug in respool: unexpected ${JSON.stringify(value)}`);
}

/** Any thrown value as an error; never throws itself. */
export function asError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error) return thrown;
  } catch {
    // A proxy whose traps throw at `instanceof`.
  }
  return new Error(textOf(thrown));
}

/** The text of a thrown value, such as the message of an error, without its stack. Never throws. */
export function textOf(thrown: unknown): string {
  if (typeof thrown === 'string') return thrown;
  try {
    if (thrown instanceof Error) {
      // A string only by its type: other code may have stored anything there.
      const text: unknown = thrown.message === '' ? thrown.name : thrown.message;
      return typeof text === 'string' ? text : tagOf(thrown);
    }
    if (typeof thrown !== 'object' || thrown === null) return String(thrown);
    return JSON.stringify(thrown) ?? tagOf(thrown);
  } catch {
    return tagOf(thrown);
  }
}

/**
 * A value from outside as an error text names it: strings quoted, a long one shortened in the
 * middle. The end is kept, since it distinguishes one path from another. Never throws.
 */
export function show(value: unknown): string {
  const text = typeof value === 'string' ? JSON.stringify(value) : textOf(value);
  if (text.length <= SHOWN_MAX_CHARS) return text;
  const tail = text.slice(-SHOWN_TAIL_CHARS);
  return `${text.slice(0, SHOWN_MAX_CHARS - SHOWN_TAIL_CHARS - 1)}…${tail}`.toWellFormed();
}

/** Both are also in test/core/errors.test.ts. */
const SHOWN_MAX_CHARS = 80;
/** Room for the name of a file and its folder. */
const SHOWN_TAIL_CHARS = 54;

function tagOf(value: unknown): string {
  try {
    // A value that cannot be written down (a cycle, a hostile toJSON) still has a type.
    return Object.prototype.toString.call(value);
  } catch {
    return `[unreadable ${typeof value}]`;
  }
}
