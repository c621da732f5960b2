/** Callers who want to do harm: they get an answer, and nobody else waits for it. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ByteBudget } from '../../src/web/server/inlet.ts';
import { ConnectionLimit } from '../../src/web/server/listener.ts';
import { json, openWire, refusal, setup, SETTINGS, type World } from './setup.ts';

const MIB = 2 ** 20;

describe('a silent connection', () => {
  test('is gone a second after it was told so, whatever its other end does', async () => {
    const limits = { ...SETTINGS.limits, connections: 1, requestTimeout: '100ms' };
    const { port, ask, clock } = await setup({ settings: { limits } });
    // Keeps its own side open for ever.
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => undefined).resume();
    await once(socket, 'end');
    await expect(ask('/healthz')).rejects.toThrow();
    await clock.advance('1s');
    await expect.poll(() => ask('/healthz').then(({ status }) => status)).toBe(200);
  });
});

describe('the head of a request', () => {
  const GET = 'GET /healthz HTTP/1.1\r\nhost: localhost\r\n';

  test.each([
    ['is never begun', ''],
    ['is an empty line', '\r\n'],
    ['ends in the middle', GET],
    ['ends in the middle behind a whole request', `${GET}\r\nGET /h`],
  ])('that %s is cut after its time', async (_, text) => {
    const { port } = await setup({ parts: { times: { headersWithinMs: 200 } } });
    const wire = await openWire(port, text);
    await wire.until(/HTTP\/1\.1 408 [^]*\}$/);
  });

  test('may begin later after an answer: a keep-alive connection has more time', async () => {
    const { port } = await setup({ parts: { times: { headersWithinMs: 100 } } });
    const wire = await openWire(port, `${GET}\r\n`);
    await wire.until(/HTTP\/1\.1 200 [^]*\}$/);
    // Longer than a head may take: another connection, of after the answer, is cut meanwhile.
    const other = await openWire(port, '');
    await other.until(/HTTP\/1\.1 408 /);
    wire.socket.write(`${GET}\r\n`);
    await wire.until(/HTTP\/1\.1 200 [^]*HTTP\/1\.1 200 /);
  });

  test('is cut also when its bytes keep coming', async () => {
    const { port } = await setup({ parts: { times: { headersWithinMs: 200 } } });
    const wire = await openWire(port, `${GET}x: `);
    const timer = setInterval(() => wire.socket.write('y'), 20);
    onTestFinished(() => clearInterval(timer));
    await wire.until(/HTTP\/1\.1 408 /);
  });
});

describe('connections of one address', () => {
  test('are half of all, counted by network, and given back', () => {
    const seats = new ConnectionLimit(4);
    expect(['10.0.0.1', '10.0.0.1', '10.0.0.1'].map((one) => seats.take(one))).toEqual([
      true,
      true,
      false,
    ]);
    expect(seats.take('::ffff:10.0.0.1')).toBe(false);
    expect(['fd00::1', 'fd00::2', 'fd00::3'].map((one) => seats.take(one))).toEqual([
      true,
      true,
      false,
    ]);
    seats.leave('10.0.0.1');
    expect([seats.take('10.0.0.1'), seats.take('10.0.0.1')]).toEqual([true, false]);
  });

  test('are not counted on this machine', () => {
    const seats = new ConnectionLimit(2);
    for (const one of ['127.0.0.1', '::1', '::ffff:127.0.0.1']) {
      expect([seats.take(one), seats.take(one), seats.take(one)]).toEqual([true, true, true]);
    }
  });

  const outside = Object.values(networkInterfaces())
    .flat()
    .find((one) => one?.internal === false && one.family === 'IPv4')?.address;

  test.each([
    ['leave room for others', false, 'close'],
    ['are not told apart behind a proxy', true, 'secureConnect'],
  ])('%s', async (_, behindProxy, expected) => {
    const dir = path.join(import.meta.dirname, 'tls');
    const { port } = await setup({
      settings: {
        host: '0.0.0.0',
        token: 'a-token',
        behindProxy,
        tls: { key: path.join(dir, 'key.pem'), cert: path.join(dir, 'cert.pem') },
        limits: { ...SETTINGS.limits, connections: 2 },
      },
    });
    const open = (): Promise<string> => {
      const socket = connectTls({ port, host: outside ?? '127.0.0.1', rejectUnauthorized: false });
      onTestFinished(() => void socket.destroy());
      socket.on('error', () => undefined);
      return new Promise((resolve) => {
        socket.once('secureConnect', () => resolve('secureConnect'));
        socket.once('close', () => resolve('close'));
      });
    };
    expect(await open()).toBe('secureConnect');
    // A machine without a network of its own has only the address that is not counted.
    expect(await open()).toBe(outside === undefined ? 'secureConnect' : expected);
  });
});

const many = (count: number, part: (at: number) => string): string =>
  Array.from({ length: count }, (_, at) => part(at)).join(',');

const send = ({ ask }: World, to: string, body: string): Promise<Response> =>
  ask(to, { method: 'POST', body, headers: { 'content-type': 'application/json' } });

describe('JSON that is too much', () => {
  const deep = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
  const hold = '"action":{"kind":"hold"}';

  test.each([
    ['states', '/v1/bulk', `{${hold},"filter":{"state":[${many(300_000, () => '1')}]}}`],
    ['ids', '/v1/bulk', `{${hold},"ids":[${many(300_000, () => '""')}]}`],
    ['headers', '/v1/messages', `{"topic":"a","headers":{${many(200_000, (at) => `"k${at}":1`)}}}`],
    ['unknown names', '/v1/messages', `{"topic":"a",${many(200_000, (at) => `"k${at}":1`)}}`],
    ['empty messages', '/v1/messages', `[${many(200_000, () => '{}')}]`],
    [
      'values in all',
      '/v1/messages',
      `[${many(900, () => `{"headers":{${many(90, (at) => `"${at}":[1]`)}}}`)}]`,
    ],
    ['values in a body', '/v1/messages', `{"topic":"a","body":[${many(600_000, () => '1')}]}`],
    ['levels', '/v1/messages', deep(MIB)],
    ['levels outside of a body', '/v1/messages', `{"headers":${deep(17)}}`],
    ['levels of a body', '/v1/messages', `{"topic":"a","body":${deep(256)}}`],
    ['open levels', '/v1/messages', '['.repeat(MIB)],
  ])('is refused before anybody looks at it: %s', async (_, to, body) => {
    const world = await setup({ isListening: false });
    const answer = await send(world, to, body);
    expect(await refusal(answer)).toEqual([400, 'limit.exceeded', 'json.too-much']);
    expect((await world.spool.count()).incoming).toBe(0);
  });

  test('is counted without what stands in texts, and a body may have 255 levels', async () => {
    const world = await setup({ isListening: false });
    const text = JSON.stringify({ topic: 'a', bodyText: '\\"[{,'.repeat(100_000) });
    expect((await send(world, '/v1/messages', text)).status).toBe(201);
    const body = `{"topic":"a","body":${deep(255)}}`;
    expect((await send(world, '/v1/messages', body)).status).toBe(201);
  });

  test('is over 1 MiB, but for messages', async () => {
    const world = await setup();
    const reason = 'x'.repeat(MIB);
    await world.spool.enqueue({ topic: 'a', id: 'x' });
    for (const to of ['/v1/bulk', '/v1/pause', '/v1/messages/x/hold']) {
      const answer = await world.post(to, { reason });
      expect([to, ...(await refusal(answer))]).toEqual([to, 413, 'limit.exceeded', 'too-large']);
    }
    const posted = await world.post('/v1/messages', { topic: 'a', body: [reason.slice(100_000)] });
    expect(posted.status).toBe(201);
  });

  test('is not sent back', async () => {
    const world = await setup({ isListening: false });
    const name = 'k'.repeat(100_000);
    const answer = await send(world, '/v1/messages', `{"topic":"a","${name}":1}`);
    expect(answer.status).toBe(400);
    expect((await answer.text()).length).toBeLessThan(1_500);
  });

  test('may be a query too', async () => {
    const { ask } = await setup({ isListening: false });
    const query = many(1_001, (at) => `a${at}=`).replaceAll(',', '&');
    expect(await refusal(ask(`/v1/messages?${query}`))).toEqual([400, 'limit.exceeded']);
  });
});

describe('a body that nobody asked for', () => {
  const head = (line: string): string =>
    `${line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n` +
    `content-length: ${MIB}\r\n\r\n`;

  test.each([
    ['POST /healthz', 405],
    ['POST /readyz', 405],
    ['POST /openapi.json', 405],
    ['PUT /v1/messages', 405],
    ['POST /v1/nothing', 404],
    ['POST /v1/messages/No-Id/hold', 400],
    ['POST /v1/pause?x=1', 400],
    ['GET /healthz', 200],
  ])('is answered before it comes: %s', async (line, status) => {
    const { port, clock } = await setup();
    const wire = await openWire(port, head(line));
    expect(await wire.until(/\}$/)).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(wire.received).toMatch(/connection: close/i);
    await clock.advance('2s');
    await wire.closed;
  });

  test('is not read of who may not send it', async () => {
    const sha256 = '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b';
    const tokens = [{ name: 'a', role: 'read', sha256 }] as const;
    const { port } = await setup({ settings: { tokens } });
    const wire = await openWire(
      port,
      head('POST /v1/pause').replace('\r\n\r\n', '\r\nauthorization: Bearer secret\r\n\r\n'),
    );
    expect(await wire.until(/\}$/)).toMatch(/^HTTP\/1.1 403 /);
  });
});

describe('the memory for requests', () => {
  test('is shared by all, and given back', () => {
    const budget = new ByteBudget(10);
    const [one, two] = [budget.open(), budget.open()];
    one.take(6);
    two.take(4);
    expect(() => two.take(1)).toThrow(/send it again/);
    one.giveBack();
    one.giveBack();
    two.take(6);
    expect(() => one.take(1)).toThrow(/send it again/);
  });

  test('is not used up by slow callers: who comes later is told to come back', async () => {
    const { port, post } = await setup();
    const head =
      'POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n';
    const part = ' '.repeat(16 * MIB - 1);
    const length = `content-length: ${16 * MIB}\r\n\r\n`;
    const slow = await Promise.all(
      Array.from({ length: 4 }, () => openWire(port, `${head}${length}${part}`)),
    );
    const status = async (): Promise<number> =>
      (await post('/v1/messages', { topic: 'a', bodyText: 'x'.repeat(1_000) })).status;
    await expect.poll(status).toBe(503);
    const refused = await post('/v1/messages', { topic: 'a', bodyText: 'x'.repeat(1_000) });
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await refusal(refused)).toEqual([503, 'store.unavailable', 'busy']);
    for (const { socket } of slow) socket.destroy();
    await expect.poll(status).toBe(201);
  });
});

describe('what cannot be read behind a request', () => {
  const POST = 'POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\n';

  test('does not take the place of its answer', async () => {
    const { port, spool, clock } = await setup();
    const wire = await openWire(port, `${POST}content-length: 5\r\n\r\nhelloGARBAGE\r\n\r\n`);
    expect(await wire.until(/\}.*\}$/s)).toMatch(/^HTTP\/1\.1 201 .*HTTP\/1\.1 400 /s);
    await clock.advance('1s');
    await wire.closed;
    expect((await spool.count()).incoming).toBe(1);
  });

  test('waits for several of them, also when it is the body of the last', async () => {
    const { port, spool } = await setup();
    const good = `${POST}content-length: 1\r\n\r\nx`;
    const bad = `${POST}transfer-encoding: chunked\r\n\r\nzz\r\n`;
    const wire = await openWire(port, `${good}${good}${bad}`);
    await wire.closed;
    const statuses = [...wire.received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, one]) => one);
    expect(statuses).toEqual(['201', '201', '400']);
    expect((await spool.count()).incoming).toBe(2);
  });

  test('is not taken for the body where nothing says how long that is', async () => {
    const { port, spool } = await setup();
    const wire = await openWire(port, `${POST}\r\nhello`);
    await wire.closed;
    expect(wire.received).toMatch(/^HTTP\/1\.1 411 .*"length.missing"/s);
    const old = await openWire(port, `${POST.replace('1.1', '1.0')}\r\nhello`);
    await old.closed;
    expect(old.received).toMatch(/^HTTP\/1\.1 411 /);
    const empty = await openWire(port, `${POST}content-length: 0\r\n\r\n`);
    expect(await empty.until(/\}$/)).toMatch(/^HTTP\/1\.1 201 /);
    expect((await spool.count()).incoming).toBe(1);
  });

  test('is refused when the body is packed for its way', async () => {
    const { port, spool } = await setup();
    const wire = await openWire(port, `${POST}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`);
    expect(await wire.until(/\}$/)).toMatch(/^HTTP\/1\.1 501 .*"transfer-encoding"/s);
    expect((await spool.count()).incoming).toBe(0);
  });
});

test('a body that is cut off is nobody’s error, however long it was to be', async () => {
  const { port, spool, logs, ask } = await setup();
  for (const length of ['content-length: 100000', 'transfer-encoding: chunked']) {
    const head = `POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\n${length}\r\n\r\n`;
    const wire = await openWire(port, `${head}7\r\nabcdefg\r\n`);
    await ask('/v1/stats');
    wire.socket.destroy();
    await wire.closed;
  }
  await ask('/v1/stats');
  expect(await json(ask('/healthz'))).toEqual({ ok: true });
  expect(logs.filter((line) => line.includes('"error"'))).toEqual([]);
  expect((await spool.count()).incoming).toBe(0);
});

test('callers that still send are answered, also if there are more than are read at once', async () => {
  const { port } = await setup();
  const size = 2_000_000;
  // More than the socket buffers hold, so that each has to be read to its end.
  const text = `POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${size}\r\n\r\n`;
  const wires = await Promise.all(
    Array.from({ length: 30 }, () => openWire(port, text + 'x'.repeat(size))),
  );
  for (const wire of wires) {
    expect(await wire.until(/^HTTP\/1\.1 404 [^]*\}$/)).toMatch(/^connection: close\r$/im);
    await wire.closed;
    expect(wire.socket.bytesWritten).toBe(text.length + size);
  }
});
