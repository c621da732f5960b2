import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import { serviceAddress } from '../../../src/stores/sqlite/instances.ts';
import type { Clock } from 'respool';
import { claimOf } from './requests.ts';
import { atEnd, makeFolder, openFile, openStore } from './setup.ts';
import { systemClock } from '../../time.ts';
import { entryChange } from '../requests.ts';

interface Neighbour {
  readonly child: ChildProcess;
  readonly instance: string;
  tell(order: object): Promise<unknown>;
  kill(): Promise<void>;
}

async function startNeighbour(folder: string, thread = false): Promise<Neighbour> {
  const program = path.join(import.meta.dirname, 'neighbour.ts');
  const child = fork(program, [folder, thread ? 'thread' : 'own']);
  atEnd(async () => child.kill('SIGKILL'));
  const [instance] = (await once(child, 'message')) as [string];
  return {
    child,
    instance,
    async tell(order) {
      const answer = once(child, 'message');
      child.send(order);
      return ((await answer) as unknown[])[0];
    },
    async kill() {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

async function setup() {
  const folder = await makeFolder();
  const store = await openStore({ path: folder });
  return { folder, store };
}

describe('two processes on one file', () => {
  test('see what the other has written, and claim everything once', async () => {
    const { folder, store } = await setup();
    const neighbour = await startNeighbour(folder);
    await store.insert(sampleEntries(10, 'm'));
    expect(await neighbour.tell({ insert: 'theirs' })).toEqual(['stored']);
    expect(await store.get('theirs')).toBeDefined();
    const theirs = (await neighbour.tell({ claim: 5 })) as string[];
    const ours = (await store.claim(claimOf(store, { max: 20 }))).map((e) => e.envelope.id);
    expect([...theirs, ...ours].sort()).toEqual(
      [...sampleEntries(10, 'm').map((entry) => entry.envelope.id), 'theirs'].sort(),
    );
  });

  test('claim what one transaction inserts after the last of its priority went', async () => {
    const { folder, store } = await setup();
    const other = await openStore({ path: folder });
    await store.insert([sampleEntry('first')]);
    const [first] = await store.claim(claimOf(store));
    if (first === undefined) throw new Error('nothing was claimed');
    // So that the first store reads anew which priorities there are, in its next transaction.
    await other.records.append('told', {});
    const answers = await Promise.all([
      store.commit([entryChange(first, 'remove')]),
      store.claim(claimOf(store)),
      store.insert([sampleEntry('second')]),
    ]);
    expect(answers).toEqual([['done'], [], ['stored']]);
    expect(await store.nextDueAt(claimOf(store))).toBe(SAMPLE_AT);
    const claimed = await store.claim(claimOf(store));
    expect(claimed.map(({ envelope }) => envelope.id)).toEqual(['second']);
  });

  test('wake each other: a watch calls back when the other has written', async () => {
    const { folder, store } = await setup();
    const neighbour = await startNeighbour(folder);
    let stop: () => void = () => undefined;
    const woken = new Promise<void>((resolve) => {
      stop = store.watch?.(resolve) ?? stop;
    });
    atEnd(async () => stop());
    // The first look only learns where things stand; the write has to come after it.
    await store.get('x');
    await neighbour.tell({ insert: 'a' });
    await woken;
  });

  test('do not wake themselves, and look at most every 100 ms', async () => {
    const folder = await makeFolder();
    const timers: { ms: number; call: () => void }[] = [];
    const clock: Clock = {
      ...systemClock,
      after(ms, call) {
        timers.push({ ms, call });
        return () => undefined;
      },
    };
    const store = await openStore({ path: folder }, { clock });
    const beside = await openFile(path.join(folder, 'respool.db'));
    let calls = 0;
    const stop = store.watch?.(() => {
      calls += 1;
    });
    // A look asks like everybody else: once a later question is answered, the look is too.
    const look = async () => {
      const timer = timers.pop();
      expect(timer?.ms).toBe(100);
      timer?.call();
      await store.get('x');
      await store.get('x');
    };
    await store.get('x');
    await store.insert([sampleEntry('a')]);
    await look();
    expect(calls).toBe(0);
    beside.exec("UPDATE meta SET value = 7 WHERE key = 'syncs'");
    await look();
    await look();
    expect(calls).toBe(1);
    stop?.();
    beside.exec("UPDATE meta SET value = 8 WHERE key = 'syncs'");
    timers.pop()?.call();
    await store.get('x');
    expect(calls).toBe(1);
    expect(timers).toEqual([]);
  });

  test.each([false, true])(
    'the leases of one that was killed end at once, those of the living stay (thread: %s)',
    async (thread) => {
      const { folder, store } = await setup();
      const dies = await startNeighbour(folder, thread);
      const lives = await startNeighbour(folder, thread);
      await store.insert(sampleEntries(6, 'm'));
      const lost = await dies.tell({ claim: 2 });
      await lives.tell({ claim: 2 });
      expect(await store.expireLost?.(SAMPLE_AT + 5)).toBe(0);
      await dies.kill();
      expect(await store.expireLost?.(SAMPLE_AT + 5)).toBe(2);
      expect(await store.expireLost?.(SAMPLE_AT + 5)).toBe(0);
      const request = claimOf(store, { states: ['active'], now: SAMPLE_AT + 5 });
      const taken = await store.claim(request);
      expect(taken.map(({ envelope }) => envelope.id)).toEqual(lost);
      expect(taken.map(({ status }) => status.lost)).toEqual([1, 1]);
    },
  );

  test('leave no lock behind after an orderly close, unless something is still active', async () => {
    const { folder } = await setup();
    const locks = path.join(folder, 'respool.db.locks');
    const before = await readdir(locks);
    const idle = await openStore({ path: folder });
    await idle.insert([sampleEntry('a')]);
    await idle.close();
    expect(await readdir(locks)).toEqual(before);
    const busy = await openStore({ path: folder });
    await busy.claim(claimOf(busy));
    await busy.close();
    expect(await readdir(locks)).toContain(busy.instance);
  });

  test('leave nothing of the killed behind, once their leases have ended', async () => {
    const { folder, store } = await setup();
    const locks = path.join(folder, 'respool.db.locks');
    const dies = await startNeighbour(folder);
    // As an earlier version left it.
    await writeFile(path.join(locks, `${dies.instance}.0123456789ab.new-journal`), '');
    await dies.kill();
    await store.expireLost?.(SAMPLE_AT);
    expect(await readdir(locks)).toEqual([store.instance]);
  });

  test('may open a new file at the same time', async () => {
    const folder = await makeFolder();
    const neighbours = await Promise.all(
      Array.from({ length: 4 }, () => startNeighbour(path.join(folder, 'new'))),
    );
    const results = await Promise.all(
      neighbours.map((neighbour, index) => neighbour.tell({ insert: `m${index}` })),
    );
    expect(results).toEqual([['stored'], ['stored'], ['stored'], ['stored']]);
    expect(new Set(neighbours.map(({ instance }) => instance)).size).toBe(4);
  });
});

test('the address of a service is told while its process has the store open', async () => {
  const folder = await makeFolder();
  expect(await serviceAddress(folder)).toBeUndefined();
  const other = await openStore({ path: folder });
  const store = await openStore({ path: folder });
  expect(await serviceAddress(folder)).toBeUndefined();
  await store.announce?.('http://127.0.0.1:7667');
  expect(await serviceAddress(folder)).toBe('http://127.0.0.1:7667');
  expect(await serviceAddress(path.join(folder, 'respool.db'))).toBe('http://127.0.0.1:7667');
  await store.close();
  expect(await serviceAddress(folder)).toBeUndefined();
  await expect(store.announce?.('http://127.0.0.1:7667')).rejects.toMatchObject({
    code: 'store.unavailable',
  });
  await other.close();
});
