/** `respool outbox relay`, and the relay of `respool serve`, with a real database and a broker. */
import { writeFile } from 'node:fs/promises';
import { createServer as createHttp } from 'node:http';
import { connect, createServer, type Server } from 'node:net';
import path from 'node:path';
import { createServer as createTls } from 'node:tls';
import Sqlite from 'better-sqlite3';
import { createOutbox } from 'respool/outbox';
import { describe, expect, onTestFinished, test } from 'vitest';
import { CERTIFICATE, KEY } from '../deliver/certificate.ts';
import { withService } from '../services/index.ts';
import { type OutboxShell, outboxShell, started, TTY } from './outbox-place.ts';
import { type RabbitShell, rabbitShell } from './rabbit-broker.ts';
import { setup } from './setup.ts';

/** An exchange with a queue that takes everything, and what lies in it. */
async function exchangeAt({ channel, prefix }: RabbitShell) {
  const exchange = `${prefix}.shop`;
  const queue = `${prefix}.all`;
  await channel.assertExchange(exchange, 'topic', { durable: true });
  await channel.assertQueue(queue, { durable: true });
  await channel.bindQueue(queue, exchange, '#');
  const got: { id: string; key: string; body: string }[] = [];
  await channel.consume(queue, (message) => {
    if (message === null) return;
    const { properties, fields, content } = message;
    const id = String(properties.messageId);
    got.push({ id, key: fields.routingKey, body: content.toString() });
    channel.ack(message);
  });
  return { exchange, take: () => got.shift() };
}

/** A door to a server that can be shut and opened again. */
async function doorTo(url: string) {
  const { hostname, port, username, password } = new URL(url);
  const sockets = new Set<{ destroy(): void }>();
  const server: Server = createServer((socket) => {
    const there = connect(Number(port), hostname);
    for (const one of [socket, there]) {
      sockets.add(one);
      one.on('error', () => undefined);
      one.on('close', () => sockets.delete(one));
    }
    socket.pipe(there).pipe(socket);
    socket.on('close', () => there.destroy());
    there.on('close', () => socket.destroy());
  });
  const listen = (at: number): Promise<number> =>
    new Promise((resolve) => {
      server.listen(at, '127.0.0.1', () => resolve((server.address() as { port: number }).port));
    });
  const own = await listen(0);
  const shut = async (): Promise<void> => {
    const closed = new Promise((resolve) => server.close(resolve));
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  onTestFinished(async () => {
    if (server.listening) await shut();
  });
  return {
    url: `amqp://${username}:${password}@127.0.0.1:${own}`,
    shut,
    open: async () => void (await listen(own)),
  };
}

/** A door with TLS before the broker; the same bytes go through. */
async function tlsDoor(target: string): Promise<string> {
  const { hostname, port, username, password } = new URL(target);
  const server = createTls({ key: KEY, cert: CERTIFICATE }, (client) => {
    const broker = connect(Number(port), hostname);
    client.on('error', () => broker.destroy());
    broker.on('error', () => client.destroy());
    client.pipe(broker).pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => void server.close());
  const { port: own } = server.address() as { port: number };
  return `amqps://${username}:${password}@localhost:${own}`;
}

async function isEmpty(shell: OutboxShell): Promise<boolean> {
  const { rows } = await shell.pool.query(`SELECT 1 FROM ${shell.schema}.entries LIMIT 1`);
  return rows.length === 0;
}

withService('rabbitmq', () => {
  withService('postgres', () => {
    describe('outbox relay', () => {
      test('sends what is committed to an exchange, until a signal', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        const to = ['--url', broker.url, '--exchange', exchange];
        const [early] = await shell.emit([{ routingKey: 'order.created', body: { n: 1 } }]);
        const running = started(shell, ['outbox', 'relay', ...shell.flags, ...to]);
        const said = 'relays from postgres://\\S+ \\(schema cli_\\w+\\) to exchange';
        await running.printed(
          new RegExp(`${said} ${exchange} at amqp://.*batch 100, 500 at once, clean-up at once`),
        );
        await expect.poll(take).toEqual({ id: early, key: 'order.created', body: '{"n":1}' });
        const [late] = await shell.emit([{ routingKey: 'user.created', body: 'hello' }]);
        await expect.poll(take).toEqual({ id: late, key: 'user.created', body: 'hello' });
        await expect.poll(() => isEmpty(shell)).toBe(true);
        running.signal('SIGTERM');
        const { code, stdout } = await running.ended;
        expect(code).toBe(0);
        expect(stdout).toMatch(/stopping after SIGTERM, within 10s[^]*stopped, sent 2\n$/);
        expect(stdout).not.toContain('delivered');
        expect(stdout).not.toContain(new URL(broker.url).password);
        expect(stdout).not.toContain(new URL(shell.url).password);
      });

      test('with --verbose prints a line for every message, with --json objects', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange } = await exchangeAt(broker);
        const [id = ''] = await shell.emit([{ routingKey: 'a' }]);
        const to = ['--url', broker.url, '--exchange', exchange, '--verbose', '--json'];
        const running = started(shell, ['outbox', 'relay', ...shell.flags, ...to]);
        await running.printed(new RegExp(`^(?=.*"kind":"delivered").*"id":"${id}"`, 'm'));
        running.signal('SIGINT');
        const { code, objects } = await running.ended;
        expect(code).toBe(0);
        expect(objects()).toContainEqual(
          expect.objectContaining({ text: 'stopped, sent 1', sent: 1 }),
        );
      });

      test('takes everything from the configuration, and flags go before it', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        const relay = { to: { amqp: broker.url, exchange }, cleanUp: '1h', topics: 'order.*' };
        await shell.configure({ relay: { ...relay, batch: 7 } });
        const [user, order] = await shell.emit([
          { routingKey: 'user.a' },
          { routingKey: 'order.a' },
        ]);
        const flags = ['--batch', '1', '--concurrency', '3', '--lease', '10s', '--poll', '1s'];
        const running = started(shell, ['outbox', 'relay', ...flags]);
        await running.printed(/relays order\.\* from .*batch 1, 3 at once, clean-up 1h/);
        await expect.poll(take).toMatchObject({ id: order });
        // What was sent is kept, and what fits no topic is left alone.
        const states = async () => {
          const listed = (await shell.cli(['outbox', 'list', '--json'])).objects();
          return listed.map(({ id, status }) => [id, (status as { state: string }).state]);
        };
        await expect.poll(states).toEqual([
          [user, 'incoming'],
          [order, 'archived'],
        ]);
        const [stats] = (await shell.cli(['outbox', 'stats', '--json'])).objects();
        expect(stats).toMatchObject({ pending: 1, kept: 1 });
      });

      test('what was sent is kept in parts, and list --sent shows it', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        const cleanUp = { partition: '1d', keep: '30d' };
        await shell.configure({ relay: { to: { amqp: broker.url, exchange }, cleanUp } });
        const none = await shell.cli(['outbox', 'list', '--sent']);
        expect(none).toMatchObject({ code: 0, stdout: '' });
        expect(none.stderr).toContain('--state archived');
        const ids = await shell.emit([
          { routingKey: 'order.a', body: 'hello' },
          { routingKey: 'user.a' },
        ]);
        const running = started(shell, ['outbox', 'relay']);
        await running.printed(/clean-up kept 30d in parts/);
        for (const id of ids) await expect.poll(take).toMatchObject({ id });
        await expect.poll(() => isEmpty(shell)).toBe(true);
        const all = (await shell.cli(['outbox', 'list', '--sent', '--json'])).objects();
        expect(all.map(({ id }) => String(id)).toSorted()).toEqual(ids.toSorted());
        const { stdout } = await shell.cli(
          ['outbox', 'list', '--sent', '--topic', 'order.*', '--wide'],
          TTY,
        );
        expect(stdout).toMatch(new RegExp(`^id +topic +sent +bytes\n${ids[0]} +order.a .* 5\n$`));
        const some = await shell.cli(['outbox', 'list', '--sent', '--limit', '1'], TTY);
        expect(some.stderr).toContain('the first 1');
        const wrong = await shell.cli(['outbox', 'list', '--sent', '--state', 'bounce']);
        expect(wrong.code).toBe(2);
        expect(wrong.stderr).toContain('--topic and --limit only');
      });

      test('a message that expired is given up and told of, and retry sends the dead again', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        const [id = ''] = await shell.emit([{ routingKey: 'a' }]);
        const to = ['--url', broker.url, '--exchange', exchange, '--expires', '1ms'];
        const running = started(shell, ['outbox', 'relay', ...shell.flags, ...to]);
        await running.printed(new RegExp(`${id} bounced topic=a .*expired`));
        const [told] = (await shell.outbox(['stats', '--json'])).objects();
        expect(told).toMatchObject({ dead: 1, pending: 0 });
        expect(take()).toBeUndefined();
        const retried = await shell.outbox(['retry', '--state', 'bounce', '--yes']);
        expect(retried.stdout).toBe('retried 1\n');
        await expect.poll(take).toMatchObject({ id });
      });

      test('what cannot be routed is no success: it is deferred, and shows why', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const exchange = `${broker.prefix}.empty`;
        await broker.channel.assertExchange(exchange, 'topic', { durable: true });
        const [id = ''] = await shell.emit([{ routingKey: 'order.created' }]);
        const to = ['--url', broker.url, '--exchange', exchange];
        const running = started(shell, ['outbox', 'relay', ...shell.flags, ...to]);
        await running.printed(new RegExp(`${id} deferred .*code=broker.unroutable`));
        const [shown] = (await shell.outbox(['show', id, '--json'])).objects();
        expect(shown).toMatchObject({
          status: { attempts: 1, lastFailure: { code: 'broker.unroutable' } },
        });
      });

      test('a broker that goes away is told once, and so is its return', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        const door = await doorTo(broker.url);
        await door.shut();
        const [id] = await shell.emit([{ routingKey: 'a' }]);
        const to = ['--url', door.url, '--exchange', exchange, '--pause-after', '50ms'];
        const running = started(shell, ['outbox', 'relay', ...shell.flags, ...to]);
        await running.printed(/trouble doing="sending to exchange .*until it answers/);
        await door.open();
        await running.printed(/exchange \S+ at amqp:\/\/\S+ answers again/);
        await expect.poll(take).toMatchObject({ id });
        running.signal('SIGTERM');
        const { stdout } = await running.ended;
        expect(stdout.match(/trouble doing="sending to/g)).toHaveLength(1);
        expect(stdout.match(/answers again/g)).toHaveLength(1);
        expect(stdout).not.toContain('deferred');
      });

      test('with nothing to send, a target that cannot be sent to is told of all the same', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const wrong = new URL(broker.url);
        wrong.password = 'not-the-one';
        const to = ['--url', wrong.href, '--exchange', 'x'];
        const refused = started(shell, ['outbox', 'relay', ...shell.flags, ...to]);
        await refused.printed(/trouble doing="sending to exchange .*ACCESS.REFUSED.*check user/);
        const nowhere = ['--url', broker.url, '--exchange', `${broker.prefix}.nowhere`];
        const lost = started(shell, ['outbox', 'relay', ...shell.flags, ...nowhere]);
        await lost.printed(/trouble doing="sending to exchange .*there is no exchange/);
        refused.signal('SIGTERM');
        expect((await refused.ended).stdout).not.toContain('not-the-one');
      });

      test('goes over TLS with the files of rabbit.tls', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        await writeFile(path.join(shell.folder, 'ca.pem'), CERTIFICATE);
        const rabbit = { url: await tlsDoor(broker.url), tls: { ca: './ca.pem' } };
        await shell.configure({ relay: { to: { exchange } } }, { rabbit });
        const [id] = await shell.emit([{ routingKey: 'a' }]);
        const running = started(shell, ['outbox', 'relay']);
        await running.printed(/to exchange \S+ at amqps:/);
        await expect.poll(take).toMatchObject({ id });
      });

      test('without its tables it ends with 3, and says how they are made', async () => {
        const [shell, broker] = [await outboxShell({ isMade: false }), await rabbitShell()];
        const to = ['--url', broker.url, '--exchange', 'x'];
        const ran = await shell.outbox(['relay', ...to]);
        expect(ran.code).toBe(3);
        expect((ran.stdout + ran.stderr).match(/respool outbox init/g)).toHaveLength(1);
        expect(ran.stderr).toContain('respool outbox init');
      });

      test('two at once send every message, and stop when they are told to', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        const words = ['outbox', 'relay', ...shell.flags, '--url', broker.url];
        const both = [1, 2].map(() => started(shell, [...words, '--exchange', exchange]));
        await Promise.all(both.map((one) => one.printed(/relays from/)));
        const ids = await shell.emit(
          Array.from({ length: 200 }, (_, n) => ({ routingKey: 'a', body: n })),
        );
        const seen = new Set<string>();
        const look = (): number => {
          for (let got = take(); got !== undefined; got = take()) seen.add(got.id);
          return seen.size;
        };
        await expect.poll(look).toBe(200);
        expect([...seen].toSorted()).toEqual(ids.toSorted());
        for (const one of both) one.signal('SIGTERM');
        const ends = await Promise.all(both.map(({ ended }) => ended));
        expect(ends.map(({ code }) => code)).toEqual([0, 0]);
      });
    });

    describe('serve', () => {
      test('runs the relay beside the spool, and stops it with the rest', async () => {
        const [shell, broker] = [await outboxShell(), await rabbitShell()];
        const { exchange, take } = await exchangeAt(broker);
        const relay = { to: { exchange } };
        const more = { store: 'memory:', rabbit: { url: broker.url }, serve: { port: 0 } };
        await shell.configure({ relay }, more);
        const running = started(shell, ['serve']);
        await running.printed(/relays from .* to exchange/);
        const [id = ''] = await shell.emit([{ routingKey: 'a', body: 1 }]);
        await expect.poll(take).toMatchObject({ id, body: '1' });
        await running.printed(new RegExp(`${id} relay delivered topic=a`));
        running.signal('SIGTERM');
        const { code, stdout } = await running.ended;
        expect(code).toBe(0);
        expect(stdout).not.toContain('nothing is delivered');
        expect(await isEmpty(shell)).toBe(true);
      });
    });
  });
});

test('serve tells in its health what its relay does, and since when the broker is away', async () => {
  const shell = await setup();
  const outbox = {
    store: 'sqlite:./app.db',
    relay: { to: { amqp: 'amqp://127.0.0.1:1', exchange: 'x' } },
  };
  const config = { store: 'memory:', serve: { port: 0 }, outbox };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  await shell.cli(['outbox', 'init']);
  const database = new Sqlite(path.join(shell.folder, 'app.db'));
  onTestFinished(() => void database.close());
  const own = createOutbox({ database });
  own.transaction((tx) => own.emit(tx, 'a', 1));
  const running = started(shell, ['serve']);
  const [, url = ''] = await running.printed(/listening on (\S+?),/);
  const health = async (): Promise<unknown> => (await fetch(`${url}/healthz`)).json();
  await expect.poll(health).toMatchObject({
    ok: true,
    relay: { state: 'sending', target: 'open', downSince: expect.any(Number) },
  });
});

withService('postgres', () => {
  test('{ spool: true } puts messages into the spool of the configuration, whose routes deliver', async () => {
    const shell = await outboxShell();
    const routes = [{ topic: 'order.*', deliver: { exec: ['cat'] } }];
    const more = { store: 'memory:', serve: { port: 0 }, routes };
    await shell.configure({ relay: { to: { spool: true } } }, more);
    const running = started(shell, ['serve', '--log-level', 'debug']);
    await running.printed(/relays from .* to the spool/);
    const [id = ''] = await shell.emit([{ routingKey: 'order.created', body: 'hello' }]);
    await running.printed(new RegExp(`${id} accepted topic=order.created`));
    await expect.poll(() => isEmpty(shell)).toBe(true);
    // Once as sent on, by the relay, and once as delivered by its route.
    await running.printed(new RegExp(`${id} relay delivered`));
    await running.printed(new RegExp(`${id} delivered`));
  });

  test('--spool puts them into the store of the configuration, where others deliver', async () => {
    const shell = await outboxShell();
    await shell.configure({}, { store: 'sqlite:./respool' });
    const [id = ''] = await shell.emit([{ routingKey: 'order.created', body: 'hello' }]);
    const running = started(shell, ['outbox', 'relay', '--spool', '--verbose']);
    await running.printed(new RegExp(`${id} delivered`));
    running.signal('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect((await shell.cli(['cat', id])).stdout).toBe('hello');
  });

  test('a relay that an operator paused says so', async () => {
    const shell = await outboxShell();
    await shell.configure({}, { store: 'sqlite:./respool' });
    await shell.outbox(['pause', 'mail.*']);
    const running = started(shell, ['outbox', 'relay', '--spool']);
    await running.printed(/paused: mail\.\* waits until respool outbox resume mail\.\*/);
  });

  test('{ http } posts each message, and no private address unless that is meant', async () => {
    const shell = await outboxShell();
    const { promise: posted, resolve } = Promise.withResolvers<string>();
    const server = createHttp((request, response) => {
      let text = '';
      request.on('data', (piece: Buffer) => (text += piece.toString()));
      request.on('end', () => {
        resolve(text);
        response.writeHead(204).end();
      });
    });
    const { promise: listening, resolve: heard } = Promise.withResolvers<void>();
    server.listen(0, '127.0.0.1', heard);
    await listening;
    onTestFinished(() => void server.close());
    const { port } = server.address() as { port: number };
    const url = `http://127.0.0.1:${port}/hook`;
    const refused = await shell.outbox(['relay', '--http', url]);
    expect(refused.stderr).toContain('"127.0.0.1" is not public');
    await shell.configure({ relay: { to: { http: { url, allow: ['127.0.0.1'] } } } });
    await shell.emit([{ routingKey: 'order.created', body: { n: 1 } }]);
    const running = started(shell, ['outbox', 'relay']);
    await running.printed(/relays from .* to http http:\/\/127\.0\.0\.1/);
    expect(await posted).toBe('{"n":1}');
    await expect.poll(() => isEmpty(shell)).toBe(true);
  });
});

describe('wrong usage of outbox relay', () => {
  const store = ['--store', 'postgres://127.0.0.1:1/x'];
  test.each([
    [[...store], 'there is nowhere to send to'],
    [[...store, '--url', 'amqp://x'], 'name the exchange with --exchange'],
    [[...store, '--url', 'http://x', '--exchange', 'x'], 'allowed is amqp://… or amqps://…'],
    [[...store, '--exchange', 'x'], '"rabbit.url"'],
    [[...store, '--exchange', 'x', '--spool'], 'a relay sends to one place'],
    [[...store, '--spool', '--batch', '0'], '--batch'],
    [[...store, '--spool', '--concurrency', 'many'], '--concurrency'],
    [[...store, '--spool', '--clean-up', 'soon'], '"outbox.relay.cleanUp"'],
    [[...store, '--spool', '--topics', 'a..b'], '"outbox.relay.topics"'],
    [[...store, '--spool', '--lease', 'long'], '--lease'],
    [[...store, '--spool', '--listen-url', 'x'], '"outbox.listenUrl"'],
  ])('%j is refused with 2', async (words, text) => {
    const { cli } = await setup();
    const ran = await cli(['outbox', 'relay', ...words]);
    expect(ran.stderr).toContain(text);
    expect(ran.code).toBe(2);
  });
});
