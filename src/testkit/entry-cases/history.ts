/**
 * history — long random histories, compared step by step with a plain list of entries: a store in
 * the fewest lines, slow, and too simple to be wrong. Run alone, across a reopening, and from two
 * processes.
 *
 * A failure names its seed and step; the same seed gives the same history again.
 */

import assert from 'node:assert/strict';
import type { Millis } from '../../core/duration.ts';
import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { claimedStatus } from '../../core/next-status.ts';
import { type ClaimableState, type State, STATES } from '../../core/state.ts';
import { takesTopic, type TopicRule } from '../../core/topic.ts';
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  EntryQuery,
  EntryStore,
  ListOrder,
  ListQuery,
} from '../../ports/entry-store.ts';
import { matchesQuery, orderValue } from '../../stores/shared/query.ts';
import {
  assertSameEntry,
  entryChange,
  claimRequest,
  type EntryCase,
  type EntryWorld,
  sampleIds,
  later,
  listEverything,
  steppedStatus,
} from './shared.ts';
import { sampleEntry } from '../samples.ts';
import { seededDice } from '../virtual-time.ts';

/** What a store should answer. */
class PlainList {
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
      const taken = { ...entry, status: claimedStatus(entry.status, request) };
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

const STEPS = 150;
const TOPICS = ['a', 'a.x', 'a.y', 'b'];
const DESTINATIONS = [undefined, 'd1', 'd2', 'd3'];
const ORDERS: readonly ListOrder[] = ['id', 'dueAt', 'updatedAt', 'priority', 'attempts'];
const CLAIMABLE: readonly ClaimableState[] = ['incoming', 'deferred', 'bounce', 'active'];

/** Seeded random choices for histories. */
class Chance {
  readonly #dice: ReturnType<typeof seededDice>;

  constructor(seed: number) {
    this.#dice = seededDice(seed);
  }

  below(count: number): number {
    return Math.floor(this.#dice.random() * count);
  }

  happens(rate: number): boolean {
    return this.#dice.random() < rate;
  }

  oneOf<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  someOf<T>(items: readonly T[], rate: number): readonly T[] {
    return items.filter(() => this.happens(rate));
  }
}

interface History {
  readonly chance: Chance;
  readonly plain: PlainList;
  /** The store to use in this step. */
  readonly store: EntryStore;
  /** Whether commits may be lazy. */
  readonly mayBeLazy: boolean;
  readonly step: number;
}

const anyId = (chance: Chance) => `m${String(chance.below(60)).padStart(2, '0')}`;

function randomEntry(chance: Chance): Entry {
  const destination = chance.oneOf(DESTINATIONS);
  const isNotice = chance.happens(0.2);
  const delayMs = chance.below(30);
  return sampleEntry(anyId(chance), {
    topic: chance.oneOf(TOPICS),
    priority: chance.oneOf([0, 5, 9]),
    dueAt: later(delayMs),
    enqueuedAt: later(chance.below(30)),
    state: isNotice ? 'bounce' : chance.oneOf(['incoming', 'deferred']),
    lane: isNotice ? 'notice' : 'delivery',
    ...(destination === undefined ? {} : { destination }),
    ...(chance.happens(0.3) ? { dedupeKey: `k${chance.below(15)}` } : {}),
  });
}

async function insertSome({ chance, plain, store }: History): Promise<void> {
  const entries = Array.from({ length: 1 + chance.below(6) }, () => randomEntry(chance));
  const results = await store.insert(entries);
  assert.equal(results.length, entries.length);
  for (const [index, entry] of entries.entries()) {
    const holders = plain.insert(entry);
    const result = results[index];
    // Where id and dedupe key belong to two entries, either may be named.
    if (holders.length === 0) assert.equal(result, 'stored');
    else assert.ok(typeof result === 'object' && holders.includes(result.duplicateOf));
  }
}

function randomFilter(chance: Chance): ClaimFilter {
  const lane = chance.happens(0.75) ? 'delivery' : 'notice';
  const rules: readonly TopicRule[] = [
    { pattern: chance.oneOf(TOPICS), take: chance.happens(0.5) },
    { pattern: chance.oneOf(['a.*', 'a.#', '*', 'b']), take: chance.happens(0.5) },
    { pattern: '#', take: true },
  ];
  return {
    lane,
    states: chance.happens(0.6) ? CLAIMABLE : chance.someOf(CLAIMABLE, 0.6),
    ...(chance.happens(0.5) ? { topics: chance.someOf(rules, 0.8) } : {}),
    ...(chance.happens(0.6) ? { exceptDestinations: chance.someOf(['d1', 'd2', 'd3'], 0.5) } : {}),
    ...(chance.happens(0.2) ? { ids: Array.from({ length: 30 }, () => anyId(chance)) } : {}),
  };
}

async function claimSome({ chance, plain, store }: History): Promise<void> {
  const filter = randomFilter(chance);
  const request = claimRequest(store, {
    ...filter,
    max: chance.below(8),
    now: later(chance.below(40)),
    leaseMs: 1 + chance.below(20),
  });
  const taken = await store.claim(request);
  const expected = plain.claim(request);
  const { holder: _holder, ...asked } = request;
  assert.deepEqual(sampleIds(taken), sampleIds(expected), JSON.stringify(asked));
  for (const [index, entry] of expected.entries()) assertSameEntry(taken[index], entry);
}

async function askNextDue({ chance, plain, store }: History): Promise<void> {
  const filter = randomFilter(chance);
  const expected = plain.nextDueAt(filter);
  assert.equal(await store.nextDueAt(filter), expected, JSON.stringify(filter));
}

function randomStatus(entry: Entry, chance: Chance, step: number): Status {
  const state: State = chance.oneOf(STATES);
  const isTimeless = state === 'hold' || chance.happens(0.1);
  return steppedStatus(entry, {
    state,
    lane: state === 'bounce' || chance.happens(0.1) ? 'notice' : 'delivery',
    dueAt: isTimeless ? null : later(chance.below(40)),
    attempts: chance.below(4),
    updatedAt: later(step),
    ...(state === 'active' ? { holder: `x:${step}`, claimedFrom: 'incoming' as const } : {}),
  });
}

function randomEnvelope({ envelope }: Entry, chance: Chance): Envelope {
  const { destination: _destination, ...rest } = envelope;
  const destination = chance.oneOf(DESTINATIONS);
  return {
    ...rest,
    topic: chance.oneOf(TOPICS),
    priority: chance.oneOf([0, 5, 9]),
    ...(destination === undefined ? {} : { destination }),
  };
}

function randomChange(entry: Entry, { chance, step }: History): Change {
  const to = chance.happens(0.25) ? 'remove' : randomStatus(entry, chance, step);
  const change = entryChange(entry, to);
  if (chance.happens(0.1)) return { ...change, revision: change.revision - 1 };
  if (chance.happens(0.1)) return { ...change, holder: 'nobody:1' };
  const isReshaped = to !== 'remove' && chance.happens(0.3);
  return isReshaped ? { ...change, envelope: randomEnvelope(entry, chance) } : change;
}

async function commitSome(history: History): Promise<void> {
  const { chance, plain, store, mayBeLazy } = history;
  const some = chance.someOf(plain.entries, 0.15);
  const changes = some.map((entry) => randomChange(entry, history));
  const results = await store.commit(changes, { durable: !mayBeLazy || chance.happens(0.5) });
  assert.deepEqual(
    results,
    changes.map((change) => plain.commit(change)),
  );
}

async function listSome({ chance, plain, store }: History): Promise<void> {
  const query: EntryQuery = {
    ...(chance.happens(0.4) ? { states: chance.someOf(STATES, 0.5) } : {}),
    ...(chance.happens(0.3) ? { topic: chance.oneOf(['a', 'a.*', '#', 'b']) } : {}),
    ...(chance.happens(0.2) ? { destination: 'd1' } : {}),
    ...(chance.happens(0.2) ? { dueBefore: later(chance.below(40)) } : {}),
    ...(chance.happens(0.2) ? { updatedAfter: later(chance.below(STEPS)) } : {}),
    ...(chance.happens(0.2) ? { enqueuedAfter: later(chance.below(30)) } : {}),
    ...(chance.happens(0.2) ? { ids: Array.from({ length: 20 }, () => anyId(chance)) } : {}),
  };
  const asked = { ...query, order: chance.oneOf(ORDERS), descending: chance.happens(0.5) };
  const found = await listEverything(store, { ...asked, limit: 1 + chance.below(20) });
  assert.deepEqual(sampleIds(found), sampleIds(plain.list(asked)), JSON.stringify(asked));
  const rows = await store.tally('state', query);
  const total = rows.reduce((sum, { count }) => sum + count, 0);
  assert.equal(total, found.length, `tally of ${JSON.stringify(query)}`);
}

const ACTIONS = [
  insertSome,
  insertSome,
  claimSome,
  claimSome,
  claimSome,
  commitSome,
  askNextDue,
  listSome,
];

async function live(
  { store: first, reopen, second }: EntryWorld,
  seed: number,
  way: 'alone' | 'reopened' | 'shared',
): Promise<void> {
  const chance = new Chance(seed);
  const plain = new PlainList();
  let stores = way === 'shared' ? [first, await second()] : [first];
  for (let step = 1; step <= STEPS; step += 1) {
    const act = chance.oneOf(ACTIONS);
    const store = chance.oneOf(stores);
    await act({ chance, plain, store, mayBeLazy: way !== 'shared', step }).catch((error) => {
      throw new Error(`seed ${seed}, step ${step}, ${act.name}`, { cause: error });
    });
    // Once is enough: a maker may know how to open its data again a single time.
    if (way === 'reopened' && step === STEPS / 2) stores = [await reopen()];
  }
  const store = chance.oneOf(stores);
  assert.deepEqual(sampleIds(await listEverything(store)), sampleIds(plain.list({})));
  for (const entry of plain.entries) assertSameEntry(await store.get(entry.envelope.id), entry);
}

const SEEDS = [1, 2, 3, 4, 5, 6];

export const historyCases: readonly EntryCase[] = [
  ...SEEDS.map((seed) => ({
    name: `a random history is answered as by a plain list of entries (seed ${seed})`,
    run: (world: EntryWorld) => live(world, seed, 'alone'),
  })),
  {
    name: 'a random history that is interrupted by closing and opening is answered the same',
    needs: ['reopen'],
    run: (world) => live(world, 7, 'reopened'),
  },
  {
    name: 'a random history in two processes is answered as one',
    needs: ['share'],
    run: (world) => live(world, 8, 'shared'),
  },
];
