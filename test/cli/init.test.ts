/** init — a first configuration and a receiver, never over what is there. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { freePort } from '../service/binary.ts';
import { setup, type Shell } from './setup.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const MAIN = path.join(ROOT, 'src/cli/main.ts');

test.each(['yaml', 'json', 'mjs'])('a configuration in %s is right as it is', async (format) => {
  const { cli, folder } = await setup();
  const ran = await cli(['init', '--format', format, '--receiver-port', '7070']);
  expect(ran.code).toBe(0);
  expect(await readdir(folder)).toEqual(['receiver.mjs', `respool.config.${format}`]);
  const { config, warnings } = await loadConfig({ cwd: folder, env: {} });
  expect(warnings).toEqual([]);
  expect(config).toMatchObject({
    store: 'sqlite:./respool',
    policies: { default: { maxAttempts: 20, backoff: { kind: 'exponential', firstMs: 5_000 } } },
    routes: [{ topic: 'order.*', concurrency: 10 }],
  });
  const [route] = config.routes;
  expect(
    route !== undefined && 'describe' in route.deliver && route.deliver.describe(),
  ).toMatchObject({
    url: 'http://127.0.0.1:7070/',
    allow: ['127.0.0.1'],
  });
});

test.each([
  ['module', 'respool.config.ts'],
  ['commonjs', 'respool.config.mts'],
])('where respool can be imported it is TypeScript, in a %s package %s', async (type, name) => {
  const { cli, folder } = await setup();
  await writeFile(path.join(folder, 'package.json'), JSON.stringify({ type }));
  await installed(folder);
  await cli(['init', '--config-only']);
  const words = ['--conditions=respool-source', MAIN, 'config', 'check'];
  const { stdout } = await promisify(execFile)(process.execPath, words, { cwd: folder });
  expect(stdout).toMatch(new RegExp(`^ok: .*/${name}\n$`));
});

test('without the package it is YAML, and --config-only leaves the receiver out', async () => {
  const { cli, folder } = await setup();
  const { stdout } = await cli(['init', '--config-only']);
  expect(await readdir(folder)).toEqual(['respool.config.yaml']);
  expect(stdout).not.toContain('receiver');
});

test('a program where respool is not installed says what to install', async () => {
  const { cli } = await setup();
  expect((await cli(['init', '--format', 'ts'])).stderr).toContain('npm install respool');
  expect((await cli(['init', '--format', 'mjs', '--force'])).stderr).toBe('');
});

test('the next commands are printed, one for each end of a message', async () => {
  const { cli } = await setup();
  const { stdout } = await cli(['init']);
  const commands = stdout.split('\n').filter((line) => line.startsWith('  '));
  expect(commands.map((line) => line.trim().replaceAll(/ +/g, ' '))).toEqual([
    'node receiver.mjs',
    'npx respool serve',
    `curl -d '{"customer":"ann"}' localhost:7667/v1/topics/order.new/messages # delivered`,
    `curl -d '{"customer":"busy"}' localhost:7667/v1/topics/order.new/messages # deferred twice, then delivered`,
    `curl -d '{"customer":"gone"}' localhost:7667/v1/topics/order.new/messages # bounced`,
    'npx respool list',
    'npx respool shape',
  ]);
});

test('what is there is never overwritten, also under another ending', async () => {
  const { cli, folder } = await setup();
  await writeFile(path.join(folder, 'respool.config.json'), '{}');
  const ran = await cli(['init', '--format', 'yaml']);
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  expect(ran.stderr).toContain('already there: respool.config.json');
  expect(await readdir(folder)).toEqual(['respool.config.json']);
});

test('--force replaces it and keeps what was there, however often', async () => {
  const { cli, folder } = await setup();
  const read = (name: string): Promise<string> => readFile(path.join(folder, name), 'utf8');
  await writeFile(path.join(folder, 'respool.config.yaml'), '# first\n');
  const { objects } = await cli(['init', '--format', 'yaml', '--force', '--json']);
  expect(objects()).toEqual([
    { id: 'respool.config.yaml', kept: 'respool.config.yaml.bak' },
    { id: 'receiver.mjs' },
  ]);
  expect(await read('respool.config.yaml.bak')).toBe('# first\n');
  await writeFile(path.join(folder, 'respool.config.yaml'), '# second\n');
  await cli(['init', '--format', 'json', '--force']);
  expect(await read('respool.config.yaml.bak')).toBe('# first\n');
  expect(await read('respool.config.yaml.bak2')).toBe('# second\n');
  expect((await cli(['config', 'check'])).code).toBe(0);
});

test('a .gitignore that is there gets the folder of the store, once', async () => {
  const { cli, folder } = await setup();
  const file = path.join(folder, '.gitignore');
  await writeFile(file, 'node_modules');
  expect((await cli(['init'])).stdout).toContain('added /respool/ to .gitignore');
  expect(await readFile(file, 'utf8')).toBe('node_modules\n/respool/\n');
  await cli(['init', '--force']);
  expect(await readFile(file, 'utf8')).toBe('node_modules\n/respool/\n');
});

test('a folder that cannot be written to is a sentence, and ends with 2', async () => {
  const { cli, folder } = await setup();
  await rm(folder, { recursive: true });
  const ran = await cli(['init', '--format', 'yaml']);
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  expect(ran.stderr).toMatch(/^respool: cannot begin in ".*": ENOENT.*a folder you may write to/);
});

test('a receiver whose port is in use says so in a sentence', async () => {
  const { cli, folder } = await setup();
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  await cli(['init', '--format', 'yaml', '--receiver-port', String(port)]);
  const child = spawn(process.execPath, ['receiver.mjs'], { cwd: folder, timeout: 240_000 });
  const said = await text(child.stderr);
  expect(said).toBe(`port ${port} is in use; take another: node receiver.mjs PORT\n`);
});

test('a port that is none is wrong usage', async () => {
  const { cli, folder } = await setup();
  expect((await cli(['init', '--receiver-port', '0'])).code).toBe(2);
  expect(await readdir(folder)).toEqual([]);
});

test('what init wrote delivers, defers and bounces', async () => {
  const shell = await setup();
  const port = await freePort();
  await shell.cli(['init', '--format', 'yaml', '--receiver-port', String(port)]);
  const receiver = await startReceiver(shell);
  const serving = shell.start(['serve', '--port', '0']);
  const [url = ''] = await serving.printed(/http:\/\/127\.0\.0\.1:(?!7667|0\b)\d+/);
  for (const customer of ['ann', 'busy', 'gone']) {
    const answer = await fetch(`${url}/v1/topics/order.new/messages`, {
      method: 'POST',
      body: JSON.stringify({ customer }),
    });
    expect(answer.status, customer).toBe(201);
  }
  const answers = new Map<string, string>();
  for await (const line of receiver) {
    const [, body = '', status = ''] = /^attempt 1: (.+) -> (\d+)$/.exec(line) ?? [];
    answers.set((JSON.parse(body) as { customer: string }).customer, status);
    if (answers.size === 3) break;
  }
  expect(Object.fromEntries(answers)).toEqual({ ann: '200', busy: '503', gone: '410' });
  serving.signal('SIGTERM');
  expect((await serving.ended).code).toBe(0);
  const { objects } = await shell.cli(['list', '--json']);
  const states = objects().map(({ status }) => (status as { state: string }).state);
  expect(states.toSorted()).toEqual(['bounce', 'deferred']);
});

/** As npm install would leave it. */
async function installed(folder: string): Promise<void> {
  const target = path.join(folder, 'node_modules', 'respool');
  await mkdir(path.dirname(target), { recursive: true });
  await symlink(ROOT, target);
}

/** The receiver as a process; its lines after the first, which says that it listens. */
async function startReceiver({ folder }: Shell): Promise<AsyncIterableIterator<string>> {
  const child: ChildProcess = spawn(process.execPath, ['receiver.mjs'], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(async () => {
    child.kill();
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  });
  if (child.stdout === null) throw new Error('no stdout');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const { value } = await lines.next();
  expect(value).toMatch(/^receiver on http:\/\/127\.0\.0\.1:\d+$/);
  return lines;
}
