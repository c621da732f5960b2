/** token — made once, shown once, kept as a hash. */
import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { setup } from './setup.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

test('a new token is printed on stdout alone, its configuration line on stderr', async () => {
  const { cli, folder } = await setup();
  const ran = await cli(['token', 'create', '--name', 'shop', '--role', 'post']);
  expect(ran.code).toBe(0);
  expect(ran.stdout).toMatch(/^rsp_[\w-]{43}\n$/);
  const token = ran.stdout.trim();
  expect(ran.stderr).not.toContain(token);
  const line = /\{.+\}/.exec(ran.stderr)?.[0] ?? '';
  expect(JSON.parse(line)).toEqual({ name: 'shop', role: 'post', sha256: sha256(token) });
  expect(await readdir(folder)).toEqual([]);
});

test('a token with every right can be the only one: it says that serve.token takes its hash', async () => {
  const { cli } = await setup();
  const ran = await cli(['token', 'create', '--name', 'a', '--role', 'admin']);
  expect(ran.stderr).toContain('only token, serve.token takes its hash');
  const other = await cli(['token', 'create', '--name', 'a', '--role', 'operate']);
  expect(other.stderr).not.toContain('serve.token takes');
});

test('two tokens are never the same', async () => {
  const { cli } = await setup();
  const create = ['token', 'create', '--name', 'a', '--role', 'read', '--json'];
  const [first] = (await cli(create)).objects();
  const [second] = (await cli(create)).objects();
  expect(first).toMatchObject({ id: 'a', role: 'read', sha256: sha256(String(first?.['token'])) });
  expect(second?.['token']).not.toBe(first?.['token']);
});

test('the hash of a token from stdin leaves its line end out', async () => {
  const { cli } = await setup();
  const ran = await cli(['token', 'hash'], { stdin: 'rsp_abc\n' });
  expect(ran).toMatchObject({ code: 0, stdout: `${sha256('rsp_abc')}\n` });
  const named = ['token', 'hash', '--name', 'ci', '--role', 'admin'];
  expect((await cli(named, { stdin: 'rsp_abc' })).stderr).toContain('"name": "ci"');
});

test.each([
  ['nothing', ''],
  ['two lines', 'one\ntwo\n'],
  ['a blank', 'one two'],
  ['too much', 'x'.repeat(2_000)],
])('%s on stdin is no token, and is not repeated', async (_, stdin) => {
  const { cli } = await setup();
  const ran = await cli(['token', 'hash'], { stdin });
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  if (stdin !== '') expect(ran.stderr).not.toContain(stdin.trim());
});

test.each([
  [['--role', 'post'], /needs a name and a role/],
  [['--name', 'shop'], /needs a name and a role/],
  [['--name', 'a b', '--role', 'post'], /cannot use "a b" as --name/],
  [['--name', 'shop', '--role', 'king'], /post, read, operate, admin/],
])('token create %j is wrong usage', async (options, text) => {
  const { cli } = await setup();
  const ran = await cli(['token', 'create', ...options]);
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  expect(ran.stderr).toMatch(text);
});

test.each(['post', 'read', 'operate', 'admin'])(
  'what is printed for the role %s has one line with a hash, which YAML reads as an entry',
  async (role) => {
    const { cli } = await setup();
    const ran = await cli(['token', 'create', '--name', 'ann', '--role', role]);
    // As `grep sha256 | sed 's/^ */- /'` of docs/how-to/secure-the-service.md takes it.
    const lines = ran.stderr.split('\n').filter((line) => line.includes('sha256'));
    const entries = lines.map((line) => line.replace(/^ */, '- '));
    expect(parse(entries.join('\n'))).toEqual([
      { name: 'ann', role, sha256: sha256(ran.stdout.trim()) },
    ]);
  },
);
