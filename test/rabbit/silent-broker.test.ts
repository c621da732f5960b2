/** A port that takes connections and says nothing is no broker, and the error says what to check. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { connectAmqp } from '../../src/rabbit/connection/connection.ts';
import { rejection } from '../spool/setup.ts';

test('a connection to what never answers ends in its time, with what to check', async () => {
  const server = createServer((socket) => socket.on('error', () => undefined).resume());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
  });
  const url = `amqp://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const error = await rejection(connectAmqp(url, { timeoutMs: 100 }));
  expect(error).toMatchObject({ code: 'broker.unavailable' });
  expect(error.message).toMatch(/ETIMEDOUT; check that the broker is well, .* port of AMQP: 5672/);
});
