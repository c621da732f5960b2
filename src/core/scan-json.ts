/**
 * scan-json — scans a JSON text for what `JSON.parse` does not report: duplicate keys, lone
 * surrogates, and the position of a syntax error. Pure; takes time linear in the text.
 */

/** Maximum depth; a text that is nested deeper counts as a syntax error there. */
const SCAN_DEPTH_MAX = 500;

const PLAIN = /[ !#-[\]-\uffff]+/y;
const ESCAPES = /(?:\\(?:["\\/bfnrt]|u[\dA-Fa-f]{4})){1,1000}/y;

/** The positions where a text stops being JSON, of a repeated key, and of a lone surrogate. */
export function scanJson(text: string): {
  readonly endAt: number;
  readonly duplicateKeyAt: number | undefined;
  readonly loneSurrogateAt: number | undefined;
} {
  let at = 0;
  let depth = 0;
  let duplicateKeyAt: number | undefined;
  let loneSurrogateAt: number | undefined;
  const consume = (token: RegExp): boolean => {
    token.lastIndex = at;
    const isThere = token.test(text);
    if (isThere) at = token.lastIndex;
    return isThere;
  };
  const space = (): boolean => consume(/[ \t\r\n]*/y);
  /** A loop, and not one expression: that would overflow its stack at a million escapes. */
  const string = (): boolean => {
    const from = at;
    if (!consume(/"/y)) return false;
    while (consume(PLAIN) || consume(ESCAPES));
    if (!consume(/"/y)) return false;
    const literal = text.slice(from, at);
    if (!literal.includes('\\u') && literal.isWellFormed()) return true;
    if (!(JSON.parse(literal) as string).isWellFormed()) loneSurrogateAt ??= from;
    return true;
  };
  const list = (end: RegExp, item: () => boolean): boolean => {
    if (space() && consume(end)) return true;
    while (item() && space()) {
      if (consume(end)) return true;
      if (!consume(/,/y)) return false;
    }
    return false;
  };
  const pairOf = (names: Set<string>) => (): boolean => {
    space();
    const from = at;
    if (!string()) return false;
    const name = JSON.parse(text.slice(from, at)) as string;
    if (names.has(name)) duplicateKeyAt ??= from;
    names.add(name);
    return space() && consume(/:/y) && value();
  };
  const inside = (end: RegExp, item: () => boolean): boolean => {
    depth += 1;
    const isWhole = depth <= SCAN_DEPTH_MAX && list(end, item);
    depth -= 1;
    return isWhole;
  };
  const value = (): boolean => {
    space();
    if (consume(/\{/y)) return inside(/\}/y, pairOf(new Set()));
    if (consume(/\[/y)) return inside(/\]/y, value);
    return (
      string() ||
      consume(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]?\d+)?/iy) ||
      consume(/true|false|null/y)
    );
  };
  if (value()) space();
  return { endAt: at, duplicateKeyAt, loneSurrogateAt };
}
