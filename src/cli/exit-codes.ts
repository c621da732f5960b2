/**
 * exit-codes — the exit codes, in one table, and the error codes that lead to each.
 *
 * The help shows the table, the reference is made from it, and every error code has its number.
 */

import { type ErrorCode, isRespoolError } from '../core/errors.ts';

/** The numbers by their names. */
export const EXIT = {
  done: 0,
  refused: 1,
  usage: 2,
  unavailable: 3,
  notConfirmed: 4,
  interrupted: 130,
  terminated: 143,
} as const;

/** A number a command can end with. */
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** What each number means, for people. */
export const EXIT_CODES: readonly { readonly code: ExitCode; readonly meaning: string }[] = [
  { code: EXIT.done, meaning: 'done' },
  { code: EXIT.refused, meaning: 'something was refused, not found, or failed a check' },
  { code: EXIT.usage, meaning: 'wrong usage or configuration; nothing was done' },
  { code: EXIT.unavailable, meaning: 'the store or the service cannot be reached or used' },
  { code: EXIT.notConfirmed, meaning: 'not confirmed; nothing was done' },
  { code: EXIT.interrupted, meaning: 'interrupted by Ctrl-C' },
  { code: EXIT.terminated, meaning: 'terminated by SIGTERM before it finished' },
];

const EXIT_OF_ERROR: Readonly<Record<ErrorCode, ExitCode>> = {
  'store.unavailable': EXIT.unavailable,
  'store.corrupt': EXIT.unavailable,
  'store.version': EXIT.unavailable,
  'store.full': EXIT.unavailable,
  'body.missing': EXIT.refused,
  'body.corrupt': EXIT.refused,
  'move.refused': EXIT.refused,
  'message.unknown': EXIT.refused,
  'message.duplicate': EXIT.refused,
  'message.invalid': EXIT.usage,
  'policy.unknown': EXIT.refused,
  'policy.invalid': EXIT.usage,
  'handler.missing': EXIT.refused,
  'config.invalid': EXIT.usage,
  'peer.missing': EXIT.usage,
  'broker.unavailable': EXIT.unavailable,
  'broker.unroutable': EXIT.unavailable,
  'broker.unconfirmed': EXIT.unavailable,
  'topology.mismatch': EXIT.unavailable,
  'key.unavailable': EXIT.unavailable,
  'transform.missing': EXIT.unavailable,
  'limit.exceeded': EXIT.refused,
  'engine.stopping': EXIT.unavailable,
};

/** An end that is not a failure: wrong usage, a declined prompt, a signal. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly code: 'usage.invalid' | 'not.confirmed' | 'interrupted' | 'terminated';

  constructor(code: CommandError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

const EXIT_OF_COMMAND_ERROR: Readonly<Record<CommandError['code'], ExitCode>> = {
  'usage.invalid': EXIT.usage,
  'not.confirmed': EXIT.notConfirmed,
  interrupted: EXIT.interrupted,
  terminated: EXIT.terminated,
};

/** The end caused by a signal; `then` says how far the command got. */
export function endedBy(signal: 'SIGINT' | 'SIGTERM', then: string): CommandError {
  return signal === 'SIGINT'
    ? new CommandError('interrupted', `interrupted${then}`)
    : new CommandError('terminated', `ended by SIGTERM${then}`);
}

/** The exit code of an error; 1 for one without a code. */
export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof CommandError) return EXIT_OF_COMMAND_ERROR[error.code];
  return isRespoolError(error) ? EXIT_OF_ERROR[error.code] : EXIT.refused;
}

/** The stable word for an error in `--json`. */
export function errorCodeOf(error: unknown): string {
  return error instanceof CommandError || isRespoolError(error) ? error.code : 'unexpected';
}
