/** read-yaml — the values of a YAML file; what is wrong with it by line and column. */

import { LineCounter, parseDocument } from 'yaml';
import { RespoolError, textOf } from '../core/errors.ts';
import { syntaxError } from './syntax-error.ts';

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
    throw syntaxError(file, line, col, problem.code.toLowerCase().replaceAll('_', ' '));
  }
  try {
    return (document.toJS() as unknown) ?? {};
  } catch (error) {
    throw new RespoolError('config.invalid', `cannot use ${file}: ${textOf(error)}`);
  }
}
