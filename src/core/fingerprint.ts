/**
 * fingerprint — one short word for failures that are alike.
 *
 * Ids, numbers, addresses and quoted parts are taken out of the reason first, so that a thousand
 * time-outs of a thousand messages count as one group. In JSON words are kept, since there all
 * that tells one cause from another is quoted (fingerprint-json.ts). Pure and stable: it is stored,
 * and compared across processes and versions.
 */

import { jsonParts, jsonWords } from './fingerprint-json.ts';

/** Answers that are remembered: thousands of messages mostly fail for a few reasons. */
const KNOWN_MAX = 256;
/** Longer texts are made anew each time. */
const KNOWN_MAX_CHARS = 1_200;
const known = new Map<string, string>();

/** An 11-character word over code and normalised reason. */
export function fingerprint(code: string, reason: string): string {
  const key = `${code}\n${reason}`;
  if (key.length > KNOWN_MAX_CHARS) return wordOf(code, reason);
  const before = known.get(key);
  if (before !== undefined) return before;
  const word = wordOf(code, reason);
  if (known.size >= KNOWN_MAX) known.clear();
  known.set(key, word);
  return word;
}

function wordOf(code: string, reason: string): string {
  return hash53(`${code}\n${normalise(reason)}`)
    .toString(36)
    .padStart(11, '0');
}

/** The reason with everything that differs from message to message replaced by a mark. */
export function normalise(reason: string): string {
  return jsonParts(reason)
    .map(({ text, isJson }) => (isJson ? withoutVariables(jsonWords(text)) : plain(text)))
    .join('')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

function plain(text: string): string {
  return withoutIds(text)
    .replaceAll(/"[^"]{0,200}"|'[^']{0,200}'/g, '<text>')
    .replaceAll(/\d+/g, '<n>');
}

function withoutVariables(text: string): string {
  return withoutIds(text).replaceAll(/\d+/g, '<n>');
}

function withoutIds(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<id>')
    .replaceAll(/[^\s@<>"']{1,64}@[^\s@<>"']{1,255}/g, '<address>')
    .replaceAll(/\b[0-9a-f]{16,}\b/g, '<hex>');
}

// cyrb53: not for secrets, but 53 bits without a dependency in a room that has none; groups number
// in the thousands, so a clash is a one-in-a-billion matter and merges two groups, nothing more.
function hash53(text: string): number {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    high = Math.imul(high ^ unit, 2654435761);
    low = Math.imul(low ^ unit, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return 4294967296 * (2097151 & low) + (high >>> 0);
}
