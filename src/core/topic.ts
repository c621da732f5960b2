/**
 * topic — names like `mail.welcome`, and patterns over them: whether a topic matches a pattern,
 * whether two patterns overlap, and which earlier patterns cover a later one.
 *
 * `*` stands for exactly one dot-separated word, `#` for any number of words (also none). Matching
 * is linear in the topic for patterns without `#`, and bounded by words × words otherwise: no
 * RegExp is ever built from a user's text. stores/postgres/conditions.ts repeats this in SQL.
 *
 * Why: docs/decisions/0003-claim-filters-are-ordered-rules.md
 */

/** One rule of a list in which the first match wins. */
export interface TopicRule {
  readonly pattern: string;
  readonly take: boolean;
}

/**
 * Whether a topic fits a pattern.
 *
 * @example
 * import { topicMatches } from 'respool';
 * topicMatches('orders.#', 'orders.eu.paid'); // true
 * topicMatches('orders.*', 'orders.eu.paid'); // false
 */
export function topicMatches(pattern: string, topic: string): boolean {
  if (pattern === topic || pattern === '#') return true;
  if (!isPattern(pattern)) return false;
  return wordsMatch(pattern.split('.'), topic.split('.'));
}

/** Whether there can be a topic that fits both patterns. */
export function patternsOverlap(one: string, other: string): boolean {
  return wordsOverlap(one.split('.'), other.split('.'));
}

/** n.b. Each pair of positions is visited once: patterns with many `#` stay cheap. */
function wordsOverlap(one: readonly string[], other: readonly string[]): boolean {
  const width = other.length + 1;
  const seen = new Set<number>();
  const open = [0];
  while (open.length > 0) {
    const place = open.pop() ?? 0;
    if (seen.has(place)) continue;
    seen.add(place);
    const [at, beside] = [Math.floor(place / width), place % width];
    const [a, b] = [one[at], other[beside]];
    if (a === undefined && b === undefined) return true;
    // A `#` is over, or takes the word of the other side.
    if (a === '#') open.push(place + width);
    if (b === '#') open.push(place + 1);
    if (a === undefined || b === undefined) continue;
    if (a === '#') open.push(place + 1);
    if (b === '#') open.push(place + width);
    if (a === '*' || b === '*' || a === b) open.push(place + width + 1);
  }
  return false;
}

/**
 * Maximum number of positions in patterns that one comparison visits, which takes some
 * milliseconds; beyond it a pattern counts as not covered.
 */
const COVER_PLACES_MAX = 100_000;
/** Maximum number of patterns that are compared together; later ones are left out. */
const COVER_PATTERNS_MAX = 100;

/**
 * Which earlier patterns take every topic that fits `later`: the first that does so alone, else
 * several of which none can be left out; undefined: some topic is left to `later`.
 *
 * n.b. A wildcard of `later` stands for a word that no pattern names: a pattern that takes such a
 * topic takes it with every other word in that position too. So a `later` without `#` counts as one
 * topic, and is taken by one pattern or by none.
 */
export function patternsCovering(
  earlier: readonly string[],
  later: string,
): readonly number[] | undefined {
  if (!later.includes('#')) {
    const at = earlier.findIndex(
      (one) => sharesLiteralPrefix(one, later) && topicMatches(one, later),
    );
    return at === -1 ? undefined : [at];
  }
  const words = later.split('.');
  const named = new Set(words);
  const isPossible = (one: string): boolean =>
    sharesLiteralPrefix(one, later) &&
    one.split('.').every((word) => isPattern(word) || named.has(word));
  const possible = earlier.flatMap((one, at) => (isPossible(one) ? [at] : []));
  const cover = (places: readonly number[]): boolean =>
    coverTogether(
      places.map((at) => earlier[at] ?? ''),
      words,
    );
  const alone = possible.find((at) => cover([at]));
  if (alone !== undefined) return [alone];
  let needed = possible.slice(0, COVER_PATTERNS_MAX);
  if (needed.length < 2 || !cover(needed)) return undefined;
  for (const at of needed.toReversed()) {
    const rest = needed.filter((one) => one !== at);
    if (cover(rest)) needed = rest;
  }
  return needed;
}

/** Whether every topic that these words stand for matches at least one of the patterns. */
function coverTogether(patterns: readonly string[], words: readonly string[]): boolean {
  // All patterns in one list; `undefined` marks the end of each.
  const parts = patterns.flatMap((one) => [...one.split('.'), undefined]);
  const starts = [...parts.keys()].filter((at) => at === 0 || parts[at - 1] === undefined);
  // The positions in the patterns that can be reached at a position in the words.
  const open = [{ at: 0, places: withSkippedHashes(parts, starts), isTopic: false }];
  const seen = new Set<string>();
  let steps = 0;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { at, places, isTopic } = next;
    const key = `${at} ${places.join()} ${isTopic}`;
    if (seen.has(key)) continue;
    steps += places.length + 1;
    if (steps > COVER_PLACES_MAX) return false;
    seen.add(key);
    const word = words[at];
    if (word === undefined) {
      // No topic is without words.
      if (isTopic && !places.some((place) => parts[place] === undefined)) return false;
      continue;
    }
    const isMany = word === '#';
    if (isMany) open.push({ at: at + 1, places, isTopic });
    const after = placesAfterWord(parts, places, isMany || word === '*' ? undefined : word);
    open.push({ at: isMany ? at : at + 1, places: after, isTopic: true });
  }
  return true;
}

/** Whether they agree up to the first wildcard; quick, for thousands of routes in pairs. */
function sharesLiteralPrefix(one: string, other: string): boolean {
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at += 1) {
    const a = one[at];
    const b = other[at];
    if (a === '*' || a === '#' || b === '*' || b === '#') return true;
    if (a !== b) return false;
  }
  // Where one is over, the other may go on with a wildcard for no word.
  const next = one[length] ?? other[length];
  return next === undefined || next === '.';
}

type Parts = readonly (string | undefined)[];

/** The places after one word; undefined: one that no pattern names. */
function placesAfterWord(
  parts: Parts,
  places: readonly number[],
  word: string | undefined,
): readonly number[] {
  const after = places.flatMap((place) => {
    const part = parts[place];
    if (part === '#') return [place];
    return part !== undefined && (part === '*' || part === word) ? [place + 1] : [];
  });
  return withSkippedHashes(parts, after);
}

/** With the places behind each `#`, since it may stand for no word. */
function withSkippedHashes(parts: Parts, places: readonly number[]): readonly number[] {
  const all = new Set(places);
  for (const place of all) if (parts[place] === '#') all.add(place + 1);
  return [...all].toSorted((one, other) => one - other);
}

/** Whether a text holds a wildcard; one that does not is a plain topic. */
export function isPattern(text: string): boolean {
  return text.includes('*') || text.includes('#');
}

/** Whether an ordered list of rules takes a topic: the first match decides, no match means no. */
export function takesTopic(rules: readonly TopicRule[] | undefined, topic: string): boolean {
  if (rules === undefined) return true;
  for (const rule of rules) if (topicMatches(rule.pattern, topic)) return rule.take;
  return false;
}

/** Whether the words of a topic fit those of a pattern. */
export function wordsMatch(pattern: readonly string[], words: readonly string[]): boolean {
  // The usual two-pointer walk: on a mismatch the last `#` swallows one word more.
  let at = 0;
  let word = 0;
  let lastHash = -1;
  let swallowed = 0;
  while (word < words.length) {
    const part = pattern[at];
    if (part === '#') {
      lastHash = at;
      swallowed = word;
      at += 1;
    } else if (part !== undefined && (part === '*' || part === words[word])) {
      at += 1;
      word += 1;
    } else if (lastHash >= 0) {
      swallowed += 1;
      word = swallowed;
      at = lastHash + 1;
    } else return false;
  }
  while (pattern[at] === '#') at += 1;
  return at === pattern.length;
}
