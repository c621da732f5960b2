/**
 * errors — what a failed file call means for the caller (no room, or not available), and its way
 * across the border of the thread.
 */

import { isRespoolError, type RespoolError } from '../../core/errors.ts';
import { diskCode, diskError as diskErrorOf } from '../shared/disk-errors.ts';
import type { DiskError } from './disk-protocol.ts';

/** The code of a system call's error, such as ENOSPC; empty when it has none. */
export function errnoOf(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : '';
}

/** Turns a failed file call into the error for the caller; a RespoolError passes unchanged. */
export function storeError(doing: string, thrown: unknown): RespoolError {
  if (isRespoolError(thrown)) return thrown;
  const error = asError(thrown);
  const code = diskCode(error, 'path' in error ? String(error.path) : undefined);
  return diskErrorOf(doing, { error, code, whenFree: 'nothing was half written' });
}

/** An error that crossed the thread's border is a plain object; make it an error again. */
function asError(thrown: unknown): Error {
  if (thrown instanceof Error) return thrown;
  const { code, text } = thrown as Partial<DiskError>;
  return Object.assign(new Error(text ?? String(thrown)), { code });
}

/** An error in the form that crosses the thread's border. */
export function diskError(error: unknown): DiskError {
  return { code: errnoOf(error), text: error instanceof Error ? error.message : String(error) };
}
