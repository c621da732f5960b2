/**
 * due-bounds — looks by flow against a plain scan of the file: whatever two connections and a
 * program of the user's write, no look misses what is due, and none tells of what is not there.
 */

import path from 'node:path';
import fc from 'fast-check';
import { beforeEach, describe, expect, test } from 'vitest';
import type { Change, ClaimFilter, ClaimRequest, Entry, EntryStore, Status } from 'respool';
import type { SqliteStore } from 'respool/stores/sqlite';
import { SAMPLE_AT, sampleEntries, sampleEntry, type SampleParts } from 'respool/testkit';
import { claimOf } from './requests.ts';
import { makeFolder, openFile, openStore, transact } from './setup.ts';

/** More than a look passes over before it goes by flow. */
const LEFT_OUT = 150;
/** Destinations of each priority: more than a look asks one by one. */
const MANY = 300;
const STEPS = 40;
const RUNS = 15;
const BAD = 'bad';

const isBig = (topic: string): boolean => topic.startsWith('big.');
const LEAVE_BIG = { pattern: 'big.#', take: false };
const TAKE_ALL = { pattern: '#', take: true };

/** Filters, each with the topics that it takes. */
const FILTERS: readonly (Partial<ClaimFilter> & { takes?: (topic: string) => boolean })[] = [
  {},
  { exceptDestinations: ['down'] },
  { exceptDestinations: ['down', 'x', 'y'] },
  { topics: [LEAVE_BIG, TAKE_ALL], takes: (topic) => !isBig(topic) },
  {
    topics: [{ pattern: 'a', take: true }],
    takes: (topic) => topic === 'a',
    exceptDestinations: ['x'],
  },
  {
    topics: [LEAVE_BIG, { pattern: 'a', take: false }, TAKE_ALL],
    takes: (topic) => !isBig(topic) && topic !== 'a',
  },
];

type Database = Awaited<ReturnType<typeof openFile>>;

interface Row {
  readonly id: string;
  readonly dueAt: number;
  readonly priority: number;
  readonly topic: string;
  readonly destination: string;
}

/** Which of several, by a number: connections, filters, entries. */
const pick = fc.nat(99);
const placeArbitrary = fc.record({
  topic: fc.constantFrom('a', 'b', 'c.d'),
  destination: fc.constantFrom(
    'x',
    'y',
    'down',
    ...Array.from({ length: 20 }, (_, at) => `d${at}`),
  ),
  priority: fc.constantFrom(2, 5),
  dueAt: fc.integer({ min: SAMPLE_AT - 60_000, max: SAMPLE_AT + 60_000 }),
});
const stepArbitrary = fc.oneof(
  fc.record({ kind: fc.constant('insert' as const), by: pick, place: placeArbitrary }),
  fc.record({
    kind: fc.constant('within' as const),
    place: placeArbitrary,
    isUndone: fc.boolean(),
  }),
  fc.record({
    kind: fc.constant('claim' as const),
    by: pick,
    filter: pick,
    max: fc.integer({ min: 1, max: 4 }),
  }),
  fc.record({ kind: fc.constant('look' as const), by: pick, filter: pick }),
  fc.record({ kind: fc.constant('undone' as const), by: pick, filter: pick }),
  fc.record({ kind: fc.constant('defer' as const), by: pick, which: pick, place: placeArbitrary }),
  fc.record({ kind: fc.constant('retry' as const), by: pick, which: pick }),
  fc.record({ kind: fc.constant('hold' as const), by: pick, which: pick }),
  fc.record({ kind: fc.constant('move' as const), by: pick, which: pick, place: placeArbitrary }),
  fc.record({ kind: fc.constant('remove' as const), by: pick, which: pick }),
  fc.record({ kind: fc.constant('sweep' as const) }),
  fc.record({ kind: fc.constant('refuse' as const), by: pick, which: pick }),
);
type Step = typeof stepArbitrary extends fc.Arbitrary<infer One> ? One : never;

interface World {
  readonly folder: string;
  readonly stores: readonly SqliteStore[];
  readonly app: Database;
  now: number;
  inserted: number;
}

async function openWorld(connections: number): Promise<World> {
  const folder = await makeFolder();
  const stores: SqliteStore[] = [];
  for (let at = 0; at < connections; at += 1) stores.push(await openStore({ path: folder }));
  const app = await openFile(path.join(folder, 'respool.db'));
  const [store] = stores as [SqliteStore];
  // Undoes the transaction that it comes in.
  app.exec(`CREATE TRIGGER undo BEFORE INSERT ON entries WHEN new.id = '${BAD}'
    BEGIN SELECT RAISE(ABORT, 'bad'); END`);
  const big = { topic: 'big.a', destination: 'down', dueAt: SAMPLE_AT - 120_000 };
  for (const priority of [2, 5]) {
    await store.insert(sampleEntries(LEFT_OUT, `big-${priority}`, { ...big, priority }));
    const one = (at: number): SampleParts => ({
      topic: 'c.many',
      destination: `many-${at}`,
      priority,
      state: at % 2 === 0 ? 'incoming' : 'deferred',
      // Some are due at the same time.
      dueAt: SAMPLE_AT + 500 * (1 + (at % 130)),
    });
    await store.insert(sampleEntries(MANY, `m-many-${priority}`, one));
  }
  return { folder, stores, app, now: SAMPLE_AT, inserted: 0 };
}

/** What a claim may take, now or later, in the order of claims; read without any index of ours. */
function plainScan(app: Database, which: number): Row[] {
  const { takes = () => true, exceptDestinations = [] } = FILTERS[which % FILTERS.length] ?? {};
  const rows = app
    .prepare(
      `SELECT e.id, e.due_at AS dueAt, e.priority, f.topic, f.destination
      FROM entries e NOT INDEXED JOIN flows f USING (flow)
      WHERE e.slot IN (0, 4) AND e.due_at IS NOT NULL`,
    )
    .all() as Row[];
  return rows
    .filter((row) => takes(row.topic) && !exceptDestinations.includes(row.destination))
    .sort((a, b) => a.priority - b.priority || a.dueAt - b.dueAt || (a.id < b.id ? -1 : 1));
}

function filterOf(which: number): ClaimFilter {
  const { takes: _takes, ...filter } = FILTERS[which % FILTERS.length] ?? {};
  return { lane: 'delivery', states: ['deferred', 'incoming'], ...filter };
}

/** The next status of an entry. */
function stepped({ status }: Entry, parts: Partial<Status>): Status {
  const { holder: _holder, claimedFrom: _claimedFrom, ...rest } = status;
  return { ...rest, revision: status.revision + 1, ...parts };
}

function changeOf(
  { envelope: { id }, status: { revision, holder } }: Entry,
  to: Status | 'remove',
): Change {
  return { id, revision, to, ...(holder === undefined ? {} : { holder }) };
}

async function compareLooks({ stores, app, now }: World): Promise<void> {
  for (const [at] of FILTERS.entries()) {
    const filter = filterOf(at);
    const dueAts = plainScan(app, at).map(({ dueAt }) => dueAt);
    const next = dueAts.length === 0 ? null : Math.min(...dueAts);
    for (const store of stores) expect(await store.nextDueAt(filter), `at ${now}`).toBe(next);
  }
}

/** Entries that come before the bound of their flow and slot, or have none; bounds of no flow. */
const WRONG_SQL = `SELECT e.id FROM entries e LEFT JOIN due_bounds b USING (flow, slot)
  WHERE e.slot IN (0, 4, 9) AND e.due_at IS NOT NULL
    AND (b.flow IS NULL OR b.priority <> e.priority OR (e.due_at, e.id) < (b.due_at, b.id))
  UNION ALL SELECT b.id FROM due_bounds b LEFT JOIN flows f USING (flow) WHERE f.flow IS NULL`;

function wrongBounds({ app }: World): unknown[] {
  return hasBounds(app) ? app.prepare(WRONG_SQL).pluck().all() : [];
}

function hasBounds(app: Database): boolean {
  return app.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'due_bounds'").get() !== undefined;
}

async function claimAsScanned(world: World, store: EntryStore, which: number, max: number) {
  const filter = filterOf(which);
  const due = plainScan(world.app, which).filter(({ dueAt }) => dueAt <= world.now);
  const request: ClaimRequest = claimOf(store, { ...filter, max, now: world.now });
  const taken = await store.claim(request);
  expect(taken.map(({ envelope }) => envelope.id)).toEqual(due.slice(0, max).map(({ id }) => id));
}

/** Entries that wait or are active, of the changing ones; undefined when there is none. */
async function entryOf(world: World, store: EntryStore, which: number): Promise<Entry | undefined> {
  const ids = world.app
    .prepare("SELECT id FROM entries WHERE slot IN (0, 2, 4, 6) AND id LIKE 'm-%' ORDER BY id")
    .pluck()
    .all() as string[];
  const id = ids[which % Math.max(1, ids.length)];
  return id === undefined ? undefined : store.get(id);
}

async function change(world: World, step: Step & { which: number }, store: EntryStore) {
  const entry = await entryOf(world, store, step.which);
  if (entry === undefined) return;
  const write = async (to: Status | 'remove', parts: Partial<Change> = {}): Promise<void> => {
    expect(await store.commit([{ ...changeOf(entry, to), ...parts }])).toEqual(['done']);
  };
  const go = (parts: Partial<Status>): Status => stepped(entry, parts);
  const { dueAt } = entry.status;
  if (step.kind === 'remove') await write('remove');
  else if (step.kind === 'hold') await write(go({ state: 'hold', dueAt: null }));
  else if (step.kind === 'retry') await write(go({ state: 'incoming', dueAt: world.now }));
  else if (step.kind === 'defer') await write(go({ state: 'deferred', dueAt: step.place.dueAt }));
  else if (step.kind === 'refuse') {
    // One of a batch that does not fit: what the others wrote stays.
    const wrong = { ...changeOf(entry, 'remove'), revision: 999 };
    expect(await store.commit([wrong])).toEqual(['stale']);
  } else if (step.kind === 'move') {
    const { topic, destination, priority } = step.place;
    const envelope = { ...entry.envelope, topic, destination, priority };
    const to = go({ state: 'incoming', dueAt: dueAt ?? world.now });
    const { inlineBody = new Uint8Array() } = entry;
    await write(to, { envelope, inlineBody });
  }
}

async function run(world: World, step: Step): Promise<void> {
  const { stores, app } = world;
  const store = stores[('by' in step ? step.by : 0) % stores.length] as SqliteStore;
  world.now += 1_000;
  if (step.kind === 'claim') await claimAsScanned(world, store, step.filter, step.max);
  else if (step.kind === 'undone') {
    // The second claim learns what the first has left; then neither of them has been.
    const claim = (): Promise<unknown> =>
      store.claim(claimOf(store, { ...filterOf(step.filter), max: 2, now: world.now }));
    const all = await Promise.allSettled([claim(), claim(), store.insert([sampleEntry(BAD)])]);
    expect(all.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  } else if (step.kind === 'sweep') {
    // A store that is opened removes flows that count nothing; their numbers are used again.
    const opened = await openStore({ path: world.folder });
    await opened.close();
  } else if (step.kind === 'look') await store.nextDueAt(filterOf(step.filter));
  else if (step.kind === 'insert' || step.kind === 'within') {
    world.inserted += 1;
    const entry = sampleEntry(`m-${world.inserted}`, step.place);
    if (step.kind === 'insert') expect(await store.insert([entry])).toEqual(['stored']);
    else insertWithin(store, app, entry, step.isUndone);
  } else await change(world, step, store);
}

function insertWithin(store: SqliteStore, app: Database, entry: Entry, isUndone: boolean) {
  const undo = new Error('undone');
  try {
    transact(app, () => {
      expect(store.insertWithin(app, [entry])).toEqual(['stored']);
      if (isUndone) throw undo;
    });
  } catch (error) {
    if (error !== undo) throw error;
  }
}

let runs = 0;

beforeEach(() => {
  runs = 0;
});

describe('looks by flow find what a plain scan finds', () => {
  test.each([1, 2])(
    'whatever %i connections and a program of the user write',
    async (connections) => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(stepArbitrary, { minLength: STEPS / 2, maxLength: STEPS }),
          async (steps) => {
            const world = await openWorld(connections);
            for (const step of steps) {
              await run(world, step);
              if (step.kind !== 'look') await compareLooks(world);
              expect(wrongBounds(world)).toEqual([]);
            }
            if (hasBounds(world.app)) runs += 1;
          },
        ),
        { numRuns: RUNS },
      );
      expect(runs).toBeGreaterThan(RUNS / 2);
    },
  );

  test('also what is let go, when the one before it of its order key has ended', async () => {
    const { stores, now } = await openWorld(1);
    const [store] = stores as [SqliteStore];
    const key = { orderKey: 'k', topic: 'a', enqueuedAt: now, updatedAt: now };
    await store.insert([
      sampleEntry('first', { ...key, state: 'hold', dueAt: null }),
      sampleEntry('second', { ...key, destination: 'x' }),
    ]);
    const filter = filterOf(1);
    const before = await store.nextDueAt(filter);
    expect(before).toBeGreaterThan(now);
    const first = await store.get('first');
    await store.commit([changeOf(first as Entry, 'remove')]);
    const taken = await store.claim(claimOf(store, { ...filter, now }));
    expect(taken.map(({ envelope }) => envelope.id)).toEqual(['second']);
  });
});
