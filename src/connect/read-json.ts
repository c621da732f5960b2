/** read-json — the values of a JSON file; what is wrong with it by line and column. */

import { syntaxError } from './syntax-error.ts';

/** Deeper than any configuration; what is deeper is not gone through. */
const SCAN_DEPTH_MAX = 500;

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

/** Where a text stops to be JSON, and where a key stands for the second time. */
function scanJson(text: string): { readonly endAt: number; readonly twiceAt: number | undefined } {
  let at = 0;
  let depth = 0;
  let twiceAt: number | undefined;
  const eat = (token: RegExp): boolean => {
    token.lastIndex = at;
    const isThere = token.test(text);
    if (isThere) at = token.lastIndex;
    return isThere;
  };
  const space = (): boolean => eat(/[ \t\r\n]*/y);
  const string = (): boolean => eat(/"(?:[ !#-[\]-\uffff]|\\(?:["\\/bfnrt]|u[\dA-Fa-f]{4}))*"/y);
  const list = (end: RegExp, item: () => boolean): boolean => {
    if (space() && eat(end)) return true;
    while (item() && space()) {
      if (eat(end)) return true;
      if (!eat(/,/y)) return false;
    }
    return false;
  };
  const pairOf = (names: Set<string>) => (): boolean => {
    space();
    const from = at;
    if (!string()) return false;
    const name = JSON.parse(text.slice(from, at)) as string;
    if (names.has(name)) twiceAt ??= from;
    names.add(name);
    return space() && eat(/:/y) && value();
  };
  const inside = (end: RegExp, item: () => boolean): boolean => {
    depth += 1;
    const isWhole = depth <= SCAN_DEPTH_MAX && list(end, item);
    depth -= 1;
    return isWhole;
  };
  const value = (): boolean => {
    space();
    if (eat(/\{/y)) return inside(/\}/y, pairOf(new Set()));
    if (eat(/\[/y)) return inside(/\]/y, value);
    return string() || eat(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]?\d+)?/iy) || eat(/true|false|null/y);
  };
  if (value()) space();
  return { endAt: at, twiceAt };
}
