/** Patterns over names of queues, and targets made of what they captured. */
import { describe, expect, test } from 'vitest';
import {
  checkGlobTarget,
  compileGlob,
  fillTarget,
  GLOB_MAX_CHARS,
  matchPieces,
  piecesOf,
} from '../../src/core/glob.ts';

describe('match', () => {
  test.each([
    ['dlq.*', 'dlq.orders', ['orders']],
    ['dlq.*', 'dlq.', ['']],
    ['dlq.*', 'dlq', undefined],
    ['dlq.*', 'xdlq.orders', undefined],
    ['*', '', ['']],
    ['*', 'anything.at/all', ['anything.at/all']],
    ['*.*', 'a.b.c', ['a', 'b.c']],
    ['**', 'ab', ['', 'ab']],
    ['*.dlq', 'a.dlq.dlq', ['a.dlq']],
    ['*ab*ab', 'abab', ['', '']],
    ['*ab*ab', 'ababab', ['', 'ab']],
    ['*aba', 'ababa', ['ab']],
    ['?', 'a', ['a']],
    ['?', '', undefined],
    ['?', 'ab', undefined],
    ['?', '😀', ['😀']],
    ['a?c', 'abc', ['b']],
    ['*?', 'abc', ['ab', 'c']],
    ['?*', 'abc', ['a', 'bc']],
    ['*?.d', 'ab.d', ['a', 'b']],
    ['orders', 'orders', []],
    ['orders', 'Orders', undefined],
    ['orders', 'orders2', undefined],
    ['a.b', 'axb', undefined],
    ['[ab]', 'a', undefined],
    ['[ab]', '[ab]', []],
    ['a\\*', 'a\\x', ['x']],
    ['(.+)+$', '(.+)+$', []],
    ['grüße.*', 'grüße.ä', ['ä']],
  ])('of %j on %j captures %j', (pattern, name, captures) => {
    expect(compileGlob(pattern).match(name)).toEqual(captures);
  });

  test('a pattern tells how many wildcards it has', () => {
    expect(compileGlob('a*b?')).toMatchObject({ pattern: 'a*b?', wildcards: 2, isLiteral: false });
    expect(compileGlob('a[b]')).toMatchObject({ wildcards: 0, isLiteral: true });
  });

  test('a pattern has 1 to 256 characters', () => {
    expect(() => compileGlob('')).toThrow('allowed are 1 to 256 characters');
    expect(() => compileGlob('a'.repeat(GLOB_MAX_CHARS + 1))).toThrow('1 to 256');
    expect(compileGlob('😀'.repeat(GLOB_MAX_CHARS)).isLiteral).toBe(true);
  });
});

describe('targets', () => {
  test.each([
    ['dlq.*', 'dead.*', 'dlq.orders', 'dead.orders'],
    ['*.dlq.*', '*-*', 'a.dlq.b', 'a-b'],
    ['dlq.?-*', 'dead.*.?', 'dlq.1-x', 'dead.1.x'],
    ['dlq.*', 'failed', 'dlq.orders', 'failed'],
    ['dlq.*', 'dead.*', 'dlq.*?', 'dead.*?'],
    ['orders', 'failed', 'orders', 'failed'],
  ])('%s to %s brings %s to %s', (pattern, target, queue, expected) => {
    const glob = compileGlob(pattern);
    expect(checkGlobTarget(target, glob)).toBeUndefined();
    expect(fillTarget(target, glob, glob.match(queue) ?? [])).toBe(expected);
  });

  test.each([
    ['dlq.*', 'dead.*.*', 'it has 2 of * and ?, the pattern has 1'],
    ['*.dlq.*', 'dead.*', 'it has 1 of * and ?, the pattern has 2'],
    ['orders', 'dead.*', 'it has 1 of * and ?, the pattern has 0'],
    ['orders', '', 'it is empty'],
  ])('%s to %j is refused', (pattern, target, problem) => {
    const glob = compileGlob(pattern);
    expect(checkGlobTarget(target, glob)).toContain(problem);
    expect(() => fillTarget(target, glob, [])).toThrow(problem);
  });
});

describe('the steps of a match', () => {
  /** How often a character of the name is looked at. */
  function stepsOf(pattern: string, name: string): number {
    let steps = 0;
    const counted = new Proxy(Array.from(name), {
      get: (characters, key, receiver): unknown => {
        if (typeof key === 'string' && /^\d+$/.test(key)) steps += 1;
        return Reflect.get(characters, key, receiver);
      },
    });
    matchPieces(piecesOf(Array.from(pattern)), counted);
    return steps;
  }

  const half = GLOB_MAX_CHARS / 2;
  test.each([
    ['*a*a…b', `${'*a'.repeat(half - 1)}*b`],
    ['*aaa…ab', `*${'a'.repeat(GLOB_MAX_CHARS - 3)}b*`],
    ['*aaa…ab at the end', `*${'a'.repeat(GLOB_MAX_CHARS - 2)}b`],
    ['***…b', `${'*'.repeat(GLOB_MAX_CHARS - 1)}b`],
    ['*?*?…b', `${'*?'.repeat(half - 1)}*b`],
    ['*aa…a*aa…b', `*${'a'.repeat(half - 2)}*${'a'.repeat(half - 2)}b*`],
  ])('of %s grow as the name grows, and no faster', (_title, pattern) => {
    expect(Array.from(pattern).length).toBeLessThanOrEqual(GLOB_MAX_CHARS);
    const [one = 0, two = 0, three = 0] = [1_000, 2_000, 3_000].map((length) => {
      const steps = stepsOf(pattern, 'a'.repeat(length));
      expect(steps).toBeLessThanOrEqual(length * (GLOB_MAX_CHARS + 2));
      return steps;
    });
    // A thousand characters more cost as much the second time as the first.
    expect(three - two).toBeLessThanOrEqual((two - one) * 1.1);
  });
});
