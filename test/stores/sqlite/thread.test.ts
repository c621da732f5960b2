import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { startFileThread } from '../../../src/stores/sqlite/file-thread.ts';
import { sampleEntry } from 'respool/testkit';
import { claimOf } from './requests.ts';
import { atEnd, makeFolder, openFile, openStore } from './setup.ts';
import { systemClock } from '../../time.ts';

const SETTINGS = {
  path: 'x.db',
  cacheBytes: 1_000_000,
  synchronous: 'full',
  autoCheckpointPages: 1_000,
} as const;

describe('a store with a thread', () => {
  test('keeps the event loop free while the file is locked by another process', async () => {
    const folder = await makeFolder();
    const store = await openStore({ path: folder, thread: true });
    const other = await openFile(path.join(folder, 'respool.db'));
    other.exec('BEGIN IMMEDIATE');
    let isStored = false;
    const insert = store.insert([sampleEntry('a')]).then((results) => {
      isStored = true;
      return results;
    });
    // 200 turns of the loop while the thread is blocked. In this thread the insert would block
    // the loop until its busy timeout, and fail: the lock is released by this very loop.
    for (let turn = 0; turn < 200; turn += 1) {
      await new Promise<void>((resolve) => systemClock.soon(resolve));
    }
    expect(isStored).toBe(false);
    other.exec('COMMIT');
    expect(await insert).toEqual(['stored']);
  });

  test('sends bytes as they are, whatever memory they lie in', async () => {
    const store = await openStore({ path: await makeFolder(), thread: true });
    const large = new Uint8Array(100_000).map((_, index) => index % 251);
    const views = [
      large.subarray(10, 20),
      Buffer.from('from the pool'),
      new Uint8Array(0),
      large.subarray(50_000),
    ];
    await Promise.all(
      views.map((bytes, index) => store.insert([sampleEntry(`m${index}`, { bytes })])),
    );
    const taken = await store.claim(claimOf(store));
    expect(taken.map(({ inlineBody }) => [...(inlineBody ?? [])])).toEqual(
      views.map((view) => [...view]),
    );
    // What was handed in still belongs to the caller.
    expect(views.map((view) => view.byteLength)).toEqual([10, 13, 0, 50_000]);
  });

  test('answers everybody with an error when the thread dies, and starts a new one', async () => {
    const ends: (() => void)[] = [];
    const startsDirty: unknown[] = [];
    // The first thread never answers, the second always does.
    const seat = startFileThread({ kind: 'entries', settings: SETTINGS }, (data, answer, end) => {
      startsDirty.push(data.settings.startsDirty);
      const answers = ends.length > 0;
      const thread = {
        postMessage() {
          if (answers) queueMicrotask(() => answer([{ data: { reply: 7 } }]));
        },
        ref: () => undefined,
        unref: () => undefined,
        terminate: async () => 0,
      };
      ends.push(() => end(thread, new Error('out of memory')));
      return thread;
    });
    const asked = [seat.ask({ kind: 'a' }), seat.ask({ kind: 'b' })];
    await Promise.resolve();
    ends[0]?.();
    for (const question of asked) {
      await expect(question).rejects.toMatchObject({ code: 'store.unavailable' });
    }
    expect(await seat.ask({ kind: 'c' })).toBe(7);
    // The new one has to sync what the first wrote lazily.
    expect(startsDirty).toEqual([false, true]);
    // The end of a thread that was given up long ago is nobody's business.
    ends[0]?.();
    await seat.close();
    await expect(seat.ask({ kind: 'd' })).rejects.toMatchObject({ code: 'store.unavailable' });
  });

  test('is not confused by a question that cannot be sent', async () => {
    const seat = startFileThread({
      kind: 'entries',
      settings: { ...SETTINGS, path: path.join(await makeFolder(), 'x.db') },
    });
    atEnd(() => seat.close());
    await expect(seat.ask({ kind: 'x', call: () => 1 } as never)).rejects.toThrow(/cloned/);
    expect(await seat.ask({ kind: 'dataVersion' })).toBeTypeOf('string');
  });

  test('does not keep the process alive when nobody waits for it', async () => {
    const folder = await makeFolder();
    const program = `
      import { sqlite } from ${JSON.stringify(sourceUrl('src/stores/sqlite/index.ts'))};
      const store = sqlite({ path: ${JSON.stringify(folder)} });
      await store.open();
      await store.records.append('k', 1);
      process.stdout.write('done');
    `;
    const run = promisify(execFile)(process.execPath, ['--input-type=module', '-e', program]);
    expect((await run).stdout).toBe('done');
    const store = await openStore({ path: folder });
    expect(await store.records.read('k', 0, 10)).toHaveLength(1);
  });
});

function sourceUrl(file: string): string {
  return new URL(`../../../${file}`, import.meta.url).href;
}
