/** Consumers of the configuration: run alone, or beside the spool; also with the broker away. */
import { readFile, writeFile } from 'node:fs/promises';
import { connect, createServer, type Server, Socket } from 'node:net';
import path from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { withService } from '../services/index.ts';
import { rabbitShell, type RabbitShell } from './rabbit-broker.ts';
import { type Running, setup } from './setup.ts';

const TTY = { tty: ['stdout'], env: { NO_COLOR: '1' } } as const;

interface Written {
  readonly url?: string;
  readonly more?: string;
  readonly routes?: string;
}

/** A program: its handlers are functions. */
async function write(shell: RabbitShell, { url, more = '', routes = '' }: Written = {}) {
  const { prefix, folder } = shell;
  const text = `
    export default {
      rabbit: { url: ${JSON.stringify(url ?? shell.url)} },
      store: 'memory:',
      ${routes}
      consumers: [
        { queue: '${prefix}.good', topology: { shared: { prefix: '${prefix}' } }, waits: [],
          policy: { ladder: ['1h'] }, deliver: () => {}, ${more} },
        { queue: '${prefix}.bad', topology: { shared: { prefix: '${prefix}' } }, waits: [],
          policy: { ladder: ['1h'] },
          deliver: () => { throw Object.assign(new Error('no room'), { code: 'full' }); } },
      ],
    };`;
  await writeFile(path.join(folder, 'respool.config.mjs'), text);
}

function started(shell: RabbitShell, words: readonly string[]): Running {
  const running = shell.start(words, TTY);
  onTestFinished(() => stopped(running));
  return running;
}

async function stopped(running: Running): Promise<void> {
  running.signal('SIGTERM');
  await running.ended;
}

/** A door to the broker that can be opened late. */
async function doorTo(url: string): Promise<{ url: string; open: () => Promise<void> }> {
  const { hostname, port, username, password } = new URL(url);
  const server: Server = createServer((socket) => {
    const there = connect(Number(port), hostname);
    for (const one of [socket, there]) one.on('error', () => undefined);
    socket.pipe(there).pipe(socket);
    socket.on('close', () => there.destroy());
    there.on('close', () => socket.destroy());
  });
  const listen = (at: number): Promise<number> =>
    new Promise((resolve) => {
      server.listen(at, '127.0.0.1', () => resolve((server.address() as { port: number }).port));
    });
  const own = await listen(0);
  await new Promise((resolve) => server.close(resolve));
  onTestFinished(() => void server.close());
  const user = username === '' ? '' : `${username}:${password}@`;
  return {
    url: `amqp://${user}127.0.0.1:${own}`,
    open: async () => {
      await listen(own);
    },
  };
}

withService('rabbitmq', () => {
  describe('rabbit consume', () => {
    test('delivers by the handlers of the configuration, until a signal', async () => {
      const shell = await rabbitShell();
      await write(shell);
      const running = started(shell, ['rabbit', 'consume']);
      const { prefix, put, depth } = shell;
      await running.printed(new RegExp(`consumes ${prefix}\\.good at amqp://.*10 at once`));
      await running.printed(new RegExp(`consumes ${prefix}\\.bad at `));
      await put(`${prefix}.good`, ['hello'], { messageId: 'm-1' });
      await running.printed(/m-1 delivered/);
      await put(`${prefix}.bad`, ['hello'], { messageId: 'm-2' });
      await running.printed(/m-2 deferred .*code=full reason="no room"/);
      expect(await depth(`${prefix}.wait.3600s`)).toBe(1);
      running.signal('SIGTERM');
      const { code, stdout } = await running.ended;
      expect(code).toBe(0);
      expect(stdout).toMatch(/stopping after SIGTERM, within 10s[^]*stopped\n$/);
      expect((await shell.channel.checkQueue(`${prefix}.good`)).consumerCount).toBe(0);
    });

    test('--queue runs one of them, a wrong one is wrong usage', async () => {
      const shell = await rabbitShell();
      await write(shell);
      const { prefix } = shell;
      const running = started(shell, ['rabbit', 'consume', '--queue', `${prefix}.good`]);
      await running.printed(new RegExp(`consumes ${prefix}\\.good`));
      running.signal('SIGINT');
      const { code, stdout } = await running.ended;
      expect(code).toBe(0);
      expect(stdout).not.toContain(`${prefix}.bad`);
      const wrong = await shell.cli(['rabbit', 'consume', '--queue', 'other']);
      expect(wrong).toMatchObject({ code: 2 });
      expect(wrong.stderr).toContain(`known are ${prefix}.good, ${prefix}.bad`);
      expect(wrong.stderr).toContain('write it into `consumers` of the configuration');
      expect(wrong.stderr).not.toContain('--topology');
    });

    test('ready-made handlers run a command with the message', async () => {
      const shell = await rabbitShell();
      const { prefix, configure, put, folder } = shell;
      const script = 'import { writeFileSync } from "node:fs"; writeFileSync("got", "yes");';
      await writeFile(path.join(folder, 'take.mjs'), script);
      const deliver = { exec: [process.execPath, 'take.mjs'] };
      const topology = { shared: { prefix } };
      await configure({ consumers: [{ queue: `${prefix}.x`, topology, waits: [], deliver }] });
      const running = started(shell, ['rabbit', 'consume', '--json']);
      await running.printed(/"text":"consumes/);
      await put(`${prefix}.x`, ['hello'], { messageId: 'm-3' });
      await running.printed(/^(?=.*"kind":"delivered").*"id":"m-3"/m);
      expect(await readFile(path.join(folder, 'got'), 'utf8')).toBe('yes');
    });

    test('a broker that is away is tried again until it is there', async () => {
      const shell = await rabbitShell();
      const door = await doorTo(shell.url);
      await write(shell, { url: door.url });
      const running = started(shell, ['rabbit', 'consume']);
      await running.printed(/cannot consume .*\.good: .*trying again in 1s/);
      await door.open();
      await running.printed(new RegExp(`consumes ${shell.prefix}\\.good`));
    });

    test('a broker that takes connections and says nothing does not hold up a stop', async () => {
      const shell = await rabbitShell();
      // Sockets have no timeout here: a stop that waited for the connection would not end.
      const timeouts = vi.spyOn(Socket.prototype, 'setTimeout').mockReturnThis();
      onTestFinished(() => timeouts.mockRestore());
      const { promise: asked, resolve } = Promise.withResolvers<void>();
      const mute = createServer(() => resolve());
      const { promise: listening, resolve: heard } = Promise.withResolvers<void>();
      mute.listen(0, '127.0.0.1', heard);
      await listening;
      onTestFinished(() => void mute.close());
      const { port } = mute.address() as { port: number };
      const stop = "serve: { stopWithin: '100ms' },";
      await write(shell, { url: `amqp://127.0.0.1:${port}`, routes: stop });
      const running = started(shell, ['rabbit', 'consume', '--queue', `${shell.prefix}.good`]);
      await asked;
      running.signal('SIGTERM');
      expect((await running.ended).code).toBe(0);
    });

    test('what runs when it stops is finished within the time that is given', async () => {
      const shell = await rabbitShell();
      const slow = `deliver: () => new Promise((resolve) => {
        globalThis['${shell.prefix}'] = resolve;
      }),`;
      await write(shell, { more: slow });
      const { prefix, put, channel } = shell;
      const running = started(shell, ['rabbit', 'consume', '--verbose']);
      await running.printed(new RegExp(`consumes ${prefix}\\.good`));
      await put(`${prefix}.good`, ['hello'], { messageId: 'm-5' });
      const handed = (): unknown => Reflect.get(globalThis, prefix);
      await expect.poll(handed).toBeTypeOf('function');
      const release = handed() as () => void;
      running.signal('SIGTERM');
      await running.printed(/stopping after SIGTERM/);
      release();
      const { code, stdout } = await running.ended;
      expect(code).toBe(0);
      expect(stdout).toContain('m-5 delivered');
      expect((await channel.checkQueue(`${prefix}.good`)).messageCount).toBe(0);
    });

    test('middleware of the configuration is around its handlers, too', async () => {
      const shell = await rabbitShell();
      const odd = "Object.assign(new Error('not today'), { code: 'closed' })";
      const routes = `middleware: [() => Promise.reject(${odd})],`;
      await write(shell, { routes });
      const running = started(shell, ['rabbit', 'consume']);
      await running.printed(new RegExp(`consumes ${shell.prefix}\\.good`));
      await shell.put(`${shell.prefix}.good`, ['hello'], { messageId: 'm-6' });
      await running.printed(/m-6 deferred .*code=closed/);
    });

    test('a queue with other arguments ends it with 3', async () => {
      const shell = await rabbitShell();
      await shell.channel.assertQueue(`${shell.prefix}.good`, { durable: true });
      await write(shell);
      const { code, stderr } = await shell.cli(['rabbit', 'consume'], TTY);
      expect(code).toBe(3);
      expect(stderr).toContain(`${shell.prefix}.good`);
    });

    test('declare: none and verify make nothing', async () => {
      const shell = await rabbitShell();
      await write(shell, { more: "declare: 'verify'" });
      const verified = await shell.cli(['rabbit', 'consume', '--queue', `${shell.prefix}.good`]);
      expect(verified.code).toBe(3);
      expect(verified.stderr).toContain(`there is no queue "${shell.prefix}.good"`);
      await write(shell, { more: "declare: 'none'" });
      const trusted = await shell.cli(['rabbit', 'consume', '--queue', `${shell.prefix}.good`]);
      expect(trusted.code).not.toBe(0);
    });
  });

  describe('serve', () => {
    test('runs the consumers beside the spool, and health shows them', async () => {
      const shell = await rabbitShell();
      await write(shell);
      const running = started(shell, ['serve', '--port', '0']);
      const [, url = ''] = await running.printed(/listening on (http:\S+),/);
      await running.printed(new RegExp(`consumes ${shell.prefix}\\.good`));
      await running.printed(new RegExp(`consumes ${shell.prefix}\\.bad`));
      const health = await (await fetch(`${url}/healthz`)).json();
      expect(health).toEqual({ ok: true, consumers: { connected: 2, all: 2 } });
      await shell.put(`${shell.prefix}.good`, ['hello'], { messageId: 'm-4' });
      await running.printed(/m-4 queue:\S+ delivered/);
      running.signal('SIGTERM');
      const { code, stdout } = await running.ended;
      expect(code).toBe(0);
      expect(stdout).not.toContain('nothing is delivered');
      expect((await shell.channel.checkQueue(`${shell.prefix}.good`)).consumerCount).toBe(0);
    });

    test('starts without its broker, goes on, and says that it is not connected', async () => {
      const shell = await rabbitShell();
      const door = await doorTo(shell.url);
      const routes = "routes: [{ topic: 'a', deliver: () => {} }],";
      await write(shell, { url: door.url, routes });
      const running = started(shell, ['serve', '--port', '0']);
      const [, url = ''] = await running.printed(/listening on (http:\S+),/);
      await running.printed(/cannot consume .*trying again in/);
      const health = async () => (await fetch(`${url}/healthz`)).json();
      expect(await health()).toEqual({ ok: true, consumers: { connected: 0, all: 2 } });
      await fetch(`${url}/v1/topics/a/messages`, { method: 'POST', body: 'x' });
      await running.printed(/delivered topic=a/);
      await door.open();
      await running.printed(/consumes .*\.good/);
      await running.printed(/consumes .*\.bad/);
      expect(await health()).toEqual({ ok: true, consumers: { connected: 2, all: 2 } });
    });

    test('a queue with other arguments is said as an error, and the rest goes on', async () => {
      const shell = await rabbitShell();
      await shell.channel.assertQueue(`${shell.prefix}.good`, { durable: true });
      await write(shell);
      const running = started(shell, ['serve', '--port', '0']);
      await running.printed(/cannot consume .*\.good: .*trying again in 1s/);
      await running.printed(/consumes .*\.bad/);
      await shell.channel.deleteQueue(`${shell.prefix}.good`);
      await running.printed(/consumes .*\.good/);
    });
  });
});

test('without consumers there is nothing to consume, and health says nothing of them', async () => {
  const shell = await setup();
  const ran = await shell.cli(['rabbit', 'consume']);
  expect(ran.code).toBe(2);
  expect(ran.stderr).toContain('write it into `consumers` of the configuration');
  const running = shell.start(['serve', '--port', '0', '--store', 'memory:'], TTY);
  onTestFinished(() => stopped(running));
  const [, url = ''] = await running.printed(/listening on (http:\S+),/);
  expect(await (await fetch(`${url}/healthz`)).json()).toEqual({ ok: true });
});
