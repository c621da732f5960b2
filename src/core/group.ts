/**
 * group — a short hash for letters that died of the same cause at the same place. Pure and stable:
 * notes and rules are kept under it.
 *
 * Why: docs/decisions/0038-letters-group-by-main-queue.md
 */

import { fingerprint } from './fingerprint.ts';

/** What a group is made of. */
export interface GroupParts {
  readonly code: string;
  readonly reason: string;
  /** The topic, or the queue. */
  readonly at: string;
  /** Where it came from or was going; '' if unknown. */
  readonly origin: string;
}

/** An 11-character word over code, normalised reason, topic or queue, and origin. */
export function groupOf({ code, reason, at, origin }: GroupParts): string {
  return fingerprint(`${code}\n${at}\n${origin}`, reason);
}
