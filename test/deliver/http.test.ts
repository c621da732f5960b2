/** The HTTP handler against a real server: what it sends, and over which connections. */
import { createHmac } from 'node:crypto';
import { fixed, type SpoolEvent } from 'respool';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { http } from 'respool/deliver';
import { makeHttp } from '../../src/deliver/http/http.ts';
import { answer, brief, largeBody, makeDelivery, receiver } from './setup.ts';

const allow = ['127.0.0.1'];

describe('a request', () => {
  test('carries the body, its type, and which message it is', async () => {
    const { url, seen } = await receiver();
    const handler = http({ url: `${url}?a=1`, allow });
    expect(await brief(handler, { attempt: 3, headers: { subject: 'kept' } })).toBe('delivered');
    expect(seen).toHaveLength(1);
    expect(seen[0]).toMatchObject({ method: 'POST', url: '/hook?a=1' });
    expect(seen[0]?.body.toString()).toBe('{"hello":1}');
    const { host: _host, connection: _connection, ...headers } = seen[0]?.headers ?? {};
    expect(headers).toEqual({
      'user-agent': 'respool',
      'content-type': 'application/octet-stream',
      'content-length': '11',
      'idempotency-key': 'message-1',
      'respool-id': 'message-1',
      'respool-attempt': '3',
      'respool-topic': 'webhook.new',
    });
  });

  test.each(['POST', 'PUT', 'PATCH'] as const)(
    'uses the method %s when told so',
    async (method) => {
      const { url, seen } = await receiver();
      await http({ url, allow, method })(makeDelivery().delivery);
      expect(seen[0]?.method).toBe(method);
    },
  );

  test('has the content type of the message, else the one of the options', async () => {
    const { url, seen } = await receiver();
    const handler = http({ url, allow, contentType: 'text/csv' });
    await brief(handler);
    await brief(handler, { headers: { 'Content-Type': 'application/json' } });
    expect(seen.map(({ headers }) => headers['content-type'])).toEqual([
      'text/csv',
      'application/json',
    ]);
  });

  test('has the fixed headers, and of the message only those that are named', async () => {
    const { url, seen } = await receiver();
    const handler = http({
      url,
      allow,
      headers: { Authorization: 'Bearer abc', 'user-agent': 'mine' },
      forward: ['X-Customer', 'missing'],
    });
    await brief(handler, { headers: { 'x-customer': 'Zoë ☂', 'x-other': 'no' } });
    const headers: Record<string, unknown> = seen[0]?.headers ?? {};
    expect(headers).toMatchObject({ authorization: 'Bearer abc', 'user-agent': 'mine' });
    expect(Buffer.from(String(headers['x-customer']), 'latin1').toString()).toBe('Zoë ☂');
    expect(headers).not.toHaveProperty('x-other');
    expect(headers).not.toHaveProperty('missing');
  });

  test('cannot be given more headers by a header of the message', async () => {
    const { url, seen } = await receiver();
    const handler = http({ url, allow, forward: ['x-note'] });
    for (const text of ['a\r\nx-evil: 1', 'a\nb', 'a\0b', 'a\rb']) {
      expect(await brief(handler, { headers: { 'x-note': text } })).toContain(
        'permanent http.header: the message header "x-note" cannot be sent',
      );
      expect(await brief(handler, { headers: { 'content-type': text } })).toContain(
        'permanent http.header',
      );
    }
    expect(seen).toEqual([]);
  });

  test('never goes where a header of the message says', async () => {
    const { url, seen } = await receiver();
    const other = await receiver();
    const headers = { url: other.url, host: `127.0.0.1:${other.port}`, location: other.url };
    await brief(http({ url, allow }), { headers });
    expect([seen.length, other.seen.length]).toEqual([1, 0]);
    expect(seen[0]?.headers.host).toBe(new URL(url).host);
  });

  test('goes to the URL of its destination; without one the message is held', async () => {
    const [ann, bob] = [await receiver(), await receiver()];
    const handler = http({ urls: { ann: ann.url, bob: bob.url }, allow });
    expect(await brief(handler, { destination: 'bob' })).toBe('delivered');
    expect([ann.seen.length, bob.seen.length]).toEqual([0, 1]);
    expect(await brief(handler, {})).toBe(
      'held destination.unknown: the message has no destination; name it in the option "urls"',
    );
    for (const destination of ['eve', '__proto__', 'constructor']) {
      expect(await brief(handler, { destination })).toContain('held destination.unknown');
    }
  });

  test('of a bounce notice is told apart from the delivery', async () => {
    const { url, seen } = await receiver();
    const lastFailure = {
      permanence: 'permanent',
      code: 'http.410',
      reason: 'gone',
      fingerprint: 'x',
    } as const;
    await brief(http({ url, allow }), { lane: 'notice', lastFailure });
    expect(seen[0]?.headers).toMatchObject({
      'idempotency-key': 'message-1-notice',
      'respool-id': 'message-1',
      'respool-lane': 'notice',
      'respool-last-code': 'http.410',
    });
  });
});

describe('a signature', () => {
  const text = 'a secret of more than sixteen bytes';
  const raw = Buffer.from('0123456789abcdef0123456789abcdef');
  const encoded = `whsec_${raw.toString('base64')}`;
  const expected = (key: Uint8Array, body: string, seconds: number) =>
    `v1,${createHmac('sha256', key).update(`message-1.${seconds}.${body}`).digest('base64')}`;

  test('is made with every key of a list, so that keys can be changed', async () => {
    const { url, seen } = await receiver();
    const clock = new SimClock();
    const seconds = Math.floor(clock.now() / 1_000);
    for (const secret of [text, encoded, [encoded, text]]) {
      await brief(makeHttp({ url, allow, secret }, { clock }));
    }
    const body = '{"hello":1}';
    const byText = expected(Buffer.from(text), body, seconds);
    const byRaw = expected(raw, body, seconds);
    expect(seen.map(({ headers }) => headers['webhook-signature'])).toEqual([
      byText,
      byRaw,
      `${byRaw} ${byText}`,
    ]);
    expect(seen[0]?.headers).toMatchObject({
      'webhook-id': 'message-1',
      'webhook-timestamp': String(seconds),
    });
  });

  test('is over the whole of a body that is only streamed', async () => {
    const { url, seen } = await receiver();
    const size = 3 * 2 ** 20 + 17;
    const stream = largeBody(size);
    expect(await brief(http({ url, allow, secret: encoded }), { size, stream })).toBe('delivered');
    const { headers = {}, body = Buffer.alloc(0) } = seen[0] ?? {};
    expect(body).toHaveLength(size);
    const seconds = Number(headers['webhook-timestamp']);
    expect(headers['webhook-signature']).toBe(expected(raw, body.toString('latin1'), seconds));
  });
});

describe('connections', () => {
  test('are used again, and never more than allowed', async () => {
    const { url, seen, connections } = await receiver(answer(500, 'no'));
    const handler = http({ url, allow, connections: 3 });
    for (let at = 0; at < 20; at += 1) await brief(handler);
    // A socket rests for one turn of the loop after its answer, so two of them take turns.
    expect(connections()).toBeLessThanOrEqual(2);
    await Promise.all(Array.from({ length: 30 }, () => brief(handler)));
    expect(seen).toHaveLength(50);
    expect(connections()).toBe(3);
    await handler.close?.();
  });

  test('are closed by close(), and made again for the next delivery', async () => {
    const { url, server, connections } = await receiver();
    const handler = http({ url, allow });
    await handler.close?.();
    await brief(handler);
    const ended = new Promise<void>((resolve) => {
      const look = () =>
        server.getConnections((_error, count) => (count === 0 ? resolve() : setImmediate(look)));
      look();
    });
    await handler.close?.();
    await ended;
    expect(await brief(handler)).toBe('delivered');
    expect(connections()).toBe(2);
    await handler.close?.();
  });

  test('do not go through a proxy of the environment', async () => {
    const [target, proxy] = [await receiver(), await receiver()];
    const names = ['http_proxy', 'HTTP_PROXY', 'all_proxy', 'NODE_USE_ENV_PROXY'];
    for (const name of names) process.env[name] = proxy.url;
    onTestFinished(() => {
      for (const name of names) delete process.env[name];
    });
    await brief(http({ url: target.url, allow }));
    expect([target.seen.length, proxy.seen.length]).toEqual([1, 0]);
  });
});

describe('through the engine', () => {
  test('a Retry-After decides when the message is due, and the notes stay with it', async () => {
    const { url } = await receiver(answer(503, 'busy', { 'retry-after': '120' }));
    const { spool, clock } = await createTestSpool({ policies: { default: fixed('1h') } });
    onTestFinished(() => spool.stop());
    spool.handle('webhook.*', http({ url, allow }));
    const deferred = new Promise<SpoolEvent>((resolve) => spool.on('deferred', resolve));
    const at = clock.now();
    const { id } = await spool.enqueue({ topic: 'webhook.new', body: { hello: 1 } });
    await deferred;
    const entry = await spool.get(id);
    expect(entry?.status).toMatchObject({
      state: 'deferred',
      dueAt: at + 120_000,
      because: { code: 'http.503' },
      notes: { 'http-status': '503', 'http-response': 'busy' },
    });
  });

  test('a 410 bounces, and the notice goes to another URL', async () => {
    const gone = await receiver(answer(410, 'no such hook'));
    const operator = await receiver();
    const { spool } = await createTestSpool();
    onTestFinished(() => spool.stop());
    spool.handle('webhook.*', http({ url: gone.url, allow }));
    spool.onBounce('webhook.*', http({ url: operator.url, allow }));
    const announced = new Promise<SpoolEvent>((resolve) => spool.on('announced', resolve));
    await spool.enqueue({ topic: 'webhook.new', body: 'hello' });
    await announced;
    expect(gone.seen).toHaveLength(1);
    expect(operator.seen[0]?.headers).toMatchObject({
      'respool-lane': 'notice',
      'respool-last-code': 'http.410',
    });
    expect(operator.seen[0]?.body.toString()).toBe('hello');
  });

  test('the time limit of a route ends the request', async () => {
    const arrived = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<void>();
    const { url } = await receiver((request) => {
      request.socket.on('close', closed.resolve);
      arrived.resolve();
    });
    const { spool, clock } = await createTestSpool({ policies: { default: fixed('1h') } });
    onTestFinished(() => spool.stop());
    spool.handle('webhook.*', http({ url, allow }), { timeout: '10s' });
    const { id } = await spool.enqueue({ topic: 'webhook.new', body: 'hello' });
    await arrived.promise;
    await clock.advance('11s');
    await closed.promise;
    expect((await spool.get(id))?.status).toMatchObject({
      state: 'deferred',
      because: { code: 'timeout' },
    });
  });
});

describe('a secret that has no value', () => {
  test('sends nothing unsigned: the message is held, and a check says why', async () => {
    const { url, seen } = await receiver();
    const handler = http({ url, allow, secret: undefined });
    expect(await brief(handler)).toMatch(/^held http\.secret: /);
    expect(seen).toEqual([]);
    expect(handler.describe()['secret']).toBe('(missing)');
    expect(() => handler.check?.()).toThrow(/"secret" has no value; set the variable/);
  });

  test('is another thing than no secret at all', async () => {
    const { url } = await receiver();
    const handler = http({ url, allow });
    expect(() => handler.check?.()).not.toThrow();
    expect(await brief(handler)).toBe('delivered');
  });
});
