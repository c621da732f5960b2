/** check — finds damage, says so by its exit code, and repairs when asked. */
import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { setup, type Shell } from './setup.ts';
import { person } from './steering.ts';

/** A store with one message whose body was taken away, and one that is whole. */
async function damaged(): Promise<Shell> {
  const shell = await setup();
  const spool = shell.spool({ limits: { inlineBodyBytes: 0 } });
  await spool.enqueue({ id: 'broken', topic: 'a', body: 'gone soon' });
  await spool.stop();
  await rm(await onlyBody(shell));
  const again = shell.spool();
  await again.enqueue({ id: 'whole', topic: 'a', body: 'here' });
  await again.stop();
  return shell;
}

async function onlyBody({ folder }: Shell): Promise<string> {
  const bodies = path.join(folder, 'respool', 'bodies');
  const found = await readdir(bodies, { recursive: true, withFileTypes: true });
  const files = found.filter((file) => file.isFile() && file.name.includes('broken'));
  expect(files).toHaveLength(1);
  return path.join(files[0]?.parentPath ?? '', files[0]?.name ?? '');
}

test('a store that is whole is said to be', async () => {
  const shell = await setup();
  await shell.spool().enqueue({ topic: 'a', body: 'x' });
  const ran = await shell.cli(['check']);
  expect(ran).toMatchObject({
    code: 0,
    stdout: 'checked 1 message and 0 bodies: nothing is wrong\n',
  });
  expect((await shell.cli(['check', '--json'])).objects()).toEqual([
    { id: 'summary', entries: 1, bodies: 0, findings: 0, open: 0 },
  ]);
});

test('damage is shown, left alone, and the exit code is 1', async () => {
  const shell = await damaged();
  const ran = await shell.cli(['check']);
  expect(ran.code).toBe(1);
  expect(ran.stdout).toMatch(/^body\.missing +broken .+ not repaired$/m);
  expect(ran.stdout).toContain('checked 2 messages and 0 bodies: 1 finding, 1 not repaired');
  const json = await shell.cli(['check', '--json']);
  expect(json.code).toBe(1);
  expect(json.objects()).toMatchObject([
    { id: 'broken', kind: 'body.missing' },
    { id: 'summary', findings: 1, open: 1 },
  ]);
});

test('repair asks, holds what is damaged, and then the exit code is 0', async () => {
  const shell = await damaged();
  const no = person(false);
  expect((await shell.cli(['check', '--repair'], no.options)).code).toBe(4);
  expect(no.questions).toHaveLength(1);
  const ran = await shell.cli(['check', '--repair', '--yes']);
  expect(ran.code).toBe(0);
  expect(ran.stdout).toContain('1 finding, all repaired');
  const { objects } = await shell.cli(['show', 'broken', '--json']);
  expect(objects()).toMatchObject([{ status: { state: 'hold', because: { by: 'check' } } }]);
});

test('repair without a terminal needs --yes', async () => {
  const { cli } = await setup();
  const ran = await cli(['check', '--repair']);
  expect(ran).toMatchObject({ code: 4, stdout: '' });
  expect(ran.stderr).toContain('--yes');
});
