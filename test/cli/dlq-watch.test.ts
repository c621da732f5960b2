/** dlq watch — fired once and resolved once, for queues of the real broker and for the spool. */
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { RespoolError } from 'respool';
import { describe, expect, onTestFinished, test } from 'vitest';
import { lockQueue } from '../../src/rabbit/queues/lock.ts';
import { Hands } from '../rabbit/ground.ts';
import { withService } from '../services/index.ts';
import { setup as service } from '../web/setup.ts';
import { rabbitShell, type RabbitShell } from './rabbit-broker.ts';
import { type CallOptions, type Running, setup, type Shell } from './setup.ts';

/** Runs until the test ends, at the latest. */
function watching(shell: Shell, argv: readonly string[], options?: CallOptions): Running {
  const running = shell.start(['dlq', 'watch', '--every', '1s', ...argv], options);
  onTestFinished(async () => {
    running.signal('SIGTERM');
    await running.ended;
  });
  return running;
}

async function stopped(running: Running): Promise<string[]> {
  running.signal('SIGTERM');
  const { code, stdout, stderr } = await running.ended;
  expect(code, stderr).toBe(0);
  return stdout.split('\n').filter((line) => line !== '');
}

async function deadQueue(): Promise<RabbitShell & { readonly queue: string }> {
  const shell = await rabbitShell();
  await shell.configure({});
  const queue = `${shell.prefix}.dlq`;
  await shell.channel.assertQueue(queue, { durable: true });
  return { ...shell, queue };
}

withService('rabbitmq', () => {
  describe('queues', () => {
    test('a queue above its limit is told once, across restarts, and once when it is back', async () => {
      const shell = await deadQueue();
      const { queue, prefix, put, channel } = shell;
      const words = ['--queue', `${prefix}.*`, '--above', '2', '--json'];
      const first = watching(shell, words);
      await first.printed(/watching amqp/);
      await put(queue, ['a', 'b', 'c']);
      await first.printed(/"event":"fired"/);
      await put(queue, ['d']);
      expect(await stopped(first)).toHaveLength(1);

      const second = watching(shell, words);
      await second.printed(/watching amqp/);
      await channel.deleteQueue(queue);
      await channel.assertQueue(queue, { durable: true });
      await second.printed(/"event":"resolved"/);
      const lines = await stopped(second);
      expect(lines).toHaveLength(1);
      expect(JSON.parse(lines[0] ?? '')).toMatchObject({
        event: 'resolved',
        queue,
        depth: 0,
        above: 2,
      });

      const third = watching(shell, words);
      await third.printed(/watching amqp/);
      await put(queue, ['a', 'b', 'c', 'd']);
      await third.printed(/"event":"fired"/);
      await channel.deleteQueue(queue);
      await third.printed(/"event":"resolved"/);
      const told = (await stopped(third)).map((line) => JSON.parse(line) as object);
      expect(told).toMatchObject([
        { event: 'fired', queue, depth: 4, group: null },
        { event: 'resolved', queue, depth: 0, growth: -4 },
      ]);
    });

    test('no message is touched, and a line tells queue, depth and limit', async () => {
      const shell = await deadQueue();
      const { queue, put } = shell;
      await put(queue, ['a']);
      const running = watching(shell, ['--queue', queue]);
      const [line] = await running.printed(/^.* fired .*$/m);
      expect(line).toMatch(/^\d{4}-.*Z fired cli-\w+\.dlq depth=1 above=0$/);
      await stopped(running);
      const message = await (await Hands.open()).take(queue);
      expect(message).toMatchObject({ fields: { redelivered: false } });
    });

    test('--exec gets the alert, and is called again at the next round when it failed', async () => {
      const shell = await deadQueue();
      const { queue, put, folder } = shell;
      const script = path.join(folder, 'hook.sh');
      await writeFile(
        script,
        'cat >> told.txt; echo "$DLQ_EVENT $DLQ_QUEUE $DLQ_DEPTH" >> told.txt\n' +
          'test -e seen || { touch seen; echo broken >&2; exit 3; }\n',
      );
      await chmod(script, 0o755);
      await put(queue, ['a', 'b']);
      const running = watching(shell, ['--queue', queue, '--exec', 'sh hook.sh']);
      await running.printed(/warning: cannot notify .* ended with 3: broken/);
      await running.printed(/ fired /);
      expect(await stopped(running)).toHaveLength(1);
      const told = (await readFile(path.join(folder, 'told.txt'), 'utf8')).trim().split('\n');
      expect(told).toHaveLength(4);
      expect(JSON.parse(told[2] ?? '')).toMatchObject({ event: 'fired', queue, depth: 2 });
      expect(told[3]).toBe(`fired ${queue} 2`);
    });

    test('--webhook is posted the alert, and again when it answers with an error', async () => {
      const shell = await deadQueue();
      const { queue, put } = shell;
      const bodies: unknown[] = [];
      const { url } = await receiver((body) => {
        bodies.push(JSON.parse(body));
        return bodies.length === 1 ? 500 : 204;
      });
      await put(queue, ['a']);
      const running = watching(shell, ['--queue', queue, '--webhook', url]);
      await running.printed(/warning: cannot notify .* answered 500/);
      await running.printed(/ fired /);
      await stopped(running);
      expect(bodies).toHaveLength(2);
      expect(bodies[1]).toMatchObject({ event: 'fired', queue, depth: 1, above: 0 });
    });

    test('a user in the URL of a webhook is told to it, and to nobody else', async () => {
      const shell = await deadQueue();
      const { queue, put } = shell;
      const users: unknown[] = [];
      const { url } = await receiver((_, { authorization }) => {
        users.push(authorization);
        return users.length === 1 ? 500 : 204;
      });
      await put(queue, ['a']);
      const hidden = url.replace('//', '//watch:s3cr%20et@');
      const running = watching(shell, ['--queue', queue, '--webhook', hidden, '--verbose']);
      await running.printed(/ fired /);
      running.signal('SIGTERM');
      const { stdout, stderr } = await running.ended;
      expect(stdout + stderr).not.toMatch(/s3cr/);
      const basic = `Basic ${Buffer.from('watch:s3cr et').toString('base64')}`;
      expect(users).toEqual([basic, basic]);
    });

    test('the lock of a sweep, and a queue of one connection alone, stop no other', async () => {
      const shell = await deadQueue();
      const { queue, put, prefix } = shell;
      const { connection } = await Hands.open();
      const lock = await lockQueue(connection, queue);
      if (lock === 'elsewhere') throw new Error('somebody else has it');
      onTestFinished(() => lock.release());
      const channel = await connection.createChannel();
      const alone = `${prefix}.alone.dlq`;
      await channel.assertQueue(alone, { exclusive: true, durable: false });
      await put(queue, ['a']);
      const fitting = watching(shell, ['--queue', `*${prefix}*dlq`]);
      await fitting.printed(/ fired /);
      fitting.signal('SIGTERM');
      const { stderr } = await fitting.ended;
      expect(stderr).not.toContain('warning');
      const named = watching(shell, ['--queue', queue, '--queue', alone, '--above', '0']);
      await named.printed(/warning: cannot ask for the depth of .*alone.*; trying again/);
      await put(queue, ['b']);
      expect(await stopped(named)).toEqual([]);
    });

    test('a queue that another watch told of is none of this one', async () => {
      const shell = await deadQueue();
      const { queue, prefix, put } = shell;
      await put(queue, ['a']);
      const other = watching(shell, ['--queue', queue]);
      await other.printed(/ fired /);
      const own = `${prefix}.own`;
      await shell.channel.assertQueue(own, { durable: true });
      await put(own, ['b']);
      const running = watching(shell, ['--queue', `${prefix}.o*`]);
      await running.printed(/ fired /);
      await shell.channel.deleteQueue(own);
      await running.printed(/ resolved /);
      const lines = await stopped(running);
      expect(lines.filter((line) => line.includes(queue))).toEqual([]);
      expect(lines).toHaveLength(2);
      expect(await stopped(other)).toHaveLength(1);
    });

    test('a broker that is away is tried again', async () => {
      const shell = await setup();
      const words = ['--queue', 'orders.dlq', '--url', 'amqp://127.0.0.1:1'];
      const running = watching(shell, words);
      await running.printed(/(?:cannot look at[\s\S]*){2}/);
      await stopped(running);
    });
  });
});

describe('the spool', () => {
  test('bounced messages are told with their largest group', async () => {
    const shell = await setup();
    const spool = shell.spool();
    await spool.enqueue({ id: 'one', topic: 'a', body: 'x' });
    await spool.operator({ by: 'ops' }).bounce(['one'], { reason: 'no such user' });
    const running = watching(shell, ['--json']);
    await running.printed(/"event":"fired"/);
    await spool.operator({ by: 'ops' }).remove(['one'], { hard: true });
    await running.printed(/"event":"resolved"/);
    const told = (await stopped(running)).map((line) => JSON.parse(line) as object);
    expect(told).toMatchObject([
      { event: 'fired', place: 'spool', queue: 'dead', depth: 1 },
      { event: 'resolved', place: 'spool', queue: 'dead', depth: 0, growth: -1 },
    ]);
  });
});

test('what the store does not take is recorded later, and not notified again', async () => {
  let isAway = true;
  const refusal = new RespoolError('limit.exceeded', 'the store is full');
  const { spool, url } = await service({
    operator: ({ records }) => ({
      records: {
        ...records,
        put: async (...args) => (isAway ? Promise.reject(refusal) : records.put(...args)),
      },
    }),
  });
  await spool.enqueue({ id: 'one', topic: 'a', body: 'x' });
  const operator = spool.operator({ by: 'ops' });
  await operator.bounce(['one'], { reason: 'no such user' });
  const running = watching(await setup(), ['--url', url]);
  const [warning] = await running.printed(/warning: cannot (?:.*)/);
  expect(warning).toMatch(/record that dead fired, which was notified: .*the store is full/);
  isAway = false;
  await expect.poll(async () => (await operator.records.list('dlq.watch')).length).toBe(1);
  expect(await stopped(running)).toEqual([expect.stringContaining(' fired dead depth=1')]);
});

describe('usage', () => {
  test.each([
    [['--exec', 'x', '--webhook', 'http://a'], 'use --exec or --webhook, not both'],
    [['--webhook', 'ftp://a'], 'cannot use what was given as --webhook'],
    [['--above', '-1'], '--above'],
    [['--every', '0s'], '--every'],
    [['--queue', 'a'], 'name the broker'],
  ])('%j is refused', async (words, text) => {
    const { cli } = await setup({ hasStore: true });
    const ran = await cli(['dlq', 'watch', ...words]);
    expect(ran, ran.stderr).toMatchObject({ code: 2 });
    expect(ran.stderr).toContain(text);
  });
});

async function receiver(
  answer: (body: string, headers: IncomingHttpHeaders) => number,
): Promise<{ readonly server: Server; readonly url: string }> {
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      response.writeHead(answer(Buffer.concat(pieces).toString('utf8'), request.headers)).end();
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  onTestFinished(async () => {
    await new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  });
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook` };
}
