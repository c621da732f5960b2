/**
 * glob — patterns over queue names and failure codes: `*` for any number of characters, `?` for
 * one.
 *
 * Every other character stands for itself, also `[ ] \ .`; a character is a code point. What a
 * wildcard stood for is captured, and can be put into the name of a target.
 *
 * Promise: a match takes at most (length of the name × length of the pattern) steps, the pattern
 * has at most 256 characters, and no RegExp is made of a user's text. The pieces between stars are
 * searched from the left, the last one is anchored at the end. So where several captures are
 * possible the first stars take the shortest: `*.*` on `a.b.c` captures `a` and `b.c`.
 */

import { RespoolError, show } from './errors.ts';

/** Maximum number of characters of a pattern. Also in docs/reference/dead-letters.md. */
export const GLOB_MAX_CHARS = 256;

/** A compiled pattern. */
export interface Glob {
  readonly pattern: string;
  /** How many `*` and `?` there are. */
  readonly wildcards: number;
  /** Whether it fits one name alone: itself. */
  readonly isLiteral: boolean;
  /** What each `*` and `?` stood for, in their order; undefined: the name does not fit. */
  match(name: string): readonly string[] | undefined;
}

/** Compiles a pattern; refuses one that is empty or too long. */
export function compileGlob(pattern: string): Glob {
  const characters = typeof pattern === 'string' ? Array.from(pattern) : [];
  if (characters.length === 0 || characters.length > GLOB_MAX_CHARS) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(pattern)} as a pattern of queues: allowed are 1 to ${GLOB_MAX_CHARS} ` +
        'characters, * for any number of characters, ? for one',
    );
  }
  const pieces = piecesOf(characters);
  const wildcards = characters.filter(isWildcard).length;
  return {
    pattern,
    wildcards,
    isLiteral: wildcards === 0,
    match: (name) => matchPieces(pieces, Array.from(name)),
  };
}

/**
 * Why a target cannot be used with a pattern; undefined: it can. One without wildcards is fixed;
 * otherwise its first wildcard takes the first capture, and so on: there must be as many.
 */
export function checkGlobTarget(target: string, glob: Glob): string | undefined {
  const wanted = Array.from(target).filter(isWildcard).length;
  if (target === '') return 'cannot use "" as the target: it is empty; give the name of a queue';
  if (wanted === 0 || wanted === glob.wildcards) return undefined;
  return (
    `cannot use "${target}" as the target of "${glob.pattern}": it has ${wanted} of * and ?, ` +
    `the pattern has ${glob.wildcards}; give it as many, or none for one fixed target`
  );
}

/** The target's name with what was captured in the place of its wildcards. */
export function fillTarget(target: string, glob: Glob, captures: readonly string[]): string {
  const problem = checkGlobTarget(target, glob);
  if (problem !== undefined) throw new RespoolError('config.invalid', problem);
  let next = 0;
  // One walk: a `*` inside a captured part is a character like any other.
  return Array.from(target)
    .map((character) => (isWildcard(character) ? (captures[next++] ?? '') : character))
    .join('');
}

/** The part between two stars of a pattern, by its characters. */
type Piece = readonly string[];

/** The pieces between the stars of a pattern; one more than there are stars. */
export function piecesOf(pattern: readonly string[]): readonly Piece[] {
  const pieces: string[][] = [[]];
  for (const character of pattern) {
    if (character === '*') pieces.push([]);
    else pieces.at(-1)?.push(character);
  }
  return pieces;
}

/** The captures over the characters of a name, or undefined. */
export function matchPieces(
  pieces: readonly Piece[],
  name: readonly string[],
): readonly string[] | undefined {
  const [first = [], ...others] = pieces;
  const last = others.pop();
  if (last === undefined && first.length !== name.length) return undefined;
  if (!fitsAt(first, name, 0)) return undefined;
  const captures = [...capturedBy(first, name, 0)];
  if (last === undefined) return captures;
  let end = first.length;
  for (const piece of others) {
    const at = find(piece, name, end);
    if (at === undefined) return undefined;
    captures.push(name.slice(end, at).join(''), ...capturedBy(piece, name, at));
    end = at + piece.length;
  }
  const lastAt = name.length - last.length;
  if (lastAt < end || !fitsAt(last, name, lastAt)) return undefined;
  captures.push(name.slice(end, lastAt).join(''), ...capturedBy(last, name, lastAt));
  return captures;
}

function find(piece: Piece, name: readonly string[], from: number): number | undefined {
  for (let at = from; at + piece.length <= name.length; at += 1) {
    if (fitsAt(piece, name, at)) return at;
  }
  return undefined;
}

function fitsAt(piece: Piece, name: readonly string[], at: number): boolean {
  if (at + piece.length > name.length) return false;
  return piece.every((character, offset) => character === '?' || character === name[at + offset]);
}

/** What the `?` of a piece stand for. */
function capturedBy(piece: Piece, name: readonly string[], at: number): readonly string[] {
  return piece.flatMap((character, offset) =>
    character === '?' ? name.slice(at + offset, at + offset + 1) : [],
  );
}

function isWildcard(character: string): boolean {
  return character === '*' || character === '?';
}
