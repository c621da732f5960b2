/** Alerts at every point where a process may be killed or a store may fail: told once all the same. */
import { seededDice } from 'respool/testkit';
import { expect, test } from 'vitest';
import type { RecordStore } from 'respool';
import type { AlertRule } from '../../src/observe/alerts/types.ts';
import { type Alerts, createAlerts } from '../../src/observe/alerts/evaluate.ts';
import type { Measures } from '../../src/observe/alerts/measures.ts';
import type { Notice } from '../../src/observe/alerts/notice.ts';
import { registerReceivers } from '../../src/observe/alerts/receivers.ts';
import { HOUR, SECOND, setup, type World } from '../spool/setup.ts';
import { earOf, EVERY_MS, ruleOf } from './alerts-ground.ts';
import { internalsOf } from '../../src/spool/internals.ts';

const ACTIONS = [
  { kind: 'pause', topic: 'mail.#', until: 'resolved' },
  { kind: 'hold', topic: 'fax' },
] as const;
const RULE = ruleOf('r', 'count held > 0 for 30s', ACTIONS);

/** When a process is killed: at its nth call of somebody else, before or after that is done. */
interface Death {
  readonly at: number;
  readonly when: 'before' | 'after';
}

interface Scene {
  readonly world: World;
  readonly heard: Notice[];
  readonly phases: () => string[];
  /** Topics that are paused. */
  readonly paused: Set<string>;
  readonly make: (name: string, options?: MakeOptions) => { alerts: Alerts; calls: () => number };
  /** What the measure says. */
  value: number;
}

interface MakeOptions {
  readonly death?: Death;
  readonly rules?: readonly AlertRule[];
}

async function scene(): Promise<Scene> {
  const world = await setup();
  const { spool, clock } = world;
  const { handler, heard } = earOf();
  const paused = new Set<string>();
  registerReceivers(spool, new Map([['ops', handler]]));
  const measures: Measures = {
    read: () => Promise.resolve({ value: made.value }),
    forecast: () => Promise.resolve(undefined),
    close: () => undefined,
  };
  const made: Scene = {
    world,
    heard,
    paused,
    value: 0,
    phases: () => heard.map(({ phase, episode }) => `${phase} ${episode}`),
    make(name, { death, rules = [RULE] } = {}) {
      let calls = 0;
      // Who is dead does nothing more and hears of nothing.
      const mortal = async <T>(work: () => Promise<T>): Promise<T> => {
        calls += 1;
        const { at = Number.POSITIVE_INFINITY, when } = death ?? {};
        if (calls < at) return work();
        if (calls === at && when === 'after') await work();
        return new Promise<T>(() => undefined);
      };
      const alerts = createAlerts({
        rules,
        everyMs: EVERY_MS,
        clock,
        now: () => internalsOf(spool).now(),
        name,
        records: mortalRecords(spool.operator({ by: 'ops' }).records, mortal),
        enqueue: (message) => mortal(() => spool.enqueue(message)),
        measures,
        receivers: new Map([['ops', (delivery) => mortal(async () => handler(delivery))]]),
        act: (deed) =>
          mortal(() => {
            if (deed.kind === 'pause') paused.add(deed.topic);
            if (deed.kind === 'resume') paused.delete(deed.topic);
            return Promise.resolve();
          }),
        tell: () => undefined,
      });
      return { alerts, calls: () => calls };
    },
  };
  return made;
}

function mortalRecords(
  records: RecordStore,
  mortal: <T>(work: () => Promise<T>) => Promise<T>,
): RecordStore {
  return {
    ...records,
    put: (...given) => mortal(() => records.put(...given)),
    get: (...given) => mortal(() => records.get(...given)),
    list: (...given) => mortal(() => records.list(...given)),
  };
}

/** Rounds of these, in virtual time; nobody waits for one that is dead. */
async function rounds({ world }: Scene, count: number, all: readonly Alerts[]): Promise<void> {
  const { clock } = world;
  for (let at = 0; at < count; at += 1) {
    for (const one of all) void one.round();
    await clock.settle();
    await clock.advance(EVERY_MS);
  }
}

/** From quiet to firing and back, which is a firing, its deeds and an end. */
async function episode(one: Scene, all: readonly Alerts[]): Promise<void> {
  await rounds(one, 2, all);
  one.value = 1;
  await rounds(one, 14, all);
  one.value = 0;
  await rounds(one, 14, all);
}

/** So many calls of others a process makes in an episode. */
async function callsOfEpisode(): Promise<number> {
  const one = await scene();
  const { alerts, calls } = one.make('counted');
  await episode(one, [alerts]);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1']);
  return calls();
}

test('killed at any point, a process is followed by one that tells what is left, and nothing twice', async () => {
  const count = await callsOfEpisode();
  expect(count).toBeGreaterThan(60);
  for (let at = 1; at <= count; at += 1) {
    for (const when of ['before', 'after'] as const) {
      const one = await scene();
      const dying = one.make('dies', { death: { at, when } });
      const next = one.make('next');
      await episode(one, [dying.alerts, next.alerts]);
      expect(one.phases(), `killed ${when} call ${at}`).toEqual(['fired 1', 'resolved 1']);
      expect([...one.paused], `killed ${when} call ${at}`).toEqual([]);
    }
  }
});

test.each(['records.put', 'records.get', 'records.list', 'insert'])(
  'whichever call of %s fails, before or after it was done, everybody is told once',
  async (operation) => {
    const plain = await scene();
    await episode(plain, [plain.make('one').alerts]);
    const count = plain.world.store.faults.count(operation);
    expect(count).toBeGreaterThan(1);
    for (let n = 1; n <= count; n += 1) {
      for (const fault of ['before', 'after'] as const) {
        const one = await scene();
        const { alerts } = one.make('one');
        one.world.store.faults.plan = (name, at) => (name === operation && at === n ? fault : 'ok');
        await episode(one, [alerts]);
        expect(one.phases(), `${fault} call ${n}`).toEqual(['fired 1', 'resolved 1']);
        expect([...one.paused], `${fault} call ${n}`).toEqual([]);
      }
    }
  },
);

test('a store that is away for a while at any round is no reason to tell twice', async () => {
  for (let from = 1; from <= 28; from += 1) {
    const one = await scene();
    const { alerts } = one.make('one');
    let round = 0;
    const away = one.world.store.faults;
    const step = async (count: number): Promise<void> => {
      for (let at = 0; at < count; at += 1) {
        round += 1;
        const isAway = round >= from && round < from + 2;
        away.plan = (name) => (isAway && name.startsWith('records.') ? 'after' : 'ok');
        await rounds(one, 1, [alerts]);
      }
    };
    await step(2);
    one.value = 1;
    await step(12);
    one.value = 0;
    await step(16);
    expect(one.phases(), `away in round ${from}`).toEqual(['fired 1', 'resolved 1']);
  }
});

test.each([1, 2, 3, 4, 5, 6, 7, 8])(
  'three processes that come, die and have their clock set tell of each episode once (seed %d)',
  async (seed) => {
    const one = await scene();
    const random = seededDice(seed);
    const dice = (): number => random.random();
    const { clock } = one.world;
    const make = (at: number): Alerts => {
      const death = { at: 20 + Math.floor(dice() * 80), when: 'after' } as const;
      return one.make(`p${at}`, { death }).alerts;
    };
    let born = 3;
    const alive = [make(0), make(1), make(2)];
    for (let at = 0; at < 60; at += 1) {
      one.value = dice() < 0.8 ? one.value : 1 - one.value;
      if (dice() < 0.1) clock.jump((dice() - 0.5) * HOUR);
      if (dice() < 0.3) alive[Math.floor(dice() * 3)] = make(born++);
      await rounds(one, 1, alive);
    }
    one.value = 0;
    await rounds(one, 20, [one.make('last').alerts]);
    const phases = one.phases();
    const episodes = phases.length / 2;
    const wanted = Array.from({ length: episodes }, (_, at) => [
      `fired ${at + 1}`,
      `resolved ${at + 1}`,
    ]).flat();
    expect(phases.toSorted()).toEqual(wanted.toSorted());
    expect(episodes).toBeGreaterThan(0);
    expect([...one.paused]).toEqual([]);
  },
);

test('a clock that goes back delays neither a firing, nor an end, nor who comes next', async () => {
  const one = await scene();
  const { clock } = one.world;
  const first = one.make('one').alerts;
  one.value = 1;
  await rounds(one, 2, [first]);
  clock.jump(-HOUR);
  await rounds(one, 4, [first]);
  expect(one.phases()).toEqual(['fired 1']);
  one.value = 0;
  await rounds(one, 1, [first]);
  clock.jump(-HOUR);
  // The first one is dead now, with a turn that ends in an hour.
  await rounds(one, 6, [one.make('two').alerts]);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1']);
});

test('a rule that is taken out while it fires is over: told, and what it paused is resumed', async () => {
  const one = await scene();
  one.value = 1;
  const before = one.make('before').alerts;
  await rounds(one, 4, [before]);
  await before.stop();
  expect([...one.paused]).toEqual(['mail.#']);
  const after = one.make('after', { rules: [ruleOf('other', 'count held > 5')] }).alerts;
  await rounds(one, 3, [after]);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1']);
  expect(one.heard[1]?.text).toContain('the rule is not in the configuration any more');
  expect([...one.paused]).toEqual([]);
  await rounds(one, 3, [after]);
  await after.stop();
  // Put back, it goes on counting.
  await rounds(one, 6, [one.make('again').alerts]);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1', 'fired 2']);
});

test('a rule that is changed while it fires ends for those that it told, and resumes what it paused', async () => {
  const one = await scene();
  one.value = 1;
  const before = one.make('before').alerts;
  await rounds(one, 4, [before]);
  await before.stop();
  const changed = { ...ruleOf('r', 'count held > 3'), to: ['nobody'] };
  await rounds(one, 4, [one.make('after', { rules: [changed] }).alerts]);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1']);
  expect([...one.paused]).toEqual([]);
});

test('a rule whose condition was changed while it waited begins to wait anew', async () => {
  const one = await scene();
  one.value = 1;
  const before = one.make('before', { rules: [ruleOf('r', 'count held > 0 for 2m')] }).alerts;
  await rounds(one, 6, [before]);
  await before.stop();
  const after = one.make('after', { rules: [ruleOf('r', 'count deferred > 0 for 1m')] }).alerts;
  await rounds(one, 3, [after]);
  expect(one.phases()).toEqual([]);
  await rounds(one, 3, [after]);
  expect(one.phases()).toEqual(['fired 1']);
});

test('a rule whose record is lost is told all the same, though it counts anew', async () => {
  const one = await scene();
  const { alerts } = one.make('one');
  await episode(one, [alerts]);
  await one.world.spool.operator({ by: 'ops' }).records.remove('alert.state', 'r');
  await episode(one, [alerts]);
  expect(one.phases()).toEqual(['fired 1', 'resolved 1', 'fired 1', 'resolved 1']);
});

test('topics that two rules pause are resumed when both are over', async () => {
  const one = await scene();
  const pause = [{ kind: 'pause', topic: 'mail.#', until: 'resolved' }] as const;
  const rules = [ruleOf('a', 'count held > 0', pause), ruleOf('b', 'count held > 1', pause)];
  const { alerts } = one.make('one', { rules });
  one.value = 2;
  await rounds(one, 2, [alerts]);
  expect([...one.paused]).toEqual(['mail.#']);
  one.value = 1;
  await rounds(one, 4, [alerts]);
  expect(one.phases()).toContain('resolved 1');
  expect([...one.paused]).toEqual(['mail.#']);
  one.value = 0;
  await rounds(one, 4, [alerts]);
  expect([...one.paused]).toEqual([]);
});

test('a pause that is slow is over before its end is begun', async () => {
  const world = await setup();
  const { spool, clock } = world;
  let value = 1;
  const done: string[] = [];
  const slow = Promise.withResolvers<void>();
  const alerts = createAlerts({
    rules: [ruleOf('r', 'count held > 0', ACTIONS)],
    everyMs: SECOND,
    clock,
    now: () => internalsOf(spool).now(),
    name: 'one',
    records: spool.operator({ by: 'ops' }).records,
    enqueue: () => Promise.resolve(),
    measures: {
      read: () => Promise.resolve({ value }),
      forecast: () => Promise.resolve(undefined),
      close: () => undefined,
    },
    receivers: new Map([['ops', () => undefined]]),
    act: async (deed) => {
      if (deed.kind === 'pause') await slow.promise;
      done.push(deed.kind);
    },
    tell: () => undefined,
  });
  const round = async (): Promise<void> => {
    await alerts.round();
    await clock.advance(SECOND);
  };
  await round();
  value = 0;
  for (let at = 0; at < 4; at += 1) await round();
  expect(done).toEqual(['hold']);
  slow.resolve();
  for (let at = 0; at < 3; at += 1) await round();
  expect(done).toEqual(['hold', 'pause', 'resume']);
});

test('a record that is no state blinds no rule', async () => {
  const one = await scene();
  const { records } = one.world.spool.operator({ by: 'ops' });
  const junk = [null, 7, 'x', {}, { phase: 'firing' }, { phase: 'odd', since: 1, episode: 1 }];
  const rules = [...junk.keys()].map((at) => ruleOf(`r${at}`, 'count held > 0'));
  for (const [at, value] of junk.entries()) await records.put('alert.state', `r${at}`, value);
  const broken = { phase: 'firing', since: 1, episode: 1, when: 'no condition' };
  await records.put('alert.state', 'gone', broken);
  one.value = 1;
  await rounds(one, 2, [one.make('one', { rules }).alerts]);
  expect(one.heard.map(({ rule }) => rule).toSorted()).toEqual(rules.map(({ name }) => name));
});
