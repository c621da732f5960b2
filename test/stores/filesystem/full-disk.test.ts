/** A disk that is really full: a small tmpfs, which only root can mount. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';

const disk = mountSmallDisk();

describe.skipIf(disk === undefined)('on a full disk (skipped: needs root to mount a tmpfs)', () => {
  const path = disk ?? '';

  afterAll(() => {
    run('umount', path);
    rmSync(path, { recursive: true, force: true });
  });

  test('inserts are refused, what is there moves on, and room is used when it comes', async () => {
    const store = filesystem({ path: join(path, 'store') });
    await store.open();
    let stored = 0;
    const fill = async (): Promise<unknown> => {
      for (; stored < 5_000; stored += 1) {
        try {
          await store.insert([sampleEntry(`m-${stored}`)]);
        } catch (error) {
          return error;
        }
      }
      return undefined;
    };
    expect(await fill()).toMatchObject({ code: 'store.full' });
    expect(stored).toBeGreaterThan(50);
    const count = async () => (await store.tally('state', {})).map(({ count }) => count);
    expect(await count()).toEqual([stored]);
    // A change writes a new file before the old one goes; the reserve has room for it, again and again.
    for (let revision = 1; revision < 50; revision += 1) {
      const to = {
        ...sampleEntry('m-0').status,
        revision: revision + 1,
        notes: { n: `${revision}` },
      };
      expect(await store.commit([{ id: 'm-0', revision, to }])).toEqual(['done']);
    }
    const removals = [1, 2, 3].map((n) => ({ id: `m-${n}`, revision: 1, to: 'remove' as const }));
    expect(await store.commit(removals)).toEqual(['done', 'done', 'done']);
    expect(await fill()).toMatchObject({ code: 'store.full' });
    await store.close();
    const again = filesystem({ path: join(path, 'store') });
    await again.open();
    expect((await again.list({ limit: 1 })).corrupt).toEqual([]);
    expect(await again.tally('state', {})).toMatchObject([{ count: stored - 3 }]);
    await again.close();
  });

  test('a body that does not fit is refused with store.full and leaves nothing', async () => {
    await rm(join(path, 'store'), { recursive: true, force: true });
    const bodies = filesystemBodies({ path: join(path, 'bodies') });
    await bodies.open();
    async function* tooMuch(): AsyncGenerator<Uint8Array> {
      for (;;) yield new Uint8Array(65_536);
    }
    await expect(bodies.put('big', tooMuch())).rejects.toMatchObject({ code: 'store.full' });
    const left = await readdir(join(path, 'bodies'), { recursive: true });
    expect(left.filter((name) => name.includes('big'))).toEqual([]);
    await writeFile(join(path, 'proof'), 'there is room again');
    await bodies.close();
  });
});

function mountSmallDisk(): string | undefined {
  const path = mkdtempSync(join(tmpdir(), 'respool-full-'));
  try {
    run('mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', path);
    return path;
  } catch {
    // Not root, or no mounts allowed here: the tests above are skipped, and say why in their title.
    rmSync(path, { recursive: true, force: true });
    return undefined;
  }
}

function run(program: string, ...options: readonly string[]): void {
  execFileSync(program, options, { stdio: 'ignore' });
}
