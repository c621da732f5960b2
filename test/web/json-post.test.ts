/** Messages as JSON: one, or many in one write. */
import { describe, expect, test } from 'vitest';
import { bytesOf } from '../spool/setup.ts';
import { openWire, json, refusal, setup } from './setup.ts';

const PATH = '/v1/messages';

describe('a message as JSON', () => {
  test.each([
    ['any value as JSON text', { body: { a: [1, null] } }, '{"a":[1,null]}', 'application/json'],
    ['a string as JSON too', { body: 'hi' }, '"hi"', 'application/json'],
    ['text as it is', { bodyText: 'grüße' }, 'grüße', undefined],
    ['bytes from Base64', { bodyBase64: 'AP8=' }, '\u0000\ufffd', undefined],
    ['nothing', {}, '', undefined],
    [
      'a type of its own',
      { body: 1, headers: { 'Content-Type': 'application/x+json' } },
      '1',
      undefined,
    ],
  ])('has a body of %s', async (_, fields, text, type) => {
    const { post, spool } = await setup();
    const answer = await post(PATH, { topic: 'a', ...fields });
    expect(answer.status).toBe(201);
    const { id } = await json<{ id: string }>(answer);
    expect((await bytesOf(await spool.body(id))).toString('utf8')).toBe(text);
    expect((await spool.get(id))?.envelope.headers['content-type']).toBe(type);
  });

  test('takes every option', async () => {
    const { post, spool, clock } = await setup();
    const at = clock.now() + 60_000;
    await post(PATH, {
      topic: 'a.b',
      id: 'mine',
      headers: { 'X-Case': 'kept' },
      policy: 'default',
      priority: 0,
      dueAt: new Date(at).toISOString(),
      expires: '1h',
      destination: 'there',
      dedupeKey: 'key',
      orderKey: 'ann',
    });
    const { envelope, status } = (await spool.get('mine')) ?? {};
    expect(envelope).toMatchObject({
      topic: 'a.b',
      headers: { 'X-Case': 'kept' },
      priority: 0,
      destination: 'there',
      dedupeKey: 'key',
      orderKey: 'ann',
      expiresAt: (envelope?.enqueuedAt ?? 0) + 3_600_000,
    });
    expect(status).toMatchObject({ policy: 'default', dueAt: at });
    await post(PATH, { topic: 'a', id: 'later', delay: 5_000 });
    expect((await spool.get('later'))?.status.dueAt).toBe(clock.now() + 5_000);
  });

  test('is known again by its id, its dedupe key or the header for it', async () => {
    const { post } = await setup();
    await post(PATH, { topic: 'a', id: 'first', dedupeKey: 'k' });
    const again = [
      post(PATH, { topic: 'a', id: 'first' }),
      post(PATH, { topic: 'a', dedupeKey: 'k' }),
      post(PATH, { topic: 'a' }, { headers: { 'idempotency-key': 'k' } }),
      post(PATH, { topic: 'a', dedupeKey: 'k' }, { headers: { 'idempotency-key': 'k' } }),
    ];
    for (const answer of again) {
      expect([(await answer).status, await json(answer)]).toEqual([
        200,
        { id: 'first', duplicate: true },
      ]);
    }
  });

  test('has the same key beyond ASCII as in its header, and as in a raw post', async () => {
    const { ask, post } = await setup();
    const headers = { 'idempotency-key': Buffer.from('clé').toString('latin1') };
    const { id } = await json<{ id: string }>(post(PATH, { topic: 'a' }, { headers }));
    const again = [
      post(PATH, { topic: 'a', dedupeKey: 'clé' }),
      post(PATH, { topic: 'a', dedupeKey: 'clé' }, { headers }),
      ask('/v1/topics/a/messages', { method: 'POST', headers }),
    ];
    for (const answer of again) expect(await json(answer)).toEqual({ id, duplicate: true });
  });

  test.each([
    ['no topic', { body: 1 }],
    ['a field that does not exist', { topic: 'a', colour: 'red' }],
    ['two bodies', { topic: 'a', body: 1, bodyText: 'x' }],
    ['Base64 that is none', { topic: 'a', bodyBase64: '***' }],
    ['a header that is no text', { topic: 'a', headers: { a: 1 } }],
    ['a header with a line break', { topic: 'a', headers: { a: 'x\r\nb: y' } }],
    ['a header name with a colon', { topic: 'a', headers: { 'a:b': 'x' } }],
    ['a span that is none', { topic: 'a', delay: 'soon' }],
    ['a time that is none', { topic: 'a', dueAt: 'soon' }],
    ['a day that no month has', { topic: 'a', dueAt: '2030-02-31' }],
    ['a time on such a day', { topic: 'a', dueAt: '2030-04-31T12:00:00Z' }],
    ['both delay and dueAt', { topic: 'a', delay: 1, dueAt: 5 }],
    ['a text with half a surrogate pair', { topic: 'a', bodyText: 'a\uD800b' }],
    ['such a text in a list', [{ topic: 'a', bodyText: '\uDC00' }, { topic: 'a' }]],
    ['such a header', { topic: 'a', headers: { a: '\uD800' } }],
    ['such a destination', { topic: 'a', destination: '\uD800' }],
    ['a destination with a control character', { topic: 'a', destination: 'a\u001B[2J' }],
    ['an empty list', []],
    ['a number', 5],
  ])('is refused with %s', async (_, given) => {
    const { post, spool } = await setup();
    const answer = await post(PATH, given);
    expect([answer.status, Object.keys(await json(answer))]).toEqual([400, ['error']]);
    expect((await spool.count()).incoming).toBe(0);
  });

  test.each<[string, string, string]>([
    ['of the message', '{"topic":"a","topic":"b"}', 'topic'],
    ['written in two ways', String.raw`{"topic":"a","t\u006fpic":"b"}`, 'topic'],
    ['of the headers', '{"topic":"a","headers":{"x":"1","x":"2"}}', 'x'],
    ['of the body', '{"topic":"a","body":{"amount":1,"list":[{"amount":2,"amount":3}]}}', 'amount'],
    ['of the second message', '[{"topic":"a"},{"topic":"a","policy":"p","policy":"q"}]', 'policy'],
    ['that is __proto__', '{"topic":"a","body":{"__proto__":1,"__proto__":2}}', '__proto__'],
  ])('is refused with a name %s that stands twice', async (_, text, name) => {
    const { ask, spool } = await setup();
    const headers = { 'content-type': 'application/json' };
    const answer = await ask(PATH, { method: 'POST', body: text, headers });
    expect(answer.status).toBe(400);
    const { error } = await json<{ error: { message: string } }>(answer);
    expect(error.message).toContain(`the name "${name}" appears twice in one object`);
    expect((await spool.count()).incoming).toBe(0);
  });

  test.each([
    ['9007199254740993', '{"topic":"a","body":{"id":9007199254740993}}'],
    ['-12345678901234567890', '{"topic":"a","body":[-12345678901234567890]}'],
    ['1e999', '{"topic":"a","body":1e999}'],
    ['-1E400', '{"topic":"a","body":-1E400 }'],
  ])('is refused with a number that would be changed: %s', async (number, text) => {
    const { ask, spool } = await setup();
    const headers = { 'content-type': 'application/json' };
    const answer = await ask(PATH, { method: 'POST', body: text, headers });
    expect(answer.status).toBe(400);
    const { error } = await json<{ error: { message: string } }>(answer);
    expect(error.message).toContain(`the number "${number}" in JSON: it would be changed`);
    expect((await spool.count()).incoming).toBe(0);
  });

  test('keeps numbers that are exact, and those in texts', async () => {
    const { ask, spool } = await setup();
    const body =
      '{"a":[9007199254740992,10000000000000000000,-0.5,1e5,0.1],"b":"9007199254740993"}';
    const headers = { 'content-type': 'application/json' };
    const answer = await ask(PATH, {
      method: 'POST',
      body: `{"topic":"a","body":${body}}`,
      headers,
    });
    const { id } = await json<{ id: string }>(answer);
    const stored: unknown = JSON.parse((await bytesOf(await spool.body(id))).toString());
    expect(stored).toEqual(JSON.parse(body));
  });

  test('keeps every whole number that JSON.stringify writes', async () => {
    const { post, spool } = await setup();
    const body = [2 ** 53, 2 ** 60, 2 ** 63, -(2 ** 64), 1.1e20, 1e21, 2 ** 80];
    const { id } = await json<{ id: string }>(post(PATH, { topic: 'a', body }));
    expect((await bytesOf(await spool.body(id))).toString()).toBe(JSON.stringify(body));
  });

  test('may have one name in several objects, and colons in texts', async () => {
    const { post, spool } = await setup();
    const body = { a: { a: [{ a: ':' }, { a: '{"a":1,"a":2}' }] }, 'b:c': '\\":' };
    const { id } = await json<{ id: string }>(post(PATH, { topic: 'a', body }));
    expect(JSON.parse((await bytesOf(await spool.body(id))).toString())).toEqual(body);
  });

  test('is refused with a text that names what is wrong', async () => {
    const { post } = await setup();
    const text = async (given: unknown): Promise<string> =>
      (await json<{ error: { code: string; message: string } }>(post(PATH, given))).error.message;
    expect(await text({ topic: 'a', colour: 'red' })).toContain('"colour"');
    expect(await text({ topic: 'a', priority: 'high' })).toContain('"priority"');
    expect(await text({})).toContain('"topic"');
    expect(await text([{ topic: 'a' }, { topic: 'a', headers: { b: 1 } }])).toContain('headers.b');
    expect(await refusal(post(PATH, { colour: 'red' }))).toEqual([400, 'message.invalid']);
    const wrong = { action: { kind: 'explode' }, ids: ['x'] };
    const { error } = await json<{ error: { message: string } }>(post('/v1/bulk', wrong));
    expect(error.message).toContain('action.kind');
  });

  test.each(['__proto__', 'constructor', 'prototype'])(
    'is refused with the name %s anywhere but in its body',
    async (name) => {
      const { ask, spool } = await setup();
      const send = (text: string) =>
        ask(PATH, { method: 'POST', body: text, headers: { 'content-type': 'application/json' } });
      expect((await send(`{"topic":"a","headers":{"${name}":"x"}}`)).status).toBe(400);
      expect((await send(`{"topic":"a","${name}":{"id":"x"}}`)).status).toBe(400);
      const { id } = await json<{ id: string }>(send(`{"topic":"a","body":{"${name}":1}}`));
      expect((await bytesOf(await spool.body(id))).toString()).toBe(`{"${name}":1}`);
      expect(Object.prototype).not.toHaveProperty('id');
    },
  );

  test.each([
    ['no content type', undefined, '{"topic":"a"}', 415],
    ['a form', 'application/x-www-form-urlencoded', '{"topic":"a"}', 415],
    ['plain text', 'text/plain', '{"topic":"a"}', 415],
    ['half of it', 'application/json', '{"topic":', 400],
    ['nothing', 'application/json', '', 400],
    ['no UTF-8', 'application/json; charset=utf-8', Buffer.from([0x22, 0xff, 0x22]), 400],
  ])('is refused as %s', async (_, type, body, status) => {
    const { ask } = await setup();
    const headers: Record<string, string> = type === undefined ? {} : { 'content-type': type };
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    expect((await ask(PATH, { method: 'POST', body: bytes, headers })).status).toBe(status);
  });

  test('is refused when it is packed', async () => {
    const { post, spool } = await setup();
    const send = (encoding: string): Promise<Response> =>
      post(PATH, { topic: 'a' }, { headers: { 'content-encoding': encoding } });
    expect(await refusal(send('gzip'))).toEqual([415, 'config.invalid', 'content-encoding']);
    expect((await spool.count()).incoming).toBe(0);
    expect((await send('identity')).status).toBe(201);
  });
});

describe('many messages', () => {
  test('are answered in their order', async () => {
    const { post, spool } = await setup();
    await post(PATH, { topic: 'a', id: 'two' });
    const answer = await post(PATH, [
      { topic: 'a', id: 'one' },
      { topic: 'a', id: 'two' },
    ]);
    expect([answer.status, await json(answer)]).toEqual([
      201,
      [
        { id: 'one', duplicate: false },
        { id: 'two', duplicate: true },
      ],
    ]);
    expect((await spool.count()).incoming).toBe(2);
  });

  test('that were all there already are 200', async () => {
    const { post } = await setup();
    const given = [
      { topic: 'a', id: 'one' },
      { topic: 'a', dedupeKey: 'k' },
    ];
    expect((await post(PATH, given)).status).toBe(201);
    const again = await post(PATH, given);
    expect(again.status).toBe(200);
    expect(await json(again)).toMatchObject([{ duplicate: true }, { duplicate: true }]);
  });

  test('are all refused when one of them is wrong', async () => {
    const { post, spool } = await setup();
    const answer = post(PATH, [{ topic: 'a' }, { topic: 'no good' }]);
    expect(await refusal(answer)).toEqual([400, 'message.invalid']);
    expect((await spool.count()).incoming).toBe(0);
  });

  test('are at most 1,000, and share no idempotency key', async () => {
    const { post, spool } = await setup();
    const many = Array.from({ length: 1_001 }, () => ({ topic: 'a' }));
    expect((await post(PATH, many)).status).toBe(400);
    const keyed = post(PATH, [{ topic: 'a' }], { headers: { 'idempotency-key': 'k' } });
    expect((await keyed).status).toBe(400);
    expect((await spool.count()).incoming).toBe(0);
    expect((await post(PATH, many.slice(1))).status).toBe(201);
    expect((await spool.count()).incoming).toBe(1_000);
  });
});

test('a post of JSON that is cut off is the caller’s affair, and no error of ours', async () => {
  const { port, logs, spool } = await setup();
  const wire = await openWire(
    port,
    'POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n' +
      'content-length: 100\r\n\r\n{"topic":"a"',
  );
  wire.socket.end();
  await wire.closed;
  expect(logs.filter((line) => !line.includes('listening'))).toEqual([]);
  expect((await spool.count()).incoming).toBe(0);
});
