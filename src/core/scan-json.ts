/** scan-json — finds duplicate keys, half characters and the position of a syntax error. Pure. */

/** Deeper than any configuration or request; what is deeper is not gone through. */
const SCAN_DEPTH_MAX = 500;

const PLAIN = /[ !#-[\]-\uffff]+/y;
const ESCAPES = /(?:\\(?:["\\/bfnrt]|u[\dA-Fa-f]{4})){1,1000}/y;

/** Where a text stops to be JSON, where a key stands again, and where half a pair is escaped. */
export function scanJson(text: string): {
  readonly endAt: number;
  readonly twiceAt: number | undefined;
  readonly loneAt: number | undefined;
} {
  let at = 0;
  let depth = 0;
  let twiceAt: number | undefined;
  let loneAt: number | undefined;
  const eat = (token: RegExp): boolean => {
    token.lastIndex = at;
    const isThere = token.test(text);
    if (isThere) at = token.lastIndex;
    return isThere;
  };
  const space = (): boolean => eat(/[ \t\r\n]*/y);
  /** A loop, and not one expression: that would overflow its stack at a million escapes. */
  const string = (): boolean => {
    const from = at;
    if (!eat(/"/y)) return false;
    while (eat(PLAIN) || eat(ESCAPES));
    if (!eat(/"/y)) return false;
    const literal = text.slice(from, at);
    if (!literal.includes('\\u') && literal.isWellFormed()) return true;
    if (!(JSON.parse(literal) as string).isWellFormed()) loneAt ??= from;
    return true;
  };
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
  return { endAt: at, twiceAt, loneAt };
}
