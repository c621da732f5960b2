/** How the service ends: by one signal, by two, and what its clients hear meanwhile. */
import { once } from 'node:events';
import { connect } from 'node:net';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { expect, test } from 'vitest';
import { folder, receiver, route, serve, until } from './binary.ts';

test('SIGTERM lets running deliveries finish, takes nothing new, and exits with 0', async () => {
  let finish = (): void => undefined;
  let started = 0;
  const { url } = await receiver((request, response) => {
    started += 1;
    request.resume();
    finish = () => response.end();
  });
  const cwd = await folder({ routes: [route('a', url)], serve: { stopWithin: '30s' } });
  const service = await serve(cwd);
  await fetch(`${service.url}/v1/topics/a/messages`, { method: 'POST', body: 'x' });
  await until(async () => started === 1);
  service.kill('SIGTERM');
  let refused: Response | undefined;
  await until(async () => {
    refused = await fetch(`${service.url}/v1/topics/a/messages`, { method: 'POST', body: 'y' });
    return refused.status === 503;
  });
  expect(refused?.headers.get('retry-after')).toMatch(/^\d+$/);
  expect((await fetch(`${service.url}/readyz`)).status).toBe(503);
  finish();
  expect(await service.ended).toBe(0);
  const again = await serve(cwd);
  const { messages } = (await (await fetch(`${again.url}/v1/messages`)).json()) as {
    messages: unknown[];
  };
  // Posts between the signal and the first 503 may have been taken; the finished one is gone.
  expect(JSON.stringify(messages)).not.toContain('"attempts":2');
});

test('a delivery that does not end in time is given back without cost', async () => {
  let started = 0;
  const { url } = await receiver((request) => {
    started += 1;
    request.resume();
  });
  const cwd = await folder({ routes: [route('a', url)], serve: { stopWithin: '200ms' } });
  const service = await serve(cwd);
  await fetch(`${service.url}/v1/topics/a/messages`, { method: 'POST', body: 'x' });
  await until(async () => started === 1);
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
  const again = await serve(cwd);
  await until(async () => started === 2);
  const { messages } = (await (await fetch(`${again.url}/v1/messages`)).json()) as {
    messages: { status: object }[];
  };
  expect(messages[0]?.status).toMatchObject({ state: 'active', attempts: 1, lost: 0 });
});

test('a second signal ends it at once', async () => {
  let started = 0;
  const { url } = await receiver((request) => {
    started += 1;
    request.resume();
  });
  const cwd = await folder({ routes: [route('a', url)], serve: { stopWithin: '1h' } });
  const service = await serve(cwd);
  await fetch(`${service.url}/v1/topics/a/messages`, { method: 'POST', body: 'x' });
  await until(async () => started === 1);
  service.kill('SIGTERM');
  await until(async () => (await fetch(`${service.url}/readyz`)).status === 503);
  // Not just one: what follows the first within a moment is taken for its echo.
  let code: unknown;
  void service.ended.then((ended) => {
    code = ended;
  });
  await until(async () => {
    service.kill('SIGTERM');
    return code !== undefined;
  });
  expect(code).toBe(143);
});

test('a connection that never asked for anything keeps nobody waiting', async () => {
  const service = await serve(await folder({ serve: { stopWithin: '1h' } }));
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
  await once(socket, 'connect');
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
  socket.destroy();
});

test('clients that stall in the middle of their bodies do not keep it from stopping', async () => {
  const service = await serve(await folder({ serve: { stopWithin: '1s' } }));
  const sockets = ['content-length: 10', 'content-length: 1000000'].map((length) => {
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(`POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\n${length}\r\n\r\nx`);
    return socket;
  });
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  service.kill('SIGTERM');
  // That they get this time but once: test/cli/serve.test.ts, by a clock that stands still.
  expect(await service.ended).toBe(0);
  for (const socket of sockets) socket.destroy();
});

test('with TLS, too, a connection that never asked for anything keeps nobody waiting', async () => {
  const tls = path.join(import.meta.dirname, '../web/tls');
  const cwd = await folder({
    serve: {
      stopWithin: '1h',
      tls: { key: path.join(tls, 'key.pem'), cert: path.join(tls, 'cert.pem') },
    },
  });
  const service = await serve(cwd);
  const port = Number(new URL(service.url).port);
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
  socket.on('error', () => undefined);
  await once(socket, 'secureConnect');
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
  socket.destroy();
});
