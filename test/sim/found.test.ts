/** found — what the simulator found, each as a test of its own: seeds change their meaning. */
import { expect, test } from 'vitest';
import { makeGate, SECOND, setup } from '../spool/setup.ts';

test('two handlers with limits of their own do not share one free slot', async () => {
  const { spool, clock } = await setup({ concurrency: 1 });
  const gate = makeGate();
  spool.handle('web.#', gate.handler, { concurrency: 1 });
  spool.handle('mail.#', gate.handler);
  await spool.operator({ by: 'ops' }).pause('#');
  await spool.enqueueMany([{ topic: 'web.hook' }, { topic: 'mail.send' }, { topic: 'web.page' }]);
  await spool.operator({ by: 'ops' }).resume('#');
  await clock.advance('1s');
  expect(gate.running).toBe(1);
  gate.open();
  await clock.advance('1m');
  expect(gate.began).toHaveLength(3);
  expect(gate.mostRunning).toBe(1);
});

test('what was claimed before another claim failed is delivered, not lost', async () => {
  let isBroken = true;
  const { spool, clock, kinds } = await setup({
    extras: (store) => ({
      claim: async (request) => {
        if (isBroken && request.lane === 'notice') throw new Error('the line broke');
        return store.claim(request);
      },
    }),
  });
  const gate = makeGate();
  gate.open();
  spool.handle('#', gate.handler);
  spool.onBounce('#', gate.handler);
  await spool.operator({ by: 'ops' }).pause('#');
  const { id } = await spool.enqueue({ topic: 'mail.send' });
  await spool.operator({ by: 'ops' }).resume('#');
  await clock.advance('1s');
  expect(gate.began).toEqual([id]);
  isBroken = false;
  await clock.advance('10m');
  expect(kinds(id)).not.toContain('lease-lost');
});

test('the end of a pause is noticed by another process, also when the store calls nobody', async () => {
  const one = await setup({ traits: { processes: 'many' } });
  const other = await setup({ traits: { processes: 'many' }, with: one, isStarted: false });
  const gate = makeGate();
  gate.open();
  await one.spool.operator({ by: 'ops' }).pause('#');
  other.spool.handle('#', gate.handler);
  await other.spool.start();
  const { id } = await one.spool.enqueue({ topic: 'mail.send' });
  await one.clock.advance('1m');
  expect(gate.began).toEqual([]);
  await one.spool.operator({ by: 'ops' }).resume('#');
  await one.clock.advance('1m');
  expect(gate.began).toEqual([id]);
});

test('a spool that is stopped in the middle of its start does not run on', async () => {
  const { spool, clock, store, events } = await setup({
    isStarted: false,
    extras: () => ({ expireLost: async () => 0 }),
  });
  store.faults.plan = (operation) => (operation === 'expireLost' ? { delayMs: 1_000 } : 'ok');
  spool.handle('#', () => undefined);
  const starting = spool.start();
  await clock.settle();
  const stopping = spool.stop();
  await clock.advance('1m');
  await Promise.allSettled([starting, stopping]);
  expect(clock.timers).toBe(0);
  expect(events.filter(({ kind }) => kind === 'trouble')).toEqual([]);
});

test('a clock that is set back while an operator looks does not end a running lease', async () => {
  const { spool, clock, store } = await setup({ lease: '10s' });
  const gate = makeGate();
  spool.handle('#', gate.handler);
  const { id } = await spool.enqueue({ topic: 'mail.send' });
  await clock.advance('1s');
  store.faults.plan = (operation) => (operation === 'get' ? { delayMs: 8_000 } : 'ok');
  const holding = spool.operator({ by: 'ops' }).hold([id]);
  await clock.settle();
  clock.jump(-60 * 60 * 1_000);
  // A heartbeat under the new time comes before the answer to the look.
  await clock.advance('9s');
  expect((await holding)[0]?.result).toBe('refused');
  gate.open();
});

test('a process that stood still while it asked for the time does not start messages early', async () => {
  const serverNow: { now: () => number } = { now: () => 0 };
  const { spool, clock, store } = await setup({
    extras: () => ({ now: async () => serverNow.now() }),
    isStarted: false,
  });
  serverNow.now = () => clock.now();
  // The first answer takes ten minutes: its middle is five minutes off.
  let asked = 0;
  store.faults.plan = (operation) => {
    if (operation !== 'now') return 'ok';
    asked += 1;
    return asked === 1 ? { delayMs: 600 * SECOND } : 'ok';
  };
  const gate = makeGate();
  gate.open();
  spool.handle('#', gate.handler);
  const starting = spool.start();
  await clock.advance('10m');
  await starting;
  const { id } = await spool.enqueue({ topic: 'mail.send', dueAt: clock.now() + 60 * SECOND });
  await clock.advance('50s');
  expect(gate.began).toEqual([]);
  await clock.advance('20s');
  expect(gate.began).toEqual([id]);
});

test('an insert that is answered after the stop leaves no timer behind', async () => {
  const { spool, clock, store } = await setup();
  spool.handle('#', () => undefined);
  await clock.advance('1s');
  store.faults.plan = (operation) =>
    operation === 'insert' ? { answerLateMs: 12 * SECOND } : 'ok';
  const enqueued = spool.enqueue({ topic: 'mail.send' });
  await clock.settle();
  const stopping = spool.stop({ within: 0 });
  await clock.advance('20s');
  await Promise.all([stopping, enqueued]);
  expect(clock.timers).toBe(0);
});

test('what a lost holder left of a topic that nobody handles any more is held', async () => {
  const traits = { processes: 'many' } as const;
  const old = await setup({ traits, lease: '10s' });
  const gate = makeGate();
  old.spool.handle('old.#', gate.handler);
  const { id } = await old.spool.enqueue({ topic: 'old.news' });
  await old.clock.advance('1s');
  // It stalls: its heartbeats do not get through any more.
  old.store.faults.plan = () => 'before';
  const next = await setup({ traits, lease: '10s', with: old });
  next.spool.handle('new.#', () => undefined);
  // What it has recorded of its handlers counts for a day.
  await old.clock.advance('25h');
  expect(await next.status(id)).toMatchObject({
    state: 'hold',
    because: { code: 'handler.missing' },
  });
  expect((await next.status(id)).holder).toBeUndefined();
});

test('a message that is processed by hand while the spool stops is given back', async () => {
  const { spool, clock, store, status } = await setup();
  const { id } = await spool.enqueue({ topic: 'mail.send', delay: '1h' });
  store.faults.plan = (operation) => (operation === 'claim' ? { delayMs: SECOND } : 'ok');
  const gate = makeGate();
  const processing = spool.process(id, gate.handler);
  await clock.settle();
  const stopping = spool.stop();
  await clock.advance('20s');
  await stopping;
  expect(await processing).toEqual({ kind: 'release' });
  expect(gate.began).toEqual([]);
  expect(clock.timers).toBe(0);
  expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
});

test('a clock that is set back while the caretaker looks does not end a running lease', async () => {
  const traits = { processes: 'many' } as const;
  const one = await setup({ traits, lease: '10s' });
  const gate = makeGate();
  one.spool.handle('mail.#', gate.handler);
  const other = await setup({ traits, lease: '10s', with: one });
  other.spool.handle('web.#', () => undefined);
  await one.spool.enqueue({ topic: 'mail.other', delay: '1d' });
  await one.clock.advance('1s');
  other.store.faults.plan = (operation) => (operation === 'list' ? { delayMs: 2 * SECOND } : 'ok');
  const cleaning = other.spool.operator({ by: 'ops' }).cleanUp();
  // The first list is for what is past its retention, the second for what nobody handles.
  await one.clock.advance('3s');
  one.clock.jump(-60 * 60 * SECOND);
  const { id } = await one.spool.enqueue({ topic: 'mail.other' });
  await one.clock.advance('5s');
  await cleaning;
  expect(gate.began).toEqual([id]);
  expect(await one.status(id)).toMatchObject({ state: 'active' });
  gate.open();
});
