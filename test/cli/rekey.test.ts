/** rekey — counts, asks, and brings what is stored to the encryption of today. */
import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { encrypt, generateKey } from 'respool/transforms';
import { describe, expect, onTestFinished, test } from 'vitest';
import { setup, type Shell } from './setup.ts';
import { person } from './steering.ts';
import { systemClock } from '../time.ts';

const K1 = generateKey();

/** A store with bodies under the first key, and a configuration that writes with the second. */
async function changed() {
  const shell = await setup();
  const spool = shell.spool({ transforms: [encrypt({ keys: { k1: K1 } })] });
  for (const id of ['one', 'two']) await spool.enqueue({ id, topic: 'a', body: `body of ${id}` });
  await spool.stop();
  await writeFile(path.join(shell.folder, 'k1.key'), K1);
  await writeFile(path.join(shell.folder, 'k2.key'), generateKey());
  await configure(shell, { k1: 'file:k1.key', k2: 'file:k2.key' }, 'k2');
  return shell;
}

async function configure({ folder }: Shell, keys: object, primary: string): Promise<void> {
  const config = { transforms: [{ encrypt: { keys, primary } }], serve: { port: 0 } };
  await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(config));
}

async function encodings({ cli }: Shell): Promise<unknown[]> {
  const { objects } = await cli(['list', '--json']);
  return objects().map(
    ({ envelope }) => (envelope as { body: { encodings: string[] } }).body.encodings[0],
  );
}

test('a dry run counts and changes nothing', async () => {
  const shell = await changed();
  const dry = await shell.cli(['rekey', '--dry-run']);
  expect(dry).toMatchObject({ code: 0, stdout: 'would rekey 2 messages\n' });
  expect((await shell.cli(['rekey', '--dry-run', '--json'])).objects()).toEqual([
    { action: 'rekey', count: 2, dryRun: true },
  ]);
  expect(await encodings(shell)).toEqual(['aes-256-gcm;key=k1', 'aes-256-gcm;key=k1']);
});

test('it asks, and a no changes nothing', async () => {
  const shell = await changed();
  const no = person(false);
  expect((await shell.cli(['rekey'], no.options)).code).toBe(4);
  expect(no.questions).toEqual(['rekey 2 messages?']);
  expect((await shell.cli(['rekey'])).code).toBe(4);
  expect(await encodings(shell)).toEqual(['aes-256-gcm;key=k1', 'aes-256-gcm;key=k1']);
});

test('afterwards everything is under the new key, readable without the old one', async () => {
  const shell = await changed();
  expect(await shell.cli(['rekey', '--yes'])).toMatchObject({ code: 0, stdout: 'rekeyed 2\n' });
  expect(await encodings(shell)).toEqual(['aes-256-gcm;key=k2', 'aes-256-gcm;key=k2']);
  await configure(shell, { k2: 'file:k2.key' }, 'k2');
  expect((await shell.cli(['cat', 'one'])).stdout).toBe('body of one');
  const again = await shell.cli(['rekey', '--yes']);
  expect(again.stdout).toBe('everything is encrypted as it should be; nothing to do\n');
  expect((await shell.cli(['audit', '--json'])).objects()).toMatchObject([
    { action: 'rekey', by: 'tester@cli', details: { count: 2 } },
  ]);
});

test('what takes long shows a bar on the terminal', async () => {
  const shell = await changed();
  let now = 0;
  const clock = { ...systemClock, monotonic: (): number => (now += 1_000) };
  const ran = await shell.cli(['rekey', '--yes'], { clock, tty: ['stderr'] });
  expect(ran.stderr).toContain(`\r[${'#'.repeat(24)}] 2 of 2 `);
  expect(ran.stderr.endsWith('\r\u001b[K')).toBe(true);
});

test('a body whose key is gone is named, and the exit code is 1', async () => {
  const shell = await changed();
  await rm(path.join(shell.folder, 'k1.key'));
  const ran = await shell.cli(['rekey', '--yes']);
  expect(ran).toMatchObject({
    code: 1,
    stdout: 'rekeyed 0, cannot read 2: add their keys, and run it again\n',
  });
  expect(ran.stderr).toContain('one: ');
  expect(ran.stderr).toContain('k1');
  const json = await shell.cli(['rekey', '--yes', '--json']);
  expect(json.objects()).toMatchObject([
    { action: 'rekey', count: 2, unreadable: 2, troubles: [{ code: 'key.unavailable' }, {}] },
  ]);
});

test('with a seal it says which records keep the old key', async () => {
  expect((await (await changed()).cli(['rekey', '--yes'])).stderr).toBe('');
  const shell = await changed();
  const file = path.join(shell.folder, 'respool.config.json');
  const config = JSON.parse(await readFile(file, 'utf8')) as object;
  await writeFile(file, JSON.stringify({ ...config, seal: { keys: { s1: 'file:k1.key' } } }));
  const ran = await shell.cli(['rekey', '--yes']);
  expect(ran).toMatchObject({ code: 0, stdout: 'rekeyed 2\n' });
  expect(ran.stderr).toContain('The audit record and pauses keep the key of the seal');
});

test('without the key that writes nothing is begun, and the exit code is 3', async () => {
  const shell = await changed();
  await rm(path.join(shell.folder, 'k2.key'));
  const ran = await shell.cli(['rekey', '--yes', '--json']);
  expect(ran).toMatchObject({ code: 3, stdout: '' });
  expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'key.unavailable' } });
  // Who only looks needs no key at all.
  expect((await shell.cli(['list', '--json'])).objects()).toHaveLength(2);
});

describe('through a service', () => {
  test('it does the same', async () => {
    const shell = await changed();
    const service = shell.start(['serve', '--port', '0']);
    onTestFinished(async () => {
      service.signal('SIGTERM');
      await service.ended;
    });
    const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
    const elsewhere = await setup();
    const yes = person(true);
    const ran = await elsewhere.cli(['rekey', '--url', url], yes.options);
    expect(yes.questions).toEqual(['rekey 2 messages?']);
    expect(ran).toMatchObject({ code: 0, stdout: 'rekeyed 2\n' });
    expect(await encodings(shell)).toEqual(['aes-256-gcm;key=k2', 'aes-256-gcm;key=k2']);
  });
});

test('show tells what was done to a body, and what it takes', async () => {
  const shell = await changed();
  const { stdout } = await shell.cli(['show', 'one']);
  expect(stdout).toMatch(/^body +11 bytes$/m);
  expect(stdout).toMatch(/^stored +\d+ bytes, aes-256-gcm;key=k1$/m);
  expect(stdout).toMatch(/^digest +hmac-sha256:/m);
});
