/** The options of http(): refused at once when they are wrong, shown without their secrets. */
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { http, type HttpOptions } from 'respool/deliver';
import { CERTIFICATE, KEY } from './certificate.ts';
import { brief } from './setup.ts';

const url = 'https://example.com/hook';

describe('http() refuses', () => {
  const cases: readonly (readonly [what: string, options: unknown, text: string])[] = [
    ['no options', undefined, 'cannot use undefined as "options of http()"'],
    ['a strange name', { url, uri: 1 }, 'there is no option "uri" of http()'],
    ['no URL', {}, 'one of the two'],
    ['two sorts of URL', { url, urls: { a: url } }, 'one of the two'],
    ['no destinations', { urls: {} }, 'at least one destination'],
    ['destinations without a name', { urls: { '': url } }, 'destinations of 1 to 255'],
    ['destinations as a list', { urls: [url] }, 'an object of destinations to URLs'],
    ['a URL that is none', { url: 'example.com' }, 'cannot use "example.com" as "url"'],
    ['another protocol', { url: 'ftp://example.com' }, "an 'http://' or 'https://' URL"],
    ['a file', { url: 'file:///etc/passwd' }, "an 'http://' or 'https://' URL"],
    ['a fragment', { url: `${url}#top` }, 'without user, password and fragment'],
    ['a user', { url: 'https://ann@example.com' }, 'give them as a header in "headers"'],
    ['a number as URL', { url: 7 }, 'cannot use 7 as "url"'],
    ['a method that sends nothing', { url, method: 'GET' }, 'allowed is POST | PUT | PATCH'],
    ['headers as a list', { url, headers: ['a'] }, 'an object of names to texts'],
    ['a header that is no text', { url, headers: { a: 1 } }, 'cannot use "number" as "headers.a"'],
    ['a header name with a blank', { url, headers: { 'a b': 'c' } }, 'a header name'],
    ['a header name with a line end', { url, headers: { 'a\r\nb': 'c' } }, 'a header name'],
    ['a header twice', { url, headers: { a: '1', A: '2' } }, 'each name once'],
    ['a line end in a header', { url, headers: { a: 'b\r\nc: d' } }, 'one line of up to 8,192'],
    ['NUL in a header', { url, headers: { a: 'b\0' } }, 'one line of up to 8,192'],
    ['a header beyond Latin-1', { url, headers: { a: '☂' } }, 'Latin-1'],
    ['host', { url, headers: { Host: 'a' } }, 'how the request is framed'],
    ['content-length', { url, headers: { 'Content-Length': '1' } }, 'how the request is framed'],
    ['transfer-encoding', { url, headers: { 'transfer-encoding': 'a' } }, 'is framed'],
    ['connection', { url, headers: { connection: 'close' } }, 'how the request is framed'],
    ['proxy headers', { url, headers: { 'proxy-authorization': 'a' } }, 'is framed'],
    ['content-type in headers', { url, headers: { 'content-type': 'a/b' } }, 'use "contentType"'],
    ['our own headers', { url, headers: { 'respool-id': '1' } }, 'the handler writes'],
    ['the idempotency key', { url, headers: { 'idempotency-key': '1' } }, 'the handler writes'],
    ['a signature by hand', { url, headers: { 'webhook-signature': '1' } }, 'handler writes'],
    ['forwarding one name alone', { url, forward: 'a' }, 'a list of texts'],
    ['forwarding host', { url, forward: ['Host'] }, 'how the request is framed'],
    ['forwarding a fixed header', { url, headers: { a: '1' }, forward: ['A'] }, 'not in "headers"'],
    ['a content type of two lines', { url, contentType: 'a/b\r\nc: d' }, 'a media type'],
    ['a content type without slash', { url, contentType: 'json' }, 'a media type'],
    ['a short secret', { url, secret: 'short' }, 'a secret of 5 bytes'],
    ['a short secret in base64', { url, secret: 'whsec_YWJj' }, 'a secret of 3 bytes'],
    ['a broken secret', { url, secret: 'whsec_*************************' }, 'without base64'],
    ['no secret in a list', { url, secret: [] }, 'a list of 0'],
    ['a status that is none', { url, transient: [200] }, 'cannot use 200 in "transient"'],
    ['a class that is none', { url, permanent: ['2xx'] }, 'cannot use "2xx" in "permanent"'],
    ['one status alone', { url, transient: 503 }, 'cannot use 503 as "transient"'],
    ['a status in both lists', { url, transient: [503], permanent: [503] }, 'one of the two'],
    ['no time at all', { url, timeout: 0 }, 'as "timeout"'],
    ['a wait that is none', { url, retryAfterMax: 'long' }, 'as "retryAfterMax"'],
    ['a negative size', { url, responseMaxBytes: -1 }, 'as "responseMaxBytes"'],
    ['no connections', { url, connections: 0 }, 'as "connections"'],
    ['a host alone', { url, allow: 'localhost' }, 'a list of texts'],
    ['no certificate', { url, ca: 'x' }, 'certificates as PEM text'],
    ['a certificate as bytes', { url, ca: Buffer.from(CERTIFICATE) }, 'certificates as PEM text'],
    ['a certificate that is none', { url, ca: CERTIFICATE.replaceAll(/M/g, 'N') }, 'as "ca"'],
    ['a key as certificate', { url, ca: KEY }, 'as "ca": allowed is one or more certificates'],
  ];
  test.each(cases)('%s', (_what, options, text) => {
    expect(() => http(options as HttpOptions)).toThrow(
      expect.objectContaining({ code: 'config.invalid', message: expect.stringContaining(text) }),
    );
  });

  test('secrets without saying them', () => {
    const canary = 'canary';
    for (const options of [
      { url: `https://ann:${canary}@example.com/` },
      { url: `https://ann:${canary}@example.com:port/` },
      { url: `https://example.com/?token=${canary}#top` },
      { url: `ftp://example.com/?api_key=${canary}` },
      { url: `ftp://example.com/services/${canary}1234567890` },
      { url: `hooks.example.com/services/${canary}` },
      { url: `https://example.com:port/services/${canary}?a=${canary}` },
      { url: `https://ann:a/${canary}@example.com:port/` },
      { url: `https://example.com/#${canary}` },
      { url, secret: canary },
      { url, headers: { authorization: `${canary}\n` } },
    ]) {
      let text = '';
      try {
        http(options);
      } catch (error) {
        text = String(error);
      }
      expect(text).toContain('cannot use');
      expect(text).not.toContain(canary);
    }
  });
});

describe('describe()', () => {
  test('gives the defaults as plain JSON', () => {
    const described = http({ url }).describe();
    expect(JSON.parse(JSON.stringify(described))).toEqual({
      kind: 'http',
      url,
      method: 'POST',
      headers: {},
      forward: [],
      contentType: 'application/octet-stream',
      transient: [408, 425, 429, '5xx'],
      permanent: ['4xx', '3xx'],
      retryAfterMaxMs: 86_400_000,
      timeoutMs: 30_000,
      responseMaxBytes: 65_536,
      connections: 50,
      allow: [],
    });
  });

  test.each([
    [
      'https://a.example/services/T01/B02/canaryCANARY1234',
      'https://a.example/services/T01/B02/(secret)',
    ],
    ['https://a.example/bot1234:canary-canary/send', 'https://a.example/(secret)/send'],
    ['https://a.example/in/canaryCaNarYcAnaRy', 'https://a.example/in/(secret)'],
    [
      'https://a.example/a?sig=canary&Code=canary&page=2',
      'https://a.example/a?sig=secret&Code=secret&page=2',
    ],
    ['https://a.example/a?x-sig=canary&key=canary', 'https://a.example/a?x-sig=secret&key=secret'],
    ['https://a.example/a?t=canary0123456789', 'https://a.example/a?t=secret'],
    [
      'https://a.example/services/incoming-messages/2026',
      'https://a.example/services/incoming-messages/2026',
    ],
  ])('shows %s as %s', (target, shown) => {
    expect(http({ url: target }).describe()).toMatchObject({ url: shown });
    expect(http({ urls: { a: target } }).describe()).toMatchObject({ urls: { a: shown } });
  });

  test('leaves secrets out', () => {
    const handler = http({
      urls: { a: 'https://example.com/?token=canary&page=2' },
      headers: { Authorization: 'Bearer canary', 'X-Api-Key': 'canary', accept: 'text/plain' },
      secret: ['canary canary canary', 'canary canary canary 2'],
      transient: [408, 425, 429, '5xx', 404],
      permanent: ['4xx', '3xx'],
      ca: CERTIFICATE,
    });
    const described = handler.describe();
    expect(described).toMatchObject({
      urls: { a: 'https://example.com/?token=secret&page=2' },
      headers: { authorization: '(secret)', 'x-api-key': '(secret)', accept: 'text/plain' },
      secret: '(secret)',
      transient: [408, 425, 429, '5xx', 404],
      permanent: ['4xx', '3xx'],
      ca: '(certificates)',
    });
    expect(JSON.stringify(described)).not.toContain('canary');
  });
});

describe('TLS', () => {
  async function secureServer(): Promise<number> {
    const server = createServer({ cert: CERTIFICATE, key: KEY }, (request, response) => {
      request.resume();
      response.end('ok');
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    });
    return (server.address() as AddressInfo).port;
  }

  test('takes certificates of an own authority only when it is given', async () => {
    const target = `https://127.0.0.1:${await secureServer()}/`;
    const allow = ['127.0.0.1'];
    expect(await brief(http({ url: target, allow }))).toContain('transient http.tls');
    expect(await brief(http({ url: target, allow, ca: CERTIFICATE }))).toBe('delivered');
  });

  test('is verified whatever the environment says', async () => {
    const target = `https://127.0.0.1:${await secureServer()}/`;
    const warning = vi.spyOn(process, 'emitWarning').mockReturnValue();
    process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
    onTestFinished(() => {
      warning.mockRestore();
      delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
    });
    const handler = http({ url: target, allow: ['127.0.0.1'] });
    expect(await brief(handler)).toContain('transient http.tls');
  });

  test('refuses a certificate of another name', async () => {
    const target = `https://ip6-localhost.example:${await secureServer()}/`;
    const { makeHttp } = await import('../../src/deliver/http/http.ts');
    const handler = makeHttp(
      { url: target, allow: ['ip6-localhost.example'], ca: CERTIFICATE },
      { resolve: async () => [{ address: '127.0.0.1', family: 4 }] },
    );
    expect(await brief(handler)).toContain('transient http.tls');
  });
});
