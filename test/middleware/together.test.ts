/** All of them: their order, their options, and that they leave a delivery as it is (R97, R98). */
import type { Delivery, Logger, Middleware, Outcome } from 'respool';
import * as middleware from 'respool/middleware';
import type { InBatchesOptions } from 'respool/middleware';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { refusal } from './setup.ts';

const { circuitBreaker, guard, healthGate, inBatches, logging, mapErrors } = middleware;
const { metrics, rateLimit, retryBudget, tracing, when } = middleware;

const nothing = (): void => undefined;
const silent: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing };
const always = (): boolean => true;

/** One of each, as they are when nothing is wrong. */
const ALL: Readonly<Record<string, () => Middleware>> = {
  circuitBreaker: () => circuitBreaker(),
  guard: () => guard(always),
  healthGate: () => healthGate({ isHealthy: always }),
  logging: () => logging({ logger: silent }),
  mapErrors: () => mapErrors(nothing),
  metrics: () => metrics({ ended: nothing }),
  rateLimit: () => rateLimit({ max: 10, per: '1s' }),
  retryBudget: () => retryBudget({ perMinute: 10 }),
  tracing: () => tracing({ start: () => ({ end: nothing }) }),
  when: () => when(always, async (_, next) => next()),
};

test('there is nothing else but inBatches, which makes a handler', () => {
  expect(Object.keys(middleware).toSorted()).toEqual([...Object.keys(ALL), 'inBatches'].toSorted());
});

test('the first in the list is the outermost', async () => {
  const order: string[] = [];
  const named = (name: string): Middleware =>
    metrics({
      started: () => void order.push(`${name} started`),
      ended: (_: Delivery, { kind }: Outcome) => void order.push(`${name} ended ${kind}`),
    });
  const { spool, clock } = await createTestSpool();
  spool.handle('a', () => void order.push('handler'), {
    middleware: [named('first'), named('second')],
  });
  await spool.enqueue({ topic: 'a' });
  await clock.settle();
  expect(order).toEqual([
    'first started',
    'second started',
    'handler',
    'second ended delivered',
    'first ended delivered',
  ]);
  await spool.stop();
});

test('logging outside of a guard tells of what the guard refused; inside it does not', async () => {
  const lines: string[] = [];
  const log = (fields: object, text: string): void =>
    void lines.push(`${(fields as { topic: string }).topic} ${text}`);
  const logged = logging({ logger: { ...silent, error: log } });
  const { spool, clock } = await createTestSpool();
  const refuse = guard(() => false);
  spool.handle('outside', nothing, { middleware: [logged, refuse] });
  spool.handle('inside', nothing, { middleware: [refuse, logged] });
  await spool.enqueue({ topic: 'outside' });
  await spool.enqueue({ topic: 'inside' });
  await clock.settle();
  expect(lines).toEqual(['outside attempt ended: held']);
  await spool.stop();
});

describe.each(Object.entries(ALL))('%s', (_, make) => {
  test('leaves body, notes, headers and outcome of a delivery as they are', async () => {
    const { spool, clock } = await createTestSpool({ retention: { delivered: { archive: '1d' } } });
    const seen: unknown[] = [];
    const handler = async (delivery: Delivery): Promise<void> => {
      seen.push(await delivery.json(), delivery.headers, delivery.attempt, delivery.id);
      delivery.note('seen', 'yes');
      const parts: Uint8Array[] = [];
      for await (const part of delivery.stream()) parts.push(part);
      seen.push(Buffer.concat(parts).toString());
    };
    spool.handle('a', handler, { middleware: [make()] });
    const { id } = await spool.enqueue({ topic: 'a', body: { n: 1 }, headers: { from: 'ann' } });
    await clock.settle();
    expect(seen).toEqual([{ n: 1 }, { from: 'ann' }, 1, id, '{"n":1}']);
    const status = (await spool.get(id))?.status;
    expect(status).toMatchObject({ ending: 'delivered', notes: { seen: 'yes' } });
    await spool.stop();
  });

  test('lets the handler’s outcome through, and the very error that it throws', async () => {
    const thrown = new Error('busy');
    const delivery = { topic: 'a', attempt: 1, envelope: {}, signal: new AbortController().signal };
    const of = delivery as unknown as Delivery;
    await expect(make()(of, () => Promise.reject(thrown))).rejects.toBe(thrown);
    const outcome: Outcome = { kind: 'held', reason: 'look', code: 'own' };
    expect(await make()(of, async () => outcome)).toBe(outcome);
  });
});

test('all together deliver, fail and postpone as one would expect', async () => {
  const { spool, clock } = await createTestSpool({ retention: { delivered: { archive: '1d' } } });
  const { handler, calls } = {
    calls: [] as number[],
    handler: ({ attempt }: Delivery) => {
      calls.push(attempt);
      if (attempt < 3) throw new Error('busy');
    },
  };
  spool.handle('a', handler, { middleware: Object.values(ALL).map((make) => make()) });
  const { id } = await spool.enqueue({ topic: 'a' });
  await clock.advance('3h');
  expect(calls).toEqual([1, 2, 3]);
  expect((await spool.get(id))?.status.ending).toBe('delivered');
  await spool.stop();
});

const loose = <T>(value: unknown): T => value as T;
const clock = new SimClock();
const handler = nothing;

test.each<[string, () => unknown, string]>([
  ['no options at all', () => retryBudget(loose(undefined)), 'allowed is an object with perMinute'],
  [
    'a name that does not exist',
    () => retryBudget(loose({ perMinutes: 1 })),
    'no option "perMinutes"',
  ],
  ['perMinute 0', () => retryBudget({ perMinute: 0 }), '"perMinute": allowed is a whole number 1'],
  ['perMinute 1.5', () => retryBudget({ perMinute: 1.5 }), 'cannot use 1.5'],
  ['perMinute too large', () => retryBudget({ perMinute: 100_001 }), '1 to 100000'],
  ['no isHealthy', () => healthGate(loose({})), '"isHealthy": allowed is a function'],
  ['every over an hour', () => healthGate({ isHealthy: always, every: '2h' }), '"every"'],
  ['a timeout of nothing', () => healthGate({ isHealthy: always, timeout: 0 }), '"timeout"'],
  ['postpone of nothing', () => healthGate({ isHealthy: always, postpone: 0 }), '"postpone"'],
  ['an odd name', () => healthGate(loose({ isHealthy: always, often: 1 })), 'no option "often"'],
  ['failures 0', () => circuitBreaker({ failures: 0 }), '"failures": allowed is a whole number 1'],
  ['halfOpenAfter 0', () => circuitBreaker({ halfOpenAfter: 0 }), '"halfOpenAfter"'],
  ['by something', () => circuitBreaker({ by: loose('id') }), "'all', 'topic', 'destination' or a"],
  ['onChange a text', () => circuitBreaker({ onChange: loose('x') }), '"onChange": allowed is a f'],
  ['threshold', () => circuitBreaker(loose({ threshold: 1 })), 'no option "threshold"'],
  ['max 0', () => rateLimit({ max: 0, per: '1s' }), '"max": allowed is a whole number 1'],
  ['no per', () => rateLimit(loose({ max: 1 })), '"per"'],
  ['per 0', () => rateLimit({ max: 1, per: 0 }), '"per": allowed is 1ms to 1d'],
  [
    'a long wait',
    () => rateLimit({ max: 1, per: '1s', wait: '31s' }),
    '"wait": allowed is 0s to 30s',
  ],
  [
    'by nothing',
    () => rateLimit({ max: 1, per: '1s', by: loose(null) }),
    'cannot use null as "by"',
  ],
  ['burst', () => rateLimit(loose({ max: 1, per: '1s', burst: 1 })), 'no option "burst"'],
  [
    'no handler',
    () => inBatches(loose<InBatchesOptions>({ max: 1, within: 1 })),
    '"handler": allowed is a function',
  ],
  ['max of a batch', () => inBatches({ max: 10_001, within: 1, handler }), '1 to 10000'],
  ['within too long', () => inBatches({ max: 1, within: '2m', handler }), '"within"'],
  [
    'size',
    () => inBatches(loose<InBatchesOptions>({ max: 1, within: 1, handler, size: 1 })),
    'no option "size"',
  ],
  ['no logger', () => logging(loose({ clock })), 'debug, info, warn, error; it has no debug'],
  ['half a logger', () => logging({ logger: loose({ debug: nothing }) }), 'it has no info'],
  ['a level', () => logging(loose({ logger: silent, level: 'x' })), 'no option "level"'],
  ['no hook', () => metrics(loose(undefined)), 'an object with started, ended or both'],
  ['a hook of nothing', () => metrics({}), 'an object with started, ended or both'],
  ['half a hook', () => metrics({ started: nothing, ended: loose(1) }), '"ended": allowed is a f'],
  ['started no function', () => metrics({ started: loose(1) }), '"started": allowed is a function'],
  [
    'strange options',
    () => metrics({ ended: nothing }, loose({ x: 1 })),
    'no option "x" of metrics',
  ],
  ['a tracer without start', () => tracing(loose({})), 'it has no start'],
  ['no map', () => mapErrors(loose(undefined)), '"map of mapErrors": allowed is a function'],
  ['no question', () => guard(loose(undefined)), '"ask of guard": allowed is a function'],
  ['refused by drop', () => guard(always, { refused: loose('drop') }), 'allowed is hold | fail'],
  ['else', () => guard(always, loose({ else: 1 })), 'no option "else" of guard'],
  ['no predicate', () => when(loose(true), async (_, next) => next()), '"predicate of when"'],
  ['no middleware', () => when(always, loose(undefined)), '"middleware of when"'],
])('%s is refused, and the text says what is allowed', (_, make, text) => {
  expect(refusal(make)).toContain(text);
});
