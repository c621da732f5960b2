/**
 * errors — what a failed file call means for the caller: no room, or not available. Both stores use
 * it.
 */

import { isRespoolError, type RespoolError } from '../../core/errors.ts';
import { diskCode, diskError } from '../shared/disk-errors.ts';
import type { DiskError } from './disk-protocol.ts';

/** Turns a failed file call into the error for the caller; one of ours passes as it is. */
export function storeError(doing: string, thrown: unknown): RespoolError {
  if (isRespoolError(thrown)) return thrown;
  const error = asError(thrown);
  const code = diskCode(error, 'path' in error ? String(error.path) : undefined);
  return diskError(doing, { error, code, whenFree: 'nothing was half written' });
}

/** An error that crossed the thread's border is a plain object; make it an error again. */
function asError(thrown: unknown): Error {
  if (thrown instanceof Error) return thrown;
  const { code, text } = thrown as Partial<DiskError>;
  return Object.assign(new Error(text ?? String(thrown)), { code });
}
