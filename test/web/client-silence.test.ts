/** A service that takes a connection and says nothing is given up; one that is slow is not. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import type { Operator } from 'respool/operator';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { connectOperator } from 'respool/web';
import { all, rejection } from '../spool/setup.ts';
import { moving } from './setup.ts';

interface Far {
  readonly far: Operator;
  readonly clock: SimClock;
}

function clientOf(port: number): Far {
  const clock = new SimClock();
  return { far: connectOperator({ url: `http://127.0.0.1:${port}`, clock }), clock };
}

/** Something that accepts connections and never writes. */
async function silent(): Promise<Far> {
  const sockets = new Set<{ destroy(): void }>();
  const server = createTcpServer((socket) => {
    sockets.add(socket.on('error', () => undefined).resume());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return clientOf((server.address() as AddressInfo).port);
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

async function answering(answer: Answer): Promise<Far> {
  const server = createServer((request, response) => {
    request.resume();
    answer(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return clientOf((server.address() as AddressInfo).port);
}

const HEAD = { respool: 'v1', 'content-type': 'application/json' };

describe('what accepts connections and never answers', () => {
  test.each<[string, (far: Operator) => Promise<unknown>]>([
    ['a look', (far) => far.pauses()],
    ['a body', (far) => far.body('x')],
    ['events', (far) => all(far.events({ signal: new AbortController().signal }))],
  ])('is given up at %s, with what to do', async (_, ask) => {
    const { far, clock } = await silent();
    const error = await moving(clock, rejection(ask(far)));
    expect(error).toMatchObject({ code: 'store.unavailable' });
    expect(error.message).toMatch(
      /^what listens at http:\S+ did not answer within 10 s, not even to \/healthz; check that/,
    );
    expect(error.message).not.toContain('look before you repeat');
  });

  test('is given up at an action, which says that its end is not known', async () => {
    const { far, clock } = await silent();
    const error = await moving(clock, rejection(far.pause('a')));
    expect(error.message).toContain('did not answer within 10 s');
    expect(error.message).toContain('whether it was done is not known');
  });
});

test('a request that takes minutes is waited for while /healthz is answered', async () => {
  const started = Promise.withResolvers<ServerResponse>();
  const { far, clock } = await answering((request, response) => {
    if (request.url === '/healthz') response.writeHead(200, HEAD).end('{"ok":true}');
    else started.resolve(response);
  });
  const asked = far.pauses();
  const response = await started.promise;
  const until = clock.now() + 180_000;
  const slow = (async () => {
    while (clock.now() < until) await new Promise((resolve) => setImmediate(resolve));
    response.writeHead(200, HEAD).end('{"pauses":[]}');
    return asked;
  })();
  expect(await moving(clock, slow)).toEqual([]);
});

test('a service that answered before is given a minute when it falls silent', async () => {
  let isSilent = false;
  const { far, clock } = await answering((_, response) => {
    if (!isSilent) response.writeHead(200, HEAD).end('{"pauses":[]}');
  });
  await far.pauses();
  isSilent = true;
  const from = clock.now();
  const error = await moving(clock, rejection(far.pauses()));
  expect(error.message).toContain('did not answer within 60 s');
  expect(clock.now() - from).toBeGreaterThanOrEqual(60_000);
});

test('an answer that stops in its middle is given up too', async () => {
  let isSilent = false;
  const { far, clock } = await answering((_, response) => {
    if (isSilent) return;
    isSilent = true;
    response.writeHead(200, HEAD).write('{"pauses":');
  });
  const error = await moving(clock, rejection(far.pauses()));
  expect(error.message).toMatch(/did not answer within \d+ s/);
});

test('a host that does not exist was not asked, and the error does not say it might have', async () => {
  const far = connectOperator({ url: 'http://nowhere.invalid:7667' });
  const error = await rejection(far.pause('a'));
  expect(error.message).toMatch(
    /^cannot reach http:\/\/nowhere\.invalid:7667: .*check the address/,
  );
});
