/** The next messages are asked for before the last ones begin, where handlers are quick. */

import assert from 'node:assert/strict';
import type { EntryStore } from 'respool';
import { describe, expect, test } from 'vitest';
import { IndexedSet } from '../../src/engine/lease-timer.ts';
import { ClaimRounds, Wake } from '../../src/engine/claiming.ts';
import { HandlerSlots } from '../../src/engine/handler-slots.ts';
import { all, setup, type World } from '../spool/setup.ts';

const MESSAGES = 400;
const SLOTS = 4;

/** What is done with the larger claims for new messages, by their number. */
type Hook = (number: number, claim: () => ReturnType<EntryStore['claim']>) => Promise<void> | void;

interface Watched extends World {
  /** In which claim each message came, and how many were asked for when it began. */
  readonly began: { readonly came: number; readonly asked: number }[];
  /** Whether the claim of this number was asked for before those of the last one began. */
  readonly isEarly: (number: number) => boolean;
}

/** A spool with a backlog and quick handlers, which is not started. */
async function world(hook: Hook = () => undefined): Promise<Watched> {
  const came = new Map<string, number>();
  let asked = 0;
  const early = new Set<number>();
  const extras = (store: EntryStore): Partial<EntryStore> => ({
    claim: async (request) => {
      // A round may ask for the last few by themselves; and with no more than it has slots it is
      // not known yet that handlers are quick.
      if (!request.states.includes('incoming') || request.max <= SLOTS) return store.claim(request);
      asked += 1;
      const number = asked;
      if ([...came.values()].includes(number - 1) && !began.some((b) => b.came === number - 1)) {
        early.add(number);
      }
      let got: ReturnType<EntryStore['claim']> | undefined;
      const claim = () => (got ??= store.claim(request));
      await hook(number, claim);
      const entries = await claim();
      for (const { envelope } of entries) came.set(envelope.id, number);
      return entries;
    },
  });
  const made = await setup({ concurrency: SLOTS, isStarted: false, extras });
  const began: Watched['began'] = [];
  made.spool.handle('a', ({ id }) => {
    began.push({ came: came.get(id) ?? 0, asked });
  });
  await made.spool.enqueueMany(Array.from({ length: MESSAGES }, () => ({ topic: 'a' })));
  return { ...made, began, isEarly: (number) => early.has(number) };
}

/** Ends once a claim was asked for early and stands still; the rest waits for `goOn`. */
function standStill(isIt: (number: number) => boolean) {
  const stands = Promise.withResolvers<void>();
  const going = Promise.withResolvers<void>();
  const hook: Hook = async (number, claim) => {
    if (!isIt(number)) return;
    await claim();
    stands.resolve();
    await going.promise;
  };
  return { hook, stands: stands.promise, goOn: () => going.resolve() };
}

describe('with quick handlers', () => {
  test('the next claim is on its way when the messages of the last one begin', async () => {
    const { spool, clock, began } = await world();
    await spool.start();
    await clock.settle();
    expect(began).toHaveLength(MESSAGES);
    const firsts = new Map([...began].reverse().map((one) => [one.came, one.asked]));
    firsts.delete(0);
    expect(firsts.size).toBeGreaterThan(5);
    const early = [...firsts].filter(([came, asked]) => asked > came);
    // All but the last, and the first ones, which tell that handlers are quick.
    expect(early.length).toBeGreaterThan(firsts.size / 2);
    await spool.stop();
  });

  test('a stop gives back what was asked for early, without cost', async () => {
    const still = standStill((number) => made.isEarly(number));
    const made: Watched = await world(still.hook);
    await made.spool.start();
    await made.clock.settle();
    await still.stands;
    const stopping = made.spool.stop();
    still.goOn();
    await stopping;
    const left = await all(made.spool.list());
    expect(left).toHaveLength(MESSAGES - made.began.length);
    expect(left.length).toBeGreaterThan(0);
    expect(left.every(({ status }) => status.state === 'incoming')).toBe(true);
    expect(left.every(({ status }) => status.attempts === 0 && status.lost === 0)).toBe(true);
  });

  test('what comes early for a topic that was paused meanwhile is given back', async () => {
    const still = standStill((number) => made.isEarly(number));
    const made: Watched = await world(still.hook);
    await made.spool.start();
    await made.clock.settle();
    await still.stands;
    await made.spool.operator({ by: 'ops' }).pause('a');
    const before = made.began.length;
    still.goOn();
    await made.clock.settle();
    expect(made.began).toHaveLength(before);
    const left = await all(made.spool.list());
    expect(left.every(({ status }) => status.state === 'incoming')).toBe(true);
    await made.spool.operator({ by: 'ops' }).resume('a');
    await made.clock.settle();
    expect(made.began).toHaveLength(MESSAGES);
    await made.spool.stop();
  });

  test('one that fails is told and asked for again', async () => {
    let failed = 0;
    const made: Watched = await world((number) => {
      if (failed > 0 || !made.isEarly(number)) return;
      failed = number;
      throw new Error('the store is away');
    });
    await made.spool.start();
    await made.clock.settle();
    expect(failed).toBeGreaterThan(0);
    expect(made.events).toContainEqual(
      expect.objectContaining({ kind: 'trouble', doing: 'claiming messages' }),
    );
    await made.clock.advance('1s');
    expect(made.began).toHaveLength(MESSAGES);
    await made.spool.stop();
  });
});

/** Rounds over a source, and what was put off until soon. */
function rounds(next: () => Promise<never[]>) {
  let at = 0;
  const soon: (() => void)[] = [];
  const clock = {
    now: () => at,
    monotonic: () => (at += 1),
    after: () => () => undefined,
    soon: (call: () => void) => void soon.push(call),
  };
  const routes = { hasLimits: false, of: () => [] };
  const settings = { concurrency: SLOTS, destinationConcurrency: undefined, takesUnhandled: true };
  const slots = new HandlerSlots(settings, routes as never);
  const parts = { clock, routes, slots: settings, source: { leaseMs: 60_000, next } } as never;
  return { slots, soon, made: new ClaimRounds(parts, slots, new Wake(clock)) };
}

describe('slots', () => {
  test('are kept for those that are about to begin, also if the early round is answered', async () => {
    const { slots, soon, made } = rounds(() => Promise.resolve([]));
    for (let n = 0; n < 4; n += 1) {
      const round = made.ask(0, []);
      assert.ok(round !== undefined);
      expect(slots.free).toBe(0);
      await round.claims;
      slots.keepForClaims(0);
      made.answered(round, SLOTS, 0);
    }
    const early = made.askEarly(0, SLOTS, []);
    await Promise.resolve();
    expect(slots.free).toBe(0);
    soon[0]?.();
    await early;
    expect(slots.free).toBe(SLOTS);
  });

  test('are not kept for a source that throws', () => {
    const { slots, made } = rounds(() => {
      throw new Error('closed');
    });
    expect(() => made.ask(0, [])).toThrow('closed');
    expect(slots.free).toBe(SLOTS);
  });
});

describe('a crowd', () => {
  interface Thing {
    at: number | undefined;
    readonly name: string;
  }

  test('has what was added and not deleted, whatever the order', () => {
    const crowd = new IndexedSet<'at', Thing>('at');
    const things = ['a', 'b', 'c', 'd', 'e', 'f'].map((name): Thing => ({ name, at: undefined }));
    for (const thing of [...things, ...things]) crowd.add(thing);
    expect(crowd.size).toBe(6);
    for (const at of [0, 3, 5, 3]) crowd.delete(things[at] as Thing);
    expect(crowd.list().map(({ name }) => name)).toEqual(expect.arrayContaining(['b', 'c', 'e']));
    expect(crowd.size).toBe(3);
    expect(things.map((thing) => crowd.has(thing))).toEqual([
      false,
      true,
      true,
      false,
      true,
      false,
    ]);
  });
});
