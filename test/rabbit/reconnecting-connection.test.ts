/** reconnecting-connection — a connection that comes back by itself, and can be given up at any time. */

import { EventEmitter } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { SimClock } from 'respool/testkit';
import { type AmqpConnection, createConnection } from 'respool/rabbit';
import { isRespoolError } from 'respool';
import { ReconnectingConnection } from '../../src/rabbit/connection/reconnecting-connection.ts';

class FakeConnection extends EventEmitter {
  closed = 0;
  close(): Promise<void> {
    this.closed += 1;
    this.emit('close');
    return Promise.resolve();
  }
}

function setup(opens: (() => Promise<FakeConnection>)[], isOwned = true) {
  const clock = new SimClock();
  let tries = 0;
  const connection = new ReconnectingConnection({
    clock,
    dice: { random: () => 0.999 },
    isOwned,
    open: async () => {
      const open = opens[Math.min(tries, opens.length - 1)];
      tries += 1;
      return (await open?.()) as unknown as AmqpConnection;
    },
  });
  const events: string[] = [];
  connection.on(({ kind }) => events.push(kind));
  return { clock, connection, events, tries: () => tries };
}

const up =
  (connection = new FakeConnection()) =>
  () =>
    Promise.resolve(connection);
const down = () => Promise.reject(new Error('refused'));

test('a lost connection is opened again, after waits that grow', async () => {
  const first = new FakeConnection();
  const { clock, connection, events, tries } = setup([up(first), down, down, up()]);
  await connection.connected();
  first.emit('close', new Error('gone'));
  expect(connection.isUp).toBe(false);
  await clock.advance(100);
  expect(tries()).toBe(2);
  await clock.advance(100);
  expect(tries()).toBe(2);
  await clock.advance(100);
  expect(tries()).toBe(3);
  await clock.advance(400);
  expect(tries()).toBe(4);
  expect(events).toEqual(['up', 'down', 'up']);
});

test('a wait for the connection ends with its signal, however long a try takes', async () => {
  const { connection } = setup([() => new Promise(() => undefined)]);
  const abort = new AbortController();
  const waiting = connection.connected(abort.signal);
  abort.abort();
  await expect(waiting).rejects.toThrow(/connection to RabbitMQ/);
});

test('a close ends every wait, and what opens afterwards is closed again', async () => {
  let open: (connection: FakeConnection) => void = () => undefined;
  const { connection } = setup([
    () =>
      new Promise((resolve) => {
        open = resolve;
      }),
  ]);
  const waiting = connection.connected();
  await connection.close();
  await expect(waiting).rejects.toThrow('closed by us');
  const late = new FakeConnection();
  open(late);
  await new Promise((resolve) => setImmediate(resolve));
  expect(late.closed).toBe(1);
  await expect(connection.connected()).rejects.toThrow('closed by us');
});

test('a connection that was passed in is neither opened again nor closed', async () => {
  const given = new FakeConnection();
  const { connection, events, tries } = setup([up(given)], false);
  await connection.connected();
  given.emit('close', new Error('gone'));
  expect(events).toEqual(['up', 'down']);
  const error: unknown = await connection.connected().catch((thrown: unknown) => thrown);
  expect(isRespoolError(error, 'broker.unavailable')).toBe(true);
  expect(tries()).toBe(1);
  await connection.close();
  expect(given.closed).toBe(0);
});

test('alarms of the broker are told, and forgotten with the connection', async () => {
  const first = new FakeConnection();
  const { connection, events } = setup([up(first), up()]);
  await connection.connected();
  first.emit('blocked', 'low on memory');
  expect(connection.isBlocked).toBe(true);
  first.emit('unblocked');
  expect(connection.isBlocked).toBe(false);
  first.emit('blocked', 'low on memory');
  first.emit('close');
  expect(connection.isBlocked).toBe(false);
  expect(events).toEqual(['up', 'blocked', 'unblocked', 'blocked', 'down']);
});

test('a broker that takes the connection and says nothing is given up after the timeout', async () => {
  const server = createServer(() => undefined).listen(0, '127.0.0.1');
  onTestFinished(() => {
    server.close();
  });
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  const url = `amqp://user:sesam@127.0.0.1:${port}`;
  const connection = createConnection({ url, timeout: 100 });
  onTestFinished(() => connection.close());
  const error: unknown = await connection.publishing
    .tryConnect()
    .catch((thrown: unknown) => thrown);
  expect(isRespoolError(error, 'broker.unavailable')).toBe(true);
  expect(String(error)).toContain(`amqp://127.0.0.1:${port}`);
  expect(String(error)).not.toContain('sesam');
});
