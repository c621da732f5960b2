/** Who may open the folder, and where it may lie. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { once } from 'node:events';
import { type ChildProcess, spawn } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { SAMPLE_AT } from 'respool/testkit';
import { filesystem } from 'respool/stores/filesystem';
import { serviceAddress } from '../../../src/stores/filesystem/entry-store.ts';
import { refusedFileSystem } from '../../../src/stores/shared/local-disk.ts';
import { claimAll, cleanups, listed, openStore, setup } from './setup.ts';

describe('the owner', () => {
  async function startOwner(path: string): Promise<ChildProcess> {
    const script = fileURLToPath(new URL('./owner-child.ts', import.meta.url));
    const child = spawn(process.execPath, ['--conditions=respool-source', script, path], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    cleanups.push(async () => child.kill('SIGKILL'));
    const failed = once(child, 'exit').then(([code]) => {
      throw new Error(`the owner ended with ${code} before it was asked to`);
    });
    failed.catch(() => undefined);
    await Promise.race([once(child.stdout as NodeJS.ReadableStream, 'data'), failed]);
    return child;
  }

  test('is one process; a second is refused and told which, until the first is dead', async () => {
    const path = await mkdtemp(join(tmpdir(), 'respool-owner-'));
    cleanups.push(() => rm(path, { recursive: true, force: true }));
    const child = await startOwner(path);
    const second = filesystem({ path });
    await expect(second.open()).rejects.toMatchObject({
      code: 'store.unavailable',
      message: expect.stringMatching(
        new RegExp(`process ${child.pid} .*.*and files have one owner.*stop it`),
      ),
    });
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
    const store = await openStore(path);
    expect((await listed(store)).ids).toEqual(['m-00000', 'm-00001', 'm-00002']);
    expect(await store.expireLost?.(SAMPLE_AT)).toBe(2);
    expect(await claimAll(store)).toHaveLength(3);
  });

  test('leaves the address of its service for whoever finds the folder taken', async () => {
    const { path, store } = await setup();
    expect(await serviceAddress(path)).toBeUndefined();
    await store.announce?.('http://127.0.0.1:7667');
    expect(await serviceAddress(path)).toBe('http://127.0.0.1:7667');
    await expect(filesystem({ path }).open()).rejects.toMatchObject({
      message: expect.stringContaining('whose service is at http://127.0.0.1:7667'),
    });
    await store.close();
    expect(await serviceAddress(path)).toBeUndefined();
    expect(await serviceAddress(`${path}-nowhere`)).toBeUndefined();
  });

  test('is one store also within one process', async () => {
    const { path, store } = await setup();
    await expect(filesystem({ path }).open()).rejects.toMatchObject({ code: 'store.unavailable' });
    await store.close();
    await openStore(path);
  });

  test('a folder of a newer layout is not opened, and not touched', async () => {
    const { path, store } = await setup();
    await store.close();
    await writeFile(join(path, 'layout.json'), '{"respool":"filesystem","layout":2}\n');
    await expect(filesystem({ path }).open()).rejects.toMatchObject({ code: 'store.version' });
    await writeFile(join(path, 'layout.json'), 'what');
    await expect(filesystem({ path }).open()).rejects.toMatchObject({ code: 'store.version' });
  });

  test('a folder that cannot be made is refused with the cause', async () => {
    const { path } = await setup();
    await writeFile(join(path, 'file'), '');
    const inFile = filesystem({ path: join(path, 'file', 'store') });
    await expect(inFile.open()).rejects.toMatchObject({
      code: 'store.unavailable',
      cause: { code: 'ENOTDIR' },
    });
  });

  test.each([
    [0x6969, 'NFS'],
    [0x517b, 'SMB'],
    [0xff534d42, 'CIFS'],
    [0xff534d42 | 0, 'CIFS'],
    [0xfe534d42, 'SMB2'],
    [0x01021997, '9p'],
    [0x65735546, 'FUSE'],
    [0xef53, undefined],
    [0x01021994, undefined],
  ])('the file system of type %i is refused as %s', (type, name) => {
    expect(refusedFileSystem(type)).toBe(name);
  });
});
