/**
 * short-ids — the shortest unique form of each id in a table.
 *
 *   01a1e06c-024e          the moment it was made at, where that is enough
 *   01a1e06c-024e…cc9c     its beginning and its end, where many were made at the same moment
 *
 * Both can be typed where an id is asked for; see cli/id-prefix.ts. An id that Respool did not make
 * has a meaning, and is shown whole unless it is long.
 */

import { isMadeId } from '../id-prefix.ts';

/** Of an id that Respool made: its time, in milliseconds. */
const MOMENT_CHARS = 13;
/** The random end of one; a few more where these are alike. */
const END_CHARS = 4;
/** The longest id that is shown whole. */
const OWN_MAX_CHARS = 24;
const OWN_HEAD_CHARS = 15;

/** The ids in their short form, in their order; equal ones alike. */
export function shortIds(ids: readonly string[]): readonly string[] {
  const all = [...new Set(ids)];
  const moments = new Map<string, number>();
  for (const id of all) {
    const head = id.slice(0, MOMENT_CHARS);
    moments.set(head, (moments.get(head) ?? 0) + 1);
  }
  const short = (id: string, endChars: number): string => {
    if (!isMadeId(id)) {
      if (id.length <= OWN_MAX_CHARS) return id;
      return `${id.slice(0, OWN_HEAD_CHARS)}…${id.slice(-2 * endChars)}`;
    }
    const head = id.slice(0, MOMENT_CHARS);
    return moments.get(head) === 1 ? head : `${head}…${id.slice(-endChars)}`;
  };
  for (let endChars = END_CHARS; endChars <= 2 * END_CHARS; endChars += 1) {
    if (new Set(all.map((id) => short(id, endChars))).size === all.length) {
      return ids.map((id) => short(id, endChars));
    }
  }
  // Same prefix and suffix: only the full id is unique.
  return ids;
}
