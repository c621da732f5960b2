/** Topic patterns against a reference that is too simple to be wrong. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { topicMatches } from 'respool';
import { takesTopic } from '../../src/core/topic.ts';
import { always } from './runs.ts';

/** The definition, by recursion. */
function fits(pattern: readonly string[], words: readonly string[]): boolean {
  const [part, ...rest] = pattern;
  if (part === undefined) return words.length === 0;
  if (part === '#') return fits(rest, words) || (words.length > 0 && fits(pattern, words.slice(1)));
  return words.length > 0 && (part === '*' || part === words[0]) && fits(rest, words.slice(1));
}

function reference(pattern: string, topic: string): boolean {
  return fits(pattern.split('.'), topic.split('.'));
}

const topic = fc
  .array(fc.constantFrom('a', 'b', 'ab'), { minLength: 1, maxLength: 7 })
  .map((words) => words.join('.'));
const pattern = fc
  .array(fc.constantFrom('a', 'b', '*', '#', '#'), { minLength: 1, maxLength: 7 })
  .map((words) => words.join('.'));
const rules = fc.array(fc.record({ pattern, take: fc.boolean() }), { maxLength: 5 });

test('a pattern matches what its definition says', () => {
  always([pattern, topic], (one, other) => {
    expect(topicMatches(one, other)).toBe(reference(one, other));
  });
});

test('a topic is a pattern that fits itself alone', () => {
  always([topic, topic], (one, other) => {
    expect(topicMatches(one, other)).toBe(one === other);
  });
});

test('the first rule that fits decides, none means no', () => {
  always([rules, topic], (list, one) => {
    const first = list.find((rule) => reference(rule.pattern, one));
    expect(takesTopic(list, one)).toBe(first?.take ?? false);
  });
});
