/** Who is let in: tokens and roles, hosts and origins, limits and lockouts. */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { TokenRole, ServeSettings } from './setup.ts';
import { json, moving, openWire, refusal, setup, SETTINGS, type World } from './setup.ts';

const CANARY = 'canary-0123456789abcdef';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const ROLES: readonly TokenRole[] = ['post', 'read', 'operate', 'admin'];

const TOKENS: Partial<ServeSettings> = {
  token: CANARY,
  tokens: ROLES.map((role) => ({ name: `the-${role}`, role, sha256: sha256(`secret-${role}`) })),
};

const bearer = (token: string): { headers: Record<string, string> } => ({
  headers: { authorization: `Bearer ${token}` },
});

/** An answer that has to wait for the clock of the service. */
const waiting = ({ clock }: World, answer: Promise<Response>): Promise<Response> =>
  moving(clock, answer);

describe('a token', () => {
  test('that is known only by its hash lets in who has the token, not who has the hash', async () => {
    const hash = `sha256:${sha256(CANARY)}`;
    const world = await setup({ settings: { token: hash } });
    expect((await world.ask('/v1/stats', bearer(CANARY))).status).toBe(200);
    const answer = await waiting(world, world.ask('/v1/stats', bearer(hash)));
    expect(answer.status).toBe(401);
  });

  test.each([
    ['none', undefined],
    ['an unknown one', 'Bearer nobody'],
    ['an empty one', 'Bearer '],
    ['one in another scheme', `Basic ${CANARY}`],
    ['its own hash', `Bearer ${sha256(CANARY)}`],
  ])('is needed: %s is 401, after a while', async (_, authorization) => {
    const world = await setup({ settings: TOKENS });
    const start = world.clock.now();
    const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
    const answer = await waiting(world, world.ask('/v1/stats', { headers }));
    expect(await refusal(answer)).toEqual([401, 'config.invalid', 'token.unknown']);
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    expect(world.clock.now() - start).toBeGreaterThanOrEqual(250);
  });

  test('is not taken from the URL or a cookie', async () => {
    const world = await setup({ settings: TOKENS });
    const tries = [
      world.ask(`/v1/stats?token=${CANARY}`),
      world.ask('/v1/stats', { headers: { cookie: `token=${CANARY}` } }),
    ];
    for (const answer of tries) expect((await waiting(world, answer)).status).toBe(401);
  });

  test('gives its role and no more', async () => {
    const { ask, post, spool } = await setup({ settings: TOKENS });
    await spool.enqueue({ topic: 'a', id: 'x' });
    await spool.enqueue({ topic: 'a', id: 'y' });
    const needs: readonly [
      TokenRole,
      (init: { headers: Record<string, string> }) => Promise<Response>,
    ][] = [
      ['post', (as) => ask('/v1/topics/a/messages', { method: 'POST', ...as })],
      ['post', (as) => post('/v1/messages', { topic: 'a' }, as)],
      ['read', (as) => ask('/v1/messages', as)],
      ['read', (as) => ask('/v1/messages/x', as)],
      ['read', (as) => ask('/v1/messages/x/body', as)],
      ['read', (as) => ask('/v1/stats', as)],
      ['read', (as) => ask('/v1/audit', as)],
      ['operate', (as) => post('/v1/messages/x/retry', undefined, as)],
      ['operate', (as) => ask('/v1/messages/x', { method: 'DELETE', ...as })],
      ['operate', (as) => post('/v1/messages/x/move', { from: 'hold', to: 'incoming' }, as)],
      ['operate', (as) => post('/v1/messages/x/headers', { headers: {} }, as)],
      ['operate', (as) => post('/v1/cleanup', undefined, as)],
      ['operate', (as) => post('/v1/pause', undefined, as)],
      ['operate', (as) => post('/v1/bulk', { action: { kind: 'remove' }, ids: ['y'] }, as)],
      ['admin', (as) => ask('/v1/messages/x?hard=true', { method: 'DELETE', ...as })],
      ['admin', (as) => post('/v1/check', { repair: true }, as)],
      ['admin', (as) => post('/v1/rekey', { dryRun: true }, as)],
      [
        'admin',
        (as) => post('/v1/bulk', { action: { kind: 'remove', hard: true }, ids: ['y'] }, as),
      ],
    ];
    const may: Readonly<Record<TokenRole, readonly TokenRole[]>> = {
      post: ['post'],
      read: ['read'],
      operate: ['post', 'read', 'operate'],
      admin: ROLES,
    };
    for (const role of ROLES) {
      for (const [at, [needed, send]] of needs.entries()) {
        const { status } = await send(bearer(`secret-${role}`));
        const isAllowed = status !== 403;
        expect([role, at, isAllowed]).toEqual([role, at, may[role].includes(needed)]);
      }
    }
  });

  test('puts its name on record, whatever the caller says', async () => {
    const { post, spool } = await setup({ settings: TOKENS });
    await spool.enqueue({ topic: 'a', id: 'x' });
    const headers = { authorization: 'Bearer secret-operate', 'respool-by': 'somebody' };
    await post('/v1/messages/x/hold', undefined, { headers });
    await post('/v1/messages/x/release', undefined, bearer(CANARY));
    expect((await spool.operator({ by: 'ops' }).audit()).map(({ by }) => by)).toEqual([
      'the-operate',
      'token',
    ]);
  });

  test('that is guessed again and again is told to wait, and in the end its whole address', async () => {
    const world = await setup({ settings: TOKENS });
    const { ask, clock } = world;
    for (let at = 0; at < 10; at += 1) {
      expect((await waiting(world, ask('/v1/stats', bearer(`guess-${at}`)))).status).toBe(401);
    }
    const locked = await ask('/v1/stats', bearer('guess-10'));
    expect(await refusal(locked)).toEqual([429, 'limit.exceeded', 'token.locked']);
    expect(Number(locked.headers.get('retry-after'))).toBeGreaterThan(0);
    // One client with an old token keeps nobody else from posting.
    expect((await ask('/v1/stats', bearer(CANARY))).status).toBe(200);
    for (let at = 11; at < 1_000; at += 1) await ask('/v1/stats', bearer(`guess-${at}`));
    // Somebody guesses in earnest: no answer may tell which guess was right.
    const all = await ask('/v1/stats', bearer(CANARY));
    expect(await refusal(all)).toEqual([429, 'limit.exceeded', 'token.locked']);
    expect((await ask('/healthz')).status).toBe(200);
    await clock.advance('1m');
    expect((await ask('/v1/stats', bearer(CANARY))).status).toBe(200);
  });

  test('that is missing is asked for, however often, and locks nobody out', async () => {
    const world = await setup({ settings: TOKENS });
    for (let at = 0; at < 15; at += 1) {
      expect((await waiting(world, world.ask('/v1/stats'))).status).toBe(401);
    }
    expect((await world.ask('/v1/stats', bearer(CANARY))).status).toBe(200);
  });

  test('is never written to a log, nor are bodies and header values', async () => {
    const world = await setup({
      settings: TOKENS,
      operator: () => ({
        stats: () => Promise.reject(new Error('bad\nline\u2028break \u001b[31m')),
      }),
    });
    const { ask, logs } = world;
    const headers = { authorization: `Bearer ${CANARY}`, 'respool-header-a': CANARY };
    await ask('/v1/topics/a/messages', { method: 'POST', body: CANARY, headers });
    await ask('/v1/stats', { headers });
    await waiting(world, ask('/v1/stats%0a', bearer(`${CANARY}x`)));
    expect(logs.length).toBeGreaterThan(1);
    const all = logs.join('\n');
    expect(all).not.toContain(CANARY);
    expect(all).not.toContain(sha256(CANARY));
    expect(all).toContain('bad\\\\u000aline\\\\u2028break');
    expect(all).not.toContain('\u2028');
  });

  test('is not needed to see whether the process is alive', async () => {
    const { ask } = await setup({ settings: TOKENS });
    const answer = await ask('/healthz');
    expect([answer.status, await answer.text()]).toEqual([200, '{"ok":true}']);
    expect((await ask('/readyz')).status).toBe(200);
  });
});

describe('a page in a browser of this machine', () => {
  test.each([
    [{ origin: 'https://evil.example' }],
    [{ origin: 'null' }],
    [{ 'sec-fetch-site': 'cross-site' }],
    [{ 'sec-fetch-site': 'same-site' }],
    [{ origin: 'http://localhost.evil.example' }],
    [{ origin: 'http://127.0.0.1:1' }],
  ])('of another origin can do nothing: %j', async (headers) => {
    const { service, spool } = await setup({ isListening: false });
    const send = (method: string, path: string, more: Record<string, string> = {}) =>
      service.fetch(
        new Request(`http://127.0.0.1:7667${path}`, { method, headers: { ...headers, ...more } }),
      );
    const answers = [
      send('POST', '/v1/topics/a/messages'),
      send('POST', '/v1/topics/a/messages', { 'content-type': 'text/plain' }),
      send('POST', '/v1/messages', { 'content-type': 'application/json' }),
      send('POST', '/v1/pause'),
      send('DELETE', '/v1/messages/x'),
      send('GET', '/v1/stats'),
      send('GET', '/v1/events'),
    ];
    for (const answer of answers) {
      expect(await refusal(answer)).toEqual([403, 'config.invalid', 'origin.foreign']);
    }
    expect((await spool.count()).incoming).toBe(0);
    expect(await spool.operator({ by: 'ops' }).audit()).toEqual([]);
  });

  test('of our own origin, and programs, may', async () => {
    const { service } = await setup({ isListening: false });
    for (const headers of [
      {},
      { origin: 'http://127.0.0.1:7667' },
      { 'sec-fetch-site': 'same-origin', origin: 'http://127.0.0.1:7667' },
      { 'sec-fetch-site': 'none' },
    ]) {
      const request = new Request('http://127.0.0.1:7667/v1/topics/a/messages', {
        method: 'POST',
        headers: headers as Record<string, string>,
      });
      expect((await service.fetch(request)).status).toBe(201);
    }
  });

  test.each([
    ['evil.example', 421],
    ['evil.example:7667', 421],
    ['127.0.0.1.evil.example', 421],
    ['localhost.', 421],
    ['', 421],
    ['10.0.0.1', 421],
    ['localhost', 200],
    ['LOCALHOST:1', 200],
    ['127.0.0.1:7667', 200],
    ['[::1]:7667', 200],
    ['spool.example', 200],
    ['spool.example:80', 200],
  ])('under the host name %j gets %i', async (host, status) => {
    const { port } = await setup({ settings: { hosts: ['spool.example'] } });
    const wire = await openWire(
      port,
      `GET /healthz HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n\r\n`,
    );
    await wire.closed;
    expect(wire.received).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  });

  test('reaches a service on all addresses by any address, not by any name', async () => {
    const settings = { host: '0.0.0.0', token: CANARY, behindProxy: true };
    const { service } = await setup({ settings, isListening: false });
    const status = async (host: string): Promise<number> =>
      (await service.fetch(new Request('http://x/healthz', { headers: { host } }))).status;
    expect(await Promise.all(['10.0.0.1:7667', '[fd00::1]', 'evil.example'].map(status))).toEqual([
      200, 200, 421,
    ]);
  });
});

describe('limits', () => {
  const limits = { ...SETTINGS.limits, requestsPerSecond: 2 };

  test('hold requests of one address and token back, posts apart', async () => {
    const { ask, clock } = await setup({ settings: { ...TOKENS, limits } });
    const status = async (token: string): Promise<number> =>
      (await ask('/v1/policies', bearer(token))).status;
    const [one, two] = ['secret-read', 'secret-admin'];
    expect([await status(one), await status(one)]).toEqual([200, 200]);
    const refused = await ask('/v1/policies', bearer(one));
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await refusal(refused)).toEqual([429, 'limit.exceeded', 'rate.exceeded']);
    expect(await status(two)).toBe(200);
    for (let at = 0; at < 5; at += 1) {
      const post = ask('/v1/topics/a/messages', { method: 'POST', ...bearer('secret-post') });
      expect((await post).status).toBe(201);
    }
    await clock.advance('1s');
    expect(await status(one)).toBe(200);
  });

  test('count the client that the proxy in front names last', async () => {
    const { ask } = await setup({ settings: { limits, behindProxy: true } });
    const status = async (forwarded: string): Promise<number> =>
      (await ask('/v1/policies', { headers: { 'x-forwarded-for': forwarded } })).status;
    expect(await status('1.1.1.1, 2.2.2.2')).toBe(200);
    expect(await status('9.9.9.9, 2.2.2.2')).toBe(200);
    expect(await status('8.8.8.8, 2.2.2.2')).toBe(429);
    expect(await status('3.3.3.3')).toBe(200);
    expect([await status('fd00::1'), await status('fd00::2'), await status('fd00::3')]).toEqual([
      200, 200, 429,
    ]);
  });

  test('leave the connection open for who sent nothing but a head', async () => {
    const { port } = await setup({ settings: { limits: { ...limits, requestsPerSecond: 0 } } });
    const get = 'GET /v1/policies HTTP/1.1\r\nhost: localhost\r\n\r\n';
    const wire = await openWire(port, get);
    expect(await wire.until(/\}$/)).not.toMatch(/connection: close/i);
    wire.socket.write(get);
    await wire.until(/429[^]*429/);
  });

  test('do not believe a client that names itself when no proxy is in front', async () => {
    const { ask } = await setup({ settings: { limits } });
    const statuses: number[] = [];
    for (const forwarded of ['1.1.1.1', '2.2.2.2', '3.3.3.3']) {
      const headers = { 'x-forwarded-for': forwarded };
      statuses.push((await ask('/v1/policies', { headers })).status);
    }
    expect(statuses).toEqual([200, 200, 429]);
  });

  test('refuse connections past the allowed number', async () => {
    const { port } = await setup({
      settings: { limits: { ...SETTINGS.limits, connections: 1 } },
    });
    const first = await openWire(port, 'GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n');
    await first.until(/ok/);
    const second = await openWire(port, 'GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n');
    await second.closed;
    expect(second.received).toBe('');
  });
});

describe('bytes that are no request', () => {
  test.each([
    ['garbage', 'hello\r\n\r\n', 400],
    [
      'headers that are too long',
      `GET / HTTP/1.1\r\nhost: a\r\nx: ${'x'.repeat(70_000)}\r\n\r\n`,
      431,
    ],
    [
      'too many header fields',
      `GET /healthz HTTP/1.1\r\nhost: localhost\r\n${'a: b\r\n'.repeat(256)}\r\n`,
      431,
    ],
    ['a line break in a value', 'GET / HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n', 400],
    ['a zero byte in a value', 'GET / HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n', 400],
    [
      'two lengths',
      'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n',
      400,
    ],
    [
      'a length and chunks',
      'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n',
      400,
    ],
    ['two hosts', 'GET /healthz HTTP/1.1\r\nhost: localhost\r\nHost: evil.example\r\n\r\n', 400],
    ['the same host twice', 'GET / HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n', 400],
    ...['authorization: Bearer a', 'content-type: text/plain'].map(
      (field): [string, string, number] => [
        `two of ${field}`,
        `GET /v1/stats HTTP/1.1\r\nhost: localhost\r\n${field}\r\n${field.toUpperCase()}\r\n\r\n`,
        400,
      ],
    ),
    ...['?topic=%ff', '?text=%ed%a0%80', '?text=50%'].map((query): [string, string, number] => [
      `a query that is not text: ${query}`,
      `GET /v1/messages${query} HTTP/1.1\r\nhost: localhost\r\n\r\n`,
      400,
    ]),
    ['no host', 'GET /healthz HTTP/1.1\r\n\r\n', 400],
    ...[
      '/v1/../v1/stats',
      '/v1/./stats',
      '/..',
      '/v1/%2e%2e/v1/stats',
      '/v1/%2E%2E/v1/stats',
      '/v1/%2E./v1/stats',
      '/v1/.%2e/v1/stats',
      '/v1/%2e/stats',
      '/v1/x\\..\\stats',
      '/v1/messages?topic=big.#',
      'http://localhost/v1/../v1/stats',
      'http://localhost/v1/%2e%2e/v1/stats',
    ].map((target): [string, string, number] => [
      target,
      `GET ${target} HTTP/1.1\r\nhost: localhost\r\n\r\n`,
      400,
    ]),
    ['another server in the path', 'GET http://evil/ HTTP/1.1\r\nhost: localhost\r\n\r\n', 400],
  ])('are refused: %s', async (_, text, status) => {
    const { port } = await setup();
    const wire = await openWire(port, text);
    await wire.until(/\}$/);
    expect(wire.received).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(wire.received).toContain('x-content-type-options: nosniff');
    expect(JSON.parse(wire.received.split('\r\n\r\n')[1] ?? '')).toHaveProperty('error.message');
  });
});

test('an error of ours says nothing of the machine', async () => {
  const { ask, logs } = await setup({
    operator: () => ({ policies: () => Promise.reject(new Error('secret place /etc/shadow')) }),
  });
  const answer = await ask('/v1/policies');
  expect(answer.status).toBe(500);
  expect(JSON.stringify(await json(answer))).not.toMatch(/shadow|stack|\.ts/);
  expect(logs.join('')).toContain('secret place');
});

test('the log has few lines for many refusals of one address, with their count', async () => {
  const limits = { ...SETTINGS.limits, requestsPerSecond: 2 };
  const { ask, logs, clock } = await setup({ settings: { limits, token: 'a-token' } });
  const countsOf = (reason: string): unknown[] =>
    logs
      .map((line) => JSON.parse(line) as { reason?: string; count?: number })
      .filter((line) => line.reason === reason)
      .map(({ count }) => count);
  for (let at = 0; at < 122; at += 1) await ask('/healthz');
  expect(countsOf('rate.exceeded')).toEqual([1, 10, 100]);
  await clock.advance('1m');
  for (let at = 0; at < 3; at += 1) await ask('/healthz');
  expect(countsOf('rate.exceeded')).toEqual([1, 10, 100, 1]);
  for (let at = 0; at < 30; at += 1) await moving(clock, ask('/v1/stats'));
  expect(countsOf('token.unknown')).toEqual([1, 10]);
});
