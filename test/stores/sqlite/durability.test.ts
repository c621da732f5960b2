import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Clock } from 'respool';
import { SAMPLE_AT, sampleEntry } from 'respool/testkit';
import { loadSqlite, type OpenDatabase } from '../../../src/stores/shared/client.ts';
import type { FileSettings } from '../../../src/stores/sqlite/connection.ts';
import { StoreFile } from '../../../src/stores/sqlite/file.ts';
import type { EntryOp, EntryReplies } from '../../../src/stores/sqlite/protocol.ts';
import { envelopeColumns, statusColumns } from '../../../src/stores/sqlite/row.ts';
import { claimOf } from './requests.ts';
import { atEnd, makeFolder, openFile, openStore } from './setup.ts';
import { systemClock } from '../../time.ts';

const NORMAL = 1;
const FULL = 2;

/** Opens databases that note under which level of `synchronous` each transaction was committed. */
async function noting(): Promise<{ openDatabase: OpenDatabase; levels: number[] }> {
  const open = await loadSqlite();
  const levels: number[] = [];
  const openDatabase: OpenDatabase = (file, options) => {
    const database = open(file, options);
    const prepare = database.prepare.bind(database);
    database.prepare = (sql) => {
      const statement = prepare(sql);
      if (sql !== 'COMMIT') return statement;
      const run = statement.run.bind(statement);
      statement.run = (...values) => {
        levels.push(Number(database.pragma('synchronous', { simple: true })));
        return run(...values);
      };
      return statement;
    };
    return database;
  };
  return { openDatabase, levels };
}

function settingsOf(file: string, synchronous: 'full' | 'normal' = 'full'): FileSettings {
  return {
    path: file,
    cacheBytes: 1024 * 1024,
    synchronous,
    autoCheckpointPages: 1_000,
    standstillMs: 1_000,
  };
}

async function setup(synchronous: 'full' | 'normal' = 'full', check = false) {
  const { openDatabase, levels } = await noting();
  const settings = settingsOf(path.join(await makeFolder(), 'x.db'), synchronous);
  const file = new StoreFile('entries', openDatabase, { ...settings, needsCheck: check });
  atEnd(async () => file.close());
  // It is opened with its first request.
  file.handle({ kind: 'dataVersion' });
  levels.length = 0;
  const run = (...ops: readonly EntryOp[]) =>
    file.handle({ kind: 'batch', ops, bytes: [] }) as EntryReplies['batch'];
  return { run, levels };
}

function insertOp(id: string): EntryOp {
  const { envelope, status } = sampleEntry(id);
  return {
    kind: 'insert',
    id,
    status: statusColumns(status, id),
    envelope: envelopeColumns(envelope),
  };
}

function removeOp(id: string, isDurable: boolean): EntryOp {
  return { kind: 'change', id, revision: 1, holder: null, isDurable, status: null, envelope: null };
}

const claimOp: EntryOp = {
  kind: 'claim',
  request: {
    lane: 'delivery',
    states: ['incoming'],
    max: 1,
    now: SAMPLE_AT,
    leaseMs: 1,
    holder: 'x:1',
  },
};

describe('a batch waits for the disk', () => {
  test('when it holds an insert, a durable change or a record', async () => {
    const { run, levels } = await setup();
    expect(run(insertOp('a'), insertOp('b')).isDirty).toBe(false);
    run(claimOp, removeOp('b', true));
    run({ kind: 'append', of: 'k', text: '1' });
    run({ kind: 'put', of: 'k', key: 'k', text: '1', revision: undefined });
    expect(levels).toEqual([FULL, FULL, FULL, FULL]);
  });

  test('and not when it holds only claims and lazy changes; then it says that it is dirty', async () => {
    const { run, levels } = await setup();
    run(insertOp('a'), insertOp('b'));
    expect(run(claimOp).isDirty).toBe(true);
    expect(run(removeOp('b', false)).isDirty).toBe(true);
    expect(levels).toEqual([FULL, NORMAL, NORMAL]);
  });

  test('when it is a sync after something lazy, and not after nothing', async () => {
    const { run, levels } = await setup();
    run(insertOp('a'));
    run({ kind: 'sync' });
    expect(levels).toEqual([FULL]);
    run(claimOp);
    expect(run({ kind: 'sync' }).isDirty).toBe(false);
    run({ kind: 'sync' });
    expect(levels).toEqual([FULL, NORMAL, FULL]);
  });

  test('when it is the first sync after a disk error, of which nobody knows what it took', async () => {
    const { run, levels } = await setup('full', true);
    run({ kind: 'sync' });
    run({ kind: 'sync' });
    expect(levels).toEqual([FULL]);
  });

  test('a claim that found nothing leaves nothing to sync', async () => {
    const { run } = await setup();
    expect(run(claimOp).isDirty).toBe(false);
  });

  test('a durable change that was stale syncs nothing of what was lazy before', async () => {
    const { run } = await setup();
    run(insertOp('a'));
    run(claimOp);
    expect(run(removeOp('nobody', true)).isDirty).toBe(true);
  });

  test('never, when synchronous is normal', async () => {
    const { run, levels } = await setup('normal');
    expect(run(insertOp('a')).isDirty).toBe(false);
    expect(run(claimOp).isDirty).toBe(false);
    expect(levels).toEqual([NORMAL, NORMAL]);
  });

  test('of a body only with its last piece', async () => {
    const { openDatabase, levels } = await noting();
    const settings = settingsOf(path.join(await makeFolder(), 'x.db'));
    const file = new StoreFile('bodies', openDatabase, settings);
    atEnd(async () => file.close());
    // It is opened with its first request.
    file.handle({ kind: 'size', ref: 'r' });
    levels.length = 0;
    for (const step of [
      { isFirst: true, at: 0, size: null },
      { isFirst: false, at: 1, size: null },
      { isFirst: false, at: 2, size: 3 },
    ]) {
      const op = { kind: 'write', ref: 'r', now: 1, ...step } as const;
      file.handle({ kind: 'batch', ops: [op], bytes: [Uint8Array.of(1)] });
    }
    file.handle({ kind: 'batch', ops: [{ kind: 'remove', ref: 'r' }], bytes: [] });
    expect(levels).toEqual([NORMAL, NORMAL, FULL, NORMAL]);
  });
});

describe('lazy writes reach the disk', () => {
  async function lazySetup() {
    const folder = await makeFolder();
    const timers: { ms: number; call: () => void; isOff: boolean }[] = [];
    const clock: Clock = {
      ...systemClock,
      after(ms, call) {
        const timer = { ms, call, isOff: false };
        timers.push(timer);
        return () => {
          timer.isOff = true;
        };
      },
    };
    const store = await openStore({ path: folder }, { clock });
    const beside = await openFile(path.join(folder, 'respool.db'));
    const count = beside.prepare("SELECT value FROM meta WHERE key = 'syncs'").pluck();
    await store.insert([sampleEntry('a'), sampleEntry('b'), sampleEntry('c')]);
    return { store, timers, syncs: () => count.get() };
  }

  test('within 250 ms, by one timer however many they are', async () => {
    const { store, timers, syncs } = await lazySetup();
    await store.claim(claimOf(store, { max: 1 }));
    await store.claim(claimOf(store, { max: 1 }));
    expect(timers).toHaveLength(1);
    expect(timers[0]?.ms).toBeLessThanOrEqual(250);
    timers[0]?.call();
    // Syncs that wait together are one; this one only tells when it is through.
    await store.flush();
    expect(Number(syncs())).toBeGreaterThan(0);
    expect(timers).toHaveLength(1);
  });

  test('with the next durable write, which calls the timer off', async () => {
    const { store, timers, syncs } = await lazySetup();
    await store.claim(claimOf(store, { max: 1 }));
    await store.insert([sampleEntry('d')]);
    expect(timers.map(({ isOff }) => isOff)).toEqual([true]);
    await store.flush();
    expect(syncs()).toBe(0);
  });

  test('with a flush', async () => {
    const { store, syncs } = await lazySetup();
    await store.claim(claimOf(store, { max: 1 }));
    await store.flush();
    await store.flush();
    expect(syncs()).toBe(1);
  });
});
