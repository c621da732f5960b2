/** look-cost — a look for work in memory reads as much beside a large backlog as beside a small one. */

import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import type { ClaimFilter, Entry } from 'respool';
import { Catalog, createHeldEntry, factsOf } from '../../src/stores/filesystem/catalog.ts';
import { Data } from '../../src/stores/memory/data.ts';
import { Catalog as NatsCatalog } from '../../src/stores/nats/catalog.ts';
import { backlog, FILTERS, LEAVING_OUT, LONG_DUE, NOT_DUE } from './look-samples.ts';

/** The index of a store. */
interface Index {
  add(entry: Entry): void;
  /** The ids that a claim takes. */
  take(filter: ClaimFilter, max: number): string[];
  nextDueAt(filter: ClaimFilter): number | null;
  /** How many topics, flows and entries were looked at so far. */
  looks(): number;
}

function memoryIndex(): Index {
  const data = new Data();
  return {
    add: (entry) => void data.insert(entry),
    take: (filter, max) => data.due.take(filter, SAMPLE_AT, max).map(({ id }) => id),
    nextDueAt: (filter) => data.due.nextDueAt(filter),
    looks: () => data.due.looks,
  };
}

function filesystemIndex(): Index {
  const catalog = new Catalog();
  return {
    add: ({ envelope, status }) => {
      const place = { state: status.state, shard: 0, bytes: 4_096 };
      catalog.put(createHeldEntry(envelope.id, status, factsOf(envelope, status), place));
    },
    take: (filter, max) => {
      const ids: string[] = [];
      for (const held of catalog.tree.due(filter, SAMPLE_AT)) {
        ids.push(held.id);
        if (ids.length >= max) break;
      }
      return ids;
    },
    nextDueAt: (filter) => catalog.tree.nextDueAt(filter),
    looks: () => catalog.tree.looks,
  };
}

function natsIndex(): Index {
  const catalog = new NatsCatalog();
  let seq = 0;
  return {
    add: ({ envelope: { id, topic, destination, priority, enqueuedAt }, status }) => {
      const { state, lane, dueAt, revision, updatedAt, attempts } = status;
      seq += 1;
      catalog.put(id, seq, {
        topic,
        destination,
        priority,
        enqueuedAt,
        state,
        lane,
        dueAt,
        revision,
        updatedAt,
        attempts,
        holder: undefined,
        key: undefined,
        failureCode: undefined,
        becauseCode: undefined,
        fingerprint: undefined,
        isUnborn: false,
        birth: 0,
      });
    },
    take: (filter, max) => catalog.take(filter, SAMPLE_AT, max).map(({ id }) => id),
    nextDueAt: (filter) => catalog.nextDueAt(filter),
    looks: () => catalog.looks,
  };
}

const INDEXES = { memory: memoryIndex, filesystem: filesystemIndex, nats: natsIndex };

/** What a claim and a look for the next due time read, and what the claim took. */
function readOf(index: Index, filter: ClaimFilter) {
  const before = index.looks();
  const ids = index.take(filter, 10);
  const afterClaim = index.looks();
  index.nextDueAt(filter);
  return { ids, claim: afterClaim - before, next: index.looks() - afterClaim };
}

function filled(make: () => Index, entries: readonly Entry[]): Index {
  const index = make();
  for (const entry of entries) index.add(entry);
  return index;
}

/** How many more levels a heap of 100 times as many has. */
const LEVELS = 7;

const LIVE = Array.from({ length: 3 }, (_, at) => sampleEntry(`live-${at}`, { topic: 'live' }));
const LIVE_IDS = LIVE.map(({ envelope }) => envelope.id);

for (const [store, make] of Object.entries(INDEXES)) {
  describe(`a look for work in the index of the ${store} store`, () => {
    for (const [name, filter] of Object.entries(FILTERS)) {
      for (const live of [[], LIVE]) {
        const title = `${name}, ${live.length} due`;
        test(`reads the same beside 100 and 10,000 that are not due: ${title}`, () => {
          const few = readOf(filled(make, [...backlog(100, NOT_DUE), ...live]), filter);
          const many = readOf(filled(make, [...backlog(10_000, NOT_DUE), ...live]), filter);
          expect(many).toEqual(few);
          expect(many.ids).toEqual(live.length === 0 ? [] : LIVE_IDS);
        });
      }
    }

    for (const name of LEAVING_OUT) {
      test(`reads the same beside 100 and 10,000 that are due and left out: ${name}`, () => {
        const filter = FILTERS[name] as ClaimFilter;
        const few = readOf(filled(make, [...backlog(100, LONG_DUE), ...LIVE]), filter);
        const many = readOf(filled(make, [...backlog(10_000, LONG_DUE), ...LIVE]), filter);
        expect(many).toEqual(few);
        expect(many.ids).toEqual(LIVE_IDS);
      });
    }

    test('reads the same where each that is not due has a destination of its own', () => {
      const filter = FILTERS['two routes in one claim'] as ClaimFilter;
      const few = readOf(filled(make, [...backlog(100, NOT_DUE, true), ...LIVE]), filter);
      const many = readOf(filled(make, [...backlog(10_000, NOT_DUE, true), ...LIVE]), filter);
      expect(many).toEqual(few);
    });

    for (const name of ['a paused topic', 'a destination that is full']) {
      for (const live of [[], LIVE]) {
        test(`reads the same beside as many due and left out: ${name}, ${live.length} due`, () => {
          const filter = FILTERS[name] as ClaimFilter;
          const others = (count: number): Entry[] =>
            sampleEntries(count, 'other', (at) => ({
              topic: `mail.${at % 10}`,
              destination: `d${at}`,
              dueAt: NOT_DUE,
            }));
          const crowd = (count: number): Entry[] => [
            ...backlog(count, LONG_DUE),
            ...others(count),
            ...live,
          ];
          const few = readOf(filled(make, crowd(100)), filter);
          const many = readOf(filled(make, crowd(10_000)), filter);
          // A heap of more that are not due has more levels.
          expect(many.claim).toBeLessThanOrEqual(few.claim + LEVELS);
          expect(many.next).toBeLessThanOrEqual(few.next + LEVELS);
          expect(many.ids).toEqual(live.length === 0 ? [] : LIVE_IDS);
        });
      }
    }
  });
}

describe('a claim', () => {
  for (const [store, make] of Object.entries({ filesystem: filesystemIndex, nats: natsIndex })) {
    // Regression: topics without a route were gone through one by one, due or not.
    test(`looks at no topic of which nothing is due, ${store}`, () => {
      const waiting = Array.from({ length: 5_000 }, (_, at) =>
        sampleEntry(`big-${at}`, { topic: `big.${at}`, dueAt: NOT_DUE }),
      );
      const filter = FILTERS['a route with a concurrency of its own'] as ClaimFilter;
      expect(readOf(filled(make, waiting), filter).claim).toBeLessThan(5);
    });
  }
});
