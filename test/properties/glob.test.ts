/** Patterns over names of queues against a reference that is too simple to be wrong. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { compileGlob, fillTarget } from '../../src/core/glob.ts';
import { always } from './runs.ts';

/** The definition, by recursion: the first star takes as little as it can. */
function reference(
  pattern: readonly string[],
  name: readonly string[],
): readonly string[] | undefined {
  const [part, ...rest] = pattern;
  const [character, ...others] = name;
  if (part === undefined) return name.length === 0 ? [] : undefined;
  if (part === '*') {
    for (let taken = 0; taken <= name.length; taken += 1) {
      const found = reference(rest, name.slice(taken));
      if (found !== undefined) return [name.slice(0, taken).join(''), ...found];
    }
    return undefined;
  }
  if (character === undefined || (part !== '?' && part !== character)) return undefined;
  const found = reference(rest, others);
  return found === undefined || part !== '?' ? found : [character, ...found];
}

const letters = fc.constantFrom('a', 'a', 'b', '.', '[', ']', '\\', '😀');
const name = fc.array(letters, { maxLength: 9 }).map((all) => all.join(''));
const pattern = fc
  .array(fc.oneof(letters, fc.constantFrom('*', '*', '?')), { minLength: 1, maxLength: 7 })
  .map((all) => all.join(''));

/** A pattern, and a name that was made of it and so fits. */
const fitting = fc
  .tuple(pattern, fc.array(name, { minLength: 7, maxLength: 7 }))
  .map(([one, parts]): readonly [string, string] => [
    one,
    Array.from(one)
      .map((part, at) => {
        if (part === '*') return parts[at] ?? '';
        return part === '?' ? (Array.from(parts[at] ?? '')[0] ?? 'a') : part;
      })
      .join(''),
  ]);

test('a pattern captures what its definition says', () => {
  always([pattern, name], (one, other) => {
    expect(compileGlob(one).match(other)).toEqual(reference(Array.from(one), Array.from(other)));
  });
});

test('a name that was made of a pattern fits it, with the captures of the definition', () => {
  always([fitting], ([one, other]) => {
    const captures = compileGlob(one).match(other);
    expect(captures).toBeDefined();
    expect(captures).toEqual(reference(Array.from(one), Array.from(other)));
  });
});

test('captures put back into their pattern give the name', () => {
  always([fitting], ([one, other]) => {
    const glob = compileGlob(one);
    const captures = glob.match(other) ?? [];
    expect(captures).toHaveLength(glob.wildcards);
    expect(fillTarget(one, glob, captures)).toBe(other);
  });
});

test('a name without wildcards is a pattern that fits itself alone', () => {
  const literal = fc.array(letters, { minLength: 1, maxLength: 9 }).map((all) => all.join(''));
  always([literal, name], (one, other) => {
    const glob = compileGlob(one);
    expect(glob.isLiteral).toBe(true);
    expect(glob.match(other) !== undefined).toBe(one === other);
  });
});
