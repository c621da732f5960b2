/** health() tells programs what /readyz tells of a service (R195). */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { health, type HealthOptions } from 'respool/observe';
import { describe, expect, test } from 'vitest';
import { textOf } from '../../src/core/errors.ts';
import { readPage, ROOT, tableUnder, wordOf } from '../docs/pages.ts';
import { setup } from '../spool/setup.ts';

describe('the health of a spool', () => {
  test('is ready while it runs and its store answers', async () => {
    const { spool, clock } = await setup();
    expect(await health({ spool, clock })).toEqual({
      live: true,
      ready: true,
      checks: [
        { name: 'engine', ok: true },
        { name: 'store', ok: true },
      ],
      reasons: [],
      notes: [],
    });
  });

  test('says when its store fails, or takes longer than `within`', async () => {
    const { spool, clock, store } = await setup();
    store.faults.plan = (operation) => (operation === 'list' ? 'before' : 'ok');
    expect(await health({ spool, clock })).toMatchObject({
      live: true,
      ready: false,
      reasons: [{ code: 'store.unavailable' }],
    });
    store.faults.plan = (operation) => (operation === 'list' ? { delayMs: 60_000 } : 'ok');
    const slow = health({ spool, clock, within: '5s' });
    let isKnown = false;
    void slow.then(() => (isKnown = true));
    await clock.advance(4_999);
    expect(isKnown).toBe(false);
    await clock.advance(1);
    expect(await slow).toMatchObject({ ready: false });
    const page = (): never => {
      throw new Error('no store at all');
    };
    const broken = { load: { isRunning: true }, page };
    expect(await health({ spool: broken, clock })).toMatchObject({ ready: false });
  });

  test('says when it has stopped, and does not open its store again', async () => {
    const { spool, clock, store } = await setup();
    await spool.stop();
    const opens = store.faults.count('list');
    expect(await health({ spool, clock })).toMatchObject({
      ready: false,
      checks: [{ name: 'engine', ok: false }],
      reasons: [{ code: 'not-running' }],
    });
    expect(store.faults.count('list')).toBe(opens);
  });

  test('of a process that only enqueues is that of its store', async () => {
    const { spool, clock } = await setup({ isStarted: false });
    expect(await health({ spool, clock })).toMatchObject({ ready: false });
    expect(await health({ spool, clock, delivers: false })).toMatchObject({ ready: true });
  });
});

describe('consumers and a relay', () => {
  const consumers = [{ isConnected: true }, { isConnected: false }];
  const relay = { load: { isRunning: true, target: 'open', downSince: 0 } } as const;

  test('are notes, unless they are needed', async () => {
    expect(await health({ consumers, relay })).toMatchObject({
      ready: true,
      reasons: [],
      notes: [
        {
          code: 'consumers.away',
          text: '1 of 2 consumers are not connected to their broker',
        },
        {
          code: 'relay.down',
          text: 'the target of the relay does not answer since 1970-01-01T00:00:00.000Z',
        },
      ],
    });
    expect(await health({ consumers, relay, needs: ['consumers'] })).toMatchObject({
      ready: false,
      reasons: [{ code: 'consumers.away' }],
      notes: [{ code: 'relay.down' }],
    });
    expect(await health({ consumers, relay, needs: ['relay', 'consumers'] })).toMatchObject({
      reasons: [{ code: 'consumers.away' }, { code: 'relay.down' }],
      notes: [],
    });
  });

  test('are well when they are', async () => {
    const well = { load: { isRunning: true, target: 'closed' } } as const;
    const told = await health({ consumers: [{ isConnected: true }], relay: well });
    expect(told).toMatchObject({ ready: true, notes: [] });
    const stopped = { load: { isRunning: false, target: 'closed' } } as const;
    expect((await health({ relay: stopped })).notes).toMatchObject([{ code: 'relay.stopped' }]);
  });
});

test.each([
  [{ needs: ['disk'] }, /as "needs"/],
  [{ within: '2m' }, /within/],
  [{ timeout: 1 }, /there is no option "timeout"/],
])('%j is refused', async (options, text) => {
  await expect(health(options as unknown as HealthOptions)).rejects.toThrow(text);
});

test('health.md lists every code, and the options there are', async () => {
  const page = readPage('docs/reference/health.md');
  const source = readFileSync(path.join(ROOT, 'src/observe/health.ts'), 'utf8');
  const [, union = ''] = /type HealthCode =([^;]+);/.exec(source) ?? [];
  const codes = [...union.matchAll(/'([^']+)'/g)].map(([, code]) => code);
  expect(tableUnder(page, 'Codes').map(([code]) => wordOf(code))).toEqual(codes);
  const refusal = await health({ x: 1 } as HealthOptions).then(() => '', textOf);
  const known = /known are (.*)$/.exec(refusal)?.[1]?.split(', ');
  expect(tableUnder(page, 'Options of health').map(([name]) => wordOf(name))).toEqual(known);
});
