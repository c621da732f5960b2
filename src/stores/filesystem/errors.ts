/**
 * errors — what a failed file call means for the caller: no room, or not available. Both stores use
 * it.
 */

import { isRespoolError, RespoolError } from '../../core/errors.ts';
import type { DiskError } from './disk-protocol.ts';
import { errnoOf } from './files.ts';

const FULL = new Set(['ENOSPC', 'EDQUOT']);

/** Turns a failed file call into the error for the caller; one of ours passes as it is. */
export function storeError(doing: string, thrown: unknown): RespoolError {
  if (isRespoolError(thrown)) return thrown;
  const cause = asError(thrown);
  const text = cause.message;
  if (FULL.has(errnoOf(cause))) {
    return new RespoolError(
      'store.full',
      `cannot ${doing}: there is no space left (${text}); free some, nothing was half written`,
      { cause },
    );
  }
  return new RespoolError(
    'store.unavailable',
    `cannot ${doing}: ${text}; check the disk and its permissions`,
    { cause },
  );
}

/** An error that crossed the thread's border is a plain object; make it an error again. */
function asError(thrown: unknown): Error {
  if (thrown instanceof Error) return thrown;
  const { code, text } = thrown as Partial<DiskError>;
  return Object.assign(new Error(text ?? String(thrown)), { code });
}
