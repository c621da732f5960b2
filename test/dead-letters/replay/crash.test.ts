/** Replays whose process dies: at every step there is, by chance, and what becomes of the letters. */
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Replay, ReplayOptions } from 'respool/dead-letters';
import { SENT_ALL_THE_SAME } from './memory-letters.ts';
import { everywhere, named, setup, type Setup } from './setup.ts';

const COUNT = 23;
const OPTIONS: ReplayOptions = { canary: 3, canaryWait: '1s', window: 4 };
const ALL = named(COUNT);

/** Lets the lease of a dead process run out. */
async function leaseOver({ clock }: Setup): Promise<void> {
  await clock.advance('31s');
}

/** Runs with processes that die, then with one that lives. */
async function runThrough(
  world: Setup,
  id: string,
  deaths: readonly number[],
  unsure: 'leave' | 'send' = 'leave',
): Promise<Replay> {
  for (const dies of deaths) {
    const as = world.process(dies);
    await world.resume(id, { as, unsure }).catch((error: unknown) => {
      if (!as.isDead() && !isOver(error)) throw error;
    });
    await leaseOver(world);
  }
  return world.resume(id, { unsure }).catch((error: unknown) => {
    if (isOver(error)) return found(world, id);
    throw error;
  });
}

const isOver = (error: unknown) => /it is done/.test(String(error));

async function found({ records }: Setup, id: string): Promise<Replay> {
  return (await records.get('dlq.replays', id))?.value as Replay;
}

/** How many steps a run takes that nobody kills. */
async function stepsOf(): Promise<number> {
  const world = await setup(COUNT);
  const { id } = await world.plan(OPTIONS);
  const as = world.process();
  await world.run(id, { as });
  return as.steps();
}

describe('a process that dies', () => {
  test('at any step loses nothing, sends none twice, and what is unsure is counted', async () => {
    const steps = await stepsOf();
    expect(steps).toBeGreaterThan(50);
    for (let dies = 1; dies <= steps; dies += 1) {
      const world = await setup(COUNT);
      const { id } = await world.plan(OPTIONS);
      const replay = await runThrough(world, id, [dies]);
      const where = `died at step ${dies} of ${steps}`;
      expect([...new Set(everywhere(world.place))], where).toEqual(ALL);
      const sentIds = world.place.sent.map((one) => one.id);
      expect(new Set(sentIds).size, where).toBe(sentIds.length);
      expect(replay.state, where).toBe('done');
      const { sent, unsure, gone, failed, left } = replay.counts;
      expect(unsure, where).toBe(world.place.items.length);
      expect(sent + unsure, where).toBe(COUNT);
      expect(gone + failed + left, where).toBe(0);
      expect(unsure, where).toBeLessThanOrEqual(8);
      expect((await world.report(id)).length, where).toBe(COUNT);
    }
  });

  test('at any step leaves nothing behind when what is unsure is sent', async () => {
    const steps = await stepsOf();
    for (let dies = 1; dies <= steps; dies += 3) {
      const world = await setup(COUNT);
      const { id } = await world.plan(OPTIONS);
      const replay = await runThrough(world, id, [dies], 'send');
      expect(world.place.items, `died at step ${dies}`).toEqual([]);
      expect(replay.counts, `died at step ${dies}`).toMatchObject({ sent: COUNT, unsure: 0 });
    }
  });

  test('is believed to live until its lease is over, and can then be followed', async () => {
    const world = await setup(COUNT);
    const { id } = await world.plan({ ...OPTIONS, canary: 0 });
    const as = world.process(40);
    await expect(world.run(id, { as })).rejects.toThrow(/died/);
    await expect(world.resume(id)).rejects.toThrow(/"tester\/.+" runs it/);
    await leaseOver(world);
    expect((await world.resume(id)).state).toBe('done');
  });

  test('leaves what is unsure; a later run may send it', async () => {
    const world = await setup(COUNT);
    const { id } = await world.plan({ ...OPTIONS, canary: 0 });
    const as = world.process(40);
    await expect(world.run(id, { as })).rejects.toThrow(/died/);
    await leaseOver(world);
    const replay = await world.resume(id);
    expect(replay.counts.unsure).toBeGreaterThan(0);
    const unsure = (await world.report(id)).filter(({ result }) => result === 'unsure');
    expect(unsure.map((line) => line.id)).toEqual(world.place.items.map(({ letter }) => letter.id));
    const { counts } = await world.resume(id, { unsure: 'send' });
    expect(counts).toMatchObject({ sent: COUNT, unsure: 0 });
    expect(world.place.items).toEqual([]);
  });

  test('that sleeps through its lease sends nothing more, and does not touch the record', async () => {
    const world = await setup(COUNT);
    const { id } = await world.plan({ ...OPTIONS, canary: 0 });
    const as = world.process();
    let isAsleep = false;
    const records = {
      ...as.operator.records,
      put: async (...args: Parameters<typeof world.records.put>) => {
        if (isAsleep) throw new Error('the store is away');
        return world.records.put(...args);
      },
    };
    world.place.hold = async () => {
      if (world.place.sent.length !== 10) return;
      isAsleep = true;
      await new Promise<void>((resolve) => void world.clock.after(40_000, resolve));
    };
    const asleep = world.run(id, { as: { ...as, operator: { ...as.operator, records } } });
    await expect(asleep).rejects.toThrow(/lease was not renewed/);
    expect(world.place.sent.length).toBeLessThan(COUNT);
    world.place.hold = undefined;
    expect((await world.resume(id)).state).toBe('done');
    expect(new Set(world.place.sent.map((one) => one.id)).size).toBe(world.place.sent.length);
  });

  test('a letter that came back under the name of the replay was sent', async () => {
    const world = await setup(1);
    const { id } = await world.plan({ canary: 0 });
    // A spool keeps the key of a message that is given up again.
    const as = world.process();
    const settle: typeof as.letters.settle = async (taken, fate) => {
      await as.letters.settle(taken, fate);
      world.place.failAgain([taken.letter.id]);
      const held = world.place.items[0];
      if (held !== undefined) held.letter = { ...held.letter, key: taken.letter.key };
      throw new Error('no answer');
    };
    const records = {
      ...as.operator.records,
      append: async (kind: string, record: unknown) => {
        if (!JSON.stringify(record).includes('"intent"')) throw new Error('the process died');
        return world.records.append(kind, record);
      },
    };
    const dying = {
      ...as,
      letters: { ...as.letters, settle },
      operator: { ...as.operator, records },
    };
    await expect(world.run(id, { as: dying })).rejects.toThrow(/died/);
    await leaseOver(world);
    expect((await world.resume(id)).counts).toMatchObject({ sent: 1, again: 1, unsure: 0 });
    expect(world.place.sent).toHaveLength(1);
  });
});

test('whatever fails and whoever dies, each letter is in one place and sent at most once', async () => {
  const faults = fc.array(fc.constantFrom('ok', 'ok', 'ok', 'failed', 'unsure', 'sent', 'gone'), {
    maxLength: 60,
  });
  const deaths = fc.array(fc.integer({ min: 1, max: 150 }), { maxLength: 4 });
  const options = fc.record({
    window: fc.integer({ min: 1, max: 12 }),
    canary: fc.integer({ min: 0, max: 5 }),
    canaryWait: fc.constant('1s'),
    stopAbove: fc.constantFrom(0, 20, 100),
    passMax: fc.constantFrom(3, 7, 1_000),
    twins: fc.integer({ min: 0, max: 6 }),
    takenAway: fc.integer({ min: 0, max: 3 }),
  });
  await fc.assert(
    fc.asyncProperty(
      faults,
      deaths,
      options,
      async (plan, dead, { passMax, twins, takenAway, ...how }) => {
        const world = await setup(COUNT);
        const { place } = world;
        place.put(Array.from({ length: twins }, () => ({ id: 'twin' })));
        const { id, plan: made } = await world.plan(how);
        const gone = place.items.splice(4, takenAway).length;
        place.passMax = passMax;
        let at = 0;
        place.refuse = () => {
          at += 1;
          const kind = plan[at] ?? 'ok';
          if (kind === 'failed') return { kind, code: 'x', reason: 'y' };
          if (kind === 'gone') return { kind };
          if (kind === 'sent') return { kind: 'unsure', reason: SENT_ALL_THE_SAME };
          return kind === 'unsure' ? { kind, reason: 'z' } : undefined;
        };
        const before = new Set(everywhere(place));
        let replay = await runThrough(world, id, dead);
        for (let tries = 0; replay.state !== 'done' && tries < 80; tries += 1) {
          replay = await world.resume(id);
        }
        expect(new Set(everywhere(place))).toEqual(before);
        expect(replay.state).toBe('done');
        const { counts } = replay;
        const { sent, failed, unsure, gone: missing } = counts;
        expect(sent + failed + unsure + missing).toBe(made.count);
        // Of two alike nobody knows which was sent: the one that is left is unsure, the other gone.
        expect(sent + unsure - place.sent.length).toBeGreaterThanOrEqual(-twins);
        expect(sent - place.sent.length).toBeLessThanOrEqual(gone);
        const ids = place.sent.map((one) => one.id).filter((one) => one !== 'twin');
        expect(new Set(ids).size).toBe(ids.length);
        expect(place.sent.length - ids.length).toBeLessThanOrEqual(twins);
      },
    ),
    { numRuns: 150 },
  );
});
