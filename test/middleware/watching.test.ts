/** logging, metrics, tracing: they look on, and change nothing (R98). */
import { failed, failure, fixed, held, type Outcome, PermanentError, postponed } from 'respool';
import type { Delivery, Logger, Middleware } from 'respool';
import { type MiddlewareSpan, logging, metrics, tracing } from 'respool/middleware';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { pass } from './setup.ts';

function makeLogger(): { logger: Logger; lines: [string, Record<string, unknown>, string][] } {
  const lines: [string, Record<string, unknown>, string][] = [];
  const at = (level: string) => (fields: object, text: string) =>
    void lines.push([level, fields as Record<string, unknown>, text]);
  const logger = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
  return { logger, lines };
}

const broken = (): never => {
  throw new Error('the meter is broken');
};

describe('logging', () => {
  test('writes one line at the start and one at the end, without body or header values', async () => {
    const { logger, lines } = makeLogger();
    const { spool, clock } = await createTestSpool({ policies: { default: fixed('1h') } });
    const work = async (delivery: Delivery): Promise<void> => {
      await new Promise<void>((resolve) => clock.after(250, resolve));
      delivery.note('secret-note', 'note-value');
      if (delivery.attempt === 1) throw new Error('busy');
    };
    spool.handle('a', work, { middleware: [logging({ logger, clock })] });
    const { id } = await spool.enqueue({
      topic: 'a',
      body: 'body-value',
      headers: { token: 'header-value' },
    });
    await clock.advance('2h');
    const about = { id, topic: 'a', lane: 'delivery' };
    expect(lines).toEqual([
      ['debug', { ...about, attempt: 1 }, 'attempt started'],
      [
        'warn',
        {
          ...about,
          attempt: 1,
          outcome: 'failed',
          tookMs: 250,
          permanence: 'transient',
          code: 'error',
          reason: 'busy',
        },
        'attempt ended: failed',
      ],
      ['debug', { ...about, attempt: 2 }, 'attempt started'],
      [
        'info',
        { ...about, attempt: 2, outcome: 'delivered', tookMs: 250 },
        'attempt ended: delivered',
      ],
    ]);
    expect(JSON.stringify(lines)).not.toMatch(/body-value|header-value|note-value/);
    await spool.stop();
  });

  test.each<[string, () => Promise<Outcome>, string, object]>([
    [
      'a permanent failure',
      () => Promise.reject(new PermanentError('x', 'no')),
      'error',
      { code: 'x' },
    ],
    ['a held message', async () => held('look'), 'error', { code: 'handler.held', reason: 'look' }],
    ['a postponed one', async () => postponed('1m', 'later'), 'info', { delayMs: 60_000 }],
    [
      'a returned failure',
      async () => failed(failure('transient', 'y', 'z')),
      'warn',
      { code: 'y' },
    ],
  ])('writes %s at its level', async (_, next, level, fields) => {
    const { logger, lines } = makeLogger();
    await pass(logging({ logger }), {}, next).catch(() => undefined);
    expect(lines[1]?.[0]).toBe(level);
    expect(lines[1]?.[1]).toMatchObject(fields);
  });

  test('tells a body that is no JSON as held, which is what becomes of it', async () => {
    const { logger, lines } = makeLogger();
    const { spool, clock } = await createTestSpool();
    const read = async (delivery: Delivery): Promise<void> => void (await delivery.json());
    spool.handle('a', read, { middleware: [logging({ logger, clock })] });
    const { id } = await spool.enqueue({ topic: 'a', body: '{' });
    await clock.settle();
    expect(lines[1]?.[0]).toBe('error');
    expect(lines[1]?.[1]).toMatchObject({ outcome: 'held', code: 'body.invalid' });
    expect((await spool.get(id))?.status.state).toBe('hold');
    await spool.stop();
  });
});

describe('metrics', () => {
  test('tells when an attempt starts, how it ended and how long it took', async () => {
    const told: unknown[] = [];
    const { spool, clock } = await createTestSpool({ policies: { default: fixed('1h') } });
    const hook = {
      started: ({ topic, attempt }: Delivery) => void told.push(['started', topic, attempt]),
      ended: ({ topic }: Delivery, outcome: Outcome, tookMs: number) =>
        void told.push(['ended', topic, outcome.kind, tookMs]),
    };
    const handler = async ({ attempt }: Delivery): Promise<void> => {
      await new Promise<void>((resolve) => clock.after(40, resolve));
      if (attempt === 1) throw new Error('busy');
    };
    spool.handle('a', handler, { middleware: [metrics(hook, { clock })] });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('2h');
    expect(told).toEqual([
      ['started', 'a', 1],
      ['ended', 'a', 'failed', 40],
      ['started', 'a', 2],
      ['ended', 'a', 'delivered', 40],
    ]);
    await spool.stop();
  });

  test('calls the hook as a method, and either half alone will do', async () => {
    class Meter {
      count = 0;
      ended(): void {
        this.count += 1;
      }
    }
    const meter = new Meter();
    await pass(metrics(meter));
    expect(meter.count).toBe(1);
  });
});

describe('tracing', () => {
  test('has a span around each attempt, ended with its outcome and what was thrown', async () => {
    const told: unknown[] = [];
    const { spool, clock } = await createTestSpool({ policies: { default: fixed('1h') } });
    const busy = new Error('busy');
    const hook = {
      start: ({ attempt }: Delivery): MiddlewareSpan => {
        told.push(`start ${attempt}`);
        return { end: (outcome, thrown) => void told.push([outcome.kind, thrown]) };
      },
    };
    const handler = ({ attempt }: Delivery): void => {
      told.push('handler');
      if (attempt === 1) throw busy;
    };
    spool.handle('a', handler, { middleware: [tracing(hook)] });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('2h');
    expect(told).toEqual([
      'start 1',
      'handler',
      ['failed', busy],
      'start 2',
      'handler',
      ['delivered', undefined],
    ]);
    await spool.stop();
  });

  test('runs the handler inside the span where the span can do that', async () => {
    const told: string[] = [];
    const span: MiddlewareSpan = {
      run: async (work) => {
        told.push('in');
        const answer = await work();
        told.push('out');
        return answer;
      },
      end: ({ kind }) => void told.push(kind),
    };
    const handler = async (): Promise<Outcome> => {
      told.push('handler');
      return { kind: 'delivered' };
    };
    await pass(tracing({ start: () => span }), {}, handler);
    expect(told).toEqual(['in', 'handler', 'out', 'delivered']);
  });

  test('leaves out what start gives no span for', async () => {
    expect((await pass(tracing({ start: () => undefined }))).kind).toBe('delivered');
  });
});

const rejecting = (): Promise<never> => Promise.reject(new Error('the meter is broken'));
const noLogger: Logger = { debug: broken, info: broken, warn: broken, error: broken };

test.each<[string, () => Middleware]>([
  ['a logger that throws', () => logging({ logger: noLogger })],
  ['metrics that throw', () => metrics({ started: broken, ended: broken })],
  ['metrics that reject', () => metrics({ started: rejecting, ended: rejecting })],
  ['a tracer that cannot start', () => tracing({ start: broken })],
  ['a tracer that starts null', () => tracing({ start: () => null as unknown as undefined })],
  ['a tracer that cannot end', () => tracing({ start: () => ({ end: broken }) })],
  ['a span that cannot run', () => tracing({ start: () => ({ run: broken, end: broken }) })],
  ['a span that rejects', () => tracing({ start: () => ({ run: rejecting, end: broken }) })],
])('%s harms no delivery, and hides no failure', async (_, make) => {
  const { spool, clock } = await createTestSpool({ policies: { default: fixed('1h') } });
  let calls = 0;
  const handler = (): void => {
    calls += 1;
    if (calls === 1) throw new Error('busy');
  };
  spool.handle('a', handler, { middleware: [make()] });
  const { id } = await spool.enqueue({ topic: 'a' });
  await clock.settle();
  expect((await spool.get(id))?.status.lastFailure?.reason).toBe('busy');
  await clock.advance('1h');
  expect(calls).toBe(2);
  expect(await spool.get(id)).toBeUndefined();
  await spool.stop();
});

test('a clock that is not given is the machine’s', async () => {
  const took: number[] = [];
  await pass(metrics({ ended: (_delivery, _outcome, tookMs) => void took.push(tookMs) }));
  await pass(
    metrics({ ended: (_d, _o, tookMs) => void took.push(tookMs) }, { clock: new SimClock() }),
  );
  expect(took[0]).toBeGreaterThan(0);
  expect(took[1]).toBe(0);
});
