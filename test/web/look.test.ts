/** What can be looked at: messages, pages, bodies, numbers. */
import { createHash } from 'node:crypto';
import { type EntryStore, RespoolError } from 'respool';
import { memory } from 'respool/stores/memory';
import { describe, expect, test } from 'vitest';
import { json, openWire, refusal, setup, type World } from './setup.ts';

interface PageAnswer {
  readonly messages: readonly { id: string; envelope: { id: string }; status: object }[];
  readonly corrupt: readonly object[];
  readonly next?: string;
}

const idsOf = async ({ ask }: World, query: string): Promise<string[]> =>
  (await json<PageAnswer>(ask(`/v1/messages?${query}`))).messages.map(({ id }) => id);

describe('a message', () => {
  test('is shown with its id, envelope and status', async () => {
    const { ask, spool } = await setup();
    await spool.enqueue({ topic: 'a', id: 'mine' });
    const answer = await ask('/v1/messages/mine');
    expect(answer.status).toBe(200);
    const entry = { id: 'mine', ...(await spool.get('mine')) };
    expect(await json(answer)).toEqual({ ...entry, unhandled: true });
    spool.handle('a', () => new Promise(() => undefined));
    await spool.operator({ by: 'ops' }).pause('#');
    expect(await json(ask('/v1/messages/mine'))).not.toHaveProperty('unhandled');
    expect(await refusal(ask('/v1/messages/other'))).toEqual([404, 'message.unknown']);
  });

  test.each([
    '..%2f..%2fetc%2fpasswd',
    '%2e%2e%2f',
    'a%00b',
    '%00',
    'a%2fb',
    'A',
    'ä',
    '%ff',
    '%',
    'x'.repeat(65),
    'a%0d%0ab',
    "a'%20or%201=1--",
  ])('is never asked for under the id %s', async (id) => {
    const { port, store } = await setup();
    const before = store.faults.count();
    const wire = await openWire(
      port,
      `GET /v1/messages/${Buffer.from(id).toString('latin1')} HTTP/1.1\r\nhost: localhost\r\n` +
        'connection: close\r\n\r\n',
    );
    await wire.closed;
    expect(wire.received).toMatch(/^HTTP\/1\.1 40[04] /);
    expect(store.faults.count()).toBe(before);
  });
});

describe('a list', () => {
  test('arrives also where it is larger than all answers that may be unread', async () => {
    const { ask, spool } = await setup();
    // Each character of it takes two in JSON.
    const headers = { long: '"'.repeat(32_000) };
    await spool.enqueueMany(Array.from({ length: 300 }, () => ({ topic: 't', headers })));
    const answer = await ask('/v1/messages?limit=300');
    const text = await answer.text();
    expect(text.length).toBeGreaterThan(16_777_216);
    expect((JSON.parse(text) as PageAnswer).messages).toHaveLength(300);
  });

  test('goes page by page', async () => {
    const { ask, spool } = await setup();
    for (const id of ['a', 'b', 'c']) await spool.enqueue({ topic: 't', id });
    const first = await json<PageAnswer>(ask('/v1/messages?limit=2'));
    expect(first.messages.map(({ id }) => id)).toEqual(['a', 'b']);
    expect(first.messages[0]).toHaveProperty('envelope.topic', 't');
    expect(first.corrupt).toEqual([]);
    const after = encodeURIComponent(first.next ?? '');
    const second = await json<PageAnswer>(ask(`/v1/messages?limit=2&after=${after}`));
    expect(second.messages.map(({ id }) => id)).toEqual(['c']);
    expect(second).not.toHaveProperty('next');
  });

  test('takes every filter', async () => {
    const world = await setup();
    const { spool, clock } = world;
    await spool.enqueue({ topic: 'mail.a', id: 'old', destination: 'd', headers: { x: '1:2' } });
    await clock.advance('1h');
    await spool.enqueue({ topic: 'web.b', id: 'new', priority: 1 });
    await spool.operator({ by: 'ops' }).hold(['new'], { reason: 'strange thing' });
    const now = clock.now();
    const iso = encodeURIComponent(new Date(now - 60_000).toISOString());
    const cases: readonly [string, string[]][] = [
      ['state=incoming', ['old']],
      ['state=incoming&state=hold', ['new', 'old']],
      ['topic=mail.*', ['old']],
      ['destination=d', ['old']],
      ['id=old', ['old']],
      ['id=old&id=new', ['new', 'old']],
      ['header=x', ['old']],
      ['header=x:1:2', ['old']],
      ['header=x:2', []],
      ['text=strange', ['new']],
      ['code=nothing', []],
      ['fingerprint=nothing', []],
      ['lane=delivery', ['new', 'old']],
      ['lane=notice', []],
      ['olderThan=30m', ['old']],
      ['since=30m', ['new']],
      ['since=1800000', ['new']],
      [`enqueuedBefore=${iso}`, ['old']],
      [`enqueuedAfter=${now - 60_000}`, ['new']],
      [`updatedBefore=${iso}`, ['old']],
      [`updatedAfter=${iso}`, ['new']],
      [`dueBefore=${iso}`, ['old']],
      [`dueAfter=${iso}`, []],
    ];
    for (const [query, ids] of cases) {
      expect([query, (await idsOf(world, query)).toSorted()]).toEqual([query, ids]);
    }
    expect(await idsOf(world, 'order=id&descending=true')).toEqual(['old', 'new']);
    expect(await idsOf(world, 'order=priority')).toEqual(['new', 'old']);
  });

  test.each([
    'limit=0',
    'limit=501',
    'limit=ten',
    'limit=1e2',
    'limit=2&limit=3',
    'state=lost',
    'order=topic;drop',
    'descending=yes',
    'colour=red',
    '__proto__=x',
    'topic=a**b',
    'header=a%20b',
    'olderThan=soon',
    'dueBefore=soon',
    'id=..%2f',
    'after=nonsense',
    'text=',
  ])('is refused with %s', async (query) => {
    const { ask } = await setup();
    expect((await ask(`/v1/messages?${query}`)).status).toBe(400);
  });
});

describe('order keys', () => {
  const KEYED = { topic: 'a', orderKey: 'ann', delay: '1h' } as const;

  test('are told by the first message of each, and how many wait behind it', async () => {
    const { ask, spool } = await setup();
    for (const id of ['x', 'y', 'z']) await spool.enqueue({ ...KEYED, id });
    await spool.enqueue({ ...KEYED, orderKey: 'alone' });
    await spool.operator({ by: 'ops' }).hold(['x']);
    expect(await json(ask('/v1/order-keys'))).toEqual({
      heads: [{ orderKey: 'ann', id: 'x', state: 'hold', dueAt: null, behind: 2 }],
    });
    for (const orderKey of ['bob', 'bob']) await spool.enqueue({ ...KEYED, orderKey });
    expect(await json(ask('/v1/order-keys?max=1'))).toMatchObject({ heads: [{ id: 'x' }] });
    expect(await refusal(ask('/v1/order-keys?max=0'))).toEqual([400, 'limit.exceeded']);
    expect(await refusal(ask('/v1/order-keys?max=501'))).toEqual([400, 'limit.exceeded']);
  });

  test('are refused where the store keeps no order', async () => {
    const plain = memory();
    const traits = { ...plain.traits, ordered: false };
    const unordered = { ...plain, traits, keyHeads: undefined } as object as EntryStore;
    const { ask, post } = await setup({ spool: { entries: unordered } });
    expect(await refusal(ask('/v1/order-keys'))).toEqual([400, 'config.invalid']);
    const posted = post('/v1/messages', { topic: 'a', orderKey: 'ann' });
    expect(await refusal(posted)).toEqual([400, 'config.invalid']);
  });
});

describe('a body', () => {
  test('goes out as a file to save, whatever it says of itself', async () => {
    const { ask, spool } = await setup();
    const body = '<script>alert(1)</script>';
    await spool.enqueue({ topic: 'a', id: 'x', body, headers: { 'content-type': 'text/html' } });
    const answer = await ask('/v1/messages/x/body');
    expect(await answer.text()).toBe(body);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': String(body.length),
      'content-disposition': 'attachment; filename="x"',
      'x-content-type-options': 'nosniff',
      'content-security-policy': expect.stringContaining("default-src 'none'"),
    });
  });

  test('comes whole when it is large, and empty when it is empty', async () => {
    const { ask, spool } = await setup();
    const body = Buffer.alloc(900_000, 7);
    await spool.enqueue({ topic: 'a', id: 'large', body });
    await spool.enqueue({ topic: 'a', id: 'empty' });
    const bytes = Buffer.from(await (await ask('/v1/messages/large/body')).arrayBuffer());
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      createHash('sha256').update(body).digest('hex'),
    );
    expect(await (await ask('/v1/messages/empty/body')).text()).toBe('');
  });

  test('that is only asked about, or let go of half way, is not kept open', async () => {
    let open = 0;
    const { ask, spool, port } = await setup({
      operator: () => ({
        body: async () =>
          (async function* () {
            open += 1;
            try {
              for (;;) yield Buffer.alloc(100_000);
            } finally {
              open -= 1;
            }
          })(),
      }),
    });
    await spool.enqueue({ topic: 'a', id: 'x', body: Buffer.alloc(900_000) });
    const head = await ask('/v1/messages/x/body', { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length'), open]).toEqual([200, '900000', 0]);
    const wire = await openWire(
      port,
      'GET /v1/messages/x/body HTTP/1.1\r\nhost: localhost\r\n\r\n',
    );
    await wire.until(/\r\n\r\n/);
    wire.socket.destroy();
    await expect.poll(() => open).toBe(0);
  });

  test('that is damaged cuts the connection, even when its length is right', async () => {
    const body = async function* (): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(100, 1);
      yield Buffer.alloc(100, 2);
      yield Buffer.alloc(100, 3);
      throw new RespoolError('body.corrupt', 'the digest differs');
    };
    const { port, spool } = await setup({ operator: () => ({ body: async () => body() }) });
    await spool.enqueue({ topic: 'a', id: 'x', body: Buffer.alloc(300) });
    const wire = await openWire(
      port,
      'GET /v1/messages/x/body HTTP/1.1\r\nhost: localhost\r\n\r\n',
    );
    await wire.closed;
    const [head = '', bytes = ''] = wire.received.split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1\.1 200 /);
    expect(head).toContain('content-length: 300');
    expect(bytes.length).toBeLessThan(300);
  });

  test('that is damaged at once, or gone, is refused', async () => {
    const failing = (code: 'body.corrupt' | 'body.missing') => ({
      body: async () =>
        (async function* (): AsyncGenerator<Uint8Array> {
          yield Buffer.alloc(1);
          throw new RespoolError(code, 'no');
        })(),
    });
    for (const [code, status] of [
      ['body.corrupt', 500],
      ['body.missing', 410],
    ] as const) {
      const { ask, spool } = await setup({ operator: () => failing(code) });
      await spool.enqueue({ topic: 'a', id: 'x', body: 'x' });
      expect(await refusal(ask('/v1/messages/x/body'))).toEqual([status, code]);
    }
    const { ask } = await setup();
    expect((await ask('/v1/messages/x/body')).status).toBe(404);
  });
});

describe('numbers', () => {
  test('are asked once for all who want them, and again after 5 s', async () => {
    const { ask, spool, store, clock } = await setup();
    await spool.enqueue({ topic: 'a.b', id: 'x', destination: 'd' });
    const paths = ['/v1/stats', '/v1/shape', '/v1/tally?by=topic'];
    for (const path of paths) {
      const before = store.faults.count();
      const first = await json(ask(path));
      const asked = store.faults.count() - before;
      expect(asked).toBeGreaterThan(0);
      await Promise.all([ask(path), ask(path), ask(path)]);
      expect(await json(ask(path))).toEqual(first);
      expect(store.faults.count() - before).toBe(asked);
      await clock.advance('5s');
      const later = store.faults.count();
      await ask(path);
      expect(store.faults.count()).toBeGreaterThan(later);
    }
  });

  test('are fresh after an operator changed something', async () => {
    const { ask, post, spool } = await setup();
    await spool.enqueue({ topic: 'a', id: 'x' });
    await ask('/v1/stats');
    await post('/v1/messages/x/hold');
    expect(await json(ask('/v1/stats'))).toMatchObject({ states: { hold: { count: 1 } } });
  });

  test('are counted by what is asked, under the filters', async () => {
    const { ask, spool } = await setup();
    await spool.enqueue({ topic: 'a.b', destination: 'd' });
    await spool.enqueue({ topic: 'c' });
    expect(await json(ask('/v1/tally?by=topic&topic=a.*'))).toMatchObject({
      rows: [{ key: 'a.b', count: 1 }],
    });
    expect(await json(ask('/v1/shape?by=destination'))).toMatchObject({
      by: 'destination',
      rows: [{ key: 'd', total: 1 }],
    });
    expect(await json(ask('/v1/shape?topic=c'))).toMatchObject({
      by: 'topic',
      total: { total: 1 },
    });
    expect(await json(ask('/v1/stats'))).toMatchObject({ states: { incoming: { count: 2 } } });
    expect((await ask('/v1/tally?by=colour')).status).toBe(400);
    expect((await ask('/v1/tally')).status).toBe(400);
  });

  test('that cannot be had now are not remembered', async () => {
    const { ask, store } = await setup();
    store.faults.plan = (operation) => (operation === 'tally' ? 'before' : 'ok');
    const answer = await ask('/v1/stats');
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5']);
    expect(await refusal(answer)).toEqual([503, 'store.unavailable']);
    store.faults.plan = () => 'ok';
    expect((await ask('/v1/stats')).status).toBe(200);
  });
});

describe('the rest', () => {
  test('policies, pauses, the audit record and the check are there to be read', async () => {
    const { ask, post } = await setup();
    expect(await json(ask('/v1/policies'))).toMatchObject({
      policies: expect.arrayContaining([expect.objectContaining({ name: 'default' })]),
    });
    await post('/v1/pause', { topic: 'a.*' });
    expect((await post('/v1/pause')).status).toBe(400);
    await post('/v1/pause', { topic: '#' });
    expect(await json(ask('/v1/pauses'))).toMatchObject({
      pauses: expect.arrayContaining([
        expect.objectContaining({ topic: 'a.*', by: 'local' }),
        expect.objectContaining({ topic: '#' }),
      ]),
    });
    await post('/v1/resume', { topic: 'a.*' });
    expect((await post('/v1/resume', {})).status).toBe(400);
    await post('/v1/resume', { topic: '#' });
    expect(await json(ask('/v1/pauses'))).toEqual({ pauses: [] });
    const { records } = await json<{ records: { sequence: number; action: string }[] }>(
      ask('/v1/audit'),
    );
    expect(records.map(({ action }) => action)).toEqual(['pause', 'pause', 'resume', 'resume']);
    expect(await json(ask('/v1/audit?after=1&max=1'))).toMatchObject({
      records: [{ sequence: 2 }],
    });
    for (const query of ['max=0', 'max=1001', 'after=-1', 'after=x']) {
      expect((await ask(`/v1/audit?${query}`)).status).toBe(400);
    }
    expect(await json(post('/v1/check', { repair: true }))).toEqual({
      entries: 0,
      bodies: 0,
      findings: [],
    });
  });

  test('requests that come in one go on one connection are answered in their order', async () => {
    const { port, spool } = await setup();
    const post = (body: string): string =>
      `POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\nrespool-id: ${body}\r\n` +
      `content-length: ${body.length}\r\n\r\n${body}`;
    const get = 'GET /v1/messages/two HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n';
    const wire = await openWire(port, `${post('one')}${post('two')}${get}`);
    await wire.closed;
    expect(wire.received.match(/HTTP\/1\.1 \d+|"id":"\w+","(?:dup|env)/g)).toEqual([
      'HTTP/1.1 201',
      '"id":"one","dup',
      'HTTP/1.1 201',
      '"id":"two","dup',
      'HTTP/1.1 200',
      '"id":"two","env',
    ]);
    expect((await spool.count()).incoming).toBe(2);
  });

  test('a path that does not exist is 404, one with another method 405', async () => {
    const { ask } = await setup();
    expect(await refusal(ask('/v1/nothing'))).toEqual([404, 'config.invalid', 'route.unknown']);
    const answer = await ask('/v1/stats', { method: 'DELETE' });
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'GET']);
    expect((await ask('/v1/topics/a/messages')).status).toBe(405);
    expect((await ask('/v1/messages', { method: 'OPTIONS' })).status).toBe(405);
  });

  test('every answer carries the headers that keep browsers from making something of it', async () => {
    const { ask } = await setup();
    const paths = ['/healthz', '/v1/stats', '/v1/nothing', '/v1/messages/x', '/openapi.json'];
    const answers = [
      ...paths.map((path) => ask(path)),
      ask('/v1/topics/a/messages', { method: 'POST' }),
      ask('/v1/topics/a/messages?x', { method: 'POST' }),
      ask('/v1/stats', { method: 'HEAD' }),
    ];
    for (const answer of answers) {
      expect(Object.fromEntries((await answer).headers)).toMatchObject({
        'x-content-type-options': 'nosniff',
        'content-security-policy': expect.stringContaining("default-src 'none'"),
        'cache-control': 'no-store',
        'referrer-policy': 'no-referrer',
      });
      expect((await answer).headers.get('access-control-allow-origin')).toBeNull();
    }
  });
});
