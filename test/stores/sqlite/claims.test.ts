import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { ClaimFilter, EntryQuery } from 'respool';
import { SAMPLE_AT, sampleEntries, sampleEntry, type SampleParts } from 'respool/testkit';
import { loadSqlite, type OpenDatabase } from '../../../src/stores/shared/client.ts';
import { StoreFile } from '../../../src/stores/sqlite/file.ts';
import { type EntryOp, type EntryReplies, tallyRows } from '../../../src/stores/sqlite/protocol.ts';
import { envelopeColumns, type EntryRow, statusColumns } from '../../../src/stores/sqlite/row.ts';
import { atEnd, makeFolder } from './setup.ts';

/** Opens databases that count the rows their statements hand out. */
async function counting(): Promise<{ openDatabase: OpenDatabase; rows: { count: number } }> {
  const open = await loadSqlite();
  const rows = { count: 0 };
  const openDatabase: OpenDatabase = (file, options) => {
    const database = open(file, options);
    const prepare = database.prepare.bind(database);
    database.prepare = (sql) => {
      const statement = prepare(sql);
      const all = statement.all.bind(statement);
      statement.all = (...values) => {
        const found = all(...values);
        rows.count += found.length;
        return found;
      };
      return statement;
    };
    return database;
  };
  return { openDatabase, rows };
}

async function setup() {
  const { openDatabase, rows } = await counting();
  const file = new StoreFile('entries', openDatabase, {
    path: path.join(await makeFolder(), 'x.db'),
    cacheBytes: 64 * 1024 * 1024,
    synchronous: 'normal',
    autoCheckpointPages: 2_000,
    standstillMs: 100,
  });
  atEnd(async () => file.close());
  return { file, rows };
}

function batch(file: StoreFile, ops: readonly EntryOp[]) {
  return (file.handle({ kind: 'batch', ops, bytes: [] }) as EntryReplies['batch']).results;
}

function insert(file: StoreFile, count: number, name: string, parts: SampleParts) {
  for (let from = 0; from < count; from += 5_000) {
    const entries = sampleEntries(Math.min(5_000, count - from), `${name}${from}`, parts);
    batch(
      file,
      entries.map(({ envelope, status }) => ({
        kind: 'insert',
        id: envelope.id,
        status: statusColumns(status, envelope.id),
        envelope: envelopeColumns(envelope),
      })),
    );
  }
}

const DELIVERY: ClaimFilter = { lane: 'delivery', states: ['deferred', 'incoming', 'active'] };

function claim(file: StoreFile, filter: Partial<ClaimFilter> = {}, max = 1) {
  const request = {
    ...DELIVERY,
    ...filter,
    max,
    now: SAMPLE_AT,
    leaseMs: 60_000,
    holder: 'x:1',
  };
  const [rows] = batch(file, [{ kind: 'claim', request }]);
  return (rows as readonly EntryRow[]).map((row) => row[1]);
}

const CROWD = 100_000;
const ALL_BUT_CROWD = {
  topics: [
    { pattern: 'crowd', take: false },
    { pattern: '#', take: true },
  ],
} as const;

const CROWDS: readonly (readonly [string, SampleParts, Partial<ClaimFilter>])[] = [
  ['an excluded topic', { topic: 'crowd', dueAt: SAMPLE_AT - 9 }, ALL_BUT_CROWD],
  [
    'an excluded destination',
    { destination: 'full', dueAt: SAMPLE_AT - 9 },
    { exceptDestinations: ['full'] },
  ],
  ['another time', { state: 'deferred', dueAt: SAMPLE_AT + 1 }, {}],
  ['a state nobody asked for', { state: 'hold', dueAt: SAMPLE_AT - 9 }, {}],
  ['another lane', { state: 'bounce', lane: 'notice', dueAt: SAMPLE_AT - 9 }, {}],
];

describe('a claim', () => {
  test.each(CROWDS)('does not touch a crowd of 100,000 of %s', async (_, crowd, filter) => {
    const { file, rows } = await setup();
    insert(file, CROWD, 'crowd', crowd);
    insert(file, 1, 'wanted', { topic: 'mail' });
    rows.count = 0;
    expect(claim(file, filter)).toEqual(['wanted0-00000']);
    expect(rows.count).toBeLessThan(200);
    rows.count = 0;
    const filterOf = { ...DELIVERY, states: ['incoming'], ...filter } as const;
    expect(file.handle({ kind: 'nextDueAt', filter: filterOf })).toBeNull();
    expect(rows.count).toBeLessThan(200);
  });

  test('of many goes behind an excluded crowd in order, over all that is allowed', async () => {
    const { file } = await setup();
    insert(file, 5_000, 'crowd', { topic: 'crowd', dueAt: SAMPLE_AT - 100 });
    for (const n of [3, 1, 2]) {
      insert(file, 2, `t${n}-`, { topic: `t${n}`, dueAt: SAMPLE_AT - 10 + n });
    }
    insert(file, 1, 'first-', { topic: 'late', priority: 1 });
    const expected = ['first-0-00000', 't1-0-00000', 't1-0-00001', 't2-0-00000', 't2-0-00001'];
    expect(claim(file, ALL_BUT_CROWD, 5)).toEqual(expected);
    expect(claim(file, ALL_BUT_CROWD, 5)).toEqual(['t3-0-00000', 't3-0-00001']);
  });

  test('goes behind an excluded crowd also when its transaction was rolled back', async () => {
    const { file } = await setup();
    insert(file, 5_000, 'crowd', { topic: 'crowd', dueAt: SAMPLE_AT - 100 });
    insert(file, 3, 'mine', { topic: 'mine' });
    const request = {
      ...DELIVERY,
      ...ALL_BUT_CROWD,
      max: 1,
      now: SAMPLE_AT,
      leaseMs: 1,
      holder: 'x',
    };
    const fails: EntryOp = { kind: 'append', of: 'k', text: null as unknown as string };
    expect(() => batch(file, [{ kind: 'claim', request }, fails])).toThrow();
    expect(claim(file, ALL_BUT_CROWD, 2)).toEqual(['mine0-00000', 'mine0-00001']);
    expect(claim(file, ALL_BUT_CROWD, 2)).toEqual(['mine0-00002']);
  });

  test('finds lost leases behind lost leases that it may not take', async () => {
    const { file } = await setup();
    const lost = { state: 'active', holder: 'x:0', claimedFrom: 'incoming' } as const;
    insert(file, 1_000, 'crowd', { topic: 'crowd', dueAt: SAMPLE_AT - 100, ...lost });
    insert(file, 2, 'mine', { topic: 'mine', ...lost });
    expect(claim(file, { ...ALL_BUT_CROWD, states: ['active'] }, 5)).toEqual([
      'mine0-00000',
      'mine0-00001',
    ]);
  });
});

describe('counts', () => {
  function tally(file: StoreFile, query: EntryQuery = {}) {
    const text = file.handle({
      kind: 'tally',
      by: 'state',
      query,
      mayBeLong: false,
    }) as EntryReplies['tally'];
    return text === null ? null : tallyRows(text);
  }

  test('of a large file come from the flows, and nothing is scanned', async () => {
    const { file, rows } = await setup();
    insert(file, 25_000, 'a', { topic: 'a' });
    insert(file, 10, 'b', { topic: 'b', state: 'hold', dueAt: null });
    rows.count = 0;
    expect(tally(file)).toEqual([
      { key: 'incoming', count: 25_000, oldestAt: null },
      { key: 'hold', count: 10, oldestAt: null },
    ]);
    expect(rows.count).toBeLessThan(10);
    expect(tally(file, { topic: 'b' })).toEqual([{ key: 'hold', count: 10, oldestAt: null }]);
  });

  test('are those of the rows after a batch that failed in its middle', async () => {
    const { file } = await setup();
    insert(file, 3, 'a', {});
    const { envelope, status } = sampleEntry('bad', { topic: 'new' });
    const ops: EntryOp[] = [
      {
        kind: 'insert',
        id: 'bad',
        status: statusColumns(status, 'bad'),
        envelope: envelopeColumns(envelope),
      },
      { kind: 'append', of: 'k', text: null as unknown as string },
    ];
    expect(() => batch(file, ops)).toThrow();
    insert(file, 1, 'b', { topic: 'new' });
    expect(tally(file)).toMatchObject([{ key: 'incoming', count: 4 }]);
  });

  test('of flows that are gone take no room', async () => {
    const folder = await makeFolder();
    const settings = {
      path: path.join(folder, 'x.db'),
      cacheBytes: 1_000_000,
      synchronous: 'normal',
      autoCheckpointPages: 2_000,
      standstillMs: 100,
    } as const;
    const open = await loadSqlite();
    const first = new StoreFile('entries', open, settings);
    insert(first, 1, 'stays', { topic: 'stays' });
    insert(first, 1, 'goes', { topic: 'goes' });
    const [change] = batch(first, [
      {
        kind: 'change',
        id: 'goes0-00000',
        revision: 1,
        holder: null,
        isDurable: true,
        status: null,
        envelope: null,
      },
    ]);
    expect(change).toBe(true);
    const second = new StoreFile('entries', open, settings);
    // It is opened with its first request.
    second.handle({ kind: 'dataVersion' });
    atEnd(async () => second.close());
    const database = open(settings.path);
    atEnd(async () => database.close());
    expect(database.prepare('SELECT topic FROM flows').pluck().all()).toEqual(['stays']);
    // The one that still remembers the flow's number learns that it is gone.
    insert(first, 1, 'again', { topic: 'goes' });
    expect(claim(second, {}, 5)).toEqual(['again0-00000', 'stays0-00000']);
    first.close();
  });
});
