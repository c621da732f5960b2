/** session — on the store itself, or through the service that owns it. */
import { createHash } from 'node:crypto';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { setup, type Shell } from './setup.ts';

async function serve(shell: Shell, ...words: string[]): Promise<string> {
  const service = shell.start(['serve', ...words]);
  onTestFinished(async () => {
    service.signal('SIGTERM');
    await service.ended;
  });
  const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
  return url;
}

test('a store of files is used through the service that owns it, and else directly', async () => {
  const shell = await setup();
  const store = ['--store', 'file:./spool'];
  const alone = await shell.cli(['enqueue', 'a', '--body', 'x', '--verbose', ...store]);
  expect(alone).toMatchObject({ code: 0 });
  expect(alone.stderr).toMatch(/on the store itself: file /);
  const url = await serve(shell, '--port', '0', ...store);
  const served = await shell.cli(['list', '--json', '--verbose', ...store]);
  expect(served.objects()).toHaveLength(1);
  expect(served.stderr).toContain(`through the service at ${url}`);
});

test('a store of files whose owner is no service cannot be used, and says so', async () => {
  const shell = await setup();
  const { filesystem, filesystemBodies } = await import('respool/stores/filesystem');
  const at = (name: string): string => path.join(shell.folder, 'spool', name);
  const own = shell.spool({
    entries: filesystem({ path: at('entries') }),
    bodies: filesystemBodies({ path: at('bodies') }),
  });
  await own.enqueue({ topic: 'a' });
  const ran = await shell.cli(['list', '--store', 'file:./spool', '--json']);
  expect(ran).toMatchObject({ code: 3, stdout: '' });
  expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'store.unavailable' } });
});

test('a memory store lives in the service only: found there, or a sentence', async () => {
  const shell = await setup();
  const file = path.join(shell.folder, 'respool.config.json');
  await writeFile(file, '{"store":"memory:","serve":{"port":1}}');
  const alone = await shell.cli(['list']);
  expect(alone).toMatchObject({ code: 3, stdout: '' });
  expect(alone.stderr).toMatch(/it lives inside respool serve only, and no service answers at/);
  const url = await serve(shell, '--port', '0');
  await writeFile(file, `{"store":"memory:","serve":{"port":${new URL(url).port}}}`);
  expect((await shell.cli(['enqueue', 'a', '--body', 'x'])).code).toBe(0);
  expect((await shell.cli(['list', '--json'])).objects()).toHaveLength(1);
});

test('the service of another store is not taken for that of a memory store', async () => {
  const other = await setup();
  const url = await serve(other, '--port', '0');
  const shell = await setup();
  const config = JSON.stringify({ store: 'memory:', serve: { port: Number(new URL(url).port) } });
  await writeFile(path.join(shell.folder, 'respool.config.json'), config);
  for (const words of [['remove', 'ALL', '--hard', '--yes'], ['list'], ['events']]) {
    const ran = await shell.cli(words);
    expect(ran).toMatchObject({ code: 3, stdout: '' });
    expect(ran.stderr).toContain(`the service at ${url} has another store open, not "memory:"`);
  }
});

test('events of a store that is given are not read from the service of another store', async () => {
  const url = await serve(await setup(), '--port', '0', '--store', 'memory:');
  const shell = await setup();
  const config = `
    import { memory, memoryBodies } from 'respool/stores/memory';
    export default {
      entries: memory(), bodies: memoryBodies(), serve: { port: ${new URL(url).port} },
    };`;
  await writeFile(path.join(shell.folder, 'respool.config.mjs'), config);
  const ran = await shell.cli(['events']);
  expect(ran).toMatchObject({ code: 3, stdout: '' });
  expect(ran.stderr).toContain('has another store open');
});

test('the token comes from RESPOOL_TOKEN, and without it the service refuses', async () => {
  const shell = await setup();
  const file = path.join(shell.folder, 'respool.config.json');
  const token = 'a-token-of-some-length';
  const hash = `sha256:${createHash('sha256').update(token).digest('hex')}`;
  await writeFile(file, JSON.stringify({ store: 'memory:', serve: { token: hash } }));
  const url = await serve(shell, '--port', '0');
  const elsewhere = await setup();
  const words = ['list', '--url', url, '--json'];
  const refused = await elsewhere.cli(words);
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).not.toContain(token);
  expect(refused.stderr).toContain('it wants a token: set RESPOOL_TOKEN');
  const wrong = await elsewhere.cli(words, { env: { RESPOOL_TOKEN: 'rsp_of-another-service' } });
  expect(wrong.stderr).toContain('it does not know the token that was sent: set RESPOOL_TOKEN');
  expect(wrong.stderr).not.toContain('authorization');
  expect((await elsewhere.cli(words, { env: { RESPOOL_TOKEN: token } })).code).toBe(0);
  // The hash opens nothing: it is not even sent.
  const hashed = await elsewhere.cli(words, { env: { RESPOOL_TOKEN: hash } });
  expect(hashed.code).not.toBe(0);
  expect(hashed.stderr).toContain('set RESPOOL_TOKEN to the token itself');
  expect(hashed.stderr).not.toContain(hash);
});

test('a store with one owner and only the hash of its token asks for RESPOOL_TOKEN', async () => {
  const shell = await setup();
  const token = 'a-token-of-some-length';
  const hash = `sha256:${createHash('sha256').update(token).digest('hex')}`;
  const config = { store: 'file:./spool', serve: { token: hash, port: 0 } };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  await serve(shell);
  for (const words of [['list'], ['list', '--json']]) {
    const ran = await shell.cli(words);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain('set RESPOOL_TOKEN to the token itself');
    expect(ran.stderr).not.toContain('authorization');
  }
  expect((await shell.cli(['list'], { env: { RESPOOL_TOKEN: token } })).code).toBe(0);
});

test('a file .env may name the service', async () => {
  const shell = await setup();
  const url = await serve(shell, '--port', '0', '--store', 'memory:');
  const other = await setup();
  await writeFile(path.join(other.folder, '.env'), `RESPOOL_URL=${url}\n`);
  expect((await other.cli(['enqueue', 'a', '--body', 'x'])).code).toBe(0);
  expect((await shell.cli(['list', '--url', url, '--json'])).objects()).toHaveLength(1);
});

test('a store of a configuration that is a program: itself, or the service that owns it', async () => {
  const shell = await setup();
  const source = `
    import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
    export default {
      entries: filesystem({ path: ${JSON.stringify(path.join(shell.folder, 'e'))} }),
      bodies: filesystemBodies({ path: ${JSON.stringify(path.join(shell.folder, 'b'))} }),
    };
  `;
  // Two files: within one process the same file would give the same store twice.
  await writeFile(path.join(shell.folder, 'respool.config.mjs'), source);
  await writeFile(path.join(shell.folder, 'other.mjs'), source);
  await linkPackage(shell.folder);
  const alone = await shell.cli(['enqueue', 'a', '--body', 'x', '--verbose']);
  expect(alone.stderr).toMatch(/on the store itself: given/);
  const url = await serve(shell, '--port', '0', '--config', 'other.mjs');
  const env = { RESPOOL_SERVE_PORT: new URL(url).port };
  const served = await shell.cli(['list', '--json', '--verbose'], { env });
  expect(served.objects()).toHaveLength(1);
  expect(served.stderr).toContain(`through the service at ${url}`);
});

async function linkPackage(folder: string): Promise<void> {
  const { symlink } = await import('node:fs/promises');
  await mkdir(path.join(folder, 'node_modules'));
  const root = path.join(import.meta.dirname, '../..');
  await symlink(root, path.join(folder, 'node_modules', 'respool'));
}

test.each(['sqlite:./none', 'file:./none'])(
  'a look at %s, where there is no store, makes none and says where it looked',
  async (store) => {
    const { cli, folder } = await setup();
    for (const line of ['list', 'stats', 'retry ALL --yes', 'check', 'resume ALL']) {
      const words = line.split(' ');
      const ran = await cli([...words, '--store', store]);
      expect(ran).toMatchObject({ code: 3, stdout: '' });
      expect(ran.stderr).toMatch(/there is no Respool store in "\S+none.*--config or --store/);
    }
    expect(await readdir(folder)).toEqual([]);
    expect((await cli(['enqueue', 'a', '--body', 'x', '--store', store])).code).toBe(0);
    expect((await cli(['list', '--json', '--store', store])).objects()).toHaveLength(1);
  },
);

test('a folder of something else is no store for a look, and nothing is made in it', async () => {
  const { cli, folder } = await setup();
  await mkdir(path.join(folder, 'photos/entries'), { recursive: true });
  await writeFile(path.join(folder, 'photos/readme'), 'holidays');
  await writeFile(path.join(folder, 'photos/entries/readme'), 'of a competition');
  for (const store of ['sqlite:./photos', 'file:./photos']) {
    const ran = await cli(['list', '--store', store]);
    expect(ran).toMatchObject({ code: 3, stdout: '' });
    expect(ran.stderr).toMatch(/there is no Respool store in "\S+photos/);
  }
  expect((await readdir(path.join(folder, 'photos'))).toSorted()).toEqual(['entries', 'readme']);
  expect(await readdir(path.join(folder, 'photos/entries'))).toEqual(['readme']);
});

test.each(['sqlite:./package.json', 'file:./package.json', 'sqlite:./spool.db'])(
  'the file %s is no store, for a look and for an enqueue',
  async (store) => {
    const { cli, folder } = await setup();
    await writeFile(path.join(folder, 'package.json'), '{}');
    for (const words of [['list'], ['enqueue', 'a', '--body', 'x'], ['serve', '--port', '0']]) {
      const ran = await cli([...words, '--store', store]);
      expect(ran).toMatchObject({ code: 3, stdout: '' });
      expect(ran.stderr).toMatch(/it is a file, and a Respool store is a folder; name the folder/);
      expect(ran.stderr).not.toContain('backup');
    }
    expect(await readdir(folder)).toEqual(['package.json']);
  },
);

test('the file inside a store that is named as the store leads to its folder', async () => {
  const { cli, folder } = await setup({ hasStore: true });
  const ran = await cli(['list', '--store', 'sqlite:./respool/respool.db']);
  expect(ran.code).toBe(3);
  expect(ran.stderr).toContain(`such as sqlite:${path.join(folder, 'respool')}`);
});

test('an address in a lock that nobody holds any more is not believed', async () => {
  const shell = await setup();
  const store = ['--store', 'file:./spool'];
  expect((await shell.cli(['enqueue', 'a', '--body', 'x', ...store])).code).toBe(0);
  // Another spool answers there by now; what is removed must not be removed from it.
  const other = await serve(shell, '--port', '0', '--store', 'memory:');
  const note = path.join(shell.folder, 'spool/entries/lock.owner');
  await writeFile(note, `process 1, whose service is at ${other}\n`);
  const listed = await shell.cli(['list', '--json', '--verbose', ...store]);
  expect(listed.objects()).toHaveLength(1);
  expect(listed.stderr).toContain('on the store itself');
});

test('a store that is named goes before a service that the environment names', async () => {
  const shell = await setup();
  const url = await serve(shell, '--port', '0', '--store', 'memory:');
  const env = { RESPOOL_URL: url };
  const own = ['--store', 'sqlite:./own'];
  expect((await shell.cli(['enqueue', 'a', '--body', 'x', '--url', url])).code).toBe(0);
  expect((await shell.cli(['enqueue', 'b', '--body', 'x', ...own], { env })).code).toBe(0);
  expect((await shell.cli(['remove', 'ALL', '--yes', ...own], { env })).stdout).toContain('1');
  expect((await shell.cli(['list', '--json'], { env })).objects()).toMatchObject([
    { envelope: { topic: 'a' }, status: { state: 'incoming' } },
  ]);
  const both = await shell.cli(['list', '--url', url, ...own]);
  expect(both).toMatchObject({ code: 2, stdout: '' });
  expect(both.stderr).toMatch(/cannot use --store together with --url/);
});

test('events ask the service of their own store, and no other', async () => {
  const shell = await setup();
  const { port } = new URL(await serve(shell, '--port', '0', '--store', 'memory:'));
  const config = { store: 'sqlite:./own', serve: { port: Number(port) } };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  expect((await shell.cli(['enqueue', 'a', '--body', 'x'])).code).toBe(0);
  const ran = await shell.cli(['events']);
  expect(ran).toMatchObject({ code: 3, stdout: '' });
  expect(ran.stderr).toMatch(/no service has the store "\S+own" open/);
});
