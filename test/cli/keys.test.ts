/** keys — a key is made, printed once, and kept nowhere. */
import { readdir } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { setup } from './setup.ts';

test('a new key is one line on stdout, and how to use it is on stderr', async () => {
  const { cli, folder } = await setup();
  const ran = await cli(['keys', 'generate']);
  expect(ran.code).toBe(0);
  expect(ran.stdout).toMatch(/^[A-Za-z0-9+/]{43}=\n$/);
  expect(Buffer.from(ran.stdout, 'base64')).toHaveLength(32);
  expect(ran.stderr).toContain('env:SPOOL_KEY');
  expect(ran.stderr).not.toContain(ran.stdout.trim());
  expect(await readdir(folder)).toEqual([]);
  expect((await cli(['keys', 'generate', '--quiet'])).stderr).toBe('');
});

test('two keys are never the same', async () => {
  const { cli } = await setup();
  const [first] = (await cli(['keys', 'generate', '--json'])).objects();
  const [second] = (await cli(['keys', 'generate', '--json'])).objects();
  expect(first).toEqual({ key: expect.stringMatching(/^.{44}$/) as string });
  expect(second?.['key']).not.toBe(first?.['key']);
});

test('without a command it says which there are', async () => {
  const { cli } = await setup();
  const ran = await cli(['keys']);
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  expect(ran.stderr).toBe('respool: name a command: generate; see: respool keys --help\n');
});
