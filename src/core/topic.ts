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

/** Whether a topic fits a pattern. */
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
