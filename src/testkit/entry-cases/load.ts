/** load — what may not run does not slow what may: claims see only what they can take. */

import assert from 'node:assert/strict';
import type { TopicRule } from '../../core/topic.ts';
import type { ClaimRequest, EntryStore } from '../../ports/entry-store.ts';
import { systemClock } from '../../system/clock.ts';
import { type SampleParts, sampleEntries, sampleEntry } from '../samples.ts';
import {
  changeOf,
  claimIds,
  claimRequest,
  DELIVERY,
  type EntryCase,
  type EntryWorld,
  later,
  put,
} from './shared.ts';

const BATCH = 2_000;
const ROUNDS = 25;
/** What is slow in itself is slow each time; what a busy machine slows is quick at some time. */
const LOOKS_MAX = 12;
/** Below this a claim is fast, whatever it was before. */
const FAST_MS = 0.5;
const RATIO_MAX = 5;

/** How long a claim of one entry takes: the best of many, which a busy machine spoils least. */
async function bestClaimMs(
  store: EntryStore,
  name: string,
  parts: Partial<ClaimRequest>,
): Promise<number> {
  let bestMs = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round += 1) {
    const id = `${name}-${round}`;
    await put(store, sampleEntry(id, { topic: 'wanted' }));
    const request = claimRequest(store, { ...parts, max: 1 });
    const startedAt = systemClock.monotonic();
    const [taken] = await store.claim(request);
    bestMs = Math.min(bestMs, systemClock.monotonic() - startedAt);
    assert.equal(taken?.envelope.id, id);
    if (taken !== undefined) await store.commit([changeOf(taken, 'remove')]);
  }
  return bestMs;
}

/** Measures the claim of one entry before and after a crowd that it may not take has come. */
export async function assertNotSlowed(
  { store, crowd }: EntryWorld,
  parts: SampleParts,
  filter: Partial<ClaimRequest>,
): Promise<void> {
  await put(store, ...sampleEntries(10, 'few', parts));
  const aloneMs = await bestClaimMs(store, 'alone', filter);
  for (let at = 0; at < crowd; at += BATCH) {
    await put(store, ...sampleEntries(Math.min(BATCH, crowd - at), `crowd${at}`, parts));
  }
  const allowedMs = Math.max(FAST_MS, RATIO_MAX * aloneMs);
  let crowdedMs = Number.POSITIVE_INFINITY;
  for (let look = 0; look < LOOKS_MAX && crowdedMs > allowedMs; look += 1) {
    crowdedMs = await bestClaimMs(store, `crowded${look}`, filter);
  }
  const times = `${aloneMs.toFixed(3)} ms alone, ${crowdedMs.toFixed(3)} ms in a crowd of ${crowd}`;
  assert.ok(crowdedMs <= allowedMs, times);
}

const ALL_BUT_CROWD: readonly TopicRule[] = [
  { pattern: 'crowd', take: false },
  { pattern: '#', take: true },
];

export const loadCases: readonly EntryCase[] = [
  {
    name: 'a crowd of due entries of an excluded topic does not slow the claim of one other',
    async run(world) {
      const parts = { topic: 'crowd', priority: 0, dueAt: later(-1_000) };
      await assertNotSlowed(world, parts, { topics: ALL_BUT_CROWD });
      const { store } = world;
      assert.equal(await store.nextDueAt({ ...DELIVERY, topics: ALL_BUT_CROWD }), null);
      await put(store, sampleEntry('a', { state: 'deferred', dueAt: later(77) }));
      assert.equal(await store.nextDueAt({ ...DELIVERY, topics: ALL_BUT_CROWD }), later(77));
    },
  },
  {
    name: 'a crowd of due entries of an excluded destination does not slow the claim of one other',
    async run(world) {
      const exceptDestinations = ['full'];
      const parts = { topic: 'wanted', destination: 'full', priority: 0, dueAt: later(-1_000) };
      await assertNotSlowed(world, parts, { exceptDestinations });
      const { store } = world;
      assert.equal(await store.nextDueAt({ ...DELIVERY, exceptDestinations }), null);
      assert.equal(await store.nextDueAt(DELIVERY), later(-1_000));
    },
  },
  {
    name: 'a crowd of deferred entries that are not due does not slow the claim of one other',
    async run(world) {
      const parts = { topic: 'wanted', state: 'deferred' as const, priority: 0, dueAt: later(1e9) };
      await assertNotSlowed(world, parts, {});
      assert.equal(await world.store.nextDueAt(DELIVERY), later(1e9));
    },
  },
  {
    name: 'a large backlog is claimed in order, to its end',
    async run({ store }) {
      const entries = sampleEntries(3_000, 'm', (index) => ({ priority: index % 3 }));
      await put(store, ...entries);
      const taken: string[] = [];
      for (;;) {
        const bite = await claimIds(store, { max: 500 });
        if (bite.length === 0) break;
        taken.push(...bite);
      }
      const expected = [0, 1, 2].flatMap((priority) =>
        entries
          .filter(({ envelope }) => envelope.priority === priority)
          .map(({ envelope }) => envelope.id),
      );
      assert.deepEqual(taken, expected);
    },
  },
];
