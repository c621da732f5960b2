/**
 * index-only-query — statements that look for work always go through the indexes.
 *
 * After a backlog was drained and cleaned up, the server takes the table for nearly empty until it
 * counts again; then it may read the whole next backlog instead of going through an index, or
 * compile a statement for longer than it runs. So each look forbids both, in the same message: the
 * server runs all that comes in one message as one transaction, so the settings end with it, and no
 * second round is needed, in which what was found would stay locked. n.b. A message with several
 * statements has no parameters; their values stand in its text.
 *
 * Why: docs/decisions/0018-searches-on-postgresql-forbid-bad-plans.md
 */

import { RespoolError } from '../../core/errors.ts';
import type { Bind } from './arrays.ts';
import type { Ask } from './connection.ts';

const GUARD_SQL =
  'SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off;';

/** Asks through the indexes; the values of the text are literals. */
export function indexOnlyQuery(ask: Ask, text: string): Promise<unknown[][]> {
  return ask(`${GUARD_SQL}\n${text}`);
}

/** Gives a value as it stands in SQL, whatever it holds. */
export const sqlLiteral: Bind = (value, type) => {
  if (value === null) return `NULL::${type}`;
  const text = typeof value === 'number' ? String(value) : (value as string);
  // n.b. The server would take the rest of the message for another one.
  if (text.includes('\0')) {
    throw new RespoolError(
      'message.invalid',
      'cannot look for a text with a zero character: none can be stored',
    );
  }
  const quoted = `'${text.replaceAll("'", "''")}'`;
  // Read in the same way with and without "standard_conforming_strings".
  return text.includes('\\')
    ? `E${quoted.replaceAll('\\', '\\\\')}::${type}`
    : `${quoted}::${type}`;
};
