/** Rounds: flapping, several processes, crashes, a store that is away, what cannot be measured. */
import { RespoolError } from 'respool';
import { expect, test } from 'vitest';
import type { AlertActionCall } from '../../src/observe/alerts/types.ts';
import type { Measures } from '../../src/observe/alerts/measures.ts';
import { MINUTE, SECOND, setup } from '../spool/setup.ts';
import { alertsOver, earOf, EVERY_MS, ruleOf, scene } from './alerts-ground.ts';

test('a rule fires only when its condition has held for its time, and is resolved after as long', async () => {
  const { dials, rounds, phases, state } = await scene('count held > 0 for 1m');
  dials.reading = { value: 1 };
  await rounds(4);
  expect(await state('r')).toMatchObject({ phase: 'pending', episode: 0 });
  expect(phases()).toEqual([]);
  await rounds(1);
  expect(phases()).toEqual(['fired 1']);
  dials.reading = { value: 0 };
  await rounds(4);
  expect(await state('r')).toMatchObject({ phase: 'clearing', episode: 1 });
  expect(phases()).toEqual(['fired 1']);
  await rounds(1);
  expect(phases()).toEqual(['fired 1', 'resolved 1']);
  expect(await state('r')).toMatchObject({ phase: 'quiet', episode: 1 });
});

test('without "for" it fires at once, and is quiet for a round before it is resolved', async () => {
  const { dials, rounds, phases } = await scene('count held > 0');
  dials.reading = { value: 1 };
  await rounds(1);
  expect(phases()).toEqual(['fired 1']);
  dials.reading = { value: 0 };
  await rounds(1);
  expect(phases()).toEqual(['fired 1']);
  await rounds(1);
  expect(phases()).toEqual(['fired 1', 'resolved 1']);
});

test('a value that goes to and fro makes no storm', async () => {
  const { dials, rounds, phases } = await scene('count held > 0 for 30s');
  for (let at = 0; at < 40; at += 1) {
    dials.reading = { value: at % 2 };
    await rounds(1);
  }
  expect(phases()).toEqual([]);
  dials.reading = { value: 1 };
  await rounds(3);
  for (let at = 0; at < 40; at += 1) {
    dials.reading = { value: at % 2 };
    await rounds(1);
  }
  expect(phases()).toEqual(['fired 1']);
});

test('a second firing is another episode', async () => {
  const { dials, rounds, phases } = await scene('count held > 0');
  for (const value of [1, 0, 0, 1, 0, 0]) {
    dials.reading = { value };
    await rounds(1);
  }
  expect(phases()).toEqual(['fired 1', 'resolved 1', 'fired 2', 'resolved 2']);
});

test('what cannot be measured neither fires nor resolves, is told once, and shown', async () => {
  const { dials, rounds, phases, told, state } = await scene('count held > 0 for 30s');
  dials.reading = { value: 1 };
  await rounds(2);
  dials.reading = { why: 'the broker is away' };
  await rounds(3);
  expect(phases()).toEqual([]);
  expect(await state('r')).toMatchObject({ phase: 'quiet', why: 'the broker is away' });
  const troubles = told.filter(({ kind }) => kind === 'trouble');
  expect(troubles).toMatchObject([{ doing: 'measuring for the alert "r"' }]);
  dials.reading = { value: 1 };
  await rounds(3);
  expect(phases()).toEqual(['fired 1']);
  dials.reading = { value: 0 };
  await rounds(1);
  dials.reading = { why: 'the broker is away' };
  await rounds(10);
  expect(phases()).toEqual(['fired 1']);
  expect(await state('r')).toMatchObject({ phase: 'firing' });
  dials.reading = { value: 0 };
  await rounds(3);
  expect(phases()).toEqual(['fired 1', 'resolved 1']);
  expect((await state('r'))?.why).toBeUndefined();
});

test('a time that nobody looked does not count as held', async () => {
  const { dials, rounds, phases, clock, alerts } = await scene('count held > 0 for 1m');
  dials.reading = { value: 1 };
  await rounds(2);
  await clock.advance(10 * MINUTE);
  await alerts.round();
  expect(phases()).toEqual([]);
  await rounds(4);
  expect(phases()).toEqual(['fired 1']);
});

test('of two processes one looks; when it is gone the other goes on, and nobody is told twice', async () => {
  const one = await scene('count held > 0');
  const world = await setup({ with: one });
  const other = alertsOver(world.spool, world.clock, {
    rules: [ruleOf('r', 'count held > 0')],
    receivers: new Map([['ops', one.ear.handler]]),
    measures: one.dials,
    name: 'two',
  });
  one.dials.reading = { value: 1 };
  for (let at = 0; at < 4; at += 1) {
    await one.clock.advance(EVERY_MS);
    await Promise.all([one.alerts.round(), other.alerts.round()]);
  }
  await one.clock.settle();
  expect(one.phases()).toEqual(['fired 1']);
  // The first one is killed: it gives nothing back. The other waits for its lease.
  await one.rounds(2, other.alerts);
  one.dials.reading = { value: 0 };
  await one.rounds(4, other.alerts);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1']);
  // Stopped in order, the turn is given back at once.
  await other.alerts.stop();
  one.dials.reading = { value: 1 };
  await one.rounds(1);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1', 'fired 2']);
});

test('a process that dies between the state and the message is made up for by the next', async () => {
  const { spool, clock, ear, dials, phases, state } = await scene('count held > 0');
  dials.reading = { value: 1 };
  let deaths = 0;
  const make = (name: string, enqueue: boolean) =>
    alertsOver(spool, clock, {
      rules: [ruleOf('r', 'count held > 0')],
      receivers: new Map([['ops', ear.handler]]),
      measures: dials,
      name,
      ...(enqueue
        ? {}
        : {
            enqueue: () => {
              deaths += 1;
              return Promise.reject(new RespoolError('engine.stopping', 'killed'));
            },
          }),
    });
  await make('dies', false).alerts.round();
  expect(deaths).toBe(1);
  expect((await state('r'))?.pendingNotices).toMatchObject([{ to: ['ops'] }]);
  expect(phases()).toEqual([]);
  await clock.advance(MINUTE);
  await make('next', true).alerts.round();
  await clock.settle();
  expect(phases()).toEqual(['fired 1']);
  expect((await state('r'))?.pendingNotices).toBeUndefined();
});

test('a process that dies between the message and its mark tells nobody twice', async () => {
  const { spool, clock, ear, dials, phases } = await scene('count held > 0');
  dials.reading = { value: 1 };
  const dying = alertsOver(spool, clock, {
    rules: [ruleOf('r', 'count held > 0')],
    receivers: new Map([['ops', ear.handler]]),
    measures: dials,
    name: 'dies',
    enqueue: async (message) => {
      await spool.enqueue(message);
      throw new RespoolError('engine.stopping', 'killed');
    },
  });
  await dying.alerts.round();
  await clock.settle();
  expect(phases()).toEqual(['fired 1']);
  await clock.advance(MINUTE);
  const next = alertsOver(spool, clock, {
    rules: [ruleOf('r', 'count held > 0')],
    receivers: new Map([['ops', ear.handler]]),
    measures: dials,
    name: 'next',
  });
  await next.alerts.round();
  await clock.settle();
  expect(phases()).toEqual(['fired 1']);
});

test('a store that is away is told of directly, once, and its return through the spool', async () => {
  const { store, rounds, phases, dials, state, alerts, clock } = await scene('store down for 30s');
  dials.reading = { value: 0 };
  await rounds(2);
  store.faults.plan = () => 'before';
  await rounds(2);
  expect(phases()).toEqual([]);
  await rounds(3);
  expect(phases()).toEqual(['fired 1']);
  store.faults.plan = () => 'ok';
  await clock.advance(EVERY_MS);
  await alerts.round();
  expect(phases()).toEqual(['fired 1']);
  expect(await state('r')).toMatchObject({ phase: 'clearing', episode: 1 });
  await rounds(3);
  expect(phases()).toEqual(['fired 1', 'resolved 1']);
});

// Regression: rounds that waited for the store longer than for each other never let a rule fire.
test('a store that hangs is told of, however short the rounds are, and its return', async () => {
  const { store, phases, alerts, clock } = await scene('store down for 30s', { everyMs: 1_000 });
  alerts.start();
  await clock.advance(5_000);
  store.faults.plan = () => ({ delayMs: 20 * SECOND });
  await clock.advance(25_000);
  expect(phases()).toEqual([]);
  await clock.advance(30_000);
  expect(phases()).toEqual(['fired 1']);
  store.faults.plan = () => 'ok';
  // What is on its way to the store takes its time; only then it is well, and has to stay so.
  await clock.advance(30_000);
  expect(phases()).toEqual(['fired 1']);
  await clock.advance(MINUTE);
  expect(phases()).toEqual(['fired 1', 'resolved 1']);
  await alerts.stop();
});

test('a rule that fires while the store is away is told directly, and written down when it is back', async () => {
  const { store, rounds, phases, dials, state } = await scene('disk < 10 %');
  dials.reading = { value: 50 };
  await rounds(1);
  store.faults.plan = () => 'before';
  dials.reading = { value: 5 };
  await rounds(3);
  expect(phases()).toEqual(['fired 1']);
  store.faults.plan = () => 'ok';
  expect(await state('r')).toBeUndefined();
  await rounds(1);
  expect(phases()).toEqual(['fired 1']);
  const written = await state('r');
  expect(written).toMatchObject({ phase: 'firing', episode: 1 });
  expect(written?.pendingNotices).toBeUndefined();
  dials.reading = { value: 50 };
  await rounds(3);
  expect(phases()).toEqual(['fired 1', 'resolved 1']);
});

test('a process whose store was away tells the end of that, also when another has gone on', async () => {
  const one = await scene('store down');
  const world = await setup({ with: one });
  const ear = earOf();
  const other = alertsOver(world.spool, world.clock, {
    rules: [ruleOf('r', 'store down')],
    receivers: new Map([['ops', ear.handler]]),
    measures: one.dials,
    name: 'two',
  });
  await one.rounds(1);
  one.store.faults.plan = () => 'before';
  await one.rounds(4);
  await other.alerts.round();
  expect(one.phases()).toEqual(['fired 1']);
  one.store.faults.plan = () => 'ok';
  await one.alerts.round();
  await one.rounds(2);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1']);
  expect(ear.heard).toEqual([]);
});

test('when the message cannot be put down, receivers are told directly and not again', async () => {
  const full = () => Promise.reject(new RespoolError('store.full', 'no space is left'));
  const { dials, rounds, phases, told, state } = await scene('count held > 0', { enqueue: full });
  dials.reading = { value: 1 };
  await rounds(5);
  expect(phases()).toEqual(['fired 1']);
  expect(told.filter(({ kind }) => kind === 'trouble').length).toBe(1);
  expect((await state('r'))?.pendingNotices).toBeUndefined();
});

test('a receiver that cannot be told directly is told again in the next round', async () => {
  let isDown = true;
  const heard: string[] = [];
  const full = () => Promise.reject(new RespoolError('store.full', 'no space is left'));
  const { dials, rounds } = await scene('count held > 0', {
    enqueue: full,
    receivers: new Map([
      [
        'ops',
        ({ id }) => {
          if (isDown) throw new Error('no');
          heard.push(id);
        },
      ],
    ]),
  });
  dials.reading = { value: 1 };
  await rounds(2);
  isDown = false;
  await rounds(3);
  expect(heard).toEqual([expect.stringMatching(/^alert-r-1-\w+-fired-ops$/)]);
});

test('each action is done once for an episode, and what fails is told and tried again', async () => {
  const done: string[] = [];
  let isBroken = true;
  const act = (deed: AlertActionCall, by: string): Promise<void> => {
    done.push(`${deed.kind} ${'topic' in deed ? deed.topic : deed.rule} by ${by}`);
    const fails = deed.kind === 'hold' && isBroken;
    return fails ? Promise.reject(new Error('not now')) : Promise.resolve();
  };
  const rule = ruleOf('r', 'count held > 0', [
    { kind: 'pause', topic: 'mail.#', until: 'resolved' },
    { kind: 'pause', topic: 'sms.#', until: 'operator' },
    { kind: 'hold', topic: 'fax' },
    { kind: 'replay', rule: 'timeouts' },
  ]);
  const { dials, rounds, told, state } = await scene('count held > 0', { rules: [rule], act });
  dials.reading = { value: 1 };
  await rounds(1);
  const fired = ['pause mail.# by alert:r', 'pause sms.# by alert:r', 'hold fax by alert:r'];
  expect(done).toEqual(fired);
  await rounds(1);
  expect(await state('r')).toMatchObject({ pendingActions: ['hold fax'] });
  isBroken = false;
  await rounds(3);
  expect(done.slice(3)).toContain('hold fax by alert:r');
  const count = done.length;
  await rounds(3);
  expect(done.length).toBe(count);
  expect(told.filter(({ kind }) => kind === 'trouble')).toMatchObject([
    { doing: 'hold fax for the alert "r"' },
  ]);
  dials.reading = { value: 0 };
  await rounds(4);
  expect(done.slice(count)).toEqual(['resume mail.# by alert:r', 'replay timeouts by alert:r']);
});

test('a replay that a removed rule had still to begin is forgotten; a pause it made is ended', async () => {
  const { spool, rounds, state, clock } = await scene('count held > 0', {
    rules: [ruleOf('other', 'count held > 0')],
    act: () => Promise.reject(new Error('not now')),
  });
  const { records } = spool.operator({ by: 'earlier' });
  const now = clock.now();
  const over = { phase: 'quiet', since: now, episode: 1, resolvedAt: now, when: 'count held > 0' };
  const pendingActions = ['resume mail', 'replay timeouts'];
  await records.put('alert.state', 'r', { ...over, pendingActions });
  await rounds(1);
  expect((await state('r'))?.pendingActions).toEqual(['resume mail']);
  await records.put('alert.state', 's', { ...over, pendingActions: ['replay timeouts'] });
  await rounds(1);
  expect((await state('s'))?.pendingActions).toBeUndefined();
});

test('rounds come by themselves, as often as is said, until they are stopped', async () => {
  const { alerts, clock, dials, phases } = await scene('count held > 0', { everyMs: 5 * SECOND });
  alerts.start();
  await clock.settle();
  dials.reading = { value: 1 };
  await clock.advance(5 * SECOND);
  expect(phases()).toEqual(['fired 1']);
  await alerts.stop();
  dials.reading = { value: 0 };
  await clock.advance(MINUTE);
  expect(phases()).toEqual(['fired 1']);
});

test('a measure that hangs keeps no other rule from firing, however many hang', async () => {
  const hanging = Array.from({ length: 20 }, (_, at) => ruleOf(`h${at}`, 'queue "q" > 0'));
  const rules = [...hanging, ruleOf('r', 'count held > 0 for 30s')];
  const measures: Measures = {
    read: ({ name }) =>
      name === 'queue' ? new Promise(() => undefined) : Promise.resolve({ value: 1 }),
    forecast: () => new Promise(() => undefined),
    close: () => undefined,
  };
  const { alerts, clock, phases } = await scene('count held > 0', {
    rules,
    measures,
    everyMs: SECOND,
  });
  alerts.start();
  await clock.advance(2 * MINUTE);
  expect(phases()).toEqual(['fired 1']);
  await alerts.stop();
});

test('what an earlier version had still to do and to notify, under its own names, is done', async () => {
  const acts: AlertActionCall[] = [];
  const { spool, rounds, phases, state, clock } = await scene('count held > 0', {
    rules: [ruleOf('r', 'count held > 0', [{ kind: 'pause', topic: 'mail', until: 'resolved' }])],
    act: async (action) => void acts.push(action),
  });
  const { records } = spool.operator({ by: 'earlier' });
  const now = clock.now();
  const at = new Date(now).toISOString();
  const when = 'count held > 0';
  const seen = { rule: 'r', phase: 'resolved', episode: 1, when, at, since: at };
  const notice = { ...seen, value: 0, unit: 'count', text: 'r is over' };
  // The rule is over, and neither is the topic resumed nor anyone notified.
  const known = { phase: 'quiet', since: now, episode: 1, firedAt: now, resolvedAt: now, when };
  const owed = [{ notice, to: ['ops'] }];
  await records.put('alert.state', 'r', { ...known, toldAt: now, owed, todo: ['resume mail'] });
  await rounds(3);
  expect(acts).toEqual([expect.objectContaining({ kind: 'resume', topic: 'mail' })]);
  expect(phases()).toEqual(['resolved 1']);
  const names = Object.keys((await state('r')) ?? {});
  expect(names.filter((name) => ['owed', 'todo', 'toldAt'].includes(name))).toEqual([]);
});

test('what a process of an earlier version adds to a record is done beside what is there', async () => {
  const acts: AlertActionCall[] = [];
  const { spool, rounds, phases, state, clock } = await scene('count held > 0', {
    act: async (action) => void acts.push(action),
  });
  const { records } = spool.operator({ by: 'earlier' });
  const now = clock.now();
  const at = new Date(now).toISOString();
  const when = 'count held > 0';
  const seen = { rule: 'r', episode: 1, when, at, since: at, value: 0, unit: 'count', text: 'r' };
  const known = { phase: 'quiet', since: now, episode: 1, firedAt: now, resolvedAt: now, when };
  await records.put('alert.state', 'r', {
    ...known,
    pendingNotices: [{ notice: { ...seen, phase: 'fired' }, to: ['ops'] }],
    owed: [{ notice: { ...seen, phase: 'resolved' }, to: ['ops'] }],
    pendingActions: [],
    todo: ['resume mail'],
    notifiedAt: now - MINUTE,
    toldAt: now,
  });
  await rounds(3);
  expect(phases()).toEqual(['fired 1', 'resolved 1']);
  expect(acts).toEqual([expect.objectContaining({ kind: 'resume', topic: 'mail' })]);
  const names = Object.keys((await state('r')) ?? {});
  expect(names.filter((name) => ['owed', 'todo', 'toldAt'].includes(name))).toEqual([]);
});

test('what fails again and again is tried less and less often', async () => {
  let tries = 0;
  const act = (): Promise<void> => {
    tries += 1;
    return Promise.reject(new Error('never'));
  };
  const rule = ruleOf('r', 'count held > 0', [{ kind: 'hold', topic: 'fax' }]);
  const { dials, rounds } = await scene('count held > 0', { rules: [rule], act });
  dials.reading = { value: 1 };
  // An hour: five waits that double, and then one try in five minutes.
  await rounds(240);
  expect(tries).toBeGreaterThan(10);
  expect(tries).toBeLessThan(20);
});
