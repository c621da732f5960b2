/** config — shown with its origins, checked, and changed. */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { setup, type Shell } from './setup.ts';

async function configured(text: string): Promise<Shell & { readonly file: string }> {
  const shell = await setup();
  const file = path.join(shell.folder, 'respool.config.yaml');
  await writeFile(file, text);
  return { ...shell, file };
}

test('every value says where it came from: flag, file, environment or default', async () => {
  const { cli, file } = await configured('lease: 30s\nserve: { port: 8000 }\n');
  const env = { RESPOOL_POLL: '5s', RESPOOL_SERVE_PORT: '9000' };
  const { objects } = await cli(['config', '--json', '--store', 'file:./here'], { env });
  const lines = new Map(objects().map(({ id, ...rest }) => [id, rest]));
  expect(lines.get('store')).toEqual({ value: 'file:./here', from: 'flag --store' });
  expect(lines.get('lease')).toEqual({ value: '30s', from: `file ${file}` });
  expect(lines.get('serve.port')).toEqual({ value: 8000, from: `file ${file}` });
  expect(lines.get('poll')).toEqual({ value: '5s', from: 'environment RESPOOL_POLL' });
  expect(lines.get('settle')).toEqual({ value: 'lazy', from: 'default' });
});

test('show is what config does, as a table with the file above it', async () => {
  const { cli, file } = await configured('lease: 30s\n');
  const ran = await cli(['config']);
  expect(ran.stderr).toBe(`file: ${file}\n`);
  expect(ran.stdout).toMatch(/^key +value +from\n/);
  expect(ran.stdout).toMatch(/^lease +30s +file$/m);
  expect((await cli(['config', 'show'])).stdout).toBe(ran.stdout);
});

test('no secret is printed, in no form', async () => {
  const env = { THE_TOKEN: 'canary-token-1234567890' };
  const { cli } = await configured(
    [
      'serve: { token: "${THE_TOKEN}" }',
      'routes:',
      '  - topic: a',
      '    deliver: { http: { url: "https://example.com/?key=canary-key-123456" } }',
    ].join('\n'),
  );
  for (const argv of [['config'], ['config', '--json'], ['config', 'check', '--verbose']]) {
    const { code, stdout, stderr } = await cli(argv, { env });
    expect(code, argv.join(' ')).toBe(0);
    expect(stdout + stderr).not.toContain('canary');
  }
});

test('check says ok, or what is wrong with which key', async () => {
  const { cli, file } = await configured('lease: 30s\n');
  expect(await cli(['config', 'check'])).toMatchObject({ code: 0, stdout: `ok: ${file}\n` });
  expect((await cli(['config', 'check', '--json'])).objects()).toEqual([
    { ok: true, file, warnings: [] },
  ]);
  await writeFile(file, 'lease: 1ms\n');
  const ran = await cli(['config', 'check']);
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  expect(ran.stderr).toContain('"lease"');
});

test('set changes one key and keeps the comments', async () => {
  const { cli, file } = await configured('# ours\nlease: 30s\nentries: sqlite:./a\n');
  const ran = await cli(['config', 'set', 'store', 'file:./there']);
  expect(ran).toMatchObject({ code: 0, stdout: `store is file:./there in ${file}\n` });
  expect(ran.stderr).toContain('took out entries');
  const text = await readFile(file, 'utf8');
  expect(text).toContain('# ours');
  expect(text).toContain('store: file:./there');
  expect(text).not.toContain('entries');
});

test('set writes nothing that would be wrong, and only what can be set', async () => {
  const { cli, file } = await configured('lease: 30s\n');
  for (const words of [
    ['store', 'nonsense:x'],
    ['lease', '10s'],
    ['transforms', 'gz'],
    ['seal', '{}'],
  ]) {
    expect((await cli(['config', 'set', ...words])).code, words.join(' ')).toBe(2);
  }
  const twice = await cli(['config', 'set', 'store', 'file:./a', '--store', 'file:./b']);
  expect(twice).toMatchObject({ code: 2 });
  expect(await readFile(file, 'utf8')).toBe('lease: 30s\n');
});

test('set transforms takes the name of a codec, or a list in JSON', async () => {
  const { cli, file } = await configured('lease: 30s # ours\n');
  const ran = await cli(['config', 'set', 'transforms', 'zstd']);
  expect(ran).toMatchObject({ code: 0, stdout: `transforms is zstd in ${file}\n` });
  expect(ran.stderr).toContain('continues as before until');
  expect(await readFile(file, 'utf8')).toBe('lease: 30s # ours\ntransforms: zstd\n');
  const list = '["gzip", {"encrypt": {"keys": {"k1": "env:K1"}}}]';
  expect((await cli(['config', 'set', 'transforms', list])).code).toBe(0);
  const { objects } = await cli(['config', '--json']);
  expect(objects().filter(({ id }) => String(id).startsWith('transforms'))).toMatchObject([
    { id: 'transforms[0]', value: 'gzip' },
    { id: 'transforms[1].encrypt.keys.k1', value: 'env:K1' },
  ]);
});

test('set mends the value that made the configuration wrong', async () => {
  const { cli, folder } = await setup();
  const file = path.join(folder, 'respool.config.yaml');
  await writeFile(file, '# mine\nstore: nonsense:./x\n');
  expect((await cli(['config', 'check'])).code).toBe(2);
  expect((await cli(['config', 'set', 'store', 'sqlite:./x'])).code).toBe(0);
  expect(await readFile(file, 'utf8')).toBe('# mine\nstore: sqlite:./x\n');
  expect((await cli(['config', 'check'])).code).toBe(0);
});

test('set makes a file where there is none', async () => {
  const { cli, folder } = await setup();
  expect((await cli(['config', 'set', 'bodies', 'file:./bodies'])).code).toBe(0);
  const text = await readFile(path.join(folder, 'respool.config.yaml'), 'utf8');
  expect(text).toBe('bodies: file:./bodies\n');
});

test('what follows config and is no command of it is wrong usage', async () => {
  const { cli } = await setup();
  expect((await cli(['config', 'nonsense'])).code).toBe(2);
});
