/** Where the service listens, where it refuses to, and how it stops. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { request } from 'node:https';
import path from 'node:path';
import { RespoolError } from 'respool';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { ServeSettings } from './setup.ts';
import { checkListen } from '../../src/web/server/settings.ts';
import { rejection } from '../spool/setup.ts';
import { json, openWire, refusal, setup, SETTINGS } from './setup.ts';

const dir = path.join(import.meta.dirname, 'tls');
const tls = { key: path.join(dir, 'key.pem'), cert: path.join(dir, 'cert.pem') };
const token = 'a-token';
const tokens = [{ name: 'a', role: 'read', sha256: '00'.repeat(32) }] as const;

describe('an address', () => {
  test.each<[string, Partial<ServeSettings>, RegExp | undefined]>([
    ['127.0.0.1', {}, undefined],
    ['127.0.0.1', { token }, undefined],
    ['127.1.2.3', {}, undefined],
    ['localhost', {}, undefined],
    ['::1', {}, undefined],
    ['[::1]', {}, undefined],
    ['0.0.0.0', {}, /without a token/],
    ['::', {}, /without a token/],
    ['192.168.1.1', {}, /without a token/],
    ['127.0.0.1.evil.example', {}, /without a token/],
    ['1270.0.0.1', {}, /without a token/],
    ['0.0.0.0', { tokens: [] }, /without a token/],
    ['0.0.0.0', { tls }, /without a token/],
    ['0.0.0.0', { behindProxy: true }, /without a token/],
    ['0.0.0.0', { token }, /without TLS/],
    ['0.0.0.0', { tokens }, /without TLS/],
    ['0.0.0.0', { token, behindProxy: false }, /without TLS/],
    ['0.0.0.0', { token, tls }, undefined],
    ['0.0.0.0', { tokens, behindProxy: true }, undefined],
  ])('%s with %j is taken or refused', (host, settings, refused) => {
    const check = (): void => checkListen({ ...SETTINGS, ...settings, host });
    if (refused === undefined) expect(check).not.toThrow();
    else expect(check).toThrow(refused);
  });

  test('that means all of them is told as one that can be reached', async () => {
    const settings = { host: '0.0.0.0', token: 'a-token', behindProxy: true };
    const { service } = await setup({ settings, isListening: false });
    const { url, port } = await service.listen();
    onTestFinished(() => service.stop(0));
    expect(url).toBe(`http://127.0.0.1:${port}`);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
  });

  test('that is refused is not listened on', async () => {
    const { service } = await setup({ isListening: false, settings: { host: '0.0.0.0' } });
    expect(await rejection(service.listen())).toMatchObject({ code: 'config.invalid' });
  });

  test('that is in use is named, with what to do', async () => {
    const { port, service } = await setup();
    const second = await setup({ isListening: false, settings: { port } });
    expect(await rejection(second.service.listen())).toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(new RegExp(`port ${port}: .*--port`)),
    });
    expect(await rejection(service.listen())).toMatchObject({
      message: expect.stringContaining('twice'),
    });
  });

  test('that does not exist is an error, not a crash', async () => {
    const { service } = await setup({ isListening: false, settings: { token, host: '127.0.0.1' } });
    const { service: other } = await setup({
      isListening: false,
      settings: { token, behindProxy: true, host: '203.0.113.1' },
    });
    expect((await service.listen()).url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(await rejection(other.listen())).toMatchObject({ code: 'config.invalid' });
  });
});

describe('TLS', () => {
  test('comes from the files of the settings', async () => {
    const { url, port } = await setup({ settings: { tls } });
    expect(url).toBe(`https://127.0.0.1:${port}`);
    const ca = await readFile(tls.cert);
    const asked = request(`${url}/healthz`, { ca });
    asked.end();
    const [answer] = (await once(asked, 'response')) as [{ statusCode: number; resume(): void }];
    answer.resume();
    expect(answer.statusCode).toBe(200);
  });

  test('without its files is refused by the name of the setting', async () => {
    const { service } = await setup({
      isListening: false,
      settings: { tls: { ...tls, key: path.join(dir, 'nothing.pem') } },
    });
    expect(await rejection(service.listen())).toMatchObject({
      code: 'config.invalid',
      message: expect.stringContaining('serve.tls.key'),
    });
  });
});

describe('readiness', () => {
  test('is the spool’s, and health is only ours', async () => {
    let isReady = false;
    const { ask, store, clock } = await setup({ parts: { isReady: () => isReady } });
    expect((await ask('/healthz')).status).toBe(200);
    const starting = await ask('/readyz');
    expect([starting.status, starting.headers.get('retry-after')]).toEqual([503, '1']);
    isReady = true;
    expect(await json(ask('/readyz'))).toMatchObject({ ok: true });
    store.faults.plan = (operation) => (operation === 'list' ? 'before' : 'ok');
    expect((await ask('/readyz')).status).toBe(503);
    store.faults.plan = (operation) => (operation === 'list' ? { delayMs: 60_000 } : 'ok');
    const calls = store.faults.count('list');
    const slow = ask('/readyz');
    while (store.faults.count('list') === calls) await new Promise((next) => setImmediate(next));
    await clock.advance('2s');
    expect((await slow).status).toBe(503);
    expect((await ask('/healthz')).status).toBe(200);
  });
});

describe('a full disk', () => {
  test('is not ready, until a post comes through or some time has gone by', async () => {
    let isFull = true;
    const { ask, post, clock } = await setup({
      operator: (operator) => ({
        enqueue: (message) =>
          isFull
            ? Promise.reject(new RespoolError('store.full', 'no room'))
            : operator.enqueue(message),
      }),
    });
    const ready = async (): Promise<number> => (await ask('/readyz')).status;
    const raw = (): Promise<Response> => ask('/v1/topics/a/messages', { method: 'POST', body: '' });
    const asJson = (): Promise<Response> => post('/v1/messages', { topic: 'a' });
    for (const send of [raw, asJson]) {
      isFull = true;
      expect(await ready()).toBe(200);
      expect((await send()).status).toBe(507);
      const refused = await ask('/readyz');
      expect(refused.headers.get('retry-after')).toBe('5');
      expect(await refusal(refused)).toEqual([503, 'store.full', 'not-ready']);
      isFull = false;
      expect((await send()).status).toBe(201);
      expect(await ready()).toBe(200);
    }
    isFull = true;
    await raw();
    await clock.advance(29_999);
    expect(await ready()).toBe(503);
    await clock.advance(1);
    expect(await ready()).toBe(200);
  });
});

describe('a stop', () => {
  test('takes nothing new, answers reads, and ends the events', async () => {
    const { service, ask, post, spool } = await setup();
    const events = await ask('/v1/events');
    const heard = events.text();
    service.beginStop();
    const refused = [
      ask('/v1/topics/a/messages', { method: 'POST', body: 'x' }),
      post('/v1/messages', { topic: 'a' }),
      post('/v1/pause'),
    ];
    for (const answer of refused) {
      expect((await answer).headers.get('retry-after')).toBe('5');
      expect(await refusal(answer)).toEqual([503, 'engine.stopping']);
    }
    const read = await ask('/v1/messages');
    expect([read.status, read.headers.get('connection')]).toEqual([200, 'close']);
    expect((await ask('/readyz')).status).toBe(503);
    expect((await ask('/healthz')).status).toBe(200);
    expect(await heard).toBe(': listening\n\n');
    expect((await spool.count()).incoming).toBe(0);
  });

  test('does not mind who asks: strangers are told to come back too', async () => {
    const { service, ask, clock } = await setup({ settings: { token } });
    service.beginStop();
    expect((await ask('/v1/pause', { method: 'POST' })).status).toBe(503);
    // The wait for unknown tokens must not end in a refusal that nobody hears.
    await clock.advance('1s');
    expect((await ask('/healthz')).status).toBe(200);
  });

  test('lets a post finish that was on its way', async () => {
    const { service, port, spool } = await setup();
    const wire = await openWire(
      port,
      'POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n' +
        'expect: 100-continue\r\n\r\n',
    );
    await wire.until(/100 Continue/);
    const stopped = service.stop();
    wire.socket.write('body');
    expect(await wire.until(/\}$/)).toMatch(/HTTP\/1\.1 201 .*connection: close/s);
    await stopped;
    expect((await spool.count()).incoming).toBe(1);
  });

  test.each([
    ['raw', 'POST /v1/topics/a/messages', 'half', ' of it'],
    ['JSON', 'POST /v1/messages', '{"topic":', '"a"}'],
  ])('can wait for a short post that is being read: %s', async (_, line, first, last) => {
    const { service, port, spool } = await setup();
    const length = first.length + last.length;
    const wire = await openWire(
      port,
      `${line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${length}\r\n` +
        'content-type: application/json\r\nexpect: 100-continue\r\n\r\n',
    );
    await wire.until(/100 Continue/);
    wire.socket.write(first);
    service.beginStop();
    let isDrained = false;
    const drained = service.drain(2_000).then(() => {
      isDrained = true;
    });
    await new Promise((next) => setImmediate(() => setImmediate(next)));
    expect(isDrained).toBe(false);
    wire.socket.write(last);
    await drained;
    await spool.stop();
    expect(await wire.until(/\}$/)).toMatch(/HTTP\/1\.1 201 /);
    expect((await spool.count()).incoming).toBe(1);
  });

  test('does not wait longer than it may, nor for nothing', async () => {
    const { service, port, clock } = await setup();
    await service.drain(1_000_000);
    const wire = await openWire(
      port,
      'POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n' +
        'expect: 100-continue\r\n\r\n',
    );
    await wire.until(/100 Continue/);
    service.beginStop();
    let isDrained = false;
    const drained = service.drain(500).then(() => {
      isDrained = true;
    });
    await clock.advance(499);
    expect(isDrained).toBe(false);
    await clock.advance(1);
    await drained;
    expect(isDrained).toBe(true);
  });

  test('writes no line for each post that it refuses', async () => {
    const { service, ask, logs } = await setup();
    service.beginStop();
    const refused = await ask('/v1/topics/a/messages', { method: 'POST', body: 'x' });
    expect(refused.status).toBe(503);
    expect(logs.filter((line) => /"error"|"warn"/.test(line))).toEqual([]);
  });

  test('cuts what is not through in time, and nothing of it is kept', async () => {
    const { service, port, spool, clock } = await setup({ settings: { stopWithin: '3s' } });
    const wire = await openWire(
      port,
      'POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n' +
        'expect: 100-continue\r\n\r\n',
    );
    await wire.until(/100 Continue/);
    wire.socket.write('bo');
    let isStopped = false;
    const stopped = service.stop().then(() => {
      isStopped = true;
    });
    await clock.advance(2_999);
    expect(isStopped).toBe(false);
    await clock.advance(1);
    await stopped;
    await wire.closed;
    expect((await spool.count()).incoming).toBe(0);
  });
});

describe('a slow caller', () => {
  test('is told off when the request takes longer than it may', async () => {
    const limits = { ...SETTINGS.limits, requestTimeout: '1s' };
    const { port, spool } = await setup({ settings: { limits } });
    const wire = await openWire(
      port,
      'POST /v1/topics/a/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nbo',
    );
    await wire.closed;
    expect((await spool.count()).incoming).toBe(0);
    expect(wire.received).toMatch(/^HTTP\/1\.1 408 /);
  });
});
