/**
 * letter-query — the query by which an operator selects dead letters, whether a letter matches it,
 * and the group of a letter. Pure; called by both implementations of `DeadLetters` (rabbit/queues/,
 * dead-letters/spool-letters.ts).
 *
 * `QueriedLetter` repeats fields of `Letter` (ports/dead-letters.ts), because core imports no port.
 * Promise: `groupOf` is stable; notes and rules are stored under the groups it returns.
 */

import type { Millis } from './duration.ts';
import type { Headers } from './entry.ts';
import { topicMatches } from './topic.ts';
import { fingerprint } from './fingerprint.ts';

/** `dead`: a dead queue, or `bounce`; `parked`: a parked queue, or `hold`; `archived`. */
export type LetterKind = 'dead' | 'parked' | 'archived';

/** The fields of a letter that a query looks at. */
interface QueriedLetter {
  readonly id: string;
  readonly kind: LetterKind;
  readonly topic: string;
  readonly origin: string;
  readonly code: string;
  readonly reason: string;
  readonly group: string;
  readonly deaths: number;
  readonly enqueuedAt: Millis | undefined;
  readonly diedAt: Millis | undefined;
  readonly headers: Headers;
}

/** Which letters: those that match all given conditions. */
export interface LetterQuery {
  readonly kinds?: readonly LetterKind[];
  readonly ids?: readonly string[];
  /** A topic or pattern. */
  readonly topic?: string;
  readonly origin?: string;
  readonly code?: string;
  readonly group?: string;
  /** Found in its id, topic, origin or reason. */
  readonly text?: string;
  readonly header?: { readonly name: string; readonly value?: string };
  /** By the time it died, else the time it was enqueued; if both are unknown it matches. */
  readonly before?: Millis;
  readonly after?: Millis;
  /** Died more often than this. */
  readonly deathsAbove?: number;
}

/** Whether a letter matches all conditions of a query. */
export function letterMatches(letter: QueriedLetter, query: LetterQuery): boolean {
  return (
    (query.kinds === undefined || query.kinds.includes(letter.kind)) &&
    (query.ids === undefined || query.ids.includes(letter.id)) &&
    (query.topic === undefined || topicMatches(query.topic, letter.topic)) &&
    (query.origin === undefined || query.origin === letter.origin) &&
    (query.code === undefined || query.code === letter.code) &&
    (query.group === undefined || query.group === letter.group) &&
    (query.deathsAbove === undefined || letter.deaths > query.deathsAbove) &&
    isWithin(letter.diedAt ?? letter.enqueuedAt, query) &&
    (query.header === undefined || hasHeader(letter.headers, query.header)) &&
    (query.text === undefined || hasText(letter, query.text))
  );
}

// Strictly before, strictly after. A letter of unknown time always matches.
function isWithin(at: Millis | undefined, { before, after }: LetterQuery): boolean {
  if (at === undefined) return true;
  return (after === undefined || at > after) && (before === undefined || at < before);
}

function hasHeader(headers: Headers, target: NonNullable<LetterQuery['header']>): boolean {
  if (!Object.hasOwn(headers, target.name)) return false;
  return target.value === undefined || headers[target.name] === target.value;
}

function hasText({ id, topic, origin, reason }: QueriedLetter, text: string): boolean {
  const wanted = text.toLowerCase();
  return [id, topic, origin, reason].some((place) => place.toLowerCase().includes(wanted));
}

// A short hash for letters that died of the same cause at the same place. Pure and stable:
// notes and rules are kept under it.
//
// Why: docs/decisions/0038-letters-group-by-main-queue.md

/** The fields that a group is computed from. */
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
