/** The examples that are configurations: `npm start`, and messages without code. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { folder, freePort, respool, serve, until } from './binary.ts';

const ROOT = path.join(import.meta.dirname, '../..');

test('npm start shows messages delivered, deferred and bounced, and what to try next', async () => {
  const port = await freePort();
  const cwd = await folder();
  const child = spawn(
    process.execPath,
    [
      '--conditions=respool-source',
      path.join(ROOT, 'examples/quickstart/start.ts'),
      '--store',
      `sqlite:${cwd}`,
    ],
    { cwd, env: { ...process.env, RESPOOL_SERVE_PORT: String(port), NO_COLOR: '1' } },
  );
  onTestFinished(() => {
    child.kill('SIGTERM');
  });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    printed += part;
  });
  await until(async () => printed.includes('npx respool shape'));
  // Who the receivers are and how they behave is said first, and the lines name the customer.
  expect(printed).toMatch(/^Nine customers .*\n.*ann, carl, dora +accept it at once\n/);
  expect(printed).toMatch(/ ann-\w+ delivered topic=order\.new attempt=1/);
  expect(printed).toMatch(
    / busy-bob-\w+ deferred topic=order\.new attempt=1 wait=[\d.]+m?s next=[\d:.]+Z code=http\.503/,
  );
  expect(printed).toMatch(/ busy-bob-\w+ delivered topic=order\.new attempt=3/);
  expect(printed).toMatch(/ gone-gus-\w+ bounced topic=order\.new attempt=1 code=http\.410/);
  expect(printed).toMatch(/npx respool list .*\n {2}npx respool shape .*\n.*show .*\n {2}curl -d/);
  // Regression: the line that the service itself prints ended the receiver, and everything with it.
  const posted = await fetch(`http://127.0.0.1:${port}/v1/topics/order.new/messages`, {
    method: 'POST',
    body: '{"hello":1}',
  });
  const { id } = (await posted.json()) as Listed;
  await until(async () => new RegExp(`${id} delivered`).test(printed));
  const store = ['--store', `sqlite:${cwd}`];
  const lookAround = async (): Promise<void> => {
    const listed = await respool(cwd, ['list', '--state', 'deferred,bounce', ...store]);
    expect(listed.stdout.match(/down-d\w+-\w+ +deferred|gone-gus-\w+ +bounce/g)).toHaveLength(4);
    const shaped = await respool(cwd, ['shape', ...store]);
    expect(shaped.stdout).toMatch(/TOTAL +3 .*\norder\.new +2 .*\ninvoice\.new +1 /);
  };
  await lookAround();
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  expect((await ended)[0]).toBe(0);
  await lookAround();
});

test.each<[string, (socket: Socket) => unknown]>([
  ['does not answer', () => undefined],
  ['closes connections', (socket) => socket.destroy()],
  ['answers in another protocol', (socket) => socket.end('SSH-2.0-x\r\n')],
])('npm start says so when its port is taken by something that %s', async (_, onConnect) => {
  const taken = createServer((socket) => void onConnect(socket.on('error', () => undefined)));
  taken.listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const file = path.join(ROOT, 'examples/quickstart/start.ts');
  const child = spawn(process.execPath, ['--conditions=respool-source', file], {
    cwd: await folder(),
    env: { ...process.env, RESPOOL_SERVE_PORT: String(port) },
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (part: string) => (said += part));
  const [code] = (await once(child, 'exit')) as [number];
  expect(code).toBe(2);
  expect(said).toContain(`cannot start at http://127.0.0.1:${port}: something listens there`);
  expect(said).toContain('RESPOOL_SERVE_PORT=');
});

test('messages without code: the configuration and the commands run as written', async () => {
  // Inside the repository, so that the configuration finds the package it imports.
  const cache = path.join(ROOT, '.cache');
  await mkdir(cache, { recursive: true });
  const cwd = await mkdtemp(path.join(cache, 'without-code-'));
  onTestFinished(() => rm(cwd, { recursive: true, force: true }));
  await cp(path.join(ROOT, 'examples/without-code'), cwd, { recursive: true });
  const service = await serve(cwd, [], { HOOK_SECRET: 'a secret of sixteen bytes or more' });
  const post = (topic: string, body: string, headers: object = {}): Promise<Response> =>
    fetch(`${service.url}/v1/topics/${topic}/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
      body,
    });
  expect((await post('report', 'one\ntwo\n')).status).toBe(201);
  const report = () => readFile(path.join(cwd, 'report.txt'), 'utf8').catch(() => '');
  await until(async () => /^report \S+, attempt 1: 2 lines\n$/.test(await report()));

  // For later: what example.com answers, if it answers at all, is not ours to say.
  const later = await post('webhook.new', '{"hello":1}', { 'respool-delay': '1h' });
  const { id } = (await later.json()) as Listed;
  expect((await respool(cwd, ['shape'])).stdout).toMatch(/webhook\.new +1 /);
  const filter = ['--state', 'deferred', '--topic', 'webhook.*'];
  const listed = await respool(cwd, ['list', ...filter, '--json']);
  const ids = listed.stdout
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as Listed).id);
  expect(ids).toEqual([id]);
  expect((await respool(cwd, ['retry', '-'], { input: ids.join('\n') })).code).toBe(0);
  await service.prints(new RegExp(`${id}.*"attempt":1`));
});

interface Listed {
  readonly id: string;
}
