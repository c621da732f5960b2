/** sockets — a connection that was ended is gone soon, whatever the other side does. */

import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { Sockets } from '../../../src/stores/postgres/connection.ts';
import { FaultProxy } from '../../nodes/proxy.ts';
import { withService } from '../../services/index.ts';
import { openStore, ownSchema, serverUrl } from './setup.ts';
import { systemClock } from '../../time.ts';

/** A server that never ends what others have ended, and a clock that is moved by hand. */
async function setup() {
  const accepted = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    accepted.add(socket);
    socket.on('error', () => undefined).resume();
  });
  onTestFinished(() => {
    for (const socket of accepted) socket.destroy();
    server.close();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const waiting = new Set<() => void>();
  const after = (_ms: number, call: () => void) => {
    waiting.add(call);
    return () => waiting.delete(call);
  };
  const sockets = new Sockets({ ...systemClock, after });
  const connect = async (): Promise<Socket> => {
    const socket = sockets.make();
    socket.connect((server.address() as AddressInfo).port, '127.0.0.1');
    await once(socket, 'connect');
    return socket;
  };
  return { connect, sockets, waiting, accepted };
}

test('one that was ended and is not answered is dropped', async () => {
  const { connect, waiting } = await setup();
  const socket = await connect();
  socket.end();
  await once(socket, 'finish');
  expect([socket.destroyed, waiting.size]).toEqual([false, 1]);
  for (const call of waiting) call();
  await once(socket, 'close');
  expect(socket.destroyed).toBe(true);
});

test('one that is answered leaves no timer behind', async () => {
  const { connect, waiting, accepted } = await setup();
  const socket = await connect();
  socket.end();
  await once(socket, 'finish');
  for (const other of accepted) other.end();
  await once(socket, 'close');
  expect(waiting.size).toBe(0);
});

test('those that are left when all were ended are dropped, though they do not tell', async () => {
  const { connect, sockets, waiting } = await setup();
  const [first, second] = [await connect(), await connect()];
  sockets.ended();
  expect(waiting.size).toBe(1);
  const gone = Promise.all([once(first, 'close'), once(second, 'close')]);
  for (const call of waiting) call();
  await gone;
  sockets.ended();
  expect(waiting.size).toBe(0);
});

withService('postgres', () => {
  // Regression: a node whose connections had vanished said that it had stopped, and lived on.
  test('a store whose connections vanished is closed soon', async () => {
    const url = await serverUrl();
    const proxy = await FaultProxy.start(url);
    onTestFinished(() => proxy[Symbol.asyncDispose]());
    const place = { url: proxy.url, listenUrl: proxy.url, schema: ownSchema() };
    const store = await openStore(place);
    proxy.spoil('vanish');
    // Without the time limit of its own it would wait for the operating system: 15 minutes.
    await store.close();
  });
});
