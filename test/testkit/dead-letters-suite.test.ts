/** The suite for dead letters, against a place in memory; and that it finds what one does wrong. */
import { describe, expect, test } from 'vitest';
import type { DeadLetters } from 'respool/dead-letters';
import { deadLettersSuite, type LettersUnderTest } from 'respool/testkit';
import { createPlace } from '../dead-letters/replay/memory-letters.ts';
import { runSuite } from '../suite.ts';

async function make(
  change = (letters: DeadLetters): DeadLetters => letters,
): Promise<LettersUnderTest> {
  const place = createPlace();
  return {
    letters: change(place.door()),
    put: async (samples) => place.put(samples),
    arrived: async () => place.sent.filter(({ to }) => !to.includes('other')),
    parked: async () => place.parked.map(({ letter }) => letter.id),
    second: async () => place.door(),
    failAgain: async (ids) => place.failAgain(ids),
    deliver: async (ids) => ids.forEach((id) => place.delivered.add(id)),
    breakDown: async () => {
      place.refuse = () => ({ kind: 'failed', code: 'broker.unavailable', reason: 'gone' });
    },
    recover: async () => {
      place.refuse = undefined;
    },
    elsewhere: async () => ({
      route: { kind: 'queue', exchange: '', key: 'other' },
      arrived: async () => place.sent.filter(({ to }) => to.includes('other')),
    }),
    dispose: async () => undefined,
  };
}

const CAN = {
  canShare: true,
  canFailAgain: true,
  canTellDelivered: true,
  canBreak: true,
  canBeUnroutable: true,
  canSendElsewhere: true,
  hasContentType: true,
} as const;

runSuite('letters in memory', deadLettersSuite(make, CAN));

describe('the suite for dead letters', () => {
  const LOSES = (letters: DeadLetters): DeadLetters => ({
    ...letters,
    async *take(options) {
      for await (const taken of letters.take(options)) {
        yield taken;
        await letters.settle(taken, { kind: 'remove', hard: true, reason: '', by: '' });
      }
    },
  });
  const TURNS = (letters: DeadLetters): DeadLetters => ({
    ...letters,
    async *look(options) {
      const all = [];
      for await (const open of letters.look(options)) all.push(open);
      yield* all.reverse();
    },
  });
  const LIES: (letters: DeadLetters) => DeadLetters = (letters) => ({
    ...letters,
    settle: async () => ({ kind: 'done' }),
  });
  const IGNORES = (letters: DeadLetters): DeadLetters => ({
    ...letters,
    look: () => letters.look(),
  });

  test.each([
    ['loses what is not settled', LOSES, /not settled/],
    ['turns the order round', TURNS, /same letters, keys and order/],
    ['says done and does nothing', LIES, /arrives at home|parked is gone|removed is gone/],
    ['ignores queries', IGNORES, /finds by ids|at its limit/],
  ])('finds a place that %s', async (_, change, named) => {
    const cases = deadLettersSuite(() => make(change), CAN).filter(({ name }) => named.test(name));
    expect(cases).not.toEqual([]);
    for (const { run } of cases) await expect(run()).rejects.toThrow();
  });

  test('leaves out what a place cannot be asked, and names a way that is not given', async () => {
    const none = Object.fromEntries(Object.keys(CAN).map((name) => [name, false]));
    const names = deadLettersSuite(make, { ...CAN, ...none }).map(({ name }) => name);
    expect(names.filter((name) => /since|elsewhere|two passes|content type/.test(name))).toEqual(
      [],
    );
    const without = async (): Promise<LettersUnderTest> => {
      const { elsewhere: _, ...rest } = await make();
      return rest;
    };
    const sends = deadLettersSuite(without, CAN).find(({ name }) => name.includes('elsewhere'));
    await expect(sends?.run()).rejects.toThrow(/promised "elsewhere"/);
  });
});
