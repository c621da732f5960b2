/**
 * topics — topic patterns and rules as SQL, with everything a caller wrote as a value or a literal.
 */

import { isPattern, type TopicRule } from '../../core/topic.ts';
import type { Bind } from './arrays.ts';

/** Whether a topic fits a pattern. */
export function patternSql(column: string, pattern: string, bind: Bind): string {
  if (pattern === '#') return 'true';
  if (!isPattern(pattern)) return `${column} = ${bind(pattern, 'text')}`;
  return `('.' || ${column}) ~ ${bind(regexOf(pattern), 'text')}`;
}

/** What ordered rules say of a topic: the first match decides, no match means no. */
export function rulesSql(column: string, rules: readonly TopicRule[], bind: Bind): string {
  if (rules.length === 0) return 'false';
  const cases = rules.map(
    ({ pattern, take }) => `WHEN ${patternSql(column, pattern, bind)} THEN ${take}`,
  );
  return `CASE ${cases.join(' ')} ELSE false END`;
}

/**
 * The pattern over a topic with a dot in front, so that every word is a dot and what follows it.
 * Built from our own words only; PostgreSQL's engine is not slowed by any of them.
 */
export function regexOf(pattern: string): string {
  const words = pattern.split('.').map((word) => {
    if (word === '#') return '(?:\\.[^.]+)*';
    return word === '*' ? '\\.[^.]+' : `\\.${word.replaceAll(/[^\w]/g, escaped)}`;
  });
  return `^${words.join('')}$`;
}

/** n.b. Only signs: a backslash before a letter means something else. */
function escaped(sign: string): string {
  return /[!-/:-@[-`{-~]/.test(sign) ? `\\${sign}` : sign;
}
