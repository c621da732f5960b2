/** Messages over HTTP: raw bytes and JSON in, 201 after they are durable. */
import { describe, expect, test } from 'vitest';
import { bytesOf } from '../spool/setup.ts';
import { BODY_MAX_BYTES, json, openWire, refusal, setup } from './setup.ts';

const FORM = 'application/x-www-form-urlencoded';
const RAW = '/v1/topics/mail.send/messages';

const count = async (spool: { count(): Promise<Record<string, number>> }): Promise<number> =>
  Object.values(await spool.count()).reduce((sum, one) => sum + one, 0);

describe('a raw post', () => {
  test('keeps the bytes as they are, and answers 201 with the id', async () => {
    const { ask, spool } = await setup();
    const bytes = Buffer.from([0, 255, 13, 10, 128]);
    const answer = await ask(RAW, { method: 'POST', body: bytes });
    expect(answer.status).toBe(201);
    const { id, duplicate } = await json<{ id: string; duplicate: boolean }>(answer);
    expect(duplicate).toBe(false);
    expect(await bytesOf(await spool.body(id))).toEqual(bytes);
    expect((await spool.get(id))?.envelope).toMatchObject({ topic: 'mail.send', headers: {} });
  });

  test('takes every option and header from the request', async () => {
    const { ask, spool } = await setup();
    const answer = await ask(RAW, {
      method: 'POST',
      body: 'x',
      headers: {
        'content-type': 'text/plain',
        'respool-id': 'mine',
        'respool-policy': 'default',
        'respool-priority': '2',
        'respool-delay': '1h',
        'respool-expires': '2h',
        'respool-destination': 'there',
        'respool-dedupe-key': 'key',
        'respool-order-key': 'ann',
        'respool-by': 'ann',
        'respool-header-X-Name': Buffer.from('Jürgen').toString('latin1'),
      },
    });
    expect([answer.status, await json(answer)]).toEqual([201, { id: 'mine', duplicate: false }]);
    const { envelope, status } = (await spool.get('mine')) ?? {};
    expect(envelope).toMatchObject({
      priority: 2,
      destination: 'there',
      dedupeKey: 'key',
      orderKey: 'ann',
      headers: { 'content-type': 'text/plain', 'x-name': 'Jürgen' },
    });
    const enqueuedAt = envelope?.enqueuedAt ?? 0;
    expect(envelope?.expiresAt).toBe(enqueuedAt + 7_200_000);
    expect(status).toMatchObject({ policy: 'default', dueAt: enqueuedAt + 3_600_000 });
  });

  test('is due when respool-due-at says so', async () => {
    const { ask, spool, clock } = await setup();
    const at = clock.now() + 5_000;
    for (const text of [String(at), new Date(at).toISOString()]) {
      const { id } = await json<{ id: string }>(
        ask(RAW, { method: 'POST', headers: { 'respool-due-at': text } }),
      );
      expect((await spool.get(id))?.status.dueAt).toBe(at);
    }
  });

  test('answers 200 to a duplicate, with the id of the first', async () => {
    const { ask } = await setup();
    const send = () =>
      ask(RAW, { method: 'POST', body: 'x', headers: { 'idempotency-key': 'once' } });
    const first = await json<{ id: string }>(send());
    const second = await send();
    expect([second.status, await json(second)]).toEqual([200, { id: first.id, duplicate: true }]);
  });

  test('keeps a body of unknown length, however long it is up to the limit', async () => {
    const { ask, spool } = await setup();
    const parts = Array.from({ length: 10 }, (_, at) => Buffer.alloc(100_000, at));
    const answer = await ask(RAW, {
      method: 'POST',
      body: ReadableStream.from(parts),
      duplex: 'half',
    });
    const { id } = await json<{ id: string }>(answer);
    expect((await bytesOf(await spool.body(id))).equals(Buffer.concat(parts))).toBe(true);
  });

  test.each([
    ['an unknown option', { 'respool-colour': 'red' }],
    ['a priority that is no number', { 'respool-priority': 'high' }],
    ['a priority out of range', { 'respool-priority': '10' }],
    ['a time that is none', { 'respool-due-at': 'tomorrow' }],
    ['a day that no month has', { 'respool-due-at': '2030-02-31' }],
    ['a span that is none', { 'respool-delay': 'soon' }],
    ['an id that could be a path', { 'respool-id': '../x' }],
    ['two different dedupe keys', { 'respool-dedupe-key': 'a', 'idempotency-key': 'b' }],
    ['a reserved header name', { 'respool-header-__proto__': 'x' }],
    ['a constructor as header name', { 'respool-header-constructor': 'x' }],
    ['a header that is no UTF-8', { 'respool-header-a': '\xff\xfe' }],
  ])('refuses %s and keeps nothing', async (_, headers) => {
    const { ask, spool } = await setup();
    const answer = await ask(RAW, { method: 'POST', body: 'x', headers });
    expect(answer.status).toBe(400);
    expect((await json<{ error: object }>(answer)).error).toHaveProperty('message');
    expect(await count(spool)).toBe(0);
  });

  test.each([
    '/v1/topics/a%20b/messages',
    '/v1/topics/%2e%2e%2fa/messages',
    '/v1/topics/%zz/messages',
  ])('refuses the topic of %s', async (path) => {
    const { ask } = await setup();
    expect(await refusal(ask(path, { method: 'POST', body: 'x' }))).toEqual([
      400,
      'message.invalid',
    ]);
  });

  test('is refused when it is packed: nobody would hear of it later', async () => {
    const { ask, spool } = await setup();
    const send = (encoding: string): Promise<Response> =>
      ask(RAW, { method: 'POST', body: 'x', headers: { 'Content-Encoding': encoding } });
    expect(await refusal(send('gzip'))).toEqual([415, 'config.invalid', 'content-encoding']);
    expect(await refusal(send('identity, br'))).toEqual([
      415,
      'config.invalid',
      'content-encoding',
    ]);
    expect(await count(spool)).toBe(0);
    expect((await send('Identity')).status).toBe(201);
  });

  test.each<[string, string | Buffer<ArrayBuffer>, string, string]>([
    ['an object', '{"a":1}', FORM, 'application/json'],
    ['a list', '[1, "ü"]\n', FORM, 'application/json'],
    ['half an object', '{"a":', FORM, FORM],
    ['a form with braces', '{a}=1&b=2', FORM, FORM],
    ['a form with JSON in it', 'a={"b":1}', FORM, FORM],
    ['a text', '"text"', FORM, FORM],
    ['nothing', '', FORM, FORM],
    ['no UTF-8', Buffer.from([0x5b, 0x22, 0xff, 0x22, 0x5d]), FORM, FORM],
    ['JSON of more than one piece', JSON.stringify(['x'.repeat(70_000)]), FORM, FORM],
    ['JSON in a charset', '{"a":1}', `${FORM}; charset=utf-8`, `${FORM}; charset=utf-8`],
    ['JSON as text', '{"a":1}', 'text/plain', 'text/plain'],
  ])('is a form only if it looks like one: %s', async (_, body, type, kept) => {
    const { ask, spool } = await setup();
    const bytes = Buffer.from(body as string);
    const headers = { 'content-type': type };
    const { id } = await json<{ id: string }>(ask(RAW, { method: 'POST', body: bytes, headers }));
    expect((await spool.get(id))?.envelope.headers).toEqual({ 'content-type': kept });
    expect(await bytesOf(await spool.body(id))).toEqual(bytes);
  });

  test('keeps the type that the message itself is given', async () => {
    const { ask, spool } = await setup();
    const headers = { 'content-type': FORM, 'respool-header-content-type': FORM };
    const { id } = await json<{ id: string }>(ask(RAW, { method: 'POST', body: '{}', headers }));
    expect((await spool.get(id))?.envelope.headers).toEqual({ 'content-type': FORM });
  });

  test('takes a topic with a slash when it is encoded', async () => {
    const { ask, spool } = await setup();
    const { id } = await json<{ id: string }>(ask('/v1/topics/a%2Fb/messages', { method: 'POST' }));
    expect((await spool.get(id))?.envelope.topic).toBe('a/b');
    expect((await ask('/v1/topics/a/b/messages', { method: 'POST' })).status).toBe(404);
  });

  test('refuses more headers and more bytes of them than a message may have', async () => {
    const { ask } = await setup();
    const many = Object.fromEntries(
      Array.from({ length: 65 }, (_, at) => [`respool-header-h${at}`, 'x']),
    );
    const long = { 'respool-header-a': 'x'.repeat(33_000) };
    for (const headers of [many, long]) {
      expect(await refusal(ask(RAW, { method: 'POST', headers }))).toEqual([400, 'limit.exceeded']);
    }
  });
});

describe('a body over the limit', () => {
  test('is refused before it is sent when its length says so', async () => {
    const { port, spool } = await setup();
    const wire = await openWire(
      port,
      `POST ${RAW} HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${BODY_MAX_BYTES + 1}\r\n\r\n`,
    );
    const head = await wire.until(/\r\n\r\n\{.*\}$/);
    expect(head).toMatch(/^HTTP\/1\.1 413 /);
    expect(head).toMatch(/connection: close/i);
    expect(head).toContain('limit.exceeded');
    expect(await count(spool)).toBe(0);
  });

  test('is not asked for when the client waits for leave', async () => {
    const { port } = await setup();
    const head = `POST ${RAW} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n`;
    const large = await openWire(port, `${head}content-length: ${BODY_MAX_BYTES + 1}\r\n\r\n`);
    expect(await large.until(/\}$/)).toMatch(/^HTTP\/1\.1 413 /);
    const small = await openWire(port, `${head}content-length: 2\r\n\r\n`);
    expect(await small.until(/\r\n\r\n/)).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    small.socket.write('ok');
    expect(await small.until(/\}$/)).toContain('HTTP/1.1 201 ');
  });

  test('is refused at the byte that passes it, and nothing is kept', async () => {
    const { port, spool, bodies, clock } = await setup();
    const wire = await openWire(
      port,
      `POST ${RAW} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n`,
    );
    const chunk = `${(100_000).toString(16)}\r\n${'x'.repeat(100_000)}\r\n`;
    for (let sent = 0; sent < BODY_MAX_BYTES + 100_000; sent += 100_000) wire.socket.write(chunk);
    const head = await wire.until(/\}$/);
    expect(head).toMatch(/^HTTP\/1\.1 413 /);
    expect(head).toMatch(/connection: close/i);
    await clock.advance('3s');
    await wire.closed;
    expect(await count(spool)).toBe(0);
    const kept = [];
    for await (const { ref } of bodies.refs(Number.MAX_SAFE_INTEGER)) kept.push(ref);
    expect(kept).toEqual([]);
  });

  test('is refused in JSON too', async () => {
    const { post, spool } = await setup();
    const answer = post('/v1/messages', { topic: 'a', bodyText: 'x'.repeat(BODY_MAX_BYTES + 1) });
    expect(await refusal(answer)).toEqual([413, 'limit.exceeded', 'too-large']);
    const huge = await post('/v1/messages', { topic: 'a', bodyText: 'x'.repeat(17_000_000) });
    expect(huge.status).toBe(413);
    expect(await count(spool)).toBe(0);
  });
});

test('a client that goes away before the answer has sent its message all the same', async () => {
  const { port, spool, store, clock, ask } = await setup();
  store.faults.plan = (operation) => (operation === 'insert' ? { delayMs: 1_000 } : 'ok');
  const wire = await openWire(
    port,
    `POST ${RAW} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx`,
  );
  await expect.poll(() => store.faults.count('insert')).toBe(1);
  wire.socket.destroy();
  await wire.closed;
  // By the time of a whole other request the service has heard of it.
  expect((await ask('/healthz')).status).toBe(200);
  await clock.advance('1s');
  expect(await count(spool)).toBe(1);
  expect((await ask('/healthz')).status).toBe(200);
});

describe('a client that goes away in the middle of a body', () => {
  test.each([
    ['a chunked one', 'transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n'],
    ['a short one', 'content-length: 100\r\n\r\nhello'],
    ['a long one', `content-length: 200000\r\n\r\n${'x'.repeat(100_000)}`],
  ])('leaves nothing behind: %s', async (_, rest) => {
    const { port, spool, ask } = await setup();
    const wire = await openWire(port, `POST ${RAW} HTTP/1.1\r\nhost: localhost\r\n${rest}`);
    wire.socket.end();
    await wire.closed;
    // A later post is through: what came before it was given up by then.
    await ask(RAW, { method: 'POST', body: 'later' });
    expect(await count(spool)).toBe(1);
  });
});
