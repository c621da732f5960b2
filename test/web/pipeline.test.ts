/** Several requests on one connection, and clients that do not read what they asked for. */
import { createHash } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { connect, Socket } from 'node:net';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { AnswerMemory } from '../../src/web/server/answer-memory.ts';
import { moving, openWire, refusal, setup, SETTINGS } from './setup.ts';
import { systemClock } from '../time.ts';

const get = (target: string, more = ''): string =>
  `GET ${target} HTTP/1.1\r\nhost: localhost\r\n${more}\r\n`;
const statusesOf = (text: string): string[] =>
  [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, one]) => one ?? '');

const posted = (id: string, body: string, more = ''): string =>
  `POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\nrespool-id: ${id}\r\n${more}` +
  `content-length: ${body.length}\r\n\r\n${body}`;
const chunked = (id: string, body: string): string => {
  const chunk = body === '' ? '' : `${body.length.toString(16)}\r\n${body}\r\n`;
  return (
    `POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\nrespool-id: ${id}\r\n` +
    `transfer-encoding: chunked\r\n\r\n${chunk}0\r\n\r\n`
  );
};
/** Whole numbers below `limit`, the same ones for the same seed. */
const createRandom = (seed: number): ((limit: number) => number) => {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7f_ff_ff_ff;
    return Math.floor((state / 0x80_00_00_00) * limit);
  };
};

describe('requests that are sent without waiting for answers', () => {
  test('are all answered, in their order, to a client that reads', async () => {
    const { port, spool } = await setup();
    const posts = Array.from({ length: 200 }, (_, at) => {
      const body = `body ${at} \r\n\r\n`;
      return (
        `POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\nrespool-id: id-${at}\r\n` +
        `content-length: ${body.length}\r\n\r\n${body}`
      );
    });
    const last = get('/healthz', 'connection: close\r\n');
    const wire = await openWire(port, `${posts.join('')}${get('/v1/stats').repeat(50)}${last}`);
    await wire.closed;
    expect(statusesOf(wire.received)).toEqual([
      ...posts.map(() => '201'),
      ...Array.from({ length: 51 }, () => '200'),
    ]);
    const ids = [...wire.received.matchAll(/"id":"(id-\d+)"/g)].map(([, id]) => id);
    expect(ids).toEqual(posts.map((_, at) => `id-${at}`));
    expect((await spool.count()).incoming).toBe(200);
  });

  test('are answered whatever pieces they come in', async () => {
    const { port } = await setup();
    const text = `${get('/healthz').repeat(3)}${get('/healthz', 'connection: close\r\n')}`;
    const wire = await openWire(port, '');
    for (const letter of text) {
      wire.socket.write(letter);
      await new Promise((next) => setImmediate(next));
    }
    await wire.closed;
    expect(statusesOf(wire.received)).toEqual(['200', '200', '200', '200']);
  });

  test.each([1_000, 5_000, 100_000])(
    'are answered in their order with long heads, in pieces of %i bytes',
    async (size) => {
      const { port } = await setup();
      const field = (length: number): string => `respool-header-x: ${'x'.repeat(length)}\r\n`;
      const requests = Array.from({ length: 20 }, (_, at) =>
        posted(`id-${at}`, '\r\n\r\n'.repeat(at * 100), field(at % 3 === 0 ? 10 : 20_000)),
      );
      const text = `${requests.join('')}${get('/healthz', 'connection: close\r\n')}`;
      const wire = await openWire(port, '');
      for (let at = 0; at < text.length; at += size) {
        wire.socket.write(text.slice(at, at + size));
        await new Promise((next) => setImmediate(next));
      }
      await wire.closed;
      const ids = [...wire.received.matchAll(/"id":"(id-\d+)"/g)].map(([, id]) => id);
      expect(ids).toEqual(requests.map((_, at) => `id-${at}`));
      expect(statusesOf(wire.received).at(-1)).toBe('200');
    },
  );

  test('that begin long heads and wait are closed when there are too many', async () => {
    const limits = { ...SETTINGS.limits, connections: 1_000 };
    const { port } = await setup({ settings: { limits } });
    const half = `GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'x'.repeat(60_000)}`;
    const wires = await Promise.all(Array.from({ length: 200 }, () => openWire(port, half)));
    const ended = await Promise.race(wires.map((one) => one.closed.then(() => one)));
    // Not told that it was too slow, which it would be later.
    expect(ended.received).toBe('');
    const wire = await openWire(port, get('/healthz', 'connection: close\r\n'));
    await wire.closed;
    expect(statusesOf(wire.received)).toEqual(['200']);
  });

  test.each([1, 2, 3, 4])(
    'are answered the same whatever pieces they come in: %i',
    async (seed) => {
      const bodies = ['', 'x', '\r\n\r\n', '\r\n\r\nGET / HTTP/1.1\r\n\r\n', 'y\r\n'.repeat(300)];
      const requests = [
        get('/healthz'),
        `\r\n\r\n${get('/nothing')}`,
        get('/v1/stats'),
        ...bodies.flatMap((body, at) => [posted(`l${at}`, body), chunked(`c${at}`, body)]),
        posted('continue', 'waited', 'expect: 100-continue\r\n'),
        get('/healthz'),
      ];
      const random = createRandom(seed);
      const order = Array.from({ length: 40 }, () => requests[random(requests.length)] ?? '');
      const text = `${order.join('')}${get('/healthz', 'connection: close\r\n')}`;
      const answersTo = async (cuts: readonly number[]): Promise<unknown> => {
        const { port } = await setup();
        const wire = await openWire(port, '');
        let from = 0;
        for (const to of [...cuts, text.length]) {
          wire.socket.write(text.slice(from, to), 'latin1');
          await new Promise((next) => setImmediate(next));
          from = to;
        }
        await wire.closed;
        const ids = [...wire.received.matchAll(/"id":"(\w+)","duplicate":(\w+)/g)];
        return [statusesOf(wire.received), ids.map(([, id, duplicate]) => [id, duplicate])];
      };
      const whole = await answersTo([]);
      const cuts = Array.from({ length: 10 * seed }, () => random(text.length));
      expect(await answersTo(cuts.toSorted((one, two) => one - two))).toEqual(whole);
      const continued = order.filter((one) => one.includes('expect:')).length;
      expect((whole as string[][])[0]).toHaveLength(41 + continued);
    },
  );

  test('are answered over TLS', async () => {
    const dir = path.join(import.meta.dirname, 'tls');
    const tls = { key: path.join(dir, 'key.pem'), cert: path.join(dir, 'cert.pem') };
    const { port } = await setup({ settings: { tls } });
    const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
    onTestFinished(() => void socket.destroy());
    let received = '';
    socket.setEncoding('latin1').on('data', (part: string) => {
      received += part;
    });
    socket.write(`${get('/openapi.json').repeat(30)}${get('/healthz', 'connection: close\r\n')}`);
    await new Promise((resolve) => socket.once('close', resolve));
    expect(statusesOf(received)).toHaveLength(31);
  });

  test('are worked on one at a time', async () => {
    let [running, most, asked] = [0, 0, 0];
    const { port } = await setup({
      operator: (operator) => ({
        policies: async () => {
          asked += 1;
          running += 1;
          most = Math.max(most, running);
          await new Promise((next) => setImmediate(next));
          running -= 1;
          return operator.policies();
        },
      }),
    });
    const text = `${get('/v1/policies').repeat(20)}${get('/healthz', 'connection: close\r\n')}`;
    const wire = await openWire(port, text);
    await wire.closed;
    expect([asked, most]).toEqual([20, 1]);
  });
});

describe('a connection', () => {
  test('lets others be answered while it has requests waiting', async () => {
    const { port, url } = await setup({
      parts: { clock: systemClock },
      settings: { limits: { ...SETTINGS.limits, requestsPerSecond: 1_000_000 } },
    });
    const wire = await openWire(port, get('/healthz').repeat(1_500));
    await wire.until(/HTTP/);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect(statusesOf(wire.received).length).toBeLessThan(1_500);
  });

  test('is answered while others wait for many lists', async () => {
    let made = 0;
    const { port, url } = await setup({
      parts: { clock: systemClock },
      settings: { limits: { ...SETTINGS.limits, requestsPerSecond: 1_000_000 } },
      operator: (operator) => ({
        page: (options) => {
          made += 1;
          return operator.page(options);
        },
      }),
    });
    const lists = get('/v1/messages').repeat(50);
    await Promise.all(Array.from({ length: 50 }, () => openWire(port, lists)));
    await expect.poll(() => made).toBeGreaterThan(0);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect(made).toBeLessThan(2_500);
  });

  test('that sends only blank lines after an answer is cut', async () => {
    const { port, clock } = await setup();
    const wire = await openWire(port, get('/healthz'));
    await wire.until(/HTTP/);
    const blank = setInterval(() => wire.socket.write('\r\n'), 10);
    onTestFinished(() => clearInterval(blank));
    await moving(clock, wire.closed);
  });

  test('that asks again after blank lines stays', async () => {
    const { port, clock } = await setup();
    const wire = await openWire(port, get('/healthz'));
    await wire.until(/HTTP/);
    const timers = clock.timers;
    wire.socket.write('\r\n');
    await expect.poll(() => clock.timers).toBe(timers + 1);
    wire.socket.write(get('/healthz'));
    await wire.until(/HTTP[^]*HTTP/);
    await clock.advance('1m');
    wire.socket.write(get('/healthz', 'connection: close\r\n'));
    await wire.closed;
    expect(statusesOf(wire.received)).toEqual(['200', '200', '200']);
  });

  test('parses a body with blank lines in large parts', async () => {
    const { port } = await setup();
    const body = '\r\n\r\n'.repeat(200_000);
    const parse = vi.spyOn(Socket.prototype, 'isPaused');
    onTestFinished(() => parse.mockRestore());
    const close = 'connection: close\r\n';
    const wire = await openWire(port, posted('one', body, close));
    await wire.closed;
    expect(statusesOf(wire.received)).toEqual(['201']);
    // Asked once for each part that is parsed.
    expect(parse.mock.calls.length).toBeLessThan(5_000);
  });
});

describe('an answer that is not read', () => {
  test('ends its connection after some time, and nothing else does', async () => {
    const limits = { ...SETTINGS.limits, requestsPerSecond: 1_000_000 };
    const { port, url } = await setup({
      parts: { times: { unreadWithinMs: 300 } },
      settings: { limits },
    });
    const socket = connect(port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => undefined);
    socket.pause();
    socket.write(get('/openapi.json').repeat(5_000));
    // Only a reader of a socket hears of its end: the server tells how many are open.
    await expect
      .poll(async () => {
        socket.write('x');
        return socket.destroyed || socket.errored !== null;
      })
      .toBe(true);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
  });

  test('of the connection that has read nothing for longest goes when there is too much', () => {
    const memory = new AnswerMemory(new SimClock(), 20_000);
    const ended: string[] = [];
    const [one, two, three] = [unread('one', ended), unread('two', ended), unread('three', ended)];
    memory.hold(one, 8_000);
    memory.hold(two, 12_000);
    // A part of a stream was taken, and another waits: it is not the oldest any more.
    memory.hold(one, 8_000);
    memory.hold(three, 5_000);
    expect(ended).toEqual(['two']);
    memory.release(one);
    memory.release(one);
    memory.hold(two, 15_000);
    expect(ended).toEqual(['two']);
    // One that is larger than all together goes when another one waits.
    memory.hold(one, 21_000);
    expect(ended).toEqual(['two', 'three', 'two']);
    memory.hold(three, 5_000);
    expect(ended).toEqual(['two', 'three', 'two', 'one']);
  });
});

/** An answer of which only the end of its connection is seen. */
function unread(name: string, ended: string[]): ServerResponse {
  const destroy = (): void => void ended.push(name);
  return { destroy } as unknown as ServerResponse;
}

describe('large answers', () => {
  const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const turns = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at += 1) await nextTurn();
  };

  test('are begun one in a turn of the event loop, and four at once', async () => {
    const memory = new AnswerMemory(systemClock);
    const begun: number[] = [];
    const finish: (() => void)[] = [];
    const made = Array.from({ length: 10 }, (_, at) =>
      memory.make(() => {
        begun.push(at);
        return new Promise<number>((resolve) => finish.push(() => resolve(at)));
      }),
    );
    expect(begun).toEqual([]);
    await turns(20);
    expect(begun).toEqual([0, 1, 2, 3]);
    for (let at = 0; at < 10; at += 1) {
      finish[at]?.();
      await turns(20);
    }
    expect(await Promise.all(made)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(begun).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  test('wait while others are unread, for a time at the end of which those go', async () => {
    const clock = new SimClock();
    const memory = new AnswerMemory(clock, 100_000_000);
    const ended: string[] = [];
    const [one, two] = [unread('one', ended), unread('two', ended)];
    memory.hold(one, 6_000_000);
    await clock.advance('1s');
    memory.hold(two, 9_000_000);
    const made = memory.make(() => 'made');
    await clock.advance('999ms');
    expect(ended).toEqual([]);
    // The second goes on reading: only the first has taken nothing.
    memory.hold(two, 9_000_000);
    await clock.advance('1ms');
    expect(ended).toEqual(['one']);
    await clock.advance('1s');
    memory.hold(two, 1_000_000);
    expect(await moving(clock, made)).toBe('made');
    expect(ended).toEqual(['one']);
    await expect(memory.make(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
  });

  // Regression: a download from a slow store was cut, though its caller had read all there was.
  test('wait for a slow store, without ending the caller that reads what it brings', async () => {
    const clock = new SimClock();
    const memory = new AnswerMemory(clock);
    const ended: string[] = [];
    const download = unread('download', ended);
    memory.hold(download, 9_000_000);
    memory.taken(download);
    const made = memory.make(() => 'made');
    await clock.advance('1m');
    expect(ended).toEqual([]);
    // The next part is there, and now it is the caller that takes nothing.
    memory.hold(download, 9_000_000);
    await clock.advance('1999ms');
    expect(ended).toEqual([]);
    await clock.advance('1ms');
    expect(ended).toEqual(['download']);
    expect(await moving(clock, made)).toBe('made');
  });
});

describe('paths without a token', () => {
  const limits = { ...SETTINGS.limits, requestsPerSecond: 2 };

  test.each(['/openapi.json', '/healthz', '/readyz'])(
    'are counted by address, each apart: %s',
    async (free) => {
      const { ask, clock } = await setup({ settings: { limits, token: 'a-token' } });
      expect([(await ask(free)).status, (await ask(free)).status]).toEqual([200, 200]);
      expect(await refusal(ask(free))).toEqual([429, 'limit.exceeded', 'rate.exceeded']);
      for (const other of ['/openapi.json', '/healthz', '/readyz']) {
        if (other !== free) expect((await ask(other)).status).toBe(200);
      }
      await clock.advance('1s');
      expect((await ask(free)).status).toBe(200);
    },
  );
});

describe('a large answer for everybody', () => {
  test.each([
    ['br', (bytes: Uint8Array) => brotliDecompressSync(bytes)],
    ['gzip', (bytes: Uint8Array) => gunzipSync(bytes)],
  ] as const)('is compressed for who accepts %s', async (coding, unpack) => {
    const metrics = (): Promise<{ text: string; type: string }> =>
      Promise.resolve({ text: 'respool_up 1\n'.repeat(1_000), type: 'text/plain' });
    const { port, ask } = await setup({ parts: { metrics } });
    for (const target of ['/openapi.json', '/metrics']) {
      const plain = Buffer.from(await (await ask(target)).arrayBuffer());
      const more = `accept-encoding: deflate, ${coding};q=0.5\r\nconnection: close\r\n`;
      const wire = await openWire(port, get(target, more));
      await wire.closed;
      const [head = '', body = ''] = wire.received.split(/\r\n\r\n([^]*)/);
      expect(head).toContain(`content-encoding: ${coding}`);
      expect(head).toMatch(/vary: accept-encoding/i);
      const bytes = Buffer.from(body, 'latin1');
      expect(bytes.byteLength).toBeLessThan(plain.byteLength / 2);
      expect(createHash('sha256').update(unpack(bytes)).digest('hex')).toBe(
        createHash('sha256').update(plain).digest('hex'),
      );
    }
  });

  test.each(['identity', 'br;q=0, gzip;q=0.0', 'deflate'])(
    'is sent as it is to who accepts %j',
    async (accepted) => {
      const { port } = await setup();
      const more = `accept-encoding: ${accepted}\r\nconnection: close\r\n`;
      const wire = await openWire(port, get('/openapi.json', more));
      await wire.closed;
      const [head, body] = wire.received.split('\r\n\r\n');
      expect(head).not.toContain('content-encoding');
      expect(body?.slice(0, 18)).toBe('{"openapi":"3.1.0"');
    },
  );
});
