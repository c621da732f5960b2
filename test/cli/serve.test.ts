/** serve — starts, delivers, answers, prints, and stops by signal; with its pieces in-process. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { SimClock } from 'respool/testkit';
import { type CallOptions, type Running, setup, type Shell } from './setup.ts';
import { freePort } from '../service/binary.ts';
import { systemClock } from '../time.ts';

/** What handlers in a configuration file do, by topic. */
const CONFIG = `
export default {
  routes: [
    { topic: 'good.*', deliver: () => {} },
    { topic: 'bad', deliver: () => { throw Object.assign(new Error('no room'), { code: 'full' }); } },
    { topic: 'slow', deliver: ({ signal }) => new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
    }) },
  ],
  bounces: [{ topic: 'bad', deliver: () => {} }],
};
`;

async function serving(words: readonly string[] = [], options: CallOptions = {}) {
  const shell = await setup();
  await writeFile(path.join(shell.folder, 'respool.config.mjs'), CONFIG);
  return { ...(await started(shell, words, options)), shell };
}

async function started(shell: Shell, words: readonly string[], options: CallOptions = {}) {
  const running = shell.start(['serve', '--port', '0', ...words], {
    tty: ['stdout'],
    env: { NO_COLOR: '1' },
    ...options,
  });
  onTestFinished(() => stopped(running));
  const [, url = ''] = await running.printed(/(http:\/\/127\.0\.0\.1:\d+)/);
  return { running, url };
}

async function stopped(running: Running): Promise<void> {
  running.signal('SIGTERM');
  await running.ended;
}

async function post(url: string, topic: string): Promise<string> {
  const answer = await fetch(`${url}/v1/topics/${topic}/messages`, { method: 'POST', body: 'x' });
  expect(answer.status).toBe(201);
  return ((await answer.json()) as { id: string }).id;
}

describe('while it runs', () => {
  test('it says where it listens, what it delivers and how to post', async () => {
    const { running, url } = await serving();
    await running.printed(/post with: curl/);
    await stopped(running);
    const { stdout } = await running.ended;
    expect(stdout).toContain(`listening on ${url}, store sqlite:`);
    expect(stdout).toMatch(/delivers good\.\* by handler .*\(policy default, 10 at once\)/);
    expect(stdout).toMatch(/announces bounces of bad by /);
    expect(stdout).toContain(`curl -d '{"hello":1}' ${url}/v1/topics/good.new/messages`);
  });

  test('a topic that no route delivers is told of once', async () => {
    const { running, url } = await serving();
    await post(url, 'godo.one');
    await post(url, 'godo.one');
    await running.printed(/no route delivers the topic godo\.one/);
    await post(url, 'godo.two');
    const text = await running.printed(/no route delivers the topic godo\.two/);
    expect(text).toHaveLength(1);
    running.signal('SIGTERM');
    const { stdout } = await running.ended;
    expect(stdout.match(/no route delivers the topic godo\.one/g)).toHaveLength(1);
  });

  test('every event is a line: id, kind, keys', async () => {
    const { running, url } = await serving();
    const good = await post(url, 'good.one');
    await running.printed(new RegExp(`${good} delivered topic=good.one attempt=1 took=`));
    const bad = await post(url, 'bad');
    const line = `${bad} deferred topic=bad attempt=1 wait=\\S+ next=\\S+ code=full reason="no room"`;
    expect(await running.printed(new RegExp(line))).toHaveLength(1);
  });

  test('into a pipe, or when asked to, the lines are JSON', async () => {
    const { running, url } = await serving([], { tty: [] });
    const id = await post(url, 'good.one');
    await running.printed(new RegExp(`"${id}"`));
    await stopped(running);
    const objects = (await running.ended).objects();
    expect(objects.find((line) => line['id'] === id)).toMatchObject({
      level: 'info',
      kind: 'delivered',
      topic: 'good.one',
    });
    expect(objects.find((line) => line['url'] === url)).toMatchObject({ level: 'info' });
    const asked = await serving(['--log-format', 'json']);
    await asked.running.printed(/^\{"level"/);
  });

  test('--log-level, --verbose and --quiet choose how much', async () => {
    const noisy = await serving(['--verbose']);
    const id = await post(noisy.url, 'good.one');
    await noisy.running.printed(new RegExp(`${id} accepted topic=good.one`));
    await noisy.running.printed(/delivered/);
  });

  test('--log-level error prints nothing at its start and end, nor of deliveries', async () => {
    const shell = await setup();
    await writeFile(path.join(shell.folder, 'respool.config.mjs'), CONFIG);
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const running = shell.start(['serve', '--port', String(port), '--log-level', 'error']);
    onTestFinished(() => stopped(running));
    await expect
      .poll(() =>
        fetch(`${url}/readyz`).then(
          (answer) => answer.status,
          () => 0,
        ),
      )
      .toBe(200);
    await post(url, 'bad');
    await stopped(running);
    expect((await running.ended).stdout).toBe('');
  });

  test('commands reach it with --url, and RESPOOL_URL', async () => {
    const { shell, url } = await serving();
    const id = await post(url, 'bad');
    const ran = await shell.cli(['show', id, '--url', url, '--json', '--verbose']);
    expect(ran.objects()).toMatchObject([{ id, envelope: { topic: 'bad' } }]);
    expect(ran.stderr).toContain(`through the service at ${url}`);
    const held = await shell.cli(['hold', id, '--reason', 'x'], { env: { RESPOOL_URL: url } });
    expect(held).toMatchObject({ code: 0, stdout: 'held 1\n' });
    const stats = await shell.cli(['stats', '--url', url]);
    expect(stats.stdout).toMatch(/^running +\d+ of \d+/m);
    expect(stats.stdout).toMatch(/accepted 1/);
  });
});

describe('stopping', () => {
  test('SIGTERM ends with 0, what runs is given back, and the port is free', async () => {
    const { running, url, shell } = await serving(['--stop-within', '0s', '--verbose']);
    const id = await post(url, 'slow');
    await running.printed(new RegExp(`${id} started`));
    running.signal('SIGTERM');
    const ran = await running.ended;
    expect(ran).toMatchObject({ code: 0, stderr: '' });
    expect(ran.stdout).toMatch(/stopping after SIGTERM, within 0s/);
    expect(running.exits).toEqual([]);
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
    expect((await shell.cli(['show', id, '--json'])).objects()).toMatchObject([
      { status: { state: 'incoming', attempts: 0 } },
    ]);
  });

  test('a second signal ends at once', async () => {
    let now = 0;
    const clock = { ...systemClock, monotonic: () => now };
    const { running, url } = await serving(['--verbose', '--stop-within', '1s'], { clock });
    const id = await post(url, 'slow');
    await running.printed(new RegExp(`${id} started`));
    running.signal('SIGINT');
    // Passed on by whoever runs us: the same wish.
    now = 50;
    running.signal('SIGINT');
    expect(running.exits).toEqual([]);
    now = 150;
    running.signal('SIGTERM');
    running.signal('SIGINT');
    expect(running.exits).toEqual([143, 130]);
  });

  test('clients that stall in the middle of their bodies get the time of a stop once', async () => {
    const sim = new SimClock();
    let isVirtual = false;
    const clock = {
      ...systemClock,
      monotonic: () => (isVirtual ? sim : systemClock).monotonic(),
      after: (ms: number, call: () => void) => (isVirtual ? sim : systemClock).after(ms, call),
    };
    const { running, url } = await serving(['--stop-within', '8s'], { clock });
    const sockets = ['content-length: 10', 'content-length: 1000000'].map((length) => {
      const socket = connect(Number(new URL(url).port), '127.0.0.1');
      onTestFinished(() => void socket.destroy());
      socket.on('error', () => undefined);
      socket.write(`POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\n${length}\r\n\r\nx`);
      return socket;
    });
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    // By the time this is answered, what the others wrote has arrived.
    await fetch(`${url}/healthz`);
    isVirtual = true;
    running.signal('SIGTERM');
    let isEnded = false;
    void running.ended.then(() => {
      isEnded = true;
    });
    await running.printed(/stopping after SIGTERM/);
    // Eight seconds pass, and no more: a stop that needed them twice would not end.
    await sim.advance('8s');
    await expect
      .poll(async () => {
        await sim.advance(0);
        return isEnded;
      })
      .toBe(true);
    expect((await running.ended).code).toBe(0);
  });
});

test('an error that nobody caught is told, and everything is stopped in order', async () => {
  const { running, url } = await serving();
  await running.printed(/post with/);
  running.fail(new Error('a timer of a handler threw'));
  const ran = await running.ended;
  expect(ran.code).toBe(1);
  expect(ran.stdout).toMatch(/stopping after an uncaught error: a timer of a handler/);
  expect(ran.stdout).toMatch(/stopped\n$/);
  await expect(fetch(`${url}/healthz`)).rejects.toThrow();
});

test('no secret of the configuration is printed, whatever a handler says', async () => {
  const shell = await setup();
  const canary = 'canary-7f3a91c04be2';
  const config = `
    const deliver = () => { throw new Error('refused with ${canary}'); };
    export default { routes: [{ topic: 'a', deliver }] };
  `;
  await writeFile(path.join(shell.folder, 'respool.config.mjs'), config);
  const { running, url } = await started(shell, ['--verbose'], {
    env: { RESPOOL_TOKEN: canary, NO_COLOR: '1' },
  });
  const headers = { authorization: `Bearer ${canary}` };
  const answer = await fetch(`${url}/v1/topics/a/messages`, { method: 'POST', headers, body: 'x' });
  expect(answer.status).toBe(201);
  await running.printed(/deferred topic=a .*refused with/);
  await stopped(running);
  const { stdout, stderr } = await running.ended;
  expect(stdout).toContain('Bearer $RESPOOL_TOKEN');
  expect(stdout + stderr).not.toContain(canary);
});

describe('what cannot start says why, and leaves nothing open', () => {
  test('a port in use', async () => {
    const { shell } = await serving();
    const taken = createServer();
    await new Promise<void>((resolve) => {
      taken.listen(0, '127.0.0.1', resolve);
    });
    onTestFinished(() => void taken.close());
    const { port } = taken.address() as AddressInfo;
    const ran = await shell.cli(['serve', '--port', String(port), '--store', 'memory:']);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toMatch(new RegExp(`port ${port}: the port is in use; choose another`));
  });

  test('a store of files that another process owns', async () => {
    const shell = await setup();
    await started(shell, ['--store', 'file:./spool']);
    const ran = await shell.cli(['serve', '--port', '0', '--store', 'file:./spool']);
    expect(ran.code).toBe(3);
    expect(ran.stderr).toMatch(/^respool: cannot open/);
  });

  test('an address for strangers without a token', async () => {
    const shell = await setup();
    const ran = await shell.cli(['serve', '--host', '0.0.0.0', '--store', 'memory:']);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toMatch(/without a token/);
  });

  test('--url, which is for the others', async () => {
    const { cli, folder } = await setup();
    expect((await cli(['serve', '--url', 'http://127.0.0.1:1'])).code).toBe(2);
    expect(await readdir(folder)).toEqual([]);
  });
});

test('warnings of the configuration are printed', async () => {
  const shell = await setup();
  const text = '{"routes":[{"topic":"a","deliver":{"exec":["true"]}}],"concurrency":1}';
  await writeFile(path.join(shell.folder, 'respool.config.json'), text);
  const { running } = await started(shell, []);
  await stopped(running);
  expect((await running.ended).stderr).toMatch(/^warning: concurrency is 1/);
});
