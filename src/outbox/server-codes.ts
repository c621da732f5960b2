/** server-codes — what a database said was wrong, through whatever library it comes. */

/** Libraries put the error of the server into one of their own, and that perhaps into another. */
const DEPTH_MAX = 5;

/** There is no transaction to do it in. */
export const NO_TRANSACTION = '25P01';
/** Somebody else changed the same, in transactions that see nothing of each other. */
export const COLLISION = '40001';

/** Whether the server failed a statement with this code. */
export function hasCode(error: unknown, code: string): boolean {
  return isSaid(error, (said) => said['code'] === code);
}

/** Whether an error, or one of those that it holds, is such a one. */
export function isSaid(
  error: unknown,
  isSuch: (said: Readonly<Record<string, unknown>>) => boolean,
  depth: number = DEPTH_MAX,
): boolean {
  if (typeof error !== 'object' || error === null || depth === 0) return false;
  const said = error as Readonly<Record<string, unknown>>;
  if (isSuch(said)) return true;
  return isSaid(said['cause'], isSuch, depth - 1) || isSaid(said['meta'], isSuch, depth - 1);
}
