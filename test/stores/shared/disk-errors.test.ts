import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { diskCode, diskError } from '../../../src/stores/shared/disk-errors.ts';

const folders: string[] = [];

afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true });
});

function told(code: string, text: string): { code: string; message: string } {
  const error = Object.assign(new Error(text), { code });
  return diskError('write to "x"', { error, code, whenFree: 'the store continues by itself' });
}

test.each([
  ['EROFS', 'the file system is read-only'],
  ['EACCES', 'this user has no permission for that'],
  ['SQLITE_PERM', 'this user has no permission for that'],
  ['SQLITE_READONLY_DIRECTORY', 'the file is read-only'],
  ['SQLITE_CANTOPEN', 'its folder is not there, or a file in it cannot be made'],
  ['ENOTDIR', 'a file is where a folder should be'],
  ['EMFILE', 'too many files are open'],
  ['SQLITE_IOERR_FSYNC', 'the disk reported an error'],
])('%s is put into words, with what was said behind them', (code, words) => {
  const { code: ours, message } = told(code, 'said');
  expect(ours).toBe('store.unavailable');
  expect(message).toMatch(new RegExp(`^cannot write to "x": ${words} \\(said\\); [a-z]`));
});

test.each(['ENOSPC', 'EDQUOT', 'SQLITE_FULL'])('%s is store.full', (code) => {
  expect(told(code, 'said')).toMatchObject({
    code: 'store.full',
    message:
      'cannot write to "x": there is no space left (said); free some space; the store continues ' +
      'by itself',
  });
});

test('a code that nobody knows keeps its own words', () => {
  expect(told('EXDEV', 'cross-device link').message).toBe(
    'cannot write to "x": cross-device link; check the disk and its permissions',
  );
});

test('a vague code is looked into, and kept when nothing is found', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-words-'));
  folders.push(folder);
  const vague = Object.assign(new Error('unable to open'), { code: 'SQLITE_CANTOPEN' });
  expect(diskCode(vague, path.join(folder, 'x.db'))).toBe('SQLITE_CANTOPEN');
  expect(diskCode(vague, undefined)).toBe('SQLITE_CANTOPEN');
});
