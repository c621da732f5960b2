import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Clock } from 'respool';
import { sampleEntry } from 'respool/testkit';
import {
  type FileExecutor,
  type ExecutorData,
  openInlineFirst,
  startFileThread,
} from '../../../src/stores/sqlite/file-thread.ts';
import { checkStoreOptions } from '../../../src/stores/sqlite/options.ts';
import type { FileRequest } from '../../../src/stores/sqlite/protocol.ts';
import { claimOf } from './requests.ts';
import { atEnd, makeFolder, openFile, openStore } from './setup.ts';
import { systemClock } from '../../time.ts';

/** A clock on which each request takes the next of these times, then none. */
function clockOf(tookMs: readonly number[]): Clock {
  let at = 0;
  let looks = 0;
  return {
    ...systemClock,
    monotonic() {
      // Looked at before and after each request.
      if (looks % 2 === 1) at += tookMs[(looks - 1) / 2] ?? 0;
      looks += 1;
      return at;
    },
  };
}

async function setup(tookMs: readonly number[]) {
  const { settings } = checkStoreOptions('the store', { path: 'x' });
  const file = path.join(await makeFolder(), 'x.db');
  const threads: FileExecutor[] = [];
  const data = { kind: 'entries', settings: { ...settings, path: file } } as const;
  const seat = await openInlineFirst(data, clockOf(tookMs), (given) => {
    const thread = startFileThread(given);
    threads.push(thread);
    return thread;
  });
  atEnd(() => seat.close());
  const ask = () => seat.ask({ kind: 'dataVersion' });
  return { seat, ask, threads };
}

describe('a store that is told nothing about threads', () => {
  test('works in the caller’s thread while that is quick', async () => {
    expect(checkStoreOptions('the store', { path: 'x' }).thread).toBe('auto');
    const { seat, ask, threads } = await setup([1, 140, 3, 2]);
    for (let times = 0; times < 6; times += 1) await ask();
    expect(seat.isThread).toBe(false);
    expect(threads).toHaveLength(0);
  });

  test('stays there when one request in ten is slow, as the one that moves the log', async () => {
    const { seat, ask } = await setup([40, ...calm(9), 40, ...calm(9), 40, ...calm(9)]);
    for (let times = 0; times < 30; times += 1) await ask();
    expect(seat.isThread).toBe(false);
  });

  test('takes a large batch on a quick disk for what it is', async () => {
    const { seat, threads } = await setup([39, 39, 39, 41, 41, 41]);
    // Each operation may take 0.03 ms besides.
    const ops = Array.from({ length: 1_000 }, () => ({ kind: 'sync' }));
    const ask = () => seat.ask({ kind: 'batch', ops, bytes: [] } as FileRequest);
    for (let times = 0; times < 5; times += 1) await ask();
    expect(threads).toHaveLength(0);
    await ask();
    expect(threads).toHaveLength(1);
  });

  test('moves to a thread when three of the last ten were slow', async () => {
    const { seat, ask, threads } = await setup([11, ...calm(3), 11, ...calm(4), 11]);
    for (let times = 0; times < 9; times += 1) await ask();
    expect(seat.isThread).toBe(false);
    expect(threads).toHaveLength(0);
    const before = await ask();
    expect(threads).toHaveLength(1);
    // It takes a moment to start; until then nobody waits for it.
    expect(await ask()).toBe(before);
    await expect.poll(() => seat.isThread).toBe(true);
    for (let times = 0; times < 3; times += 1) expect(await ask()).not.toBe(before);
    expect(threads).toHaveLength(1);
  });

  test('moves after a single one that was very slow', async () => {
    const { seat, ask } = await setup([151]);
    const before = await ask();
    expect(seat.isThread).toBe(true);
    // Whoever watches the file for changes of others must not take the two for one connection.
    expect(await ask()).not.toBe(before);
  });

  test('has in the thread what was written before, and may be closed at once', async () => {
    const folder = await makeFolder();
    const clock = clockOf([1, 1, 1, 1, 1, 1, 1, 1, 400]);
    const store = await openStore({ path: folder, thread: 'auto' }, { clock });
    const ids = Array.from({ length: 40 }, (_, at) => `m${at}`);
    for (const id of ids) await store.insert([sampleEntry(id)]);
    const { entries } = await store.list({ order: 'id', limit: 100 });
    expect(entries.map(({ envelope }) => envelope.id).toSorted()).toEqual(ids.toSorted());
    await store.close();
    const again = await openStore({ path: folder });
    expect((await again.list({ order: 'id', limit: 100 })).entries).toHaveLength(40);
  });

  test('makes durable in the thread what it wrote lazily before', async () => {
    const folder = await makeFolder();
    let at = 0;
    let stepMs = 0;
    const clock: Clock = {
      ...systemClock,
      monotonic() {
        at += stepMs;
        return at;
      },
      // No lazy sync but the one that is asked for.
      after: () => () => undefined,
    };
    const store = await openStore({ path: folder, thread: 'auto' }, { clock });
    await store.insert([sampleEntry('a')]);
    stepMs = 200;
    await store.claim(claimOf(store));
    stepMs = 0;
    await store.flush();
    const beside = await openFile(path.join(folder, 'respool.db'));
    expect(beside.prepare("SELECT value FROM meta WHERE key = 'syncs'").pluck().get()).toBe(1);
  });

  test('moves after a disk error: to look through the whole file takes long', async () => {
    const { settings } = checkStoreOptions('the store', { path: 'x' });
    // A folder cannot be opened as a file.
    const file = await makeFolder();
    const given: ExecutorData[] = [];
    const data = { kind: 'entries', settings: { ...settings, path: file } } as const;
    const seat = await openInlineFirst(data, clockOf([]), (thread) => {
      given.push(thread);
      return startFileThread(thread);
    });
    atEnd(() => seat.close());
    await expect(seat.ask({ kind: 'dataVersion' })).rejects.toThrow();
    expect(seat.isThread).toBe(true);
    expect(given[0]?.settings).toMatchObject({ needsCheck: true, startsDirty: true });
  });

  test('takes along what had not had its turn, before what is asked later', async () => {
    const { settings } = checkStoreOptions('the store', { path: 'x' });
    const turns: (() => void)[] = [];
    const clock: Clock = { ...clockOf([151]), soon: (call) => void turns.push(call) };
    const file = path.join(await makeFolder(), 'x.db');
    const data = { kind: 'entries', settings: { ...settings, path: file } } as const;
    const asked: string[] = [];
    const seat = await openInlineFirst(data, clock, () => ({
      isThread: true,
      async ask({ kind }) {
        asked.push(kind);
        return kind;
      },
      close: async () => undefined,
    }));
    atEnd(() => seat.close());
    const slow = seat.ask({ kind: 'dataVersion' });
    // A lazy write, perhaps; and a sync that must not overtake it.
    const waiting = seat.ask({ kind: 'first' });
    turns.shift()?.();
    await slow;
    expect(seat.isThread).toBe(true);
    const later = seat.ask({ kind: 'second' });
    turns.shift()?.();
    expect(await Promise.all([waiting, later])).toEqual(['first', 'second']);
    expect(asked).toEqual(['first', 'second']);
  });

  test('stays where it is when the thread cannot open the file', async () => {
    const { settings } = checkStoreOptions('the store', { path: 'x' });
    const file = path.join(await makeFolder(), 'x.db');
    const data = { kind: 'entries', settings: { ...settings, path: file } } as const;
    let closed = 0;
    const seat = await openInlineFirst(data, clockOf([11, 11, 11]), () => ({
      isThread: true,
      ask: () => Promise.reject(new Error('too many open files')),
      close: async () => void (closed += 1),
    }));
    atEnd(() => seat.close());
    const ask = () => seat.ask({ kind: 'dataVersion' });
    const versions = [await ask(), await ask(), await ask()];
    await expect.poll(() => closed).toBe(1);
    expect(seat.isThread).toBe(false);
    expect(await ask()).toBe(versions[0]);
  });

  test('closes its file also when the thread does not end well', async () => {
    const { settings } = checkStoreOptions('the store', { path: 'x' });
    const folder = await makeFolder();
    const data = {
      kind: 'entries',
      settings: { ...settings, path: path.join(folder, 'x.db') },
    } as const;
    const seat = await openInlineFirst(data, clockOf([151]), () => ({
      isThread: true,
      ask: () => Promise.reject(new Error('it has ended')),
      close: () => Promise.reject(new Error('it has ended')),
    }));
    await seat.ask({ kind: 'dataVersion' });
    expect(await readdir(folder)).toContain('x.db-wal');
    await expect(seat.close()).rejects.toThrow('it has ended');
    expect(await readdir(folder)).toEqual(['x.db']);
  });

  test('has its log moved into the file beside the writes', async () => {
    const folder = await makeFolder();
    const store = await openStore({ path: folder, thread: 'auto', autoCheckpointPages: 100 });
    const bytes = new Uint8Array(4_096);
    const insert = (from: number) =>
      store.insert(Array.from({ length: 50 }, (_, at) => sampleEntry(`m${from + at}`, { bytes })));
    // The log never gets to the four times 100 pages at which the caller's thread would move it.
    for (let from = 0; from < 250; from += 50) await insert(from);
    const other = await openFile(path.join(folder, 'respool.db'));
    const look = other.prepare('PRAGMA wal_checkpoint(NOOP)').raw();
    const unmoved = () => {
      const [, pages = 0, moved = 0] = look.get() as number[];
      return pages - moved;
    };
    await expect.poll(unmoved).toBeLessThan(100);
  });
});

function calm(times: number): number[] {
  return Array.from({ length: times }, () => 1);
}
