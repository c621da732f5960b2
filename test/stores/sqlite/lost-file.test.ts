import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import type { Clock, EntryStore } from 'respool';
import { claimOf } from './requests.ts';
import { atEnd, makeFolder } from './setup.ts';
import { systemClock } from '../../time.ts';

/** A clock that stands still until it is told. */
function standingClock() {
  let now = 5_000;
  const clock: Clock = { ...systemClock, monotonic: () => now };
  const pass = (ms: number) => {
    now += ms;
  };
  return { clock, pass };
}

async function setup(thread: boolean | 'auto' = false) {
  const folder = path.join(await makeFolder(), 'store');
  const { clock, pass } = standingClock();
  const store: EntryStore = sqlite({ path: folder, thread }, { clock });
  await store.open();
  // It fails once the file is gone, and closes all the same.
  atEnd(() => store.close().catch(() => undefined));
  return { folder, file: path.join(folder, 'respool.db'), store, pass };
}

const THREADS = [false, 'auto', true] as const;

describe('a file that goes away under an open store', () => {
  test.each(THREADS)(
    'with its folder: writes fail within a second (thread: %s)',
    async (thread) => {
      const { folder, store, pass } = await setup(thread);
      await store.insert([sampleEntry('a')]);
      await rm(folder, { recursive: true });
      pass(1_000);
      const lost = {
        code: 'store.unavailable',
        message: expect.stringMatching(
          /the file was deleted while it was open.*; restart/,
        ) as string,
      };
      await expect(store.insert([sampleEntry('b')])).rejects.toMatchObject(lost);
      await expect(store.insert([sampleEntry('c')])).rejects.toMatchObject(lost);
      await expect(store.claim(claimOf(store))).rejects.toMatchObject(lost);
      await expect(store.flush()).rejects.toMatchObject(lost);
      // Reads still help whoever wants to save what was in it.
      expect(await store.get('a')).toBeDefined();
    },
  );

  test('alone: no list makes a new one in its place', async () => {
    const { folder, file, store, pass } = await setup('auto');
    await store.insert(sampleEntries(3_000, 'm', { headers: { tenant: 'x' } }));
    await rm(file);
    pass(1_000);
    // So many that the thread for long reads would be asked.
    const rows = await store.tally('state', { header: { name: 'tenant' } });
    expect(rows.map(({ count }) => count)).toEqual([3_000]);
    expect(await readdir(folder)).not.toContain('respool.db');
    await expect(store.insert([sampleEntry('b')])).rejects.toThrow(/deleted/);
  });

  test.each(THREADS)('because another one took its name (thread: %s)', async (thread) => {
    const { file, store, pass } = await setup(thread);
    await writeFile(`${file}.other`, '');
    await rename(`${file}.other`, file);
    pass(1_000);
    await expect(store.insert([sampleEntry('a')])).rejects.toMatchObject({
      code: 'store.unavailable',
      message: expect.stringContaining('another file replaced it while it was open') as string,
    });
  });

  test('and comes back: is not trusted again', async () => {
    const { folder, store, pass } = await setup();
    await rename(folder, `${folder}.away`);
    pass(1_000);
    await expect(store.insert([sampleEntry('a')])).rejects.toThrow(/deleted/);
    await rename(`${folder}.away`, folder);
    pass(1_000);
    await expect(store.insert([sampleEntry('b')])).rejects.toThrow(/deleted/);
  });

  test('is asked for once a second, by whoever writes then', async () => {
    const { folder, store, pass } = await setup();
    await rename(folder, `${folder}.away`);
    pass(999);
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
    await rename(`${folder}.away`, folder);
    pass(1);
    expect(await store.insert([sampleEntry('b')])).toEqual(['stored']);
  });

  test('is made anew when the store is opened again', async () => {
    const { folder, store, pass } = await setup();
    await rm(folder, { recursive: true });
    pass(1_000);
    await expect(store.insert([sampleEntry('a')])).rejects.toThrow(/deleted/);
    await expect(store.close()).rejects.toThrow(/deleted/);
    await store.open();
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test('of bodies: a put fails', async () => {
    const folder = path.join(await makeFolder(), 'bodies');
    await mkdir(folder);
    const { clock, pass } = standingClock();
    const bodies = sqliteBodies({ path: folder }, { clock });
    await bodies.open();
    atEnd(() => bodies.close().catch(() => undefined));
    await rm(folder, { recursive: true });
    pass(1_000);
    async function* stream() {
      yield Uint8Array.of(1);
    }
    await expect(bodies.put('r', stream())).rejects.toThrow(/the file was deleted/);
  });
});
