/** bench — measures beside the store, and leaves nothing behind. */
import { readdir } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { setup } from './setup.ts';

test('bench measures the disk and both stores, and removes its folder', async () => {
  const { cli, folder } = await setup();
  const ran = await cli(['bench', '--seconds', '1', '--json']);
  expect(ran.code).toBe(0);
  const rows = ran.objects();
  expect(rows.map(({ id }) => id)).toEqual([
    'fsync 4 KiB',
    'sqlite: enqueue',
    'sqlite: enqueue to delivered',
    'file: enqueue',
    'file: enqueue to delivered',
  ]);
  for (const { count, perSecond, p50Ms, p99Ms } of rows) {
    expect(count).toBeGreaterThan(0);
    expect(perSecond).toBeGreaterThan(0);
    expect(p99Ms).toBeGreaterThanOrEqual(Number(p50Ms));
  }
  expect(await readdir(folder)).toEqual([]);
});

test.each([
  ['SIGINT' as const, 130],
  ['SIGTERM' as const, 143],
])('%s ends it early, with the folder removed and %i', async (signal, code) => {
  const { start, folder } = await setup();
  const running = start(['bench', '--seconds', '60']);
  await running.printed(/measuring in .*\.respool-bench-/);
  running.signal(signal);
  const ran = await running.ended;
  expect(ran).toMatchObject({ code, stdout: '' });
  expect(await readdir(folder)).toEqual([]);
});

test('a number of seconds outside its range is wrong usage', async () => {
  const { cli } = await setup();
  expect((await cli(['bench', '--seconds', '0'])).code).toBe(2);
  expect((await cli(['bench', '--seconds', '61'])).stderr).toContain('1 to 60');
});
