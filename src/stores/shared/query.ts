/**
 * query — what an EntryQuery means, in plain code; for stores that filter while scanning. The same
 * in SQL: `conditionsOf` of postgres/conditions.ts and of sqlite/list.ts.
 */

import type { Entry } from '../../core/entry.ts';
import { topicMatches } from '../../core/topic.ts';
import type { EntryQuery, ListOrder } from '../../ports/entry-store.ts';

/**
 * The ids that begin so, as a range: from the first on, and before the second. Ids are of
 * `0-9 a-z _ -`, and `{` comes behind all of these.
 */
export function idRange(prefix: string): readonly [from: string, before: string] {
  return [prefix, `${prefix}{`];
}

/** Whether an entry fits all conditions of a query. */
export function matchesQuery({ envelope, status }: Entry, query: EntryQuery): boolean {
  return (
    (query.states === undefined || query.states.includes(status.state)) &&
    (query.lane === undefined || query.lane === status.lane) &&
    (query.topic === undefined || topicMatches(query.topic, envelope.topic)) &&
    (query.destination === undefined || isAmong(envelope.destination, query.destination)) &&
    (query.ids === undefined || query.ids.includes(envelope.id)) &&
    (query.idPrefix === undefined || envelope.id.startsWith(query.idPrefix)) &&
    isWithin(envelope.enqueuedAt, query.enqueuedAfter, query.enqueuedBefore) &&
    isWithin(status.updatedAt, query.updatedAfter, query.updatedBefore) &&
    isWithin(status.dueAt, query.dueAfter, query.dueBefore) &&
    matchesWords({ envelope, status }, query)
  );
}

/** Whether a catalog without contents cannot tell what fits. */
export function needsContent({ header, text }: EntryQuery): boolean {
  return header !== undefined || text !== undefined;
}

/** The value an entry is ordered by; entries without a due time come last. */
export function orderValue({ envelope, status }: Entry, order: ListOrder): number {
  switch (order) {
    case 'dueAt':
      return status.dueAt ?? Number.MAX_SAFE_INTEGER;
    case 'updatedAt':
      return status.updatedAt;
    case 'priority':
      return envelope.priority;
    case 'attempts':
      return status.attempts;
    default:
      return 0;
  }
}

function matchesWords({ envelope, status }: Entry, query: EntryQuery): boolean {
  const { header, code, fingerprint, text } = query;
  if (header !== undefined) {
    const value = Object.hasOwn(envelope.headers, header.name)
      ? envelope.headers[header.name]
      : undefined;
    if (value === undefined || (header.value !== undefined && header.value !== value)) return false;
  }
  if (code !== undefined && code !== status.lastFailure?.code && code !== status.because?.code) {
    return false;
  }
  if (fingerprint !== undefined && fingerprint !== status.lastFailure?.fingerprint) return false;
  return text === undefined || hasText({ envelope, status }, text);
}

function hasText({ envelope, status }: Entry, text: string): boolean {
  const wanted = text.toLowerCase();
  const places = [envelope.id, envelope.topic, status.lastFailure?.reason, status.because?.text];
  return places.some((place) => place?.toLowerCase().includes(wanted));
}

function isAmong(destination: string | undefined, text: string | readonly string[]): boolean {
  if (typeof text === 'string') return text === destination;
  return destination !== undefined && text.includes(destination);
}

// Before means strictly before, after means strictly after.
function isWithin(
  value: number | null,
  after: number | undefined,
  before: number | undefined,
): boolean {
  if (after === undefined && before === undefined) return true;
  if (value === null) return false;
  return (after === undefined || value > after) && (before === undefined || value < before);
}
