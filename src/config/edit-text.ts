/**
 * edit-text — one key of a YAML or JSON text set or taken out, the rest as it stands: comments,
 * line ends and spaces. Only what can be said by a place in the text is done here; whoever calls
 * compares what came out, and writes the text anew where this does not do.
 */

import {
  type Document,
  isCollection,
  isMap,
  isPair,
  isScalar,
  type Pair,
  stringify,
  type YAMLMap,
} from 'yaml';

/** A text, and the document that was read from it. */
export interface Source {
  readonly text: string;
  readonly document: Document;
  readonly isJson: boolean;
}

/** The text with this value under this key; undefined where it cannot be put into the text. */
export function withKey(
  source: Source,
  words: readonly string[],
  value: unknown,
): string | undefined {
  const { text, document } = source;
  let map: unknown = document.contents;
  for (const [at, word] of words.entries()) {
    if (!isMap(map)) break;
    const pair = pairOf(map, word);
    if (pair === undefined) return added(source, map, words.slice(at), value);
    if (isEmpty(pair)) return filled(source, pair, words.slice(at + 1), value);
    if (at === words.length - 1) return replaced(source, pair, value);
    map = pair.value;
  }
  // Nothing but comments so far.
  if (map !== null || document.contents !== null || source.isJson) return undefined;
  return appended(text, text.length, linesOf(words, value, ''));
}

/** The text without a key of the outermost object. */
export function withoutKey({ text, document }: Source, name: string): string | undefined {
  const map = document.contents;
  if (!isMap(map)) return undefined;
  const at = map.items.findIndex((pair) => nameOf(pair) === name);
  const pair = map.items[at];
  const [from, to] = [startOf(pair?.key), endOf(pair?.value)];
  if (pair === undefined || from === undefined || to === undefined) return undefined;
  if (map.flow !== true) return cut(text, lineStart(text, from), lineEnd(text, to));
  const next = startOf(map.items[at + 1]?.key);
  if (next !== undefined) return cut(text, from, next);
  // The comma before it goes too.
  return cut(text, endOf(map.items[at - 1]?.value) ?? from, to);
}

function replaced(
  { text, isJson }: Source,
  { value: node }: Pair,
  value: unknown,
): string | undefined {
  const [from, to] = [startOf(node), endOf(node)];
  if (from === undefined || to === undefined) return undefined;
  const isBlock = isCollection(node) ? node.flow !== true : isBlockText(node);
  return isBlock ? undefined : `${text.slice(0, from)}${written(value, isJson)}${text.slice(to)}`;
}

/** A key with nothing behind it, not even the word null. */
function isEmpty({ value: node }: Pair): boolean {
  return node === null || (isScalar(node) && node.value === null && startOf(node) === endOf(node));
}

/** What such a key gets: a value behind its colon, or keys below it. */
function filled(
  { text }: Source,
  { key }: Pair,
  words: readonly string[],
  value: unknown,
): string | undefined {
  const [from, to] = [startOf(key), endOf(key)];
  if (from === undefined || to === undefined || text[to] !== ':') return undefined;
  if (words.length === 0) {
    return `${text.slice(0, to + 1)} ${written(value, false)}${text.slice(to + 1)}`;
  }
  const indent = text.slice(lineStart(text, from), from);
  if (indent.trim() !== '') return undefined;
  return appended(text, lineEnd(text, to), linesOf(words, value, `${indent}  `));
}

function added(
  source: Source,
  map: YAMLMap,
  words: readonly string[],
  value: unknown,
): string | undefined {
  const { text, isJson } = source;
  const last = map.items.at(-1);
  const [from, to] = [startOf(last?.key), endOf(last?.value)];
  if (last === undefined || from === undefined || to === undefined) return undefined;
  if (map.flow === true) {
    const [name = '', ...rest] = words;
    const inner = rest.reduceRight((held: unknown, word) => ({ [word]: held }), value);
    const gap = /\s*$/.exec(text.slice(0, from))?.[0] ?? '';
    const between = map.items.length === 1 && gap === '' ? ' ' : gap;
    const pair = `${isJson ? JSON.stringify(name) : name}: ${written(inner, isJson)}`;
    return `${text.slice(0, to)},${between}${pair}${text.slice(to)}`;
  }
  const indent = text.slice(lineStart(text, from), from);
  if (indent.trim() !== '') return undefined;
  return appended(text, lineEnd(text, to), linesOf(words, value, indent));
}

/** Lines put in behind a whole line. */
function appended(text: string, at: number, lines: readonly string[]): string {
  const newline = newlineOf(text);
  const before = text.slice(0, at);
  const gap = before === '' || before.endsWith('\n') ? '' : newline;
  return `${before}${gap}${lines.join(newline)}${newline}${text.slice(at)}`;
}

/** What ends the lines of a text. */
export function newlineOf(text: string): string {
  return text.includes('\r\n') ? '\r\n' : '\n';
}

function linesOf(words: readonly string[], value: unknown, indent: string): string[] {
  return words.map((word, at) => {
    const isLast = at === words.length - 1;
    return `${indent}${'  '.repeat(at)}${word}:${isLast ? ` ${written(value, false)}` : ''}`;
  });
}

function written(value: unknown, isJson: boolean): string {
  if (isJson) return JSON.stringify(value);
  const isObject = typeof value === 'object' && value !== null;
  return stringify(value, {
    lineWidth: 0,
    ...(isObject ? { collectionStyle: 'flow' } : {}),
  }).trim();
}

function pairOf(map: YAMLMap, name: string): Pair | undefined {
  return map.items.find((pair) => nameOf(pair) === name);
}

function nameOf({ key }: Pair): unknown {
  return isScalar(key) ? key.value : key;
}

function startOf(node: unknown): number | undefined {
  return rangeOf(node)?.[0];
}

/** Where a value ends, without the comments and lines behind it. */
function endOf(node: unknown): number | undefined {
  if (isCollection(node) && node.flow !== true) {
    const last: unknown = node.items.at(-1);
    return endOf(isPair(last) ? last.value : last);
  }
  return rangeOf(node)?.[1];
}

function isBlockText(node: unknown): boolean {
  return isScalar(node) && (node.type === 'BLOCK_FOLDED' || node.type === 'BLOCK_LITERAL');
}

function rangeOf(node: unknown): readonly number[] | undefined {
  if (typeof node !== 'object' || node === null || !('range' in node)) return undefined;
  return Array.isArray(node.range) ? (node.range as number[]) : undefined;
}

function lineStart(text: string, at: number): number {
  return text.lastIndexOf('\n', at - 1) + 1;
}

function lineEnd(text: string, at: number): number {
  if (at > 0 && text[at - 1] === '\n') return at;
  const end = text.indexOf('\n', at);
  return end === -1 ? text.length : end + 1;
}

function cut(text: string, from: number, to: number): string {
  return text.slice(0, from) + text.slice(to);
}
