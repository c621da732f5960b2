/** A disk that fails: what was asked is undone, what was promised is kept, the rest goes on. */
import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry, SimClock } from 'respool/testkit';
import type { SyncMode } from 'respool/stores/filesystem';
import type { Change, Entry } from 'respool';
import { Catalog } from '../../../src/stores/filesystem/catalog.ts';
import { Disk } from '../../../src/stores/filesystem/disk.ts';
import { Files } from '../../../src/stores/filesystem/files.ts';
import type { WriterCall } from '../../../src/stores/filesystem/plan.ts';
import { Writer } from '../../../src/stores/filesystem/writer.ts';
import { Operations } from '../../../src/stores/shared/operations.ts';
import { PowerCutDisk } from './power-cut-disk.ts';

function setup(sync: SyncMode = 'batch') {
  const disk = new PowerCutDisk();
  const work = new Disk(new Files('/store', disk.fileCalls), { sync, spareMax: 10 });
  work.directories.make();
  const catalog = new Catalog();
  const clock = new SimClock();
  const thread = { run: (batch: Parameters<Disk['run']>[0]) => work.run(batch) };
  const operations = new Operations('entries', clock);
  const parts = { thread, catalog, damages: [], clock, path: '/store' };
  const writer = new Writer({ ...parts, operations });
  return {
    disk,
    catalog,
    clock,
    operations,
    insert: (...entries: Entry[]) => writer.ask({ kind: 'insert', entries }),
    commit: (change: Change, isDurable = true) =>
      writer.ask({ kind: 'commit', changes: [change], isDurable }),
    claim: () => writer.ask<readonly Entry[]>(claimCall()),
    flush: () => writer.ask({ kind: 'flush' }),
    /** Lets the nth call of this name from now on fail, once. */
    failOnce: (name: string, code: string, nth = 1) => {
      let seen = 0;
      disk.trouble = (call) => {
        if (call !== name) return undefined;
        seen += 1;
        return seen === nth ? code : undefined;
      };
    },
    ids: () => disk.entryFiles.map((path) => path.split('/').at(-1)?.split(',')[0]),
  };
}

function claimCall(): WriterCall {
  const filter = { lane: 'delivery', states: ['incoming', 'deferred', 'active'] } as const;
  const request = { ...filter, max: 10, now: SAMPLE_AT, leaseMs: 1_000, holder: 'x:1' };
  return { kind: 'claim', request };
}

describe('a full disk', () => {
  test.each([
    ['open', 'ENOSPC'],
    ['write', 'ENOSPC'],
    ['write', 'EDQUOT'],
    ['fdatasync', 'ENOSPC'],
    ['rename', 'ENOSPC'],
  ])(
    'at %s (%s) refuses the insert with store.full and leaves nothing of it',
    async (call, code) => {
      const { insert, failOnce, ids, catalog } = setup();
      await insert(sampleEntry('before'));
      failOnce(call, code);
      await expect(insert(sampleEntry('a'))).rejects.toMatchObject({ code: 'store.full' });
      expect(ids()).toEqual(['before']);
      expect(catalog.byId.has('a')).toBe(false);
      await insert(sampleEntry('a'));
      expect(ids()).toEqual(['a', 'before']);
    },
  );

  test('refuses only the call that needed the room', async () => {
    const { insert, commit, failOnce, ids } = setup();
    await insert(sampleEntry('old'));
    failOnce('write', 'ENOSPC');
    const results = await Promise.allSettled([
      insert(sampleEntry('a')),
      insert(sampleEntry('b')),
      commit({ id: 'old', revision: 1, to: 'remove' }),
    ]);
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled']);
    expect(ids()).toEqual(['b']);
  });

  test('is told as a failed insert, beside what was done in the same batch', async () => {
    const { insert, commit, failOnce, operations } = setup();
    await insert(sampleEntry('old'));
    const told: unknown[] = [];
    operations.on(({ name, items, isDone }) => void told.push({ name, items, isDone }));
    failOnce('write', 'ENOSPC');
    await Promise.allSettled([
      insert(sampleEntry('a')),
      insert(...sampleEntries(2, 'b')),
      commit({ id: 'old', revision: 1, to: 'remove' }),
    ]);
    expect(told).toEqual([
      { name: 'insert', items: 2, isDone: true },
      { name: 'commit', items: 1, isDone: true },
      { name: 'insert', items: 1, isDone: false },
    ]);
  });

  test('takes all of an insert or nothing', async () => {
    const { insert, failOnce, ids } = setup();
    for (const [call, nth] of [
      ['write', 3],
      ['rename', 3],
    ] as const) {
      failOnce(call, 'ENOSPC', nth);
      await expect(insert(...sampleEntries(5, 'm'))).rejects.toMatchObject({ code: 'store.full' });
      expect(ids()).toEqual([]);
    }
  });

  test('does not make a duplicate of an insert that failed beside it', async () => {
    const { insert, failOnce, ids } = setup();
    failOnce('write', 'ENOSPC');
    const [first, second] = await Promise.allSettled([
      insert(sampleEntry('a')),
      insert(sampleEntry('a')),
    ]);
    expect(first.status).toBe('rejected');
    expect(second).toMatchObject({ status: 'fulfilled', value: ['stored'] });
    expect(ids()).toEqual(['a']);
  });

  test('leaves a change undone, and the entry as it was', async () => {
    const { insert, commit, claim, failOnce, ids } = setup();
    const entry = sampleEntry('a');
    await insert(entry);
    const to = { ...entry.status, revision: 2, notes: { said: 'something' } };
    failOnce('write', 'ENOSPC');
    await expect(commit({ id: 'a', revision: 1, to })).rejects.toMatchObject({
      code: 'store.full',
    });
    expect(ids()).toEqual(['a']);
    expect(await claim()).toMatchObject([{ status: { revision: 2, notes: {} } }]);
  });
});

describe('an fsync that fails', () => {
  test('fails the insert, and the file is thrown away without another fsync', async () => {
    const { insert, failOnce, disk, ids } = setup();
    failOnce('fdatasync', 'EIO');
    await expect(insert(sampleEntry('a'))).rejects.toMatchObject({ code: 'store.unavailable' });
    expect(ids()).toEqual([]);
    const synced: string[] = [];
    disk.trouble = (call) => {
      if (call === 'fdatasync' || call === 'open') synced.push(call);
      return undefined;
    };
    await insert(sampleEntry('b'));
    // A new file, not the one whose pages may be lost: it is opened and synced once.
    expect(synced.filter((call) => call === 'fdatasync')).toHaveLength(1);
  });

  test('of a directory stops the store: only an opening can tell what is there', async () => {
    const { insert, claim, failOnce, disk } = setup();
    await insert(sampleEntry('before'));
    failOnce('fsync', 'EIO');
    await expect(insert(sampleEntry('a'))).rejects.toMatchObject({ code: 'store.unavailable' });
    disk.trouble = () => undefined;
    await expect(insert(sampleEntry('b'))).rejects.toMatchObject({ code: 'store.unavailable' });
    await expect(claim()).rejects.toMatchObject({ code: 'store.unavailable' });
  });

  test('for the third time stops the store', async () => {
    const { insert, disk } = setup();
    disk.trouble = (call) => (call === 'fdatasync' ? 'EIO' : undefined);
    for (const id of ['a', 'b', 'c']) await expect(insert(sampleEntry(id))).rejects.toThrow();
    disk.trouble = () => undefined;
    await expect(insert(sampleEntry('d'))).rejects.toThrow(/failed before/);
  });
});

describe('other trouble', () => {
  test('a rename that fails puts the claim back: the entry is due as before', async () => {
    const { insert, claim, failOnce, ids } = setup();
    await insert(sampleEntry('a'));
    failOnce('rename', 'EROFS');
    await expect(claim()).rejects.toMatchObject({ code: 'store.unavailable' });
    expect(ids()).toEqual(['a']);
    expect(await claim()).toMatchObject([{ envelope: { id: 'a' }, status: { attempts: 1 } }]);
  });

  test('an undo that fails stops the store', async () => {
    const { insert, disk } = setup();
    disk.trouble = (call) => (call === 'fsync' || call === 'unlink' ? 'EROFS' : undefined);
    await expect(insert(sampleEntry('a'))).rejects.toMatchObject({ code: 'store.unavailable' });
    disk.trouble = () => undefined;
    await expect(insert(sampleEntry('b'))).rejects.toThrow(/open the store again/);
  });
});

describe('syncs', () => {
  function count(disk: PowerCutDisk, ...names: string[]): () => number {
    let seen = 0;
    disk.trouble = (call) => {
      if (names.includes(call)) seen += 1;
      return undefined;
    };
    return () => seen;
  }

  test('"batch" shares the directory fsync among calls that wait together', async () => {
    const { insert, disk } = setup('batch');
    await insert(sampleEntry('first'));
    const fsyncs = count(disk, 'fsync');
    await Promise.all(sampleEntries(20, 'm').map((entry) => insert(entry)));
    expect(fsyncs()).toBeLessThanOrEqual(3);
  });

  test('"full" syncs file and directory for every call by itself', async () => {
    const { insert, disk } = setup('full');
    await insert(sampleEntry('first'));
    const fsyncs = count(disk, 'fsync');
    await Promise.all(sampleEntries(20, 'm').map((entry) => insert(entry)));
    expect(fsyncs()).toBeGreaterThanOrEqual(20);
  });

  test('"none" never syncs', async () => {
    const { insert, claim, flush, disk } = setup('none');
    const syncs = count(disk, 'fsync', 'fdatasync');
    await insert(...sampleEntries(3, 'm'));
    await claim();
    await flush();
    expect(syncs()).toBe(0);
  });

  test('a claim syncs nothing, and a lazy change nothing but its bytes', async () => {
    const { insert, claim, commit, disk } = setup();
    await insert(sampleEntry('a'));
    const syncs = count(disk, 'fsync');
    await claim();
    await commit({ id: 'a', revision: 2, holder: 'x:1', to: 'remove' }, false);
    expect(syncs()).toBe(0);
  });

  test('a lazy change is on the disk within 250 ms', async () => {
    const { insert, commit, clock, disk } = setup();
    await insert(sampleEntry('a'));
    const syncs = count(disk, 'fsync');
    await commit({ id: 'a', revision: 1, to: 'remove' }, false);
    await clock.advance(250);
    await expect.poll(syncs).toBeGreaterThan(0);
  });
});
