/** audit — the last records, oldest first. */
import { expect, test } from 'vitest';
import { setup } from './setup.ts';

async function withRecords(count: number) {
  const shell = await setup({ hasStore: true });
  const own = shell.spool();
  await own.enqueue({ id: 'one', topic: 'a' });
  for (let at = 0; at < count; at += 1) await own.hold(['one'], `reason ${at}`, 'somebody');
  await own.stop();
  return shell;
}

test('the last 50 are shown, or as many as asked for', async () => {
  const { cli } = await withRecords(60);
  const ran = await cli(['audit', '--json']);
  expect(ran.objects().length).toBe(50);
  expect(ran.objects()[0]).toMatchObject({ id: '11', details: { reason: 'reason 10' } });
  expect((await cli(['audit', '--limit', '2', '--json'])).objects()).toMatchObject([
    { id: '59', sequence: 59 },
    { id: '60', by: 'somebody', action: 'hold', ids: ['one'] },
  ]);
  expect((await cli(['audit', '--after', '58', '--json'])).objects().length).toBe(2);
});

test('people see a table of who did what, when', async () => {
  const { cli } = await withRecords(1);
  const { stdout } = await cli(['audit']);
  expect(stdout).toMatch(/^number +when +who +action +messages +what$/m);
  expect(stdout).toMatch(/^ +1 +\d{4}-.*Z +somebody +hold +1 +reason=reason 0 one$/m);
});

test('an action by filter shows how many it was for, and actions the names of their commands', async () => {
  const { cli } = await withRecords(0);
  await cli(['hold', 'ALL', '--yes']);
  await cli(['retry', 'one']);
  await cli(['policy', 'set', 'default', 'one']);
  const { stdout } = await cli(['audit']);
  expect(stdout).toMatch(/ bulk\.hold +1 +filter=/);
  expect(stdout).toMatch(/ retry +1 +one$/m);
  expect(stdout).toMatch(/ policy +1 +policy=default one$/m);
});

test('nothing done is said', async () => {
  const { cli } = await setup({ hasStore: true });
  expect(await cli(['audit'])).toMatchObject({ code: 0, stdout: '' });
});
