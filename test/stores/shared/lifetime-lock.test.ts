import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { checkNode, checkSqlite } from '../../../src/stores/shared/client.ts';
import {
  clearLockLeftovers,
  readLockNote,
  takeLifetimeLock,
} from '../../../src/stores/shared/lifetime-lock.ts';

const folders: string[] = [];
const children: ChildProcess[] = [];

afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true });
});

async function setup(): Promise<{ lockPath: string }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-lock-'));
  folders.push(folder);
  return { lockPath: path.join(folder, 'lock') };
}

async function startHolder(lockPath: string): Promise<{ child: ChildProcess; said: unknown }> {
  const child = fork(path.join(import.meta.dirname, 'lifetime-lock-holder.ts'), [lockPath]);
  children.push(child);
  const [said] = (await once(child, 'message')) as unknown[];
  return { child, said };
}

test('a lock that is held is refused, also to its own process, until it is released', async () => {
  const { lockPath } = await setup();
  const lock = await takeLifetimeLock(lockPath);
  expect(lock).toBeDefined();
  expect(await takeLifetimeLock(lockPath)).toBeUndefined();
  await lock?.release();
  await lock?.release();
  await expect(access(lockPath)).rejects.toThrow('ENOENT');
  const again = await takeLifetimeLock(lockPath);
  expect(again).toBeDefined();
  await again?.release();
});

test('a lock of another process ends with it, also by kill -9, and its note stays', async () => {
  const { lockPath } = await setup();
  const { child, said } = await startHolder(lockPath);
  expect(said).toBe('taken');
  expect(await takeLifetimeLock(lockPath)).toBeUndefined();
  expect(await readLockNote(lockPath)).toBe('here');
  child.kill('SIGKILL');
  await once(child, 'exit');
  const lock = await takeLifetimeLock(lockPath);
  expect(lock).toBeDefined();
  expect((await startHolder(lockPath)).said).toBe('refused');
  await lock?.release();
  expect(await readLockNote(lockPath)).toBeUndefined();
});

test('a process that was killed leaves its lock and its note, and nothing else', async () => {
  const { lockPath } = await setup();
  const { child } = await startHolder(lockPath);
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect((await readdir(path.dirname(lockPath))).toSorted()).toEqual(['lock', 'lock.owner']);
});

test('what killed processes left is cleared away, and nothing of the living', async () => {
  const { lockPath } = await setup();
  const folder = path.dirname(lockPath);
  const lock = await takeLifetimeLock(lockPath);
  const draft = await takeLifetimeLock(path.join(folder, 'other.0123456789ab.new'));
  const leave = (name: string) => writeFile(path.join(folder, name), '');
  const kept = [
    'lock.0123456789ab.new-journal',
    'other.0123456789ab.new-journal',
    'something-journal',
  ] as const;
  const stale = [
    'gone.0123456789ab.new-journal',
    'gone.ba9876543210.new',
    'lock.ba9876543210.new',
  ] as const;
  for (const name of [...kept, ...stale]) await leave(name);
  await clearLockLeftovers(folder);
  expect((await readdir(folder)).toSorted()).toEqual(
    [...kept, 'lock', 'other.0123456789ab.new'].toSorted(),
  );
  // Whoever holds a lock knows that nobody else does.
  await clearLockLeftovers(folder, 'lock');
  expect(await readdir(folder)).not.toContain(kept[0]);
  expect(await takeLifetimeLock(lockPath)).toBeUndefined();
  await draft?.release();
  await lock?.release();
});

test('only one of many that ask at the same time gets the lock', async () => {
  const { lockPath } = await setup();
  const locks = await Promise.all(Array.from({ length: 20 }, () => takeLifetimeLock(lockPath)));
  const taken = locks.filter((lock) => lock !== undefined);
  expect(taken.length).toBe(1);
  for (const lock of taken) await lock.release();
});

test('an older Node and an older SQLite are refused in words', () => {
  expect(() => checkNode('20.19.0')).toThrow(/needs Node 22 or newer, this is 20\.19\.0/);
  expect(() => checkNode('22.0.0')).not.toThrow();
  expect(() => checkSqlite('3.51.2')).toThrow(/before 3\.51\.3/);
  expect(() => checkSqlite('3.51.3')).not.toThrow();
  expect(() => checkSqlite('4.0.0')).not.toThrow();
});
