/** sight — claims look straight through a filter that leaves nothing out, and bounded otherwise. */

import { expect, test } from 'vitest';
import { sampleEntries } from 'respool/testkit';
import { ClaimStrategy } from '../../../src/stores/postgres/claim.ts';
import { withService } from '../../services/index.ts';
import { faultyPool } from './faulty-pool.ts';
import { openStore, ownSchema } from './setup.ts';
import { systemClock } from '../../time.ts';
import { claimRequest } from '../requests.ts';

const TOPICS = [{ pattern: 'good', take: true }];

function requestOf(max: number, topics = TOPICS) {
  const now = 1_000;
  const fixed = { lane: 'delivery', states: ['incoming'], exceptDestinations: [] } as const;
  return { ...fixed, topics, max, now, leaseMs: 1_000, holder: 'h' };
}

test('a filter is trusted after four claims that were filled, and then for 64', () => {
  const sight = new ClaimStrategy();
  const ways = Array.from({ length: 72 }, () => {
    const isFiltered = sight.isFiltered(requestOf(5));
    sight.note(requestOf(5), true, 1);
    return isFiltered;
  });
  // Four glances, 64 straight ones, one glance, and so on.
  expect(ways.flatMap((isFiltered, at) => (isFiltered ? [] : [at]))).toEqual([0, 1, 2, 3, 68]);
});

test.each([
  ['was not filled', false, 1],
  ['took far longer than the quickest', true, 7],
])('trust ends with a claim that %s', (_, isFilled, tookMs) => {
  const sight = new ClaimStrategy();
  // A busy machine: most take longer than the way explains.
  for (const ms of [2, 9, 9, 9]) sight.note(requestOf(5), true, ms);
  expect(sight.isFiltered(requestOf(5))).toBe(true);
  sight.note(requestOf(5), isFilled, tookMs);
  expect(sight.isFiltered(requestOf(5))).toBe(false);
  sight.note(requestOf(5), true, 2);
  expect(sight.isFiltered(requestOf(5))).toBe(false);
});

test('another filter has to earn its own trust', () => {
  const sight = new ClaimStrategy();
  for (let n = 0; n < 4; n += 1) sight.note(requestOf(5), true, 1);
  expect(sight.isFiltered(requestOf(7))).toBe(true);
  expect(sight.isFiltered(requestOf(5, [{ pattern: 'bad', take: false }, ...TOPICS]))).toBe(false);
});

withService('postgres', () => {
  test('a filter that leaves out a little is never trusted', async () => {
    const pool = await faultyPool();
    const store = await openStore({ pool, schema: ownSchema() });
    const isGlance: boolean[] = [];
    pool.plan = (text) => {
      if (text.includes('claimed_from = c.slot')) isGlance.push(text.includes('g0 AS'));
      return 'none';
    };
    await store.insert(sampleEntries(1, 'b', { topic: 'bad' }));
    await store.insert(sampleEntries(30, 'g', { topic: 'good' }));
    for (let n = 0; n < 6; n += 1) {
      const taken = await store.claim(claimRequest(store, { topics: TOPICS, max: 3 }));
      expect(taken).toHaveLength(3);
    }
    expect(isGlance).toEqual([true, true, true, true, true, true]);
  });

  test('claims give the same either way, and glance again once something is left out', async () => {
    const pool = await faultyPool();
    // On a busy machine a claim may take long, which is a reason to glance as well.
    const clock = { ...systemClock, monotonic: () => 0 };
    const store = await openStore({ pool, schema: ownSchema() }, { clock });
    const isGlance: boolean[] = [];
    pool.plan = (text) => {
      if (text.includes('claimed_from = c.slot')) isGlance.push(text.includes('g0 AS'));
      return 'none';
    };
    await store.insert(sampleEntries(30, 'g', { topic: 'good' }));
    const claim = async () => {
      const taken = await store.claim(claimRequest(store, { topics: TOPICS, max: 3 }));
      return taken.map(({ envelope }) => envelope.id);
    };
    const taken: string[] = [];
    for (let n = 0; n < 6; n += 1) taken.push(...(await claim()));
    expect(isGlance).toEqual([true, true, true, true, false, false]);
    // Three that are allowed behind many that are not.
    await store.insert(sampleEntries(50, 'b', { topic: 'bad' }));
    for (let n = 0; n < 5; n += 1) taken.push(...(await claim()));
    expect(taken).toEqual(sampleEntries(30, 'g').map(({ envelope }) => envelope.id));
    expect(isGlance.at(-1)).toBe(false);
    isGlance.length = 0;
    await claim();
    // Too short a glance, and then flow by flow.
    expect(isGlance).toEqual([true, false]);
  });
});
