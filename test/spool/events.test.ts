/** Everything that happens is told; nothing depends on who listens (R36). */
import { type EventKind, fixed, held, PermanentError, type SpoolEvent } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, MINUTE, setup } from './setup.ts';

/** Kinds that need a broker, an outbox, an operator or rules. */
type Beside = 'topology' | 'relay' | 'sweep' | 'replay' | 'alert';

describe('events', () => {
  test('tell the life of a message in order', async () => {
    const { spool, clock, kinds, events } = await setup({ policies: { default: fixed('1m') } });
    spool.handle('a', failing(1).handler);
    const start = clock.now();
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1m');
    expect(kinds(id)).toEqual([
      'accepted',
      'claimed',
      'started',
      'ended',
      'deferred',
      'claimed',
      'started',
      'ended',
      'delivered',
    ]);
    const about = { id, topic: 'a', lane: 'delivery' };
    expect(events.filter((event) => 'id' in event)).toMatchObject([
      { id, topic: 'a', at: start, state: 'incoming', dueAt: start },
      { ...about, attempt: 1, at: start },
      { ...about, attempt: 1 },
      { ...about, attempt: 1, outcome: 'failed', code: 'error', tookMs: 0 },
      { ...about, attempt: 1, dueAt: start + MINUTE, because: { code: 'error' }, failure: {} },
      { ...about, attempt: 2, at: start + MINUTE },
      { ...about, attempt: 2 },
      { ...about, attempt: 2, outcome: 'delivered', code: 'delivered', tookMs: 0 },
      { ...about, attempt: 2, tookMs: 0, ageMs: MINUTE },
    ]);
  });

  test('of an unknown kind cannot be listened to', async () => {
    const { spool } = await setup();
    const listen = (): unknown => spool.on('deliverd' as never, () => undefined);
    expect(listen).toThrow(expect.objectContaining({ code: 'config.invalid' }));
    expect(listen).toThrow(/"deliverd".*\* .*delivered.*trouble/);
  });

  // Every kind of the union that a spool alone tells, each brought about on purpose; a kind that
  // nothing emits fails here. The others are in test/observe.
  test('of every kind are told when their time comes', async () => {
    let jumpMs = 0;
    const world = await setup({
      policies: { default: fixed('1m') },
      retention: { removed: 0 },
      isStarted: false,
    });
    const { spool, clock, events, store, data } = world;
    spool.handle('fine', () => undefined);
    spool.handle('fail', failing(1).handler);
    spool.handle('never', failing(1, () => new PermanentError('x', 'y')).handler);
    spool.handle('human', () => held('look'));
    spool.onBounce('never', () => undefined);
    const gate = makeGate();
    spool.handle('wait', gate.handler);
    await spool.start();
    for (const topic of ['fine', 'fail', 'never', 'human', 'nobody', 'wait']) {
      await spool.enqueue({ topic, dedupeKey: topic });
      await clock.settle();
    }
    await spool.enqueue({ topic: 'fine', dedupeKey: 'fine', policy: 'unknown' });
    await spool.operator({ by: 'ops' }).pause('x');
    await spool.operator({ by: 'ops' }).resume('x');
    const { id } = await spool.enqueue({ topic: 'fine', delay: '1h' });
    await spool.operator({ by: 'ops' }).remove([id]);
    await spool.operator({ by: 'ops' }).cleanUp();
    const gone = await spool.enqueue({ topic: 'fine', delay: '1h' });
    await spool.operator({ by: 'ops' }).remove([gone.id], { hard: true });
    // Another holder takes over what waits: its settle comes too late.
    store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    await clock.advance('2m');
    store.faults.plan = () => 'ok';
    jumpMs = 10 * MINUTE;
    clock.jump(jumpMs);
    await clock.advance('1m');
    gate.open();
    await clock.settle();
    await spool.enqueue({ topic: 'wait' });
    const last = makeGate();
    spool.handle('last', last.handler);
    await spool.enqueue({ topic: 'last' });
    await clock.settle();
    const stop = spool.stop({ within: '1s' });
    await clock.advance('5s');
    await stop;
    void data;
    const told = new Set(events.map((event) => event.kind));
    const all: Record<Exclude<EventKind, Beside>, true> = {
      accepted: true,
      duplicate: true,
      claimed: true,
      started: true,
      ended: true,
      delivered: true,
      deferred: true,
      bounced: true,
      held: true,
      announced: true,
      released: true,
      'lease-lost': true,
      stale: true,
      archived: true,
      removed: true,
      'policy-unknown': true,
      'handler-missing': true,
      operator: true,
      paused: true,
      resumed: true,
      'engine-started': true,
      'engine-stopped': true,
      'clock-jumped': true,
      'cleaned-up': true,
      trouble: true,
    };
    const missing = Object.keys(all).filter((kind) => !told.has(kind as EventKind));
    expect(missing).toEqual([]);
    expect(events.find((event) => event.kind === 'clock-jumped')).toMatchObject({ byMs: jumpMs });
  });

  test('reach the listener of their kind, and the one of all', async () => {
    const { spool, clock } = await setup({ isStarted: false });
    const one: SpoolEvent[] = [];
    const every: SpoolEvent[] = [];
    const stopOne = spool.on('delivered', (event) => one.push(event));
    const stopEvery = spool.on('*', (event) => every.push(event));
    spool.handle('a', () => undefined);
    await spool.start();
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(one.map(({ kind }) => kind)).toEqual(['delivered']);
    expect(every.map(({ kind }) => kind)).toContain('engine-started');
    stopOne();
    stopOne();
    stopEvery();
    const before = every.length;
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(one).toHaveLength(1);
    expect(every).toHaveLength(before);
  });

  test('harm nothing when a listener throws or rejects', async () => {
    const { spool, clock } = await setup();
    const seen: string[] = [];
    spool.on('*', () => {
      throw new Error('the listener is broken');
    });
    const later = (): unknown => Promise.reject(new Error('this one too, later'));
    spool.on('*', later);
    spool.on('delivered', () => void seen.push('heard'));
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(seen).toEqual(['heard']);
    expect(await spool.get(id)).toBeUndefined();
  });

  test('may be listened to and left from within a listener', async () => {
    const { spool, clock } = await setup();
    const seen: string[] = [];
    const stop = spool.on('accepted', () => {
      seen.push('first');
      stop();
      spool.on('accepted', () => void seen.push('second'));
    });
    spool.handle('a', () => undefined);
    await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(seen.slice(0, 1)).toEqual(['first']);
    expect(seen.filter((name) => name === 'first')).toHaveLength(1);
    expect(seen).toContain('second');
  });
});
