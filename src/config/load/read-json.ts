/** read-json — the values of a JSON file; what is wrong with it by line and column. */

import { RespoolError } from '../../core/errors.ts';
import { scanJson } from '../../core/scan-json.ts';

/** Parses a text; a key that stands twice in one object is refused, as in YAML. */
export function parseJson(text: string, file: string): unknown {
  const refuse = (at: number, what: string): never => {
    const before = text.slice(0, at).split('\n');
    throw syntaxError(file, before.length, (before.at(-1)?.length ?? 0) + 1, what);
  };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // n.b. The engine's own text may quote what stands around the error, secrets included.
    const { endAt } = scanJson(text);
    return refuse(endAt, endAt >= text.length ? 'the file ends too early' : 'this is no JSON');
  }
  const { twiceAt } = scanJson(text);
  if (twiceAt === undefined) return value;
  return refuse(twiceAt, 'duplicate key: it stands above already; take one of them out');
}

// Where a configuration file cannot be read, by line and column.

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
