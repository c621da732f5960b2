/** A disk that is really full or read-only: a small tmpfs, which only root can mount. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { open, rm, statfs, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import { filesystem } from 'respool/stores/filesystem';
import { atEnd, openStore } from './setup.ts';

function mountDisk(options: string): string | undefined {
  const folder = mkdtempSync(path.join(tmpdir(), 'respool-full-'));
  try {
    run('mount', '-t', 'tmpfs', '-o', options, 'tmpfs', folder);
    atEnd(async () => {
      // Fails while anything on it is open: what a failed opening leaves open is found here.
      run('umount', folder);
      rmSync(folder, { recursive: true, force: true });
    });
    return folder;
  } catch {
    rmSync(folder, { recursive: true, force: true });
    return undefined;
  }
}

function run(program: string, ...options: readonly string[]): void {
  execFileSync(program, options, { stdio: 'ignore' });
}

/** Takes all the room but so many bytes. */
async function fill(disk: string, left: number): Promise<void> {
  const file = path.join(disk, 'other');
  const handle = await open(file, 'w');
  try {
    const { bavail, bsize } = await statfs(disk);
    await handle.write(new Uint8Array(bavail * bsize));
    await truncate(file, bavail * bsize - left);
  } finally {
    await handle.close();
  }
}

const isRoot = process.getuid?.() === 0;

describe.skipIf(!isRoot)('on a small disk (skipped: needs root to mount a tmpfs)', () => {
  test.each([0, 4_096, 16_384, 32_768, 65_536])(
    'with %i bytes left, opening tells of no space, and works when there is some',
    async (left) => {
      const disk = mountDisk('size=1m');
      if (disk === undefined) return;
      await fill(disk, left);
      const stores = [
        ...([false, true, 'auto'] as const).map((thread) =>
          sqlite({ path: path.join(disk, 'store'), thread }),
        ),
        sqliteBodies({ path: path.join(disk, 'bodies') }),
      ];
      for (const store of stores) {
        await expect(store.open()).rejects.toMatchObject({
          code: 'store.full',
          message: expect.stringMatching(/^cannot open ".*": there is no space left \(/) as string,
        });
      }
      await rm(path.join(disk, 'other'));
      for (const store of stores) {
        await store.open();
        await store.close();
      }
    },
  );

  test('without room for the note beside its lock, files tell it and let go of the lock', async () => {
    const disk = mountDisk('size=1m');
    if (disk === undefined) return;
    await fill(disk, 0);
    const store = filesystem({ path: path.join(disk, 'files') });
    await expect(store.open()).rejects.toMatchObject({ code: 'store.full' });
    await rm(path.join(disk, 'other'));
    await store.open();
    await store.close();
  });

  test.each([1, 2, 3, 4, 5, 6, 7])('with %i names on the whole disk', async (names) => {
    const disk = mountDisk(`size=4m,nr_inodes=${names}`);
    if (disk === undefined) return;
    const store = sqlite({ path: path.join(disk, 'store') });
    await expect(store.open()).rejects.toMatchObject({
      code: 'store.full',
      message: expect.stringContaining('there is no space left') as string,
    });
  });

  test('that is read-only: says so', async () => {
    const disk = mountDisk('size=1m');
    if (disk === undefined) return;
    const folder = path.join(disk, 'store');
    const store = await openStore({ path: folder });
    await store.insert([sampleEntry('a')]);
    await store.close();
    await writeFile(path.join(disk, 'file'), '');
    run('mount', '-o', 'remount,ro', disk);
    for (const where of [folder, path.join(disk, 'new'), path.join(disk, 'file', 'below')]) {
      const isBelow = where.endsWith('below');
      const why = isBelow ? 'a file is where a folder should be' : 'the file system is read-only';
      for (const thread of [false, true]) {
        await expect(sqlite({ path: where, thread }).open()).rejects.toMatchObject({
          code: 'store.unavailable',
          message: expect.stringMatching(new RegExp(`^cannot open .*: ${why} \\(`)) as string,
        });
      }
    }
    await expect(filesystem({ path: path.join(disk, 'new') }).open()).rejects.toThrow(
      /^cannot make the folder ".*": the file system is read-only \(EROFS\); mount it for writing/,
    );
  });
});
