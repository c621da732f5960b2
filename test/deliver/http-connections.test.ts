/** Connections that are used again, and what happens to a request that one of them swallows. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { http } from 'respool/deliver';
import { makeHttp } from '../../src/deliver/http/http.ts';
import { CERTIFICATE, KEY } from './certificate.ts';
import { brief, largeBody } from './setup.ts';

const allow = ['127.0.0.1'];
/** With one connection it is known which one is used again. */
const one = { allow, connections: 1 };
const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';
type Request = { readonly head: string; readonly connection: number; readonly nth: number };

/** A server that speaks for itself; it tells of every whole request, and where it came in. */
async function wire(
  answering: (socket: Socket, request: Request) => void,
  { isTls = false }: { readonly isTls?: boolean } = {},
) {
  const requests: Request[] = [];
  const sockets: Socket[] = [];
  const onSocket = (socket: Socket): void => {
    const connection = sockets.push(socket);
    let nth = 0;
    let text = '';
    socket.on('error', () => undefined);
    socket.on('data', (part) => {
      text += part.toString('latin1');
      const end = text.indexOf('\r\n\r\n') + 4;
      const size = Number(/^content-length: (\d+)/im.exec(text)?.[1]);
      if (end < 4 || text.length < end + size) return;
      const request = { head: text.slice(0, end), connection, nth: (nth += 1) };
      text = '';
      requests.push(request);
      answering(socket, request);
    });
  };
  const server: Server = isTls
    ? createTlsServer({ key: KEY, cert: CERTIFICATE }, onSocket)
    : createServer(onSocket);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  const { port } = server.address() as AddressInfo;
  return { url: `${isTls ? 'https' : 'http'}://127.0.0.1:${port}/`, requests };
}

/** Answers the first request of each connection, and loses the connection with the second. */
function onceEach(lose: (socket: Socket) => void) {
  return (socket: Socket, { nth }: Request): void => {
    if (nth === 1) socket.write(OK);
    else lose(socket);
  };
}

const ways: readonly (readonly [string, (socket: Socket) => void])[] = [
  ['closes', (socket) => socket.end()],
  ['resets', (socket) => socket.resetAndDestroy()],
];

describe('a connection that was used before', () => {
  // Regression: the receiver's idle limit cost an attempt, and without another one the message.
  test.each(ways)('and %s without an answer costs no attempt', async (_way, lose) => {
    const { url, requests } = await wire(onceEach(lose));
    const handler = http({ url, ...one });
    for (let at = 0; at < 4; at += 1) expect(await brief(handler)).toBe('delivered');
    const where = requests.map(({ connection, nth }) => `${connection}.${nth}`);
    // The request goes again over a connection of its own, which is not kept.
    expect(where).toEqual(['1.1', '1.2', '2.1', '3.1', '3.2', '4.1']);
    const [, lost, again] = requests.map(({ head }) => head);
    expect(again).toContain('idempotency-key: message-1\r\n');
    expect(again?.replace('connection: close', 'connection: keep-alive')).toBe(lost);
  });

  test('over TLS is no different', async () => {
    const { url, requests } = await wire(
      onceEach((socket) => socket.end()),
      { isTls: true },
    );
    const handler = http({ url, ...one, ca: CERTIFICATE });
    expect(await brief(handler)).toBe('delivered');
    expect(await brief(handler)).toBe('delivered');
    expect(requests).toHaveLength(3);
  });

  test('and breaks under a streamed body gets the stream from its start', async () => {
    const size = 1_000_000;
    const { url, requests } = await wire(onceEach((socket) => socket.resetAndDestroy()));
    const handler = http({ url, ...one });
    expect(await brief(handler)).toBe('delivered');
    expect(await brief(handler, { size, stream: largeBody(size) })).toBe('delivered');
    expect(requests.map(({ connection }) => connection)).toEqual([1, 1, 2]);
  });

  test('is made up for once, and then it is a failure', async () => {
    const { url, requests } = await wire((socket, { connection, nth }) => {
      if (connection === 1 && nth === 1) socket.write(OK);
      else socket.resetAndDestroy();
    });
    const handler = http({ url, ...one });
    expect(await brief(handler)).toBe('delivered');
    expect(await brief(handler)).toContain('transient http.reset');
    expect(requests).toHaveLength(3);
  });

  test('and breaks after the first byte of an answer is a failure', async () => {
    const { url, requests } = await wire(
      onceEach((socket) => socket.write('H', () => socket.end())),
    );
    const handler = http({ url, ...one });
    expect(await brief(handler)).toBe('delivered');
    expect(await brief(handler)).toMatch(/^transient http\./);
    expect(requests).toHaveLength(2);
  });

  test('leaves the second request no more time than the limit of both', async () => {
    const clock = new SimClock();
    const arrived = Promise.withResolvers<void>();
    const { url, requests } = await wire((socket, { connection, nth }) => {
      if (connection === 2) arrived.resolve();
      else if (nth === 1) socket.write(OK);
      else void clock.advance('1s').then(() => socket.end());
    });
    const handler = makeHttp({ url, ...one, timeout: '7s' }, { clock });
    expect(await brief(handler)).toBe('delivered');
    const outcome = brief(handler);
    await arrived.promise;
    await clock.advance('6s');
    expect(await outcome).toContain('transient http.timeout');
    expect(requests).toHaveLength(3);
  });

  test('and is lost after a while is not tried again: it may have been worked on', async () => {
    const clock = new SimClock();
    const { url, requests } = await wire((socket, { nth }) => {
      if (nth === 1) socket.write(OK);
      else void clock.advance(1_001).then(() => socket.end());
    });
    const handler = makeHttp({ url, ...one }, { clock });
    expect(await brief(handler)).toBe('delivered');
    expect(await brief(handler)).toContain('transient http.reset');
    expect(requests).toHaveLength(2);
  });

  test('and is silent until the time is over is not tried again', async () => {
    const clock = new SimClock();
    const arrived = Promise.withResolvers<void>();
    const { url, requests } = await wire(onceEach(() => arrived.resolve()));
    const handler = makeHttp({ url, ...one, timeout: '7s' }, { clock });
    expect(await brief(handler)).toBe('delivered');
    const outcome = brief(handler);
    await arrived.promise;
    await clock.advance('7s');
    expect(await outcome).toContain('transient http.timeout');
    expect(requests).toHaveLength(2);
  });
});

test('a new connection that breaks is a failure at once', async () => {
  const { url, requests } = await wire((socket) => socket.end());
  expect(await brief(http({ url, allow }))).toContain('transient http.reset');
  expect(requests).toHaveLength(1);
});
