/** Topics without a handler, unknown policies and handlers that get nothing are told at once. */
import { createSpool, fixed } from 'respool';
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from 'vitest';
import { SimClock } from 'respool/testkit';
import { memory, memoryBodies } from 'respool/stores/memory';
import { setup, type World } from './setup.ts';

const traits = { processes: 'many' } as const;

let warnings: MockInstance<typeof process.emitWarning>;
beforeEach(() => {
  warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
});
afterEach(() => vi.restoreAllMocks());

function missing({ events }: World): string[] {
  return events.flatMap((event) => (event.kind === 'handler-missing' ? [event.topic] : []));
}

describe('a topic without a handler', () => {
  test('is told a second after its message, once, and not after five minutes', async () => {
    const world = await setup({ traits });
    const { spool, clock } = world;
    spool.handle('a', () => undefined);
    await clock.advance('10s');
    await spool.enqueueMany([{ topic: 'other' }, { topic: 'other' }, { topic: 'a' }]);
    await clock.advance('999ms');
    expect(missing(world)).toEqual([]);
    await clock.advance('1ms');
    expect(missing(world)).toEqual(['other']);
    await spool.enqueue({ topic: 'other' });
    await clock.advance('1m');
    expect(missing(world)).toEqual(['other']);
    expect(warnings).not.toHaveBeenCalled();
  });

  test.each(['many', 'one'] as const)(
    'is told by a spool without any handler; %s on the store',
    async (processes) => {
      const world = await setup({ traits: { processes } });
      await world.spool.enqueue({ topic: 'other' });
      await world.clock.advance('2s');
      expect(missing(world)).toEqual(['other']);
    },
  );

  test('is told for what was put down before the start, by this process or another', async () => {
    const before = await setup({ traits, isStarted: false });
    await before.spool.enqueue({ topic: 'left' });
    const world = await setup({ traits, with: before, isStarted: false });
    await world.spool.enqueue({ topic: 'own' });
    await world.spool.start();
    await world.clock.advance('2s');
    expect(missing(world).toSorted()).toEqual(['left', 'own']);
    expect(missing(before)).toEqual([]);
  });

  test('is told though more is due before it than one look reads', async () => {
    const before = await setup({ traits, isStarted: false });
    const many = Array.from({ length: 700 }, () => ({ topic: 'a' }));
    for (let at = 0; at < 2; at += 1) await before.spool.enqueueMany(many);
    await before.clock.advance('1s');
    await before.spool.enqueueMany([{ topic: 'late' }, { topic: 'future', delay: '1h' }]);
    const world = await setup({ traits, with: before, isStarted: false });
    world.spool.handle('a', () => new Promise(() => undefined), { concurrency: 1 });
    await world.spool.start();
    await world.clock.advance('2s');
    expect(missing(world)).toEqual(['late']);
  });

  test('is told within two minutes when another process puts a message down', async () => {
    const world = await setup({ traits });
    world.spool.handle('a', () => undefined);
    await world.clock.advance('10s');
    const other = await setup({ traits, with: world, isStarted: false });
    await other.spool.enqueueMany([{ topic: 'other' }, { topic: 'future', delay: '1h' }]);
    await world.clock.advance('2m5s');
    expect(missing(world)).toEqual(['other']);
    await world.clock.advance('2m');
    expect(missing(world)).toEqual(['other']);
  });

  test('is no topic whose handler is registered after the start and the enqueue', async () => {
    const world = await setup({ traits });
    await world.spool.enqueue({ topic: 'a' });
    world.spool.handle('a', () => undefined);
    await world.clock.advance('1m');
    expect(missing(world)).toEqual([]);
  });

  test('is not told by a spool that is not started, or leaves such topics', async () => {
    const idle = await setup({ traits, isStarted: false });
    const leaving = await setup({ traits, unhandled: 'leave' });
    for (const { spool, clock } of [idle, leaving]) {
      await spool.enqueue({ topic: 'other' });
      await clock.advance('1m');
    }
    expect([...missing(idle), ...missing(leaving)]).toEqual([]);
  });

  test('is told for a thousand topics at the most', async () => {
    const world = await setup({ traits });
    await world.clock.advance('10s');
    await world.spool.enqueueMany(Array.from({ length: 1_200 }, (_, at) => ({ topic: `t${at}` })));
    await world.clock.advance('2s');
    expect(missing(world)).toHaveLength(1_000);
  });
});

test('without a listener and a logger, each is told once on stderr', async () => {
  const clock = new SimClock();
  const spool = createSpool({ entries: memory(), bodies: memoryBodies({ clock }), clock });
  await spool.start();
  await spool.enqueueMany([
    { topic: 'x', id: 'm-1', policy: 'slow' },
    { topic: 'y', policy: 'slow' },
  ]);
  await clock.advance('2s');
  spool.handle('a', () => undefined);
  spool.handle('a', () => undefined);
  spool.handle('a', () => undefined);
  const told = warnings.mock.calls.map(([text, options]) => [
    (options as { code?: string }).code,
    String(text).replace(/\. Further.*/, ''),
  ]);
  expect(told).toEqual([
    [
      'policy-unknown',
      'message "m-1" names policy "slow", which is not registered here; the default policy is used',
    ],
    [
      'handler-missing',
      'no handler for topic "x" in this process: message "m-1" waits; register one with ' +
        'handle("x", …)',
    ],
    [
      'handler-unreachable',
      'the handler for "a" gets no message: the one for "a" was registered before, and the first ' +
        'match wins',
    ],
  ]);
  await spool.stop();
});

test('a second handler for a pattern is told, unless the first picks by envelope', async () => {
  const { spool, events } = await setup({ policies: { default: fixed('1h') } });
  const troubles = (): number => events.filter(({ kind }) => kind === 'trouble').length;
  spool.handle('a', () => undefined, { accepts: () => true });
  const undo = spool.handle('a', () => undefined);
  spool.onBounce('a', () => undefined);
  expect(troubles()).toBe(0);
  spool.handle('a', () => undefined);
  expect(troubles()).toBe(1);
  undo();
  spool.handle('#', () => undefined);
  spool.handle('b', () => undefined);
  expect(troubles()).toBe(2);
});

test('a handler that gets nothing since several before it take all is told, with all of them', async () => {
  const { spool, events } = await setup({ policies: { default: fixed('1h') } });
  const texts = (): string[] =>
    events.flatMap((event) => (event.kind === 'trouble' ? [String(event.error)] : []));
  for (const pattern of ['mail', 'mail.*', 'sms.#']) spool.handle(pattern, () => undefined);
  const undo = spool.handle('mail.*.*.#', () => undefined);
  expect(texts()).toEqual([]);
  const undoLast = spool.handle('mail.#', () => undefined);
  expect(texts()).toEqual([
    expect.stringContaining(
      'the handler for "mail.#" gets no message: those for "mail" and "mail.*" and "mail.*.*.#" ' +
        'were registered before, and the first match wins',
    ),
  ]);
  // Without one of them it gets something.
  undo();
  undoLast();
  spool.handle('mail.#', () => undefined);
  expect(texts()).toHaveLength(1);
  await spool.stop();
});

test.each([
  ['mail.*', 'mail.welcome'],
  ['a.#', 'a.*'],
  ['a.#', 'a'],
])('a handler for %j tells that a later one for %j gets nothing', async (earlier, later) => {
  const { spool, events } = await setup({ policies: { default: fixed('1h') } });
  const texts = (): string[] =>
    events.flatMap((event) => (event.kind === 'trouble' ? [String(event.error)] : []));
  const undo = [spool.handle(later, () => undefined), spool.onBounce(later, () => undefined)];
  spool.handle(earlier, () => undefined);
  spool.onBounce(earlier, () => undefined);
  expect(texts()).toEqual([]);
  for (const off of undo) off();
  spool.handle(later, () => undefined);
  spool.onBounce(later, () => undefined);
  expect(texts()).toEqual([
    expect.stringContaining(`the handler for "${later}" gets no message: the one for "${earlier}"`),
    expect.stringContaining(`the bounce handler for "${later}" gets no message`),
  ]);
  await spool.stop();
});
