/** Compressed, encrypted and sealed, by the real binary: what lies on the disk, and what arrives. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { generateKey } from 'respool/transforms';
import { expect, test } from 'vitest';
import { folder, receiver, respool, route, serve, until } from './binary.ts';

const BODY = 'canary-body '.repeat(5_000);
const HEADER = 'canary-header-0123456789';

/** Every byte below a folder, as text. */
async function everything(below: string): Promise<string> {
  const found = await readdir(below, { recursive: true, withFileTypes: true });
  const files = found.filter((one) => one.isFile());
  const texts = files.map((one) => readFile(path.join(one.parentPath, one.name), 'latin1'));
  return (await Promise.all(texts)).join('\n');
}

async function newKey(cwd: string): Promise<string> {
  return (await respool(cwd, ['keys', 'generate', '--quiet'])).stdout.trim();
}

test('bodies arrive as they were, and neither they, headers nor keys can be found on the disk', async () => {
  const arrived: string[] = [];
  let isOpen = false;
  const { url } = await receiver((request, response) => {
    void text(request).then((body) => {
      if (isOpen) arrived.push(body);
      response.writeHead(isOpen ? 200 : 503).end();
    });
  });
  const config = (primary: string): object => ({
    store: 'file:./spool',
    policies: { default: { fixed: { delay: '1h', attempts: 5 } } },
    transforms: ['zstd', { encrypt: { keys: { k1: 'env:K1', k2: 'env:K2' }, primary } }],
    seal: { keys: { s1: 'env:S1' } },
    routes: [route('a', url)],
  });
  const cwd = await folder(config('k1'));
  const keys = [await newKey(cwd), generateKey(), generateKey()];
  const [k1 = '', k2 = '', s1 = ''] = keys;
  await writeFile(path.join(cwd, '.env'), `K1=${k1}\nK2=${k2}\nS1=${s1}\n`, { mode: 0o600 });
  let service = await serve(cwd);
  for (const body of [BODY, 'canary-body, small']) {
    const headers = { 'respool-header-note': HEADER };
    const posted = await fetch(`${service.url}/v1/topics/a/messages`, {
      method: 'POST',
      body,
      headers,
    });
    expect(posted.status).toBe(201);
  }
  await service.prints(/"kind":"deferred"[^]*"kind":"deferred"/);
  service.kill('SIGTERM');
  await service.ended;
  const onDisk = await everything(path.join(cwd, 'spool'));
  expect(onDisk).not.toContain('canary');

  // Another key from now on, also for what is there, while the service owns the store.
  await writeFile(path.join(cwd, 'respool.config.json'), JSON.stringify(config('k2')));
  service = await serve(cwd);
  expect(await respool(cwd, ['rekey', '--yes'])).toMatchObject({ code: 0, stdout: 'rekeyed 2\n' });
  const listed = (await respool(cwd, ['list', '--json'])).stdout.trim().split('\n');
  for (const line of listed) {
    const { envelope } = JSON.parse(line) as { envelope: { body: { encodings: string[] } } };
    expect(envelope.body.encodings[1]).toBe('aes-256-gcm;key=k2');
  }
  isOpen = true;
  expect((await respool(cwd, ['retry', 'ALL', '--yes'])).code).toBe(0);
  await until(async () => arrived.length === 2);
  expect(arrived.toSorted()).toEqual([BODY, 'canary-body, small'].toSorted());
  const words = [['config', '--json'], ['doctor']];
  const shown = await Promise.all(words.map((one) => respool(cwd, one)));
  service.kill('SIGTERM');
  await service.ended;
  const printed = shown.map(({ stdout, stderr }) => stdout + stderr).join('\n');
  expect(printed).toContain('env:K1');
  for (const key of keys) {
    expect(key).toHaveLength(44);
    expect(printed + service.printed()).not.toContain(key);
    expect(await everything(path.join(cwd, 'spool'))).not.toContain(key);
  }
});

test('without its key the service does not start, and says which one is missing', async () => {
  const cwd = await folder({ transforms: { encrypt: { keys: { k1: 'env:NOT_SET_KEY' } } } });
  const ran = await respool(cwd, ['serve', '--port', '0']);
  expect(ran.code).toBe(3);
  expect(ran.stderr).toContain('cannot get key "k1" of encrypt');
  expect(ran.stderr).toContain('NOT_SET_KEY');
});
