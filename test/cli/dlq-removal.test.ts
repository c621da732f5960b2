/** removal — batches of letters on their way out, when fewer come than were counted. */
import { expect, test } from 'vitest';
import { matchingLetters, Removal, type RemovalTally } from '../../src/cli/commands/dlq/remove.ts';
import type { KeptCopy } from 'respool';
import type { DeadLetters, Letter, SettleResult, TakenLetter } from 'respool/dead-letters';
import { fakeLetters, letterOf, openLetter } from '../dead-letters/fake-letters.ts';

interface Ground {
  readonly letters: DeadLetters;
  readonly there: () => string[];
  readonly passes: () => number;
}

/** A place that gives back at the end of a pass what was not settled, as a queue does. */
function ground(
  lie: readonly (string | Letter)[],
  { perPass = 1_000, settles = () => ({ kind: 'done' }) }: Partial<Settling> = {},
): Ground {
  let lying = lie.map((one) => (typeof one === 'string' ? letterOf({ id: one, key: one }) : one));
  let passes = 0;
  let inHand = new Set<string>();
  return {
    there: () => lying.map(({ id }) => id),
    passes: () => passes,
    letters: {
      ...fakeLetters([]),
      async *take({ isWanted }) {
        passes += 1;
        inHand = new Set();
        try {
          for (const letter of lying.filter(isWanted).slice(0, perPass)) {
            inHand.add(letter.key);
            yield { ...openLetter(letter), token: letter.key };
          }
        } finally {
          inHand = new Set();
        }
      },
      settle: async ({ letter }: TakenLetter) => {
        if (!inHand.delete(letter.key)) return { kind: 'gone' };
        const settled = settles(letter);
        if (settled.kind === 'done') lying = lying.filter(({ key }) => key !== letter.key);
        return settled;
      },
    },
  };
}

interface Settling {
  readonly perPass: number;
  readonly settles: (letter: Letter) => SettleResult;
}

interface Removing {
  readonly signal: AbortSignal;
  /** With it the place is a queue. */
  readonly keep: (copies: readonly KeptCopy[]) => Promise<void>;
}

const QUEUE = { kind: 'queue', queue: 'orders.dlq', broker: 'amqp://b' } as const;

async function removed(
  { letters }: Ground,
  count: number,
  { signal = new AbortController().signal, keep }: Partial<Removing> = {},
): Promise<RemovalTally> {
  const tally: RemovalTally = { removed: 0, gone: 0, failed: 0, failures: [] };
  await new Removal({
    place: {
      letters,
      name: 'place',
      source: keep === undefined ? { kind: 'spool', kinds: ['dead'] } : QUEUE,
    },
    count,
    operator: { keep: keep ?? (async () => undefined) },
    verdict: { kind: 'remove', hard: false, reason: 'x', by: 'ada' },
    tally,
    isFitting: () => true,
    tell: () => undefined,
  }).run(signal);
  return tally;
}

const IDS = Array.from({ length: 250 }, (_, at) => `m${at}`);

test('takes as many as were counted, the oldest first, and no more', async () => {
  const place = ground(IDS);
  expect(await removed(place, 120)).toMatchObject({ removed: 120, gone: 0, failed: 0 });
  expect(place.there()).toEqual(IDS.slice(120));
});

test('passes that end early are followed by others until all are away', async () => {
  const place = ground(IDS, { perPass: 30 });
  expect(await removed(place, 250)).toMatchObject({ removed: 250, gone: 0, failed: 0 });
  expect(place.there()).toEqual([]);
});

test('when fewer come than were counted it ends, and takes those that came', async () => {
  const place = ground(IDS.slice(0, 7));
  expect(await removed(place, 250)).toMatchObject({ removed: 7, gone: 0, failed: 0 });
  expect(place.passes()).toBeLessThan(5);
});

test('what fails is left and told once, and the rest goes', async () => {
  const place = ground(IDS.slice(0, 20), {
    perPass: 5,
    settles: ({ id }) =>
      id.endsWith('3') ? { kind: 'failed', code: 'x', reason: 'no' } : { kind: 'done' },
  });
  const tally = await removed(place, 20);
  expect(tally).toMatchObject({ removed: 18, failed: 2 });
  expect(tally.failures).toEqual([
    { id: 'm3', why: 'no' },
    { id: 'm13', why: 'no' },
  ]);
  expect(place.there()).toEqual(['m3', 'm13']);
});

test('a signal ends it between two batches', async () => {
  const stop = new AbortController();
  let count = 0;
  const place = ground(IDS, {
    settles: () => {
      count += 1;
      if (count === 50) stop.abort();
      return { kind: 'done' };
    },
  });
  expect(await removed(place, 250, { signal: stop.signal })).toMatchObject({ removed: 50 });
  expect(place.there()).toEqual(IDS.slice(50));
});

test('what is kept in one call is no more than a service takes in one request', async () => {
  const sizes = [1_500_000, 1_500_000, 1_500_000, 9_000_000, 10, 10, 4_194_304, 1];
  const letters = sizes.map((size, at) => letterOf({ id: `m${at}`, key: `m${at}`, size }));
  const place = ground(letters);
  const calls: string[][] = [];
  const keep = async (copies: readonly { readonly id: string }[]): Promise<void> => {
    calls.push(copies.map(({ id }) => id));
  };
  expect(await removed(place, sizes.length, { keep })).toMatchObject({ removed: sizes.length });
  expect(calls).toEqual([['m0', 'm1'], ['m2'], ['m3'], ['m4', 'm5'], ['m6'], ['m7']]);
});

test('a copy says at which broker its queue is', async () => {
  const copies: KeptCopy[] = [];
  await removed(ground(['m0']), 1, { keep: async (some) => void copies.push(...some) });
  expect(copies).toMatchObject([
    { reason: 'removed from queue "orders.dlq"', headers: { 'respool-amqp-broker': 'amqp://b' } },
  ]);
});

test('what died after the count is not touched, also where too many were counted', () => {
  const look = { filter: { query: {}, category: undefined, isEmpty: true }, tell: () => 'other' };
  const countedAt = 1_000;
  const many = matchingLetters(look as Parameters<typeof matchingLetters>[0], undefined, {
    keys: undefined,
    countedAt,
  });
  const times = [undefined, 999, 1_000, 1_001];
  expect(times.map((diedAt) => many(letterOf({ diedAt })))).toEqual([true, true, true, false]);
  const few = matchingLetters(look as Parameters<typeof matchingLetters>[0], undefined, {
    keys: new Set(['a']),
    countedAt,
  });
  expect(['a', 'b'].map((key) => few(letterOf({ key })))).toEqual([true, false]);
});
