/** audit — the last records, oldest first. */
import path from 'node:path';
import { sqlite } from 'respool/stores/sqlite';
import { expect, onTestFinished, test } from 'vitest';
import { setup } from './setup.ts';

async function withRecords(count: number) {
  const shell = await setup({ hasStore: true });
  const own = shell.spool();
  await own.enqueue({ id: 'one', topic: 'a' });
  for (let at = 0; at < count; at += 1)
    await own.operator({ by: 'somebody' }).hold(['one'], { reason: `reason ${at}` });
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

test.each<[string, unknown, RegExp]>([
  [
    'sealed by another key',
    { $sealed: 'k1.abc' },
    /^ +2 +\? +\? +\? +\? +cannot be read: \$sealed=k1/m,
  ],
  ['a text', 'what is this', /^ +2 .*cannot be read/m],
  ['half of one', { at: 1, by: 'x', action: 'hold' }, /^ +2 .*cannot be read: at=1 by=x/m],
  ['with odd details', { by: 'x', action: 'y', ids: [], details: null }, /^ +2 .*cannot be read/m],
  ['without a time', { by: 'x', action: 'y', ids: [] }, /^ +2 +\? +x +y +0/m],
])('a record that is %s does not hide the others', async (_, record, row) => {
  const { cli, folder } = await withRecords(1);
  const store = sqlite({ path: path.join(folder, 'respool') });
  await store.open();
  await store.records.append('audit', record);
  await store.close();
  const ran = await cli(['audit']);
  expect(ran.code).toBe(0);
  expect(ran.stdout).toMatch(/ somebody +hold /);
  expect(ran.stdout).toMatch(row);
  expect((await cli(['audit', '--json'])).objects()).toMatchObject([{ id: '1' }, { id: '2' }]);
});

test('a rekeying shows how many messages it was for, and how bodies are encrypted', async () => {
  const { cli, folder } = await withRecords(0);
  const store = sqlite({ path: path.join(folder, 'respool') });
  await store.open();
  const details = { count: 12, to: 'none', filter: {} };
  await store.records.append('audit', { at: 1, by: 'x', action: 'rekey', ids: [], details });
  await store.close();
  expect((await cli(['audit'])).stdout).toMatch(/ x +rekey +12 +bodies=none filter=\{\}$/m);
});

test('a record that a service cannot read comes through as one', async () => {
  const { cli, folder, start } = await withRecords(1);
  const store = sqlite({ path: path.join(folder, 'respool') });
  await store.open();
  await store.records.append('audit', { $sealed: 'k1.abc' });
  await store.close();
  const service = start(['serve', '--port', '0']);
  onTestFinished(async () => {
    service.signal('SIGTERM');
    await service.ended;
  });
  const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
  const ran = await cli(['audit', '--url', url]);
  expect(ran.code).toBe(0);
  expect(ran.stdout).toMatch(/ somebody +hold /);
  expect(ran.stdout).toMatch(/^ +2 .*cannot be read: \$sealed=k1/m);
});
