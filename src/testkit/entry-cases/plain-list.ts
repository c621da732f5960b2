/**
 * plain-list — an entry store in the fewest words: a list that is looked through for every answer.
 *
 * The history cases compare a store with it. It is slow, and too plain to be wrong.
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import { claimed } from '../../core/next-status.ts';
import { takesTopic } from '../../core/topic.ts';
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  EntryQuery,
  ListQuery,
} from '../../ports/entry-store.ts';
import { matchesQuery, orderValue } from '../../stores/shared/query.ts';

/** What a store should answer. */
export class PlainList {
  #entries: readonly Entry[] = [];

  get entries(): readonly Entry[] {
    return this.#entries;
  }

  /** The ids this entry could be called a duplicate of; none: it was stored. */
  insert(entry: Entry): readonly string[] {
    const { id, dedupeKey } = entry.envelope;
    const holders = this.#entries.filter(
      ({ envelope }) =>
        envelope.id === id || (dedupeKey !== undefined && envelope.dedupeKey === dedupeKey),
    );
    if (holders.length === 0) this.#entries = [...this.#entries, entry];
    return holders.map(({ envelope }) => envelope.id);
  }

  claim(request: ClaimRequest): readonly Entry[] {
    const due = this.#entries
      .filter((entry) => fits(entry, request) && (entry.status.dueAt ?? 0) <= request.now)
      .sort(inClaimOrder)
      .slice(0, request.max);
    return due.map((entry) => {
      const taken = { ...entry, status: claimed(entry.status, request) };
      this.#replace(entry, taken);
      return taken;
    });
  }

  nextDueAt(filter: ClaimFilter): Millis | null {
    const dues = this.#entries
      .filter((entry) => fits(entry, filter))
      .map(({ status }) => status.dueAt ?? 0);
    return dues.length === 0 ? null : Math.min(...dues);
  }

  commit({ id, revision, holder, to, envelope }: Change): 'done' | 'stale' {
    const entry = this.#entries.find((candidate) => candidate.envelope.id === id);
    if (entry === undefined || entry.status.revision !== revision) return 'stale';
    if (entry.status.holder !== holder) return 'stale';
    const changed = { ...entry, envelope: envelope ?? entry.envelope };
    this.#replace(entry, to === 'remove' ? undefined : { ...changed, status: to });
    return 'done';
  }

  list(query: EntryQuery & Pick<ListQuery, 'order' | 'descending'>): readonly Entry[] {
    const { order = 'id', descending = false } = query;
    const found = this.#entries
      .filter((entry) => matchesQuery(entry, query))
      .sort((one, other) => orderValue(one, order) - orderValue(other, order) || byId(one, other));
    return descending ? found.reverse() : found;
  }

  #replace(old: Entry, next: Entry | undefined): void {
    this.#entries = this.#entries.flatMap((entry) => {
      if (entry !== old) return [entry];
      return next === undefined ? [] : [next];
    });
  }
}

function fits({ envelope, status }: Entry, filter: ClaimFilter): boolean {
  const { destination = null } = envelope;
  return (
    status.dueAt !== null &&
    status.lane === filter.lane &&
    filter.states.some((state) => state === status.state) &&
    (filter.ids === undefined || filter.ids.includes(envelope.id)) &&
    takesTopic(filter.topics, envelope.topic) &&
    (destination === null || filter.exceptDestinations?.includes(destination) !== true)
  );
}

function inClaimOrder(one: Entry, other: Entry): number {
  return (
    one.envelope.priority - other.envelope.priority ||
    (one.status.dueAt ?? 0) - (other.status.dueAt ?? 0) ||
    byId(one, other)
  );
}

function byId(one: Entry, other: Entry): number {
  if (one.envelope.id === other.envelope.id) return 0;
  return one.envelope.id < other.envelope.id ? -1 : 1;
}
