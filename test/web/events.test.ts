/** What happens, as server-sent events. */
import { type EventKind, type EventOf, RespoolError, type SpoolEvent } from 'respool';
import { describe, expect, test } from 'vitest';
import { connectOperator } from 'respool/web';
import { openWire, refusal, setup } from './setup.ts';
import { internalsOf } from '../../src/spool/internals.ts';

const LISTEN = 'GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n';

const about = { at: 1, id: 'x', topic: 'a' } as const;
const tried = { ...about, lane: 'delivery', attempt: 2 } as const;
const because = { code: 'smtp.451', text: 'greylisted', by: 'handler' } as const;
const failure = {
  permanence: 'transient',
  code: 'smtp.451',
  reason: 'greylisted',
  fingerprint: 'f',
} as const;

/** One of each kind, with all that it can say; a kind that is forgotten does not compile. */
const EVERY: { readonly [K in EventKind]: EventOf<K> } = {
  accepted: { ...about, kind: 'accepted', state: 'deferred', dueAt: 5 },
  duplicate: { ...about, kind: 'duplicate', duplicateOf: 'y' },
  claimed: { ...tried, kind: 'claimed' },
  started: { ...tried, kind: 'started' },
  ended: { ...tried, kind: 'ended', outcome: 'given up', code: 'released', tookMs: 1.5 },
  delivered: { ...tried, kind: 'delivered', tookMs: 1.5, ageMs: 20 },
  deferred: { ...tried, kind: 'deferred', dueAt: 5, because, failure },
  bounced: { ...tried, kind: 'bounced', because, spent: true, failure },
  held: { ...tried, kind: 'held', because },
  announced: { ...tried, kind: 'announced', lane: 'notice' },
  released: { ...tried, kind: 'released' },
  'lease-lost': { ...tried, kind: 'lease-lost' },
  stale: { ...tried, kind: 'stale' },
  archived: { ...about, kind: 'archived', ending: 'expired' },
  removed: { ...about, kind: 'removed', by: 'ann' },
  'policy-unknown': { ...about, kind: 'policy-unknown', policy: 'slow' },
  'handler-missing': { ...about, kind: 'handler-missing' },
  operator: { at: 1, kind: 'operator', action: 'hold', by: 'ann', ids: ['x'] },
  paused: { at: 1, kind: 'paused', topic: '#' },
  resumed: { at: 1, kind: 'resumed', topic: '#' },
  'engine-started': { at: 1, kind: 'engine-started' },
  'engine-stopped': { at: 1, kind: 'engine-stopped' },
  'clock-jumped': { at: 1, kind: 'clock-jumped', byMs: -5 },
  'cleaned-up': { at: 1, kind: 'cleaned-up', forgotten: 1, orphans: 2 },
  topology: {
    at: 1,
    kind: 'topology',
    queue: 'q',
    act: 'verified',
    exchanges: 1,
    queues: 2,
    bindings: 3,
  },
  relay: { at: 1, kind: 'relay', target: 'sink "s"', state: 'half-open' },
  sweep: { at: 1, kind: 'sweep', queue: 'q', target: 't', moved: 1, left: 2, error: 'no' },
  replay: {
    at: 1,
    kind: 'replay',
    replay: 'r',
    state: 'cancelled',
    by: 'ann',
    sent: 1,
    failed: 2,
    again: 3,
    because: 'by ann',
  },
  alert: { at: 1, kind: 'alert', rule: 'late', phase: 'resolved', episode: 2, text: 'over' },
  trouble: {
    at: 1,
    kind: 'trouble',
    doing: 'claiming',
    error: new RespoolError('store.full', 'disk gone'),
  },
};

describe('events', () => {
  test('of every kind arrive as they were told', async () => {
    let heard = (): void => undefined;
    const listening = new Promise<void>((resolve) => {
      heard = resolve;
    });
    const { spool, url } = await setup({
      operator: (operator) => ({
        events: (options) => {
          const stream = operator.events(options);
          heard();
          return stream;
        },
      }),
    });
    const stop = new AbortController();
    const events = connectOperator({ url }).events({ signal: stop.signal });
    const told: SpoolEvent[] = Object.values(EVERY);
    void listening.then(() => {
      for (const event of told) internalsOf(spool).emit(event);
    });
    const seen: unknown[] = [];
    for await (const event of events) {
      seen.push(event);
      if (seen.length === told.length) stop.abort();
    }
    const trouble = { ...EVERY.trouble, error: 'disk gone', code: 'store.full' };
    expect(seen).toEqual([...told.slice(0, -1), trouble]);
  });

  test('are told as they happen, each with its kind and one line of JSON', async () => {
    const { port, spool, ask } = await setup();
    const wire = await openWire(port, LISTEN);
    const head = await wire.until(/: listening/);
    expect(head).toMatch(/content-type: text\/event-stream/);
    await spool.enqueue({ topic: 'a', id: 'x' });
    await ask('/v1/messages/x?reason=two%0alines', { method: 'DELETE' });
    const text = await wire.until(/event: operator\n.*\n\n/);
    const [, data = ''] = /event: accepted\ndata: (.*)\n\n/.exec(text) ?? [];
    expect(JSON.parse(data)).toMatchObject({ kind: 'accepted', id: 'x', topic: 'a' });
  });

  test('of a sweep are told by who sweeps', async () => {
    const { spool, url, post } = await setup();
    const stream = spool.events({ kinds: ['sweep'] });
    const far = connectOperator({ url });
    const swept = { queue: 'q', target: 't', moved: 3, left: 1 };
    await far.tellSweep(swept);
    await far.tellSweep({ ...swept, error: 'no target' });
    const about = { at: expect.any(Number), kind: 'sweep', ...swept };
    expect((await stream.next()).value).toEqual(about);
    expect((await stream.next()).value).toEqual({ ...about, error: 'no target' });
    await stream.return?.();
    expect((await post('/v1/sweeps', { ...swept, moved: -1 })).status).toBe(400);
  });

  test('are only those that were asked for', async () => {
    const { ask, spool } = await setup();
    const answer = await ask('/v1/events?kinds=operator,paused');
    await spool.enqueue({ topic: 'a', id: 'x' });
    await spool.operator({ by: 'ops' }).pause('#');
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (!text.includes('event: paused')) text += (await reader?.read())?.value ?? '';
    await reader?.cancel();
    expect(text).not.toContain('accepted');
    expect(text).toContain('event: operator');
    expect((await ask('/v1/events?kinds=operator,nothing')).status).toBe(400);
  });

  test('have a sign of life every 15 s', async () => {
    const { port, clock } = await setup();
    const wire = await openWire(port, LISTEN);
    await wire.until(/: listening/);
    await clock.advance(14_999);
    expect(wire.received).not.toContain('still here');
    await clock.advance(1);
    await wire.until(/: still here\n\n/);
    await clock.advance('15s');
    await wire.until(/still here[^]*still here/);
  });

  test('are told to so many at once and no more, until one leaves', async () => {
    const { port, ask } = await setup();
    const wires = await Promise.all([1, 2, 3].map(() => openWire(port, LISTEN)));
    await Promise.all(wires.map((wire) => wire.until(/: listening/)));
    const refused = await ask('/v1/events');
    expect(refused.headers.get('retry-after')).toBe('5');
    expect(await refusal(refused)).toEqual([503, 'store.unavailable']);
    wires[0]?.socket.destroy();
    let answer = await ask('/v1/events');
    // The service hears of it a turn or two later.
    while (answer.status !== 200) answer = await ask('/v1/events');
    expect(answer.headers.get('content-type')).toMatch(/^text\/event-stream/);
    await answer.body?.cancel();
  });

  test('that are only asked about take nobody’s place', async () => {
    const { ask } = await setup();
    for (let at = 0; at < 5; at += 1) {
      expect((await ask('/v1/events', { method: 'HEAD' })).status).toBe(200);
    }
  });

  test('leave nothing behind when a listener goes', async () => {
    let isOver = false;
    const { port } = await setup({
      operator: () => ({
        events: ({ signal }) =>
          (async function* () {
            try {
              yield { at: 0, kind: 'engine-started' as const };
              await new Promise((resolve) => signal.addEventListener('abort', resolve));
            } finally {
              isOver = true;
            }
          })(),
      }),
    });
    const wire = await openWire(port, LISTEN);
    await wire.until(/: listening/);
    wire.socket.destroy();
    await expect.poll(() => isOver).toBe(true);
  });
});
