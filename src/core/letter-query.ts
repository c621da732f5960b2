/**
 * letter-query — which dead letters an operator selects. Pure; for places that filter while they
 * look.
 *
 * Known by shape: the letters themselves are a matter of the ports.
 */

import type { Millis } from './duration.ts';
import type { Headers } from './entry.ts';
import { topicMatches } from './topic.ts';
import { fingerprint } from './fingerprint.ts';

/** `dead`: a dead queue, or `bounce`; `parked`: a parked queue, or `hold`; `archived`. */
export type LetterKind = 'dead' | 'parked' | 'archived';

/** What is asked of a letter. */
interface AskedLetter {
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

/** Which letters; all given conditions hold together. */
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

/** Whether a letter fits all conditions of a query. */
export function fitsLetter(letter: AskedLetter, query: LetterQuery): boolean {
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

function hasText({ id, topic, origin, reason }: AskedLetter, text: string): boolean {
  const wanted = text.toLowerCase();
  return [id, topic, origin, reason].some((place) => place.toLowerCase().includes(wanted));
}

// A short hash for letters that died of the same cause at the same place. Pure and stable:
// notes and rules are kept under it.
//
// Why: docs/decisions/0038-letters-group-by-main-queue.md

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
