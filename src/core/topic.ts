/**
 * topic — names like `mail.welcome`, and patterns over them.
 *
 * `*` stands for exactly one dot-separated word, `#` for any number of words (also none). Matching
 * is linear in the topic for patterns without `#`, and bounded by words × words otherwise: no
 * RegExp is ever built from a user's text.
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
export function topicsMeet(one: string, other: string): boolean {
  return meet(one.split('.'), other.split('.'));
}

/** n.b. Each pair of places is looked at once: patterns of many `#` stay cheap. */
function meet(one: readonly string[], other: readonly string[]): boolean {
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

/** Maximum number of steps of one comparison; beyond it patterns count as different. */
const COVER_STEPS_MAX = 10_000;

/** Whether every topic that fits `later` fits `earlier` as well; a few absurd patterns: false. */
export function patternCovers(earlier: string, later: string): boolean {
  if (earlier === later || earlier === '#') return true;
  if (!startsAlike(earlier, later)) return false;
  const pattern = earlier.split('.');
  const words = later.split('.');
  // The places in `earlier` that can be reached where `later` stands. A `*` of `later` is a word
  // that `earlier` does not name, since every other word fits at least as well.
  const open = [{ at: 0, places: closed(pattern, [0]), isTopic: false }];
  const seen = new Set<string>();
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { at, places, isTopic } = next;
    const key = `${at} ${places.join()} ${isTopic}`;
    if (seen.has(key)) continue;
    if (seen.size >= COVER_STEPS_MAX) return false;
    seen.add(key);
    const word = words[at];
    if (word === undefined) {
      // No topic is without words.
      if (isTopic && !places.includes(pattern.length)) return false;
      continue;
    }
    const isMany = word === '#';
    if (isMany) open.push({ at: at + 1, places, isTopic });
    const after = stepOver(pattern, places, isMany || word === '*' ? undefined : word);
    open.push({ at: isMany ? at : at + 1, places: after, isTopic: true });
  }
  return true;
}

/** Whether they agree up to the first wildcard: thousands of routes are compared in pairs. */
function startsAlike(pattern: string, other: string): boolean {
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern[at];
    if (character === '*' || character === '#') return true;
    if (character !== other[at]) return character === '.' && at === other.length;
  }
  return false;
}

/** The places after one word; undefined: one that no pattern names. */
function stepOver(
  pattern: readonly string[],
  places: readonly number[],
  word: string | undefined,
): readonly number[] {
  const after = places.flatMap((place) => {
    const part = pattern[place];
    if (part === '#') return [place];
    return part !== undefined && (part === '*' || part === word) ? [place + 1] : [];
  });
  return closed(pattern, after);
}

/** With the places behind each `#`, since it may stand for no word. */
function closed(pattern: readonly string[], places: readonly number[]): readonly number[] {
  const all = new Set(places);
  for (const place of all) if (pattern[place] === '#') all.add(place + 1);
  return [...all].toSorted((one, other) => one - other);
}

/** Whether a text holds a wildcard; one that does not is a plain topic. */
export function isPattern(text: string): boolean {
  return text.includes('*') || text.includes('#');
}

/** What an ordered list of rules says of a topic: the first match decides, no match means no. */
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
