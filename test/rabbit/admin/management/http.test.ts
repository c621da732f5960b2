import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import {
  createServer as createNetServer,
  type AddressInfo,
  type Server as NetServer,
} from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createManagement } from 'respool/rabbit';
import { managementUrlOf, vhostOf } from '../../../../src/rabbit/management/http.ts';

const CERT = readFileSync(new URL('../../../web/tls/cert.pem', import.meta.url));
const KEY = readFileSync(new URL('../../../web/tls/key.pem', import.meta.url));
const OVERVIEW: RequestListener = (_, response) => {
  response.setHeader('content-type', 'application/json');
  response.end('{"rabbitmq_version":"4.0.5"}');
};

async function listening(server: Server | NetServer): Promise<number> {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  onTestFinished(() => {
    server.close();
    if ('closeAllConnections' in server) server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

async function answering(listener: RequestListener): Promise<string> {
  return `http://127.0.0.1:${await listening(createServer(listener))}`;
}

describe('a management API that does not behave', () => {
  test('one that never answers is unavailable when the time is up', async () => {
    const server = createNetServer((socket) => onTestFinished(() => void socket.destroy()));
    const url = `http://user:secret-word@127.0.0.1:${await listening(server)}`;
    await using management = createManagement({ url, timeout: '100ms' });
    const asked = management.overview();
    await expect(asked).rejects.toMatchObject({ code: 'broker.unavailable' });
    await expect(asked).rejects.toThrow(/within 100ms/);
    await expect(asked).rejects.not.toThrow(/secret-word/);
  });

  test('one that stops in the middle of an answer is unavailable when the time is up', async () => {
    const url = await answering((_, response) => void response.write('{"a":'));
    await using management = createManagement({ url, timeout: 100 });
    await expect(management.overview()).rejects.toThrow(/within 100ms/);
  });

  test('one that is not there is unavailable, with the plugin named', async () => {
    const server = createNetServer();
    const port = await listening(server);
    await new Promise((resolve) => {
      server.close(resolve);
    });
    await using management = createManagement({ url: `http://127.0.0.1:${port}` });
    const asked = management.overview();
    await expect(asked).rejects.toMatchObject({ code: 'broker.unavailable' });
    await expect(asked).rejects.toThrow(/ECONNREFUSED.*rabbitmq-plugins enable/);
  });

  test.each([
    [403, '{"reason":"vhost"}', 'config.invalid', /set_permissions/],
    [404, 'nothing', 'config.invalid', /list_vhosts/],
    [405, '{"error":"no"}', 'config.invalid', /answered 405 \(no\)/],
    [500, '{"reason":"oops"}', 'broker.unavailable', /answered 500 \(oops\)/],
    [503, '', 'broker.unavailable', /answered 503/],
    [200, '<html>', 'config.invalid', /not the management API/],
  ])('an answer %i %s is %s', async (status, body, code, text) => {
    const url = await answering((_, response) => void response.writeHead(status).end(body));
    await using management = createManagement({ url });
    const asked = management.overview();
    await expect(asked).rejects.toMatchObject({ code });
    await expect(asked).rejects.toThrow(text);
  });

  test('an alarm is told, not thrown', async () => {
    const alarm = { status: 'failed', alarms: [{ node: 'n1', resource: 'memory' }] };
    const url = await answering((_, response) => {
      response.writeHead(503).end(JSON.stringify(alarm));
    });
    await using management = createManagement({ url });
    expect(await management.alarms()).toEqual({ isWell: false, alarms: alarm.alarms });
  });

  test('two who ask at once cause one request, and a failure is not kept', async () => {
    let requests = 0;
    const url = await answering((request, response) => {
      requests += 1;
      if (requests === 1) response.writeHead(500).end();
      else OVERVIEW(request, response);
    });
    await using management = createManagement({ url });
    const both = [management.overview(), management.overview()];
    expect((await Promise.allSettled(both)).map(({ status }) => status)).toEqual([
      'rejected',
      'rejected',
    ]);
    expect(requests).toBe(1);
    expect((await management.overview()).version).toBe('4.0.5');
  });

  test('closing ends what is on its way and refuses what comes later', async () => {
    const reached = Promise.withResolvers<void>();
    const url = await answering(() => reached.resolve());
    const management = createManagement({ url });
    const asked = management.overview();
    await reached.promise;
    await Promise.all([expect(asked).rejects.toThrow(/was closed/), management.close()]);
    await expect(management.nodes()).rejects.toThrow(/was closed/);
  });

  test('a path before /api is kept', async () => {
    const paths: (string | undefined)[] = [];
    const url = await answering((request, response) => {
      paths.push(request.url);
      OVERVIEW(request, response);
    });
    await using management = createManagement({ url: `${url}/rabbit/api/` });
    await management.overview();
    expect(paths).toEqual(['/rabbit/api/overview']);
  });
});

describe('over TLS', () => {
  async function tlsUrl(options: object = {}): Promise<string> {
    const server = createTlsServer({ cert: CERT, key: KEY, ...options }, OVERVIEW);
    return `https://127.0.0.1:${await listening(server)}`;
  }

  test('an unknown certificate is refused with what to do', async () => {
    await using management = createManagement({ url: await tlsUrl() });
    const asked = management.overview();
    await expect(asked).rejects.toMatchObject({ code: 'broker.unavailable' });
    await expect(asked).rejects.toThrow(/not trusted.*tls\.ca/);
  });

  test('a certificate that was given is trusted', async () => {
    const tls = { ca: [CERT], servername: 'localhost' };
    await using management = createManagement({ url: await tlsUrl(), tls });
    expect((await management.overview()).version).toBe('4.0.5');
  });

  test('any certificate is trusted on request', async () => {
    const tls = { rejectUnauthorized: false };
    await using management = createManagement({ url: await tlsUrl(), tls });
    expect((await management.overview()).version).toBe('4.0.5');
  });

  test('a certificate of our own is shown to a server that wants one', async () => {
    const url = await tlsUrl({ requestCert: true, ca: CERT });
    const trust = { ca: CERT, servername: 'localhost' };
    await using without = createManagement({ url, tls: trust });
    await expect(without.overview()).rejects.toMatchObject({ code: 'broker.unavailable' });
    const tls = { ...trust, cert: CERT, key: KEY };
    await using management = createManagement({ url, tls });
    expect((await management.overview()).version).toBe('4.0.5');
  });
});

describe('where the management API is', () => {
  test.each([
    ['amqp://localhost', 'http://localhost:15672', '/'],
    ['amqp://localhost:5673/', 'http://localhost:15672', '/'],
    ['amqp://me:p%40ss@rabbit/%2Fshop', 'http://me:p%40ss@rabbit:15672', '/shop'],
    ['amqps://me:x@rabbit:5671/shop', 'https://me:x@rabbit:15671', 'shop'],
    ['amqp://[::1]:5672', 'http://[::1]:15672', '/'],
  ])('of %s it is guessed as %s, virtual host %s', (amqp, url, vhost) => {
    expect(managementUrlOf(amqp)).toBe(url);
    expect(vhostOf(amqp)).toBe(vhost);
  });

  test.each([
    'ftp://a:secret-word@b',
    'secret-word',
    'http://a:secret-word%@b',
    'http://secret-word:99999',
  ])('a URL that cannot be used is not shown', (url) => {
    const make = (): unknown => createManagement({ url });
    expect(make).toThrow(/URL of RabbitMQ/);
    expect(make).not.toThrow(/secret-word/);
  });

  test('options that do not exist and time limits that make no sense are refused', () => {
    const url = 'http://localhost:15672';
    expect(() => createManagement({ url, timeOut: 1 } as never)).toThrow(/timeOut/);
    expect(() => createManagement({ url, tls: { pfx: '' } as never })).toThrow(/pfx/);
    expect(() => createManagement({ url, timeout: 0 })).toThrow(/1ms to 10m/);
  });
});
