/** /metrics over HTTP: who may read it, what it answers, and when it is off (R194). */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { createMetrics, type MetricsOptions, type MetricsText } from 'respool/observe';
import { describe, expect, onTestFinished, test } from 'vitest';
import { watchRelay } from '../../src/cli/commands/serve/service.ts';
import type { LoadedConfig } from '../../src/config/load/load-config.ts';
import type { OpenRelay } from '../../src/config/open/open-outbox.ts';
import { Events } from '../../src/engine/events.ts';
import { type Shell, setup as shellSetup } from '../cli/setup.ts';
import { json, refusal, setup, type World, type WorldOptions } from '../web/setup.ts';
import { parse, type Scrape } from './metrics-ground.ts';

const A = { source: 'spool', topic: 'a' };
const TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** A service whose spool is counted. */
async function counted(options: WorldOptions = {}, given: MetricsOptions = {}): Promise<World> {
  const metrics = await createMetrics(given);
  onTestFinished(() => metrics.close());
  const parts = { ...options.parts, metrics: () => metrics.text() };
  const world = await setup({ ...options, parts });
  metrics.watch(world.spool);
  return world;
}

describe('the service', () => {
  test('tells at /metrics what its spool did, in the type that Prometheus wants', async () => {
    const { ask, post } = await counted();
    await post('/v1/messages', { topic: 'a' });
    await ask('/v1/topics/a/messages', { method: 'POST', body: 'x' });
    const answer = await ask('/metrics');
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, TYPE]);
    expect(parse(await answer.text()).value('respool_accepted_total', A)).toBe(2);
  });

  test('answers a HEAD with the same headers and nothing else', async () => {
    const { ask } = await counted();
    const answer = await ask('/metrics', { method: 'HEAD' });
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, TYPE]);
    expect(await answer.text()).toBe('');
  });

  test('lets in who may read, and nobody without a token where there are tokens', async () => {
    const tokens = (['post', 'read', 'operate', 'admin'] as const).map((role) => ({
      name: role,
      role,
      sha256: createHash('sha256').update(`secret-${role}`).digest('hex'),
    }));
    const { ask, clock } = await counted({ settings: { tokens } });
    const statuses: unknown[] = [];
    for (const { role } of tokens) {
      const headers = { authorization: `Bearer secret-${role}` };
      statuses.push([role, (await ask('/metrics', { headers })).status]);
    }
    expect(statuses).toEqual([
      ['post', 403],
      ['read', 200],
      ['operate', 200],
      ['admin', 200],
    ]);
    const none = ask('/metrics');
    await expect.poll(() => clock.advance('250ms').then(() => isSettled(none))).toBe(true);
    expect(await refusal(none)).toEqual([401, 'config.invalid', 'token.unknown']);
  });

  test('makes one text for all who ask, and rests ten times as long as that took', async () => {
    let texts = 0;
    let go: (text: string) => void = () => undefined;
    const metrics = async (): Promise<MetricsText> => {
      texts += 1;
      const text = await new Promise<string>((resolve) => (go = resolve));
      if (text === '') throw new Error('not now');
      return { type: TYPE, text };
    };
    const { ask, clock } = await setup({ parts: { metrics } });
    const read = async (): Promise<string> => (await ask('/metrics')).text();
    const made = async (text: string, tookMs: number): Promise<string> => {
      const before = texts;
      const reading = read();
      await expect.poll(() => texts).toBe(before + 1);
      await clock.advance(tookMs);
      go(text);
      return reading;
    };
    const [first, second] = await Promise.all([made('a', 100), read()]);
    expect([first, second, await read()]).toEqual(['a', 'a', 'a']);
    await clock.advance(999);
    expect(await read()).toBe('a');
    await clock.advance(1);
    // One that failed is not kept.
    expect(await made('', 1)).toContain('error');
    expect(await made('b', 60_000)).toBe('b');
    await clock.advance('9s');
    expect(await read()).toBe('b');
    await clock.advance('1s');
    expect([await made('c', 0), texts]).toEqual(['c', 4]);
  });

  test('says in a sentence that metrics are off', async () => {
    const { ask } = await setup();
    const answer = await ask('/metrics');
    expect(answer.status).toBe(404);
    const { error } = await json<{ error: { message: string; reason: string } }>(answer);
    expect(error).toMatchObject({ reason: 'route.unknown' });
    expect(error.message).toMatch(/they are off.*set metrics\.enabled to true/);
  });

  test('has it in its document', async () => {
    const { ask } = await counted();
    const { paths } = await json<{ paths: Record<string, unknown> }>(ask('/openapi.json'));
    expect(paths['/metrics']).toMatchObject({
      get: {
        description: 'Role: read.',
        responses: { 200: { content: { 'text/plain': {} } }, 404: {} },
      },
    });
  });
});

describe('respool serve', () => {
  test('counts from its start, with the numbers of its process', async () => {
    const { scrape, post } = await serving({});
    await post('a');
    const { value, types } = await scrape();
    expect(value('respool_accepted_total', A)).toBe(1);
    expect(value('respool_engine_running', { source: 'spool' })).toBe(1);
    expect(types.has('process_resident_memory_bytes')).toBe(true);
  });

  test('tells its forecast, and its rules of alerts before anything fires', async () => {
    const rules = [{ name: 'slow', when: 'oldest deferred > 2h' }];
    const to = { log: { log: 'warn' } };
    const { scrape } = await serving({ every: '1s' }, { alerts: { to, rules } });
    const { value } = await scrape();
    expect(value('respool_forecast_drain_seconds', { source: 'spool' })).toBe(0);
    expect(value('respool_alerts_firing', { rule: 'slow' })).toBe(0);
    expect(value('respool_alerts_total', { rule: 'slow', phase: 'fired' })).toBe(0);
  });

  test('tells a rule that fires as firing after a restart too', async () => {
    const rules = [{ name: 'few', when: 'count held > 0' }];
    const given = {
      store: 'file:data',
      alerts: { every: '1s', to: { log: { log: 'warn' } }, rules },
    };
    const first = await serving({ every: '1s' }, given);
    await first.post('a');
    const firing = async ({ scrape }: typeof first): Promise<number | undefined> =>
      (await scrape()).value('respool_alerts_firing', { rule: 'few' });
    await expect.poll(() => firing(first)).toBe(1);
    await first.stop();
    const { scrape } = await serving({ every: '1s' }, given, first.shell);
    const again = await scrape();
    expect(again.value('respool_alerts_firing', { rule: 'few' })).toBe(1);
    expect(again.value('respool_alerts_total', { rule: 'few', phase: 'fired' })).toBe(0);
  });

  test('counts nothing with metrics.enabled: false', async () => {
    const { url } = await serving({ enabled: false });
    const answer = await fetch(`${url}/metrics`);
    expect(await refusal(answer)).toEqual([404, 'config.invalid', 'route.unknown']);
  });

  test('takes metrics.topicsMax and metrics.every from its configuration', async () => {
    const { scrape, post } = await serving({ topicsMax: 1, every: '1s' });
    const stored = async (): Promise<number> =>
      (await scrape()).samples
        .filter(({ name }) => name === 'respool_messages')
        .reduce((sum, { value }) => sum + value, 0);
    expect(await stored()).toBe(0);
    await post('a');
    await post('b');
    // With the default this would be the answer of the first scrape for 15 s.
    await expect.poll(stored).toBe(2);
    expect((await scrape()).labelled('topic')).toEqual(new Set(['a', 'other']));
  });
});

test('respool serve takes metrics.aliases and metrics.queuesMax from its configuration', async () => {
  // Nobody listens there: consumers wait for their broker, and are told of.
  const rabbit = { url: 'amqp://127.0.0.1:1' };
  const consumers = ['orders', 'mails', 'bills'].map((queue) => ({
    queue,
    deliver: { exec: ['true'] },
  }));
  const { scrape } = await serving({ aliases: ['goqueue'], queuesMax: 1 }, { rabbit, consumers });
  const { types, labelled, value } = await scrape();
  expect(types.get('goqueue_messages_retried_total')).toBe('counter');
  expect(types.has('outbox_table_backlog')).toBe(false);
  expect(labelled('queue')).toEqual(new Set(['orders', 'other']));
  expect(value('respool_rabbit_consumer_connected', { queue: 'other' })).toBe(0);
  expect(labelled('source')).toEqual(new Set(['spool', 'queue:orders', 'queue:other']));
});

test('the outbox of a relay that has stopped is asked no more', () => {
  const relay = new Events();
  let stops = 0;
  const watchRelayOf = (): (() => void) => () => {
    stops += 1;
  };
  const made = { relay, outbox: {} } as unknown as OpenRelay;
  watchRelay({ watchRelay: watchRelayOf }, {} as LoadedConfig['config'], made);
  relay.emit({ kind: 'engine-started', at: 0 });
  expect(stops).toBe(0);
  relay.emit({ kind: 'engine-stopped', at: 0 });
  expect(stops).toBe(1);
});

test('a process that collects its own numbers ends by itself', async () => {
  const root = path.join(import.meta.dirname, '../..');
  const script =
    "const { createMetrics } = await import('respool/observe');" +
    'const metrics = await createMetrics({ processMetrics: true });' +
    "console.log((await metrics.text()).text.includes('nodejs_eventloop_lag_seconds'));";
  const words = ['--conditions=respool-source', '--input-type=module', '-e', script];
  const { stdout } = await promisify(execFile)(process.execPath, words, {
    cwd: root,
    timeout: 240_000,
  });
  expect(stdout).toBe('true\n');
});

async function serving(metrics: object, rest: object = {}, given?: Shell) {
  const shell = given ?? (await shellSetup());
  const config = JSON.stringify({ metrics, ...rest });
  await writeFile(path.join(shell.folder, 'respool.config.json'), config);
  const running = shell.start(['serve', '--port', '0'], { tty: ['stdout'] });
  const stop = async (): Promise<void> => {
    running.signal('SIGTERM');
    await running.ended;
  };
  onTestFinished(stop);
  const [, url = ''] = await running.printed(/(http:\/\/127\.0\.0\.1:\d+)/);
  return {
    shell,
    stop,
    url,
    scrape: async (): Promise<Scrape> => parse(await (await fetch(`${url}/metrics`)).text()),
    post: async (topic: string): Promise<void> => {
      const init = { method: 'POST', body: 'x' };
      expect((await fetch(`${url}/v1/topics/${topic}/messages`, init)).status).toBe(201);
    },
  };
}

async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const open = Symbol('open');
  return (await Promise.race([promise, Promise.resolve(open)])) !== open;
}
