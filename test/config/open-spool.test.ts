/** createConfiguredSpool: every key reaches the spool, and routes deliver. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { spoolOptionsOf } from '../../src/config/load/effective-config.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { createConfiguredSpool } from '../../src/config/open/open-spool.ts';
import { spoolSettingsOf } from '../../src/spool/options.ts';
import { folderWith, load } from './setup.ts';

/** Runs until an event of this kind, and gives it. */
async function until<T>(start: (done: (value: T) => void) => void): Promise<T> {
  return new Promise((resolve) => {
    start(resolve);
  });
}

/** A receiver on loopback that answers with a status and remembers what came. */
async function receiver(status: number) {
  const seen: { url: string; body: string }[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      seen.push({ url: request.url ?? '', body });
      response.writeHead(status).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    seen,
    http: (at: string) => ({ url: `http://127.0.0.1:${port}${at}`, allow: [`127.0.0.1:${port}`] }),
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}

test('a message goes by its route over HTTP, and is told of when it bounces', async () => {
  const good = await receiver(200);
  const gone = await receiver(410);
  const loaded = await load({
    config: {
      store: 'memory:',
      routes: [
        { topic: 'good.*', deliver: { http: good.http('/in') } },
        { topic: 'gone', deliver: { http: gone.http('/gone') } },
      ],
      bounces: [{ topic: 'gone', deliver: { http: good.http('/notice') } }],
    },
  });
  const { spool, close } = await createConfiguredSpool(loaded);
  try {
    const delivered = until((done) => spool.on('delivered', done));
    const announced = until((done) => spool.on('announced', done));
    await spool.start();
    await spool.enqueue({ topic: 'good.one', body: 'hello' });
    await delivered;
    await spool.enqueue({ topic: 'gone', body: 'bye' });
    await announced;
    expect(good.seen).toEqual([
      { url: '/in', body: 'hello' },
      { url: '/notice', body: 'bye' },
    ]);
    expect(gone.seen).toEqual([{ url: '/gone', body: 'bye' }]);
  } finally {
    await spool.stop();
    await close();
    await good.close();
    await gone.close();
  }
});

test('a message goes by its route to a command beside the file', async () => {
  const folder = await folderWith({
    'respool.config.json': JSON.stringify({
      store: 'memory:',
      routes: [
        {
          topic: 'a',
          deliver: { exec: { command: [process.execPath, './handle.mjs'], cwd: 'x' } },
        },
      ],
    }),
    'x/handle.mjs': `
      import { writeFileSync } from 'node:fs';
      let body = '';
      for await (const chunk of process.stdin) body += chunk;
      writeFileSync('out.txt', process.env.RESPOOL_TOPIC + ' ' + body);`,
  });
  const { spool, close } = await createConfiguredSpool(await loadConfig({ cwd: folder, env: {} }));
  const delivered = until((done) => spool.on('delivered', done));
  await spool.start();
  await spool.enqueue({ topic: 'a', body: 'hello' });
  await delivered;
  await spool.stop();
  await close();
  expect(await readFile(path.join(folder, 'x/out.txt'), 'utf8')).toBe('a hello');
});

test('a handler, middleware and backoffs of a program are taken along', async () => {
  const folder = await folderWith({
    'respool.config.mjs': `
      import { custom } from 'respool';
      export const seen = [];
      export default {
        store: 'memory:',
        policies: { default: custom('mine', ['1h', '2h'], { attempts: 3 }) },
        backoffs: { mine: () => '90m' },
        middleware: [async (delivery, next) => { seen.push('around ' + delivery.topic); return next(); }],
        routes: [{ topic: 'a', deliver: () => { throw new Error('not now'); } }],
      };`,
  });
  const loaded = await loadConfig({ cwd: folder, env: {} });
  const { spool } = await createConfiguredSpool(loaded);
  const deferred = until<{ readonly dueAt: number; readonly at: number }>((done) =>
    spool.on('deferred', done),
  );
  await spool.start();
  const { id } = await spool.enqueue({ topic: 'a' });
  await deferred;
  const message = await spool.get(id);
  await spool.stop();
  const waitMs = (message?.status.dueAt ?? 0) - (message?.envelope.enqueuedAt ?? 0);
  // What the function asks for, rounded up to its rungs.
  expect(waitMs).toBeGreaterThanOrEqual(2 * 3_600_000);
  const keys = describeConfig(loaded).map(({ key, value }) => [key, value]);
  expect(keys).toContainEqual(['backoffs.mine', '(function)']);
  expect(keys).toContainEqual(['middleware[0]', '(function)']);
});

describe('a spool that only looks', () => {
  test('has no routes of its own and knows them all the same', async () => {
    const config = {
      store: 'memory:',
      unhandled: 'leave',
      policies: { notice: 'noRetry' },
      routes: [
        { topic: 'a', deliver: { http: { url: 'https://h/' } }, policy: { fixed: '5s' } },
        { topic: 'b', deliver: { http: { url: 'https://h/' } }, timeout: '1m', concurrency: 2 },
      ],
      bounces: [{ topic: '#', deliver: { exec: ['true'] } }],
    };
    const loaded = await load({ config });
    const { spool, routes, close } = await createConfiguredSpool(loaded, { deliver: false });
    expect(routes).toMatchObject([
      { lane: 'delivery', topic: 'a', policy: 'fixed 5s, 10 attempts', timeoutMs: 900_000 },
      { lane: 'delivery', topic: 'b', policy: 'default', timeoutMs: 60_000, concurrency: 2 },
      { lane: 'notice', topic: '#', policy: 'notice', deliver: { kind: 'exec' } },
    ]);
    const { id } = await spool.enqueue({ topic: 'a' });
    // With a route there would be a hand-off: the message would be active at once.
    expect((await spool.get(id))?.status.state).toBe('incoming');
    await spool.stop();
    await close();
  });
});

test('handlers are closed once each', async () => {
  const folder = await folderWith({
    'respool.config.mjs': `
      export const closed = [];
      const one = Object.assign(() => {}, {
        describe: () => ({ kind: 'one' }),
        close: async () => { globalThis.connectTestClosed = (globalThis.connectTestClosed ?? 0) + 1; },
      });
      export default { store: 'memory:', routes: [
        { topic: 'a', deliver: one }, { topic: 'b', deliver: one }, { topic: 'c', deliver: () => {} },
      ] };`,
  });
  const { spool, close } = await createConfiguredSpool(await loadConfig({ cwd: folder, env: {} }));
  await spool.stop();
  await close();
  const world = globalThis as { connectTestClosed?: number };
  expect(world.connectTestClosed).toBe(1);
  delete world.connectTestClosed;
});

test('a logger hears of what happens', async () => {
  const lines: string[] = [];
  const log = (_: object, text: string) => void lines.push(text);
  const logger = { debug: log, info: log, warn: log, error: log };
  const loaded = await load({ config: { store: 'memory:' } });
  const { spool } = await createConfiguredSpool(loaded, { logger });
  await spool.enqueue({ topic: 'a' });
  await spool.stop();
  expect(lines.length).toBeGreaterThan(0);
});

describe('a key reaches the spool', () => {
  const spoolOf = async (config: object) =>
    (await createConfiguredSpool(await load({ config: { store: 'memory:', ...config } }))).spool;

  test('limits', async () => {
    const spool = await spoolOf({ limits: { bodyBytes: 3, headerBytes: 10 } });
    await expect(spool.enqueue({ topic: 'a', body: 'four' })).rejects.toThrow('3');
    await expect(spool.enqueue({ topic: 'a', headers: { name: 'much too long' } })).rejects.toThrow(
      '10 bytes',
    );
    await spool.stop();
  });

  test('requireDurability', async () => {
    const spool = await spoolOf({ requireDurability: 'power-loss' });
    await expect(spool.enqueue({ topic: 'a' })).rejects.toThrow('requireDurability');
    await spool.stop();
  });

  test('unhandled', async () => {
    const routes = [{ topic: 'a', deliver: { exec: ['true'] } }];
    const spool = await spoolOf({ unhandled: 'hold', routes });
    const held = until<{ readonly id?: string }>((done) => spool.on('held', done));
    await spool.start();
    const { id } = await spool.enqueue({ topic: 'nobody' });
    expect((await held).id).toBe(id);
    await spool.stop();
  });

  test('concurrency, and the slots of the routes', async () => {
    const given = await spoolOf({ concurrency: 17 });
    expect(given.load.concurrency).toBe(17);
    const deliver = { exec: ['true'] };
    const summed = await spoolOf({ routes: [{ topic: 'a', deliver, concurrency: 33 }] });
    expect(summed.load.concurrency).toBe(33);
    await given.stop();
    await summed.stop();
  });

  test('retention', async () => {
    const folder = await folderWith({
      'respool.config.mjs': `export default {
        store: 'memory:',
        retention: { delivered: { archive: '1d' } },
        routes: [{ topic: 'a', deliver: () => {} }],
      };`,
    });
    const { spool } = await createConfiguredSpool(await loadConfig({ cwd: folder, env: {} }));
    const delivered = until((done) => spool.on('delivered', done));
    await spool.start();
    const { id } = await spool.enqueue({ topic: 'a' });
    await delivered;
    expect((await spool.get(id))?.status.state).toBe('archived');
    await spool.stop();
  });
});

test('every other key of the spool is handed on as it is', async () => {
  const given = {
    policies: { default: { fixed: '5s' } },
    concurrency: 12,
    destinationConcurrency: { '*': 3 },
    lease: '30s',
    settle: 'durable',
    retention: { delivered: 'remove', bounced: 'keep', removed: '2d', dedupeWindow: '3h' },
    limits: { bodyBytes: 100, headerBytes: 200, inlineBodyBytes: 50 },
    poll: '2s',
    unhandled: 'leave',
    requireDurability: 'process',
    caretaker: { every: '5m', orphanGrace: '6h' },
  };
  const { config } = await load({ config: given });
  expect(spoolSettingsOf(spoolOptionsOf(config))).toMatchObject({
    defaultPolicy: { backoff: { kind: 'fixed', delayMs: 5_000 } },
    concurrency: 12,
    destinationConcurrency: { '*': 3 },
    leaseMs: 30_000,
    settlesDurably: true,
    retention: { removedMs: 172_800_000, dedupeWindowMs: 10_800_000 },
    bodyMaxBytes: 100,
    headerMaxBytes: 200,
    inlineMaxBytes: 50,
    pollMs: 2_000,
    unhandled: 'leave',
    requireDurability: 'process',
    caretakerEveryMs: 300_000,
    orphanGraceMs: 21_600_000,
  });
});

describe('what only the service’s environment has', () => {
  const config = {
    store: 'memory:',
    policies: { slow: { fixed: '1h' } },
    routes: [
      { topic: 'a', deliver: { http: { url: 'https://example.com/', secret: '${HOOK_SECRET}' } } },
    ],
  };

  test('is not asked for by tools that do not deliver', async () => {
    await expect(load({ config })).rejects.toThrow('the environment has no "HOOK_SECRET"');
    const loaded = await load({ config, routes: false });
    expect(loaded.config.routes).toEqual([]);
    const { spool, close } = await createConfiguredSpool(loaded, { deliver: false });
    const policies = await spool.operator({ by: 'ops' }).policies();
    expect(policies.map(({ name }) => name)).toContain('slow');
    await close();
  });

  test('is asked for before a service starts, by the name of its route', async () => {
    const file = 'respool.config.mjs';
    const text = `import { RespoolError } from 'respool';
    export default {
      store: 'memory:',
      routes: [{ topic: 'a', deliver: Object.assign(() => {}, {
        describe: () => ({}),
        check() { throw new RespoolError('config.invalid', 'cannot sign'); },
      }) }],
    };`;
    const cwd = await folderWith({ [file]: text });
    const loaded = await loadConfig({ cwd, env: {} });
    await expect(createConfiguredSpool(loaded, { deliver: false })).resolves.toBeDefined();
    await expect(createConfiguredSpool(loaded)).rejects.toThrow(
      /routes\[0\]\.deliver.*cannot sign/,
    );
  });
});
