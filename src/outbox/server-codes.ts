/** server-codes — what PostgreSQL said was wrong, through whatever library it comes. */

/** Libraries put the error of the server into one of their own, and that perhaps into another. */
const DEPTH_MAX = 5;

/** There is no transaction to do it in. */
export const NO_TRANSACTION = '25P01';
/** Somebody else changed the same, in transactions that see nothing of each other. */
export const COLLISION = '40001';

/** Whether the server failed a statement with this code. */
export function hasCode(error: unknown, code: string, depth: number = DEPTH_MAX): boolean {
  if (typeof error !== 'object' || error === null || depth === 0) return false;
  const found = error as Readonly<Record<string, unknown>>;
  if (found['code'] === code) return true;
  return hasCode(found['cause'], code, depth - 1) || hasCode(found['meta'], code, depth - 1);
}
