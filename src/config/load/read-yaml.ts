/**
 * read-yaml — the values of a YAML file; what is wrong with it by line and column. Called by
 * read-file.ts, and for old files of a sweep by cli/commands/dlq/sweep/settings.ts.
 */

import { type ErrorCode, LineCounter, parseDocument } from 'yaml';
import { RespoolError, textOf } from '../../core/errors.ts';
import { syntaxError } from './config-errors.ts';

/** Parses a text; nothing in it is an empty configuration. */
export function parseYaml(text: string, file: string): unknown {
  const lines = new LineCounter();
  // Not pretty: a pretty error shows the line, and the line may hold a secret.
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    merge: true,
  });
  const [problem] = document.errors;
  if (problem !== undefined) {
    const { line, col } = lines.linePos(problem.pos[0]);
    throw syntaxError(file, line, col, whatOf(problem.code));
  }
  try {
    return (document.toJS() as unknown) ?? {};
  } catch (error) {
    // n.b. What follows the colon quotes the file: the name of an alias may be a secret.
    const [what] = textOf(error).split(': ', 1);
    throw new RespoolError('config.invalid', `cannot use ${file}: ${what}`);
  }
}

/** The parser's own word, and what it mostly means. Its text could quote a secret. */
function whatOf(code: ErrorCode): string {
  const word = code.toLowerCase().replaceAll('_', ' ');
  const help = HELP[code];
  return help === undefined ? word : `${word}: ${help}`;
}

const HELP: Readonly<Partial<Record<ErrorCode, string>>> = {
  BAD_ALIAS: 'no part of this name stands above; put a text that begins with * in quotes',
  BAD_DQ_ESCAPE: 'write \\\\ for a \\, or use single quotes',
  BAD_INDENT:
    'keys of one group stand in the same column, what is inside further right; is a bracket open?',
  BAD_SCALAR_START: 'put a text that begins with this character in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'one line holds one key; put a text with a colon and a space in quotes',
  BLOCK_IN_FLOW: 'inside { } and [ ] write { key: value }, with commas between',
  DUPLICATE_KEY: 'it stands above already; take one of them out',
  MISSING_CHAR: 'a quote, a bracket, a comma or a colon is missing, here or further up',
  MULTILINE_IMPLICIT_KEY: 'a colon is missing after a key, or a quote is not closed',
  MULTIPLE_DOCS: 'a configuration is one document; take out the line ---',
  TAB_AS_INDENT: 'indent with spaces',
  TAG_RESOLVE_FAILED: 'put a text that begins with ! in quotes',
  UNEXPECTED_TOKEN: 'this does not belong here; is a quote or bracket missing further up?',
};
