/**
 * Looks of an engine do not read what they cannot take: rows are counted as SQLite visits them,
 * beside a crowd of 30,000 messages that are not due, paused, excluded, or have no handler.
 */
import type Sqlite from 'better-sqlite3';
import { join } from 'node:path';
import {
  type ClaimFilter,
  type ClaimRequest,
  createSpool,
  type EntryStore,
  type Spool,
  type SpoolOptions,
} from 'respool';
import { memoryBodies } from 'respool/stores/memory';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sampleEntries, sampleEntry, type SampleParts } from 'respool/testkit';
import { makeGate } from '../../spool/setup.ts';
import { atEnd, makeApp, makeFolder, openFile, openStore } from './setup.ts';
import { countVisitedRows, type VisitedRows } from './visited-rows.ts';

const CROWD = 30_000;
const POSTS = 5;
/** The rows that a claim or a look may visit; it reads more of its own the more it may take. */
const VISITED_MAX = 100;
/** A second after its start a spool lists the first 500 that are due: here, if this is slow. */
const START_LOOK_MAX = 1_000;
const DAY_MS = 86_400_000;
const PAST: SampleParts = { dueAt: Date.now() - DAY_MS };
const FUTURE: SampleParts = { dueAt: Date.now() + DAY_MS };

let rows: VisitedRows;
let stopCounting: () => void;

beforeEach(() => {
  ({ rows, stop: stopCounting } = countVisitedRows());
});

afterEach(() => {
  stopCounting();
});

/** `count` routes, of which `live` is the first and the others overlap; each with its own limit. */
function addRoutes(spool: Spool, count: number, names: readonly string[] = []): void {
  const patterns = ['live', 'big.#', 'mail.*', ...names];
  for (let at = 0; at < count; at += 1) {
    const pattern = count === 1 ? '#' : (patterns[at] ?? `t${at}.#`);
    spool.handle(pattern, () => undefined, count === 1 ? {} : { concurrency: 5 });
  }
}

async function insertCrowd(
  store: EntryStore,
  parts: SampleParts | ((index: number) => SampleParts),
): Promise<void> {
  await store.insert(sampleEntries(CROWD, 'crowd', parts));
}

/** A spool, and everything that its engine has asked the store for so far, each question once. */
function makeSpool(store: EntryStore, options: SpoolOptions = {}) {
  const claims = new Map<string, ClaimRequest>();
  const looks = new Map<string, ClaimFilter>();
  const asked = { count: 0 };
  const entries: EntryStore = {
    ...store,
    claim(request) {
      asked.count += 1;
      const { lane, states, topics, exceptDestinations } = request;
      claims.set(JSON.stringify([lane, states, topics, exceptDestinations]), request);
      return store.claim(request);
    },
    nextDueAt(filter) {
      asked.count += 1;
      looks.set(JSON.stringify(filter), filter);
      return store.nextDueAt(filter);
    },
  };
  const spool = createSpool({ entries, bodies: memoryBodies(), ...options });
  atEnd(() => spool.stop({ within: 0 }));
  async function askAgain(): Promise<void> {
    for (const request of claims.values()) {
      await entries.claim({ ...request, now: Date.now() });
    }
    for (const filter of looks.values()) await entries.nextDueAt(filter);
  }
  return { spool, asked, askAgain };
}

async function post(spool: Spool): Promise<void> {
  const { id } = await spool.enqueue({ topic: 'live', body: 'x' });
  await expect.poll(() => spool.get(id)).toBeUndefined();
}

/** The rows that each question of an engine costs on the average while messages are posted. */
async function visitedPerQuestion(made: ReturnType<typeof makeSpool>): Promise<number> {
  const { spool, asked, askAgain } = made;
  await spool.start();
  // The first looks may read, to make what later ones need.
  await post(spool);
  await askAgain();
  rows.count = 0;
  asked.count = 0;
  for (let at = 0; at < POSTS; at += 1) await post(spool);
  await askAgain();
  return Math.max(0, rows.count - START_LOOK_MAX) / asked.count;
}

/** Topics of the crowd; several, since a route may have many. */
function topicOf(index: number): string {
  return `big.${index % 10}`;
}

/** The columns of the index by flow; empty when there is none. */
function columnsOf(database: Sqlite.Database): unknown[] {
  return database.prepare("SELECT name FROM pragma_index_info('entries_by_flow')").pluck().all();
}

describe('posts beside a crowd of 30,000', () => {
  test.each([1, 2, 50])('that are not due read none of them, with %i routes', async (routes) => {
    const store = await openStore({ path: await makeFolder() });
    await insertCrowd(store, (index) => ({
      ...FUTURE,
      topic: topicOf(index),
      state: index % 2 === 0 ? 'incoming' : 'deferred',
    }));
    const made = makeSpool(store);
    addRoutes(made.spool, routes);
    expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
  });

  test.each([1, 2, 50])(
    'that are due and paused read none of them, with %i routes',
    async (routes) => {
      const store = await openStore({ path: await makeFolder() });
      await insertCrowd(store, (index) => ({ ...PAST, topic: topicOf(index) }));
      const made = makeSpool(store);
      await made.spool.operator({ by: 'ops' }).pause('big.#');
      addRoutes(made.spool, routes);
      expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
    },
  );

  test.each(['mail.*', 'mail.#'])(
    'that are not due read none of them, with a pattern %s before #',
    async (pattern) => {
      const store = await openStore({ path: await makeFolder() });
      await insertCrowd(store, (index) => ({ ...FUTURE, topic: `mail.${index % 10}` }));
      const made = makeSpool(store);
      made.spool.handle(pattern, () => undefined, { concurrency: 5 });
      made.spool.handle('#', () => undefined, { concurrency: 5 });
      expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
    },
  );

  test('that are due and have no handler read none of them', async () => {
    const store = await openStore({ path: await makeFolder() });
    const dueAt = Date.now();
    await insertCrowd(store, (index) => ({ dueAt, topic: `other.${index % 10}` }));
    const made = makeSpool(store, { unhandled: 'leave' });
    addRoutes(made.spool, 3);
    expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
  });

  test('that are due and of a destination that is full read none of them', async () => {
    const store = await openStore({ path: await makeFolder() });
    await insertCrowd(store, { ...PAST, topic: 'mail.a', destination: 'full' });
    const made = makeSpool(store, { destinationConcurrency: { full: 1 } });
    const gate = makeGate();
    made.spool.handle('mail.a', gate.handler);
    made.spool.handle('live', () => undefined);
    expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
    expect(gate.began).toHaveLength(1);
  });

  test('that wait behind the held first of their order key read none of them', async () => {
    const store = await openStore({ path: await makeFolder() });
    const key = { topic: 'big.a', orderKey: 'k' };
    await store.insert([sampleEntry('first', { ...key, state: 'hold', dueAt: null })]);
    const now = Date.now();
    await insertCrowd(store, { ...key, dueAt: now, enqueuedAt: now, updatedAt: now });
    const made = makeSpool(store);
    addRoutes(made.spool, 2);
    expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
  });

  test('of as many topics and destinations read none of them', async () => {
    const store = await openStore({ path: await makeFolder() });
    await insertCrowd(store, (index) => ({
      ...FUTURE,
      topic: `big.${index % 100}`,
      destination: `d${index}`,
    }));
    const made = makeSpool(store);
    addRoutes(made.spool, 2);
    made.spool.handle('live', () => undefined);
    expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
  });

  test('in tables of another database read none of them', async () => {
    const { file } = await makeApp();
    const store = await openStore({ path: file, tables: 'outbox_' });
    await insertCrowd(store, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    const made = makeSpool(store);
    addRoutes(made.spool, 2);
    expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
  });
});

describe('a store with a crowd of 30,000 that are not due', () => {
  test('is opened, starts and ends without reading them', async () => {
    const path = await makeFolder();
    const first = await openStore({ path });
    await insertCrowd(first, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    await first.close();
    rows.count = 0;
    const store = await openStore({ path });
    const { spool } = makeSpool(store);
    spool.handle('live', () => undefined);
    await spool.start();
    await spool.operator({ by: 'ops' }).cleanUp();
    await spool.stop();
    expect(rows.count).toBeLessThan(CROWD / 10);
  });

  test('is read once for the index of an earlier program, and drained', async () => {
    const path = await makeFolder();
    const first = await openStore({ path });
    await insertCrowd(first, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    await first.insert([sampleEntry('due', { ...PAST, topic: 'live' })]);
    await first.close();
    const database = await openFile(join(path, 'respool.db'));
    database.exec('CREATE INDEX entries_by_flow ON entries (flow, slot, due_at) WHERE slot = 0');
    const made = makeSpool(await openStore({ path }));
    // Without the pause both routes are asked for together, and that needs no look by flow.
    await made.spool.operator({ by: 'ops' }).pause('big.#');
    addRoutes(made.spool, 2);
    expect(await visitedPerQuestion(made)).toBeLessThan(VISITED_MAX);
    expect(await made.spool.get('due')).toBeUndefined();
    expect(columnsOf(database)).toEqual(['flow', 'slot', 'due_at', 'id']);
  });

  // Regression: its index was replaced by one of another name, and each of its looks failed.
  test('is read by an earlier program at the same time', async () => {
    const path = await makeFolder();
    const store = await openStore({ path });
    await insertCrowd(store, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    await store.insert([sampleEntry('later', { ...FUTURE, topic: 'live' })]);
    const earlier = await openFile(join(path, 'respool.db'));
    const made = `CREATE INDEX IF NOT EXISTS entries_by_flow ON entries (flow, slot, due_at)
      WHERE slot IN (0, 4, 9)`;
    earlier.exec(made);
    const probe = earlier
      .prepare(
        `SELECT id FROM entries INDEXED BY entries_by_flow WHERE slot IN (0, 4, 9) AND slot = 0
        AND flow = (SELECT flow FROM flows WHERE topic = 'live') AND due_at <= ?
        ORDER BY due_at, id LIMIT 1`,
      )
      .pluck();
    expect(probe.get(Number.MAX_SAFE_INTEGER)).toBe('later');
    const filter: ClaimFilter = {
      lane: 'delivery',
      states: ['incoming'],
      topics: [{ pattern: 'live', take: true }],
    };
    for (let round = 0; round < 3; round += 1) {
      rows.count = 0;
      expect(await store.nextDueAt(filter)).toBe(FUTURE.dueAt);
      expect(rows.count).toBeLessThan(2 * VISITED_MAX);
      expect(probe.get(Number.MAX_SAFE_INTEGER)).toBe('later');
      earlier.exec(made);
      expect(columnsOf(earlier)).toEqual(['flow', 'slot', 'due_at', 'id']);
    }
  });

  // Regression: a second after its start a spool asks for what is due, and that read all.
  test.each([false, true])('is not read by a list of what is due, descending: %s', async (down) => {
    const store = await openStore({ path: await makeFolder() });
    await insertCrowd(store, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    const dueAt = Date.now() - 3;
    const due = Array.from({ length: 6 }, (_, at) =>
      sampleEntry(`due-${at}`, {
        dueAt: dueAt + (at >> 1),
        priority: at % 2,
        state: at % 3 === 0 ? 'incoming' : 'deferred',
      }),
    );
    await store.insert(due);
    rows.count = 0;
    const ids: string[] = [];
    let after: string | undefined;
    do {
      const page = await store.list({
        states: ['incoming', 'deferred'],
        order: 'dueAt',
        descending: down,
        dueBefore: Date.now() + 1,
        limit: 4,
        ...(after === undefined ? {} : { after }),
      });
      ids.push(...page.entries.map(({ envelope }) => envelope.id));
      after = page.next;
    } while (after !== undefined);
    const all = due.map(({ envelope }) => envelope.id);
    expect(ids).toEqual(down ? all.reverse() : all);
    expect(rows.count).toBeLessThan(VISITED_MAX);
  });

  test('is given no index by flow while one handler takes every topic', async () => {
    const path = await makeFolder();
    const store = await openStore({ path });
    await insertCrowd(store, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    const made = makeSpool(store);
    made.spool.handle('#', () => undefined);
    await visitedPerQuestion(made);
    await made.spool.operator({ by: 'ops' }).cleanUp();
    expect(columnsOf(await openFile(join(path, 'respool.db')))).toEqual([]);
  });

  // Regression: the caretaker read the first 20,000 ids in each round, and nothing past them.
  test('does not hide a message without a handler from the caretaker', async () => {
    const store = await openStore({ path: await makeFolder() });
    await insertCrowd(store, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    await store.insert([sampleEntry('zz-last', { ...PAST, topic: 'other' })]);
    const { spool } = makeSpool(store);
    spool.handle('big.#', () => undefined);
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ unhandled: 1 });
    expect(await spool.get('zz-last')).toMatchObject({ status: { state: 'hold' } });
    rows.count = 0;
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ unhandled: 0 });
    expect(rows.count).toBeLessThan(CROWD / 10);
  });

  test('is not read to find a topic without a handler behind 600 others that are due', async () => {
    const store = await openStore({ path: await makeFolder() });
    await insertCrowd(store, (index) => ({ ...FUTURE, topic: topicOf(index) }));
    await store.insert(sampleEntries(600, 'busy', { dueAt: Date.now() - 2 * DAY_MS, topic: 'a' }));
    await store.insert([sampleEntry('zz-last', { ...PAST, topic: 'other' })]);
    const { spool } = makeSpool(store);
    const gate = makeGate();
    spool.handle('a', gate.handler, { concurrency: 1 });
    const told = new Promise((resolve) => {
      spool.on('handler-missing', resolve);
    });
    rows.count = 0;
    await spool.start();
    expect(await told).toMatchObject({ topic: 'other', id: 'zz-last' });
    expect(rows.count).toBeLessThan(CROWD / 10);
    gate.open();
  });
});
