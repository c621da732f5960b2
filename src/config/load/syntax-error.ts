/** syntax-error — where a configuration file cannot be read, by line and column. */

import { RespoolError } from '../../core/errors.ts';

/** The error. */
export function syntaxError(
  file: string,
  line: number,
  column: number,
  what: string,
): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot read ${file}: line ${line}, column ${column}: ${what}`,
  );
}
