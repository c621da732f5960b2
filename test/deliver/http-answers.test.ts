/** What the HTTP handler makes of answers, and of none. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { type Clock, RespoolError } from 'respool';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { http } from 'respool/deliver';
import { makeHttp } from '../../src/deliver/http/http.ts';
import { answer, brief, largeBody, makeDelivery, rawReceiver, receiver, run } from './setup.ts';

const allow = ['127.0.0.1'];

/** A server that only speaks as it is told. */
async function socketServer(onSocket: (socket: Socket) => void): Promise<string> {
  const server = createServer(onSocket);
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

describe('an answer', () => {
  const cases: readonly (readonly [number, string])[] = [
    [200, 'delivered'],
    [201, 'delivered'],
    [204, 'delivered'],
    [299, 'delivered'],
    [301, 'permanent'],
    [302, 'permanent'],
    [304, 'permanent'],
    [400, 'permanent'],
    [401, 'permanent'],
    [404, 'permanent'],
    [408, 'transient'],
    [410, 'permanent'],
    [422, 'permanent'],
    [425, 'transient'],
    [429, 'transient'],
    [499, 'permanent'],
    [500, 'transient'],
    [501, 'transient'],
    [503, 'transient'],
    [599, 'transient'],
    [799, 'transient'],
  ];
  test.each(cases)('of %d is %s', async (status, meaning) => {
    const { url } = await receiver(answer(status));
    const outcome = await run(http({ url, allow }));
    expect(outcome).toMatchObject(
      meaning === 'delivered'
        ? { kind: 'delivered' }
        : { kind: 'failed', failure: { permanence: meaning, code: `http.${status}` } },
    );
  });

  test('can be given another meaning, by status before class, and the rest keeps its own', async () => {
    const handler = async (status: number) => {
      const { url } = await receiver(answer(status));
      const own = { transient: [404, '3xx'], permanent: [501, 429, 302, '5xx'] };
      return (await brief(http({ url, allow, ...own }))).split(':')[0];
    };
    expect(await handler(404)).toBe('transient http.404');
    expect(await handler(301)).toBe('transient http.301');
    expect(await handler(302)).toBe('permanent http.302');
    expect(await handler(501)).toBe('permanent http.501');
    expect(await handler(503)).toBe('permanent http.503');
    expect(await handler(429)).toBe('permanent http.429');
    expect(await handler(408)).toBe('transient http.408');
    expect(await handler(403)).toBe('permanent http.403');
  });

  test('that redirects is not followed, and says so', async () => {
    const other = await receiver();
    for (const status of [301, 302, 303, 307, 308]) {
      const { url } = await receiver(answer(status, '', { location: other.url }));
      expect(await brief(http({ url, allow }))).toBe(
        `permanent http.${status}: ${new URL(url).host} answered ${status}; ` +
          'redirects are not followed',
      );
    }
    expect(other.connections()).toBe(0);
  });

  test('leaves status and first words with the message, also when it is delivered', async () => {
    for (const status of [200, 503]) {
      const { url } = await receiver(answer(status, `thanks\n${'x'.repeat(1_000)}`));
      const { delivery, notes } = makeDelivery();
      await http({ url, allow })(delivery);
      expect(notes).toEqual({
        'http-status': String(status),
        'http-response': `thanks ${'x'.repeat(249)}`,
      });
    }
  });

  test('is quoted in one safe line, cut short', async () => {
    const evil = `no\r\n\u001b[31m\u202ered\u0007${'y'.repeat(400)}`;
    const { url } = await receiver(answer(500, evil));
    const text = await brief(http({ url, allow }));
    expect(text).toMatch(/answered 500: no \[31m red y+…$/u);
    expect(text.length).toBeLessThan(280);
  });

  test('of any length is read up to the limit only, and its connection dropped', async () => {
    let sent = 0;
    const { url, connections } = await receiver((_request, response) => {
      response.writeHead(200);
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536))) sent += 65_536;
      };
      response.on('drain', more);
      more();
    });
    const handler = http({ url, allow, responseMaxBytes: 1_000 });
    expect(await brief(handler)).toBe('delivered');
    expect(await brief(handler)).toBe('delivered');
    expect(connections()).toBe(2);
    expect(sent).toBeLessThan(64 * 2 ** 20);
  });

  test('that breaks off after its status counts by its status', async () => {
    const url = await socketServer((socket) => {
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal'));
    });
    expect(await brief(http({ url, allow }))).toBe('delivered');
  });
});

describe('Retry-After', () => {
  const now = Date.UTC(2026, 5, 1, 12);
  const cases: readonly (readonly [string, number | undefined])[] = [
    ['120', 120_000],
    ['0', undefined],
    ['-5', undefined],
    ['1.5', undefined],
    ['soon', undefined],
    ['Mon, 01 Jun 2026 12:05:00 GMT', 300_000],
    ['Monday, 01-Jun-26 12:05:00 GMT', 300_000],
    ['Mon Jun  1 12:05:00 2026', 300_000],
    ['Mon, 01 Jun 2026 11:00:00 GMT', undefined],
    ['2026-06-01T12:05:00Z', undefined],
    ['99999999999', 86_400_000],
    // Regression: thirteen digits and more were no number.
    ['9999999999999', 86_400_000],
    ['9'.repeat(400), 86_400_000],
    ['0'.repeat(20), undefined],
    ['Fri, 31 Dec 9999 23:59:59 GMT', 86_400_000],
  ];
  test.each(cases)('"%s" asks for a wait of %s ms', async (text, waitMs) => {
    const { url } = await receiver(answer(429, '', { 'retry-after': text }));
    const clock = standingClock(now);
    const outcome = await run(makeHttp({ url, allow }, { clock }));
    const waited = outcome.kind === 'failed' ? outcome.failure.retryAfterMs : Number.NaN;
    expect(waited).toBe(waitMs);
  });

  test('is cut at retryAfterMax', async () => {
    const { url } = await receiver(answer(503, '', { 'retry-after': '7200' }));
    const outcome = await run(http({ url, allow, retryAfterMax: '10m' }));
    expect(outcome).toMatchObject({ failure: { retryAfterMs: 600_000 } });
  });

  test('of a final answer means nothing', async () => {
    const { url } = await receiver(answer(410, '', { 'retry-after': '7200' }));
    const outcome = await run(http({ url, allow }));
    expect(outcome.kind === 'failed' && 'retryAfterMs' in outcome.failure).toBe(false);
  });
});

describe('without an answer', () => {
  test('in time, the request fails and is tried again', async () => {
    const arrived = Promise.withResolvers<void>();
    const { url } = await receiver(() => arrived.resolve());
    const clock = new SimClock();
    const outcome = brief(makeHttp({ url, allow, timeout: '7s' }, { clock }));
    await arrived.promise;
    await clock.advance('7s');
    expect(await outcome).toBe(
      `transient http.timeout: no answer from ${new URL(url).host} within 7s`,
    );
  });

  test('that ends, a slow drip of it is cut by the time limit, and the status decides', async () => {
    for (const [status, meaning] of [
      [200, 'delivered'],
      [500, 'transient http.500'],
    ] as const) {
      const dripped = Promise.withResolvers<void>();
      const { url } = await receiver((_request, response) => {
        response.writeHead(status).write('d');
        response.on('close', dripped.resolve);
        let count = 0;
        const drip = (): void => {
          count += 1;
          if (count < 20 && !response.destroyed) response.write('.', () => setImmediate(drip));
        };
        drip();
      });
      const clock = new SimClock();
      const began = Promise.withResolvers<unknown>();
      subscribe('undici:request:headers', began.resolve);
      const outcome = brief(makeHttp({ url, allow, timeout: '7s' }, { clock }));
      await began.promise;
      unsubscribe('undici:request:headers', began.resolve);
      await clock.advance('7s');
      expect(await outcome).toContain(meaning);
      await dripped.promise;
    }
  });

  test('because nobody listens, it is unreachable', async () => {
    const { url, server } = await rawReceiver(answer(200));
    server.close();
    await once(server, 'close');
    expect(await brief(http({ url, allow }))).toMatch(
      /^transient http\.unreachable: no answer from 127\.0\.0\.1:\d+: connect ECONNREFUSED/,
    );
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });

  test('because there is no such name, it is unreachable', async () => {
    const resolve = async () => {
      throw Object.assign(new Error('getaddrinfo ENOTFOUND nowhere.example'), {
        code: 'ENOTFOUND',
      });
    };
    const handler = makeHttp({ url: 'https://nowhere.example/' }, { resolve });
    expect(await brief(handler)).toContain('transient http.unreachable');
  });

  test('because the connection broke, it was reset', async () => {
    const url = await socketServer((socket) => socket.once('data', () => socket.resetAndDestroy()));
    expect(await brief(http({ url, allow }))).toContain('transient http.reset');
  });

  test('but with something that is no HTTP, it is a fault of the protocol', async () => {
    const url = await socketServer((socket) =>
      socket.once('data', () => socket.end('220 mail.example ESMTP\r\n')),
    );
    expect(await brief(http({ url, allow }))).toContain('transient http.protocol');
  });

  test.each(['100 Continue', '101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x'])(
    'but with "%s", which nobody asked for, it is a fault of the protocol',
    async (status) => {
      const url = await socketServer((socket) =>
        socket.once('data', () =>
          socket.write(`HTTP/1.1 ${status}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n`),
        ),
      );
      expect(await brief(http({ url, allow }))).toContain('transient http.protocol');
    },
  );

  test('because the delivery was called off, its connection is closed', async () => {
    const arrived = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<void>();
    const { url } = await receiver((request) => {
      request.socket.on('close', closed.resolve);
      arrived.resolve();
    });
    const abort = new AbortController();
    const outcome = brief(http({ url, allow }), { signal: abort.signal });
    await arrived.promise;
    abort.abort(new Error('stopping'));
    expect(await outcome).toContain('transient http.aborted');
    await closed.promise;
    expect(await brief(http({ url, allow }), { signal: abort.signal })).toContain('http.aborted');
  });
});

test('neither the reason nor the notes of a failure carry a secret of the options', async () => {
  const { url } = await receiver(answer(500, 'no'));
  const secrets = {
    headers: { authorization: 'Bearer canary', 'x-api-key': 'canary' },
    secret: 'canary canary canary',
    allow,
  };
  for (const target of [url, 'http://127.0.0.1:9/canary']) {
    const { delivery, notes } = makeDelivery();
    const outcome = await http({ ...secrets, url: `${target}?token=canary` })(delivery);
    const kept = JSON.stringify([outcome, notes]);
    expect(kept).toContain('"kind":"failed"');
    expect(kept).not.toContain('canary');
  }
});

describe('a large body', () => {
  test('is streamed and signed with flat memory', async () => {
    let received = 0;
    const { url } = await rawReceiver((request, response) => {
      request.on('data', (part: Buffer) => {
        received += part.length;
      });
      request.on('end', () => response.end());
    });
    const size = 64 * 2 ** 20;
    const plain = largeBody(size);
    const before = liveBytes();
    let passes = 0;
    let mostAhead = 0;
    let mostLive = 0;
    const stream = async function* () {
      passes += 1;
      let produced = 0;
      for await (const part of plain()) {
        produced += part.length;
        if (passes === 2) mostAhead = Math.max(mostAhead, produced - received);
        if (produced % (16 * 2 ** 20) === 0) mostLive = Math.max(mostLive, liveBytes());
        yield Buffer.from(part);
      }
    };
    const handler = http({ url, allow, secret: 'a secret of sixteen bytes' });
    expect(await brief(handler, { size, stream })).toBe('delivered');
    expect([received, passes]).toEqual([size, 2]);
    expect(mostAhead).toBeLessThan(16 * 2 ** 20);
    expect(mostLive - before).toBeLessThan(32 * 2 ** 20);
  });

  test.each([
    ['in the middle', 20],
    ['at its very end', 40],
  ])('that turns out damaged %s is never received as whole', async (_where, parts) => {
    const size = 40 * 65_536;
    const ends: string[] = [];
    const over = Promise.withResolvers<void>();
    const { url } = await rawReceiver((request, response) => {
      request.resume();
      request.on('end', () => {
        ends.push('whole');
        response.end();
      });
      request.on('error', () => undefined);
      request.on('close', () => {
        ends.push(request.complete ? 'complete' : 'cut');
        over.resolve();
      });
    });
    const stream = async function* () {
      for (let at = 0; at < parts; at += 1) yield Buffer.alloc(65_536);
      throw new RespoolError('body.corrupt', 'the body is damaged');
    };
    await expect(brief(http({ url, allow }), { size, stream })).rejects.toThrow('is damaged');
    await over.promise;
    expect(ends).toEqual(['cut']);
  });

  // Regression: the error of a broken connection was taken for one of the body.
  test('whose connection breaks in the middle is a failure of the network', async () => {
    const { url } = await rawReceiver((request) => {
      request.on('error', () => undefined);
      request.once('data', () => request.socket.resetAndDestroy());
    });
    const size = 64 * 2 ** 20;
    const text = await brief(http({ url, allow }), { size, stream: largeBody(size) });
    expect(text).toContain('transient http.reset: no answer from 127.0.0.1');
  });

  test('that is shorter than it should be is never received as whole', async () => {
    const over = Promise.withResolvers<boolean>();
    const { url } = await rawReceiver((request) => {
      request.resume();
      request.on('error', () => undefined);
      request.on('close', () => over.resolve(request.complete));
    });
    const stream = largeBody(10 * 65_536);
    expect(await brief(http({ url, allow }), { size: 11 * 65_536, stream })).toContain(
      'transient http.error',
    );
    expect(await over.promise).toBe(false);
  });

  test('whose receiver answers before it is through is judged by that answer', async () => {
    const { url } = await rawReceiver((request, response) => {
      request.on('error', () => undefined);
      response.writeHead(413, { connection: 'close' }).end('too large');
    });
    const size = 64 * 2 ** 20;
    let isDone = false;
    const plain = largeBody(size);
    const stream = async function* () {
      try {
        yield* plain();
      } finally {
        isDone = true;
      }
    };
    const text = await brief(http({ url, allow }), { size, stream });
    // Whether the answer or the closing of the connection is seen first, is up to the network.
    expect(text).toMatch(/^(?:permanent http\.413|transient http\.reset)/);
    expect(isDone).toBe(true);
  });
});

/** A clock that stands still. */
function standingClock(now: number): Clock {
  const sim = new SimClock();
  return {
    now: () => now,
    monotonic: () => sim.monotonic(),
    after: (ms, call) => sim.after(ms, call),
    soon: (call) => sim.soon(call),
  };
}

/** Bytes in buffers that somebody still needs. */
function liveBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  // Buffers found dead by one collection are counted out by the next.
  collect();
  collect();
  return process.memoryUsage().arrayBuffers;
}
