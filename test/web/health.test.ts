/** /healthz and /readyz: what was looked at, why it is not ready, and what else is wrong (R195). */
import { RespoolError } from 'respool';
import { describe, expect, test } from 'vitest';
import { setup, type WorldOptions } from './setup.ts';

interface Told {
  readonly ok: boolean;
  readonly checks: readonly { readonly name: string; readonly ok: boolean }[];
  readonly reasons?: readonly { readonly code: string; readonly text: string }[];
  readonly notes: readonly { readonly code: string; readonly text: string }[];
  readonly error?: { readonly code: string; readonly message: string; readonly reason: string };
}

async function world(options: WorldOptions = {}) {
  const made = await setup({ isListening: false, ...options });
  const ask = (path: string): Promise<Response> =>
    made.service.fetch(new Request(`http://localhost${path}`));
  const ready = async (): Promise<{ status: number; told: Told }> => {
    const answer = await ask('/readyz');
    return { status: answer.status, told: (await answer.json()) as Told };
  };
  return { ...made, ask, ready };
}

const codes = ({ reasons = [] }: Told): readonly string[] => reasons.map(({ code }) => code);

describe('/readyz', () => {
  test('says what was looked at when all is well', async () => {
    const { ready } = await world();
    expect(await ready()).toEqual({
      status: 200,
      told: {
        ok: true,
        checks: [
          { name: 'engine', ok: true },
          { name: 'store', ok: true },
          { name: 'disk', ok: true },
        ],
        notes: [],
      },
    });
  });

  test('names each reason: starting, stopping, a store that is away, a full disk', async () => {
    let isReady = false;
    let isFull = false;
    const { ready, service, store } = await world({
      parts: { isReady: () => isReady },
      operator: (operator) => ({
        enqueue: (message) =>
          isFull
            ? Promise.reject(new RespoolError('store.full', 'no room'))
            : operator.enqueue(message),
      }),
    });
    const starting = await ready();
    expect([starting.status, codes(starting.told)]).toEqual([503, ['starting']]);
    expect(starting.told.error).toEqual({
      code: 'store.unavailable',
      message: 'the service is starting',
      reason: 'not-ready',
    });
    isReady = true;
    store.faults.plan = (operation) => (operation === 'list' ? 'before' : 'ok');
    const away = await ready();
    expect([away.status, codes(away.told)]).toEqual([503, ['store.unavailable']]);
    expect(away.told.checks).toContainEqual({ name: 'store', ok: false });
    store.faults.plan = () => 'ok';
    isFull = true;
    await service.fetch(
      new Request('http://localhost/v1/topics/a/messages', { method: 'POST', body: '' }),
    );
    const full = await ready();
    expect([full.status, codes(full.told)]).toEqual([503, ['store.full']]);
    expect(full.told.error).toMatchObject({ code: 'store.full', reason: 'not-ready' });
    service.beginStop();
    const stopping = await ready();
    expect([stopping.status, codes(stopping.told)]).toEqual([503, ['stopping', 'store.full']]);
  });

  test.each([
    [{ connected: 1, all: 2 }, undefined, ['consumers.away']],
    [{ connected: 2, all: 2 }, undefined, []],
    [undefined, { state: 'waiting', target: 'closed' } as const, ['relay.waiting']],
    [undefined, { state: 'stopped', target: 'closed' } as const, ['relay.stopped']],
    [undefined, { state: 'sending', target: 'open', downSince: 0 } as const, ['relay.down']],
    [undefined, { state: 'sending', target: 'half-open' } as const, ['relay.down']],
    [undefined, { state: 'sending', target: 'closed' } as const, []],
  ])('consumers %j and relay %j are notes: it stays ready', async (consumers, relay, notes) => {
    const { ready, ask } = await world({
      parts: { consumers: () => consumers, relay: () => relay },
    });
    const { status, told } = await ready();
    expect([status, told.ok]).toEqual([200, true]);
    expect(told.notes.map(({ code }) => code)).toEqual(notes);
    const name = consumers === undefined ? 'relay' : 'consumers';
    expect(told.checks).toContainEqual({ name, ok: notes.length === 0 });
    expect((await ask('/healthz')).status).toBe(200);
  });

  test('says when the store can be read and takes no message, until it takes one', async () => {
    let isLocked = true;
    const { ready, post, clock } = await world({
      operator: (operator) => ({
        enqueue: (message) =>
          isLocked
            ? Promise.reject(new RespoolError('store.unavailable', 'somebody has locked it'))
            : operator.enqueue(message),
      }),
    });
    expect((await ready()).status).toBe(200);
    await post('/v1/messages', { topic: 'a' });
    const locked = await ready();
    expect([locked.status, codes(locked.told)]).toEqual([503, ['store.unavailable']]);
    expect(locked.told.error?.message).toContain('did not take a message');
    await clock.advance('6s');
    // Without posts nobody could tell whether it does by now: they have to be let in again.
    expect((await ready()).status).toBe(200);
    await post('/v1/messages', { topic: 'a' });
    expect((await ready()).status).toBe(503);
    isLocked = false;
    await post('/v1/messages', { topic: 'a' });
    expect((await ready()).status).toBe(200);
  });

  test('says when a store has taken too long', async () => {
    const { ready, store, clock } = await world();
    store.faults.plan = (operation) => (operation === 'list' ? { delayMs: 60_000 } : 'ok');
    const calls = store.faults.count('list');
    const slow = ready();
    while (store.faults.count('list') === calls) await new Promise((next) => setImmediate(next));
    await clock.advance('2s');
    expect(codes((await slow).told)).toEqual(['store.unavailable']);
  });
});

test('/healthz is alive whatever else is wrong', async () => {
  const { ask, service, store } = await world({ parts: { isReady: () => false } });
  store.faults.plan = (operation) => (operation === 'list' ? 'before' : 'ok');
  service.beginStop();
  const answer = await ask('/healthz');
  expect([answer.status, await answer.json()]).toEqual([200, { ok: true }]);
});
