/** Records as files, and what a crash or a hand does to them. */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { setup } from './setup.ts';

describe('records', () => {
  test('are JSON files and lines that can be read with cat', async () => {
    const { path, store } = await setup();
    await store.records.append('audit', { who: 'ada' });
    await store.records.put('pause', 'mail.*', { by: 'bob' });
    const log = await readFile(join(path, 'records', 'audit', 'log'), 'utf8');
    expect(log).toBe('{"sequence":1,"record":{"who":"ada"}}\n');
    const [name = ''] = await readdir(join(path, 'records', 'pause', 'map'));
    expect(name).toBe('mail.%2a.json');
    const text = await readFile(join(path, 'records', 'pause', 'map', name), 'utf8');
    expect(JSON.parse(text)).toEqual({ key: 'mail.*', revision: 1, value: { by: 'bob' } });
  });

  test('a line that a crash cut off is cut off for good, and its number is used again', async () => {
    const { path, store, reopen } = await setup();
    await store.records.append('audit', 1);
    const log = join(path, 'records', 'audit', 'log');
    const again = await reopen(() => writeFile(log, '{"sequence":2,"rec', { flag: 'a' }));
    expect(await again.records.append('audit', 2)).toBe(2);
    expect(await again.records.read('audit', 0, 10)).toEqual([
      { sequence: 1, record: 1 },
      { sequence: 2, record: 2 },
    ]);
  });

  test('a damaged line does not hide its neighbours', async () => {
    const { path, store, reopen } = await setup();
    for (const n of [1, 2, 3]) await store.records.append('audit', n);
    const log = join(path, 'records', 'audit', 'log');
    const text = await readFile(log, 'utf8');
    const again = await reopen(() => writeFile(log, text.replace('"sequence":2', '"sequ#nce":2')));
    expect((await again.records.read('audit', 0, 10)).map(({ record }) => record)).toEqual([1, 3]);
    expect(await again.records.append('audit', 4)).toBe(4);
  });

  test('a long log is read from the middle, also after a trim and an opening', async () => {
    const { store, reopen } = await setup({ sync: 'none' });
    await Promise.all(Array.from({ length: 1_000 }, (_, n) => store.records.append('log', n)));
    expect(await store.records.read('log', 990, 3)).toMatchObject([
      { sequence: 991 },
      { sequence: 992 },
      { sequence: 993 },
    ]);
    await store.records.trim('log', 500);
    expect(await store.records.read('log', 0, 1)).toEqual([{ sequence: 501, record: 500 }]);
    const again = await reopen();
    expect(await again.records.read('log', 0, 1)).toEqual([{ sequence: 501, record: 500 }]);
    expect(await again.records.read('log', 998, 9)).toMatchObject([{ sequence: 999 }, {}]);
    expect(await again.records.append('log', 'x')).toBe(1_001);
  });

  test('a damaged value is refused by its path', async () => {
    const { path, store } = await setup();
    await mkdir(join(path, 'records', 'pause', 'map'), { recursive: true });
    await writeFile(join(path, 'records', 'pause', 'map', 'k.json'), '{"key":');
    await expect(store.records.get('pause', 'k')).rejects.toMatchObject({ code: 'store.corrupt' });
  });
});
