/** What nobody can know for sure: letters that a look of our own holds, and what a crash leaves. */
import { describe, expect, test } from 'vitest';
import { RespoolError } from 'respool';
import { cancelReplay, getReplay, pauseReplay } from 'respool/dead-letters';
import { replayLogKind } from '../../../src/core/reserved-headers.ts';
import { everywhere, idOf, named, setup, type Setup } from './setup.ts';

const NO_CANARY = { canary: 0 } as const;

/** Records of the log that tell results, by how many. */
async function resultsOf({ records }: Setup, id: string): Promise<number[]> {
  const log = await records.read(replayLogKind(id), 0, 1_000);
  return log
    .map(({ record }) => record as { readonly results?: readonly { items: readonly number[] }[] })
    .map(({ results = [] }) => results.reduce((sum, { items }) => sum + items.length, 0))
    .filter((count) => count > 0);
}

test('what our own question for news has in hand is not taken for gone', async () => {
  const { place, plan, run, process, clock } = await setup(200);
  const { id } = await plan({ ...NO_CANARY, rate: 20 });
  place.passMax = 30;
  const as = process();
  let isAsking = false;
  const letters: typeof as.letters = {
    ...as.letters,
    // As a queue: whoever looks has what lies there in hand until the look is over.
    since: async (replay, ids) => {
      isAsking = true;
      await new Promise<void>((resolve) => void clock.after(4_000, resolve));
      isAsking = false;
      return as.letters.since(replay, ids);
    },
    async *take(options) {
      if (!isAsking) yield* as.letters.take(options);
    },
  };
  const replay = await run(id, { as: { ...as, letters } });
  expect(place.sinces).toBeGreaterThan(1);
  expect(replay).toMatchObject({ state: 'done', counts: { sent: 200, gone: 0 } });
});

describe.each(['before', 'after'])('a store that fails once, %s it wrote', (when) => {
  test('at any call loses nothing, sends none twice, and the counts add up', async () => {
    let isReached = true;
    for (let fails = 1; isReached && fails < 200; fails += 1) {
      const world = await setup(23);
      const { id, plan } = await world.plan({ canary: 3, canaryWait: '1s', window: 4 });
      const as = world.process();
      let calls = 0;
      const faulty =
        <Args extends unknown[], T>(call: (...args: Args) => Promise<T>) =>
        async (...args: Args): Promise<T> => {
          calls += 1;
          const isNow = calls === fails;
          if (isNow && when === 'before') throw new Error('the store is away');
          const answer = await call(...args);
          if (isNow) throw new Error('no answer');
          return answer;
        };
      const store = as.operator.records;
      const records: typeof store = {
        ...store,
        append: faulty((kind, record) => store.append(kind, record)),
        put: faulty((kind, key, value, revision) => store.put(kind, key, value, revision)),
      };
      await world
        .run(id, { as: { ...as, operator: { ...as.operator, records } } })
        .catch(() => undefined);
      isReached = calls >= fails;
      await world.clock.advance('31s');
      const found = await getReplay(as.operator, id);
      const replay = found?.state === 'done' ? found : await world.resume(id);
      const where = `call ${fails}`;
      const { sent, unsure, failed, gone, left, parked } = replay.counts;
      expect(sent + unsure + failed + gone + left + parked, where).toBe(plan.count);
      expect([replay.state, failed + gone + left + parked], where).toEqual(['done', 0]);
      expect(everywhere(world.place), where).toEqual(named(23));
      expect([sent, unsure], where).toEqual([world.place.sent.length, world.place.items.length]);
    }
    expect(isReached).toBe(false);
  });
});

describe('somebody else who works on the place', () => {
  /** Who looks has it between these two moments. */
  async function busy(fromMs: number, untilMs: number) {
    const world = await setup(60);
    const { clock } = world;
    const as = world.process();
    const check = () => {
      const nowMs = clock.monotonic();
      if (nowMs < fromMs || nowMs >= untilMs) return;
      throw new RespoolError('move.refused', 'another one works on it');
    };
    const letters: typeof as.letters = {
      ...as.letters,
      since: async (replay, ids) => {
        check();
        return as.letters.since(replay, ids);
      },
      async *take(options) {
        check();
        yield* as.letters.take(options);
      },
    };
    return { ...world, as: { ...as, letters } };
  }

  test.each([
    ['while canaries are watched', 100, 4_000],
    ['when the rest is to go', 20_100, 25_000],
    ['when it begins', 0, 5_000],
  ])('for a moment does not stop it: %s', async (_, fromMs, untilMs) => {
    const { plan, run, as } = await busy(fromMs, untilMs);
    const { id } = await plan({ canary: 5, canaryWait: '20s' });
    expect(await run(id, { as })).toMatchObject({ state: 'done', counts: { sent: 60, gone: 0 } });
  });

  test('for long stops it, with the reason, and it can be resumed', async () => {
    const { plan, run, resume, clock, as } = await busy(0, 60_000);
    const { id } = await plan(NO_CANARY);
    expect(await run(id, { as })).toMatchObject({
      state: 'stopped',
      because: expect.stringContaining('another one works on it'),
      counts: { sent: 0, gone: 0 },
    });
    expect(clock.monotonic()).toBeLessThan(20_000);
    await clock.advance('1m');
    expect(await resume(id, { as })).toMatchObject({ state: 'done', counts: { sent: 60 } });
  });
});

test('however many are missing, no record of the log tells of more than a thousand', async () => {
  const world = await setup(2_500);
  const { id } = await world.plan(NO_CANARY);
  world.place.items.splice(0);
  expect(await world.run(id)).toMatchObject({ state: 'done', counts: { gone: 2_500 } });
  expect(await resultsOf(world, id)).toEqual([1_000, 1_000, 500]);
});

describe('a replay whose process died', () => {
  const COUNT = 23;

  async function died(dies: number): Promise<{ readonly world: Setup; readonly id: string }> {
    const world = await setup(COUNT);
    const { id } = await world.plan({ ...NO_CANARY, window: 4 });
    await expect(world.run(id, { as: world.process(dies) })).rejects.toThrow(/died/);
    await world.clock.advance('31s');
    return { world, id };
  }

  test.each([30, 40, 50])(
    'tells after a cancel what may have been sent (step %i)',
    async (dies) => {
      const { world, id } = await died(dies);
      const { counts } = await cancelReplay(world.process().operator, id, { clock: world.clock });
      expect(counts.unsure).toBeGreaterThan(0);
      const lines = await world.report(id);
      const told = (result: string) =>
        lines.filter((line) => line.result === result).map((line) => line.id);
      expect([told('sent').length, told('unsure').length]).toEqual([counts.sent, counts.unsure]);
      // Whatever was sent is told as sent or as unsure, and whatever is open lies where it was.
      const decided = [...told('sent'), ...told('unsure')];
      const lying = world.place.items.map(({ letter }) => letter.id);
      for (const one of world.place.sent) expect(decided).toContain(one.id);
      for (const one of named(COUNT))
        expect(decided.includes(one) || lying.includes(one)).toBe(true);
    },
  );

  test('tells after a pause how far it was, and what is unsure is left to the resume', async () => {
    const { world, id } = await died(40);
    const { operator } = world.process();
    const paused = await pauseReplay(operator, id, { clock: world.clock });
    expect(paused.counts).toMatchObject({ sent: (await world.report(id)).length, unsure: 0 });
    const { state, counts } = await world.resume(id);
    expect([state, counts.sent + counts.unsure]).toEqual(['done', COUNT]);
    expect(new Set(world.place.sent.map((one) => one.id)).size).toBe(world.place.sent.length);
  });

  test('tells what may have been sent also when it was paused before it is cancelled', async () => {
    const { world, id } = await died(40);
    const { operator } = world.process();
    await pauseReplay(operator, id, { clock: world.clock });
    const { counts } = await cancelReplay(operator, id, { clock: world.clock });
    const unsure = (await world.report(id)).filter(({ result }) => result === 'unsure');
    expect([counts.unsure, unsure.length > 0]).toEqual([unsure.length, true]);
  });

  test('tells what may have been sent also when it is cancelled while it is resumed', async () => {
    const { world, id } = await died(40);
    const { clock } = world;
    const as = world.process();
    const letters: typeof as.letters = {
      ...as.letters,
      async *take(options) {
        await new Promise<void>((resolve) => void clock.after(5_000, resolve));
        yield* as.letters.take(options);
      },
    };
    clock.after(500, () => void cancelReplay(as.operator, id, { clock }));
    const { state, counts } = await world.resume(id, { as: { ...as, letters } });
    expect(state).toBe('cancelled');
    const unsure = (await world.report(id)).filter(({ result }) => result === 'unsure');
    expect([counts.unsure, unsure.length > 0]).toEqual([unsure.length, true]);
  });

  test('is cancelled as before where nothing was begun', async () => {
    const world = await setup(3);
    const { id } = await world.plan();
    const { counts } = await cancelReplay(world.process().operator, id, { clock: world.clock });
    expect([counts.sent, counts.unsure, await world.report(id)]).toEqual([0, 0, []]);
    expect(world.place.items[0]?.letter.id).toBe(idOf(0));
  });
});

test('what was sent and came back with a lost ack goes at the next run; what is unsure stays', async () => {
  const { place, plan, run, resume } = await setup(20);
  const { id } = await plan({ ...NO_CANARY, stopAbove: 50, window: 1 });
  place.refuse = ({ id: name }) =>
    name >= idOf(10)
      ? { kind: 'failed', code: 'broker.unavailable', reason: 'away' }
      : name === idOf(5)
        ? { kind: 'unsure', reason: 'no answer' }
        : undefined;
  place.lostAcks = 2;
  const stopped = await run(id);
  expect(stopped).toMatchObject({ state: 'stopped', counts: { sent: 9, unsure: 1 } });
  place.noticeLoss();
  expect(place.items).toHaveLength(13);
  place.refuse = undefined;
  expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 19, unsure: 1 } });
  expect(place.items.map(({ letter }) => letter.id)).toEqual([idOf(5)]);
  expect(new Set(place.sent.map((one) => one.id)).size).toBe(place.sent.length);
});

test('what went missing and is told as sent is not taken away when it turns up again', async () => {
  const { place, plan, run, resume } = await setup(3);
  const { id } = await plan({ ...NO_CANARY, stopAbove: 100, window: 1 });
  place.refuse = ({ id: name }) =>
    name === idOf(1)
      ? { kind: 'unsure', reason: 'no answer' }
      : name === idOf(2)
        ? { kind: 'failed', code: 'broker.unavailable', reason: 'away' }
        : undefined;
  expect(await run(id)).toMatchObject({ counts: { sent: 1, unsure: 1, failed: 1 } });
  // Somebody holds it, and nobody can tell.
  const held = place.items.splice(0, 1);
  place.refuse = undefined;
  // It is back when it has been given up as missing.
  Object.defineProperty(place, 'isAlone', {
    get: () => place.items.push(...held.splice(0)) >= 0,
  });
  expect(await resume(id, { unsure: 'send' })).toMatchObject({ state: 'done' });
  expect(place.removed).toEqual([]);
  expect(everywhere(place)).toEqual(named(3));
});
