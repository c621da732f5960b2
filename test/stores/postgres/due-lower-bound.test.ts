/** floors — where looks for work begin while the server may take no dead rows away. */

import { expect, test } from 'vitest';
import { sampleEntry, SimClock } from 'respool/testkit';
import { DueLowerBounds } from '../../../src/stores/postgres/claim.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import { withService } from '../../services/index.ts';
import { openStore } from './setup.ts';
import { systemClock } from '../../time.ts';
import { claimRequest } from '../requests.ts';

const [INCOMING, ACTIVE] = [0, 2];

/** Floors whose looks take so long, and find this in every slot. */
function setup(tookMs: { value: number }, firsts: (number | null)[]) {
  const clock = new SimClock();
  const floors = new DueLowerBounds(namesOf('s', ''), clock);
  const asked: string[] = [];
  const raise = async (): Promise<void> => {
    const work = floors.raise(async (text) => {
      asked.push(text);
      await clock.advance(tookMs.value);
      return [firsts];
    });
    await work;
  };
  floors.noteClaim(100_000, 60_000);
  return { clock, floors, raise, asked };
}

test('there are none while looks are quick, or one was slow', async () => {
  const { floors, raise, asked } = setup({ value: 1 }, [null, null, null, null, null]);
  floors.noteLook(60);
  floors.noteLook(10);
  floors.noteLook(60);
  await raise();
  expect(asked).toEqual([]);
  expect(floors.sql(INCOMING)).toBe('');
});

test('after two slow looks they are at the first live row, or at what can come', async () => {
  const { floors, raise, asked } = setup({ value: 300 }, [90_000, null, 99_999, 70_000, null]);
  floors.noteLook(60);
  floors.noteLook(60);
  await raise();
  expect(floors.sql(INCOMING)).toBe(' AND due_at >= 90000');
  // Nothing is active: what becomes so has a lease from now on.
  expect(floors.sql(ACTIVE)).toBe(' AND due_at >= 158000');
  // Never later than what may be put down at this moment.
  expect(floors.sql(4)).toBe(' AND due_at >= 98000');
  // The next look begins there.
  await raise();
  expect(asked[0]).not.toContain('due_at >=');
  expect(asked[1]).toContain('due_at >= 90000');
});

test('beside quick ones, looks count as slow that take four times as long and 5 ms', async () => {
  const { floors, raise, asked } = setup({ value: 300 }, [90_000, null, null, null, null]);
  for (const ms of [2, 12, 13, 14, 13]) floors.noteLook(ms);
  await raise();
  expect(asked).toEqual([]);
  for (const ms of [14, 14]) floors.noteLook(ms);
  await raise();
  expect(floors.sql(INCOMING)).toBe(' AND due_at >= 90000');
});

test('every few seconds all is looked at, and a quick look ends it', async () => {
  const tookMs = { value: 300 };
  const { clock, floors, raise, asked } = setup(tookMs, [90_000, null, null, null, null]);
  floors.noteLook(60);
  floors.noteLook(60);
  await raise();
  await clock.advance(5_999);
  await raise();
  expect(asked[1]).toContain('due_at >=');
  await clock.advance(2);
  tookMs.value = 3;
  await raise();
  expect(asked[2]).not.toContain('due_at >=');
  expect(floors.sql(INCOMING)).toBe('');
});

withService('postgres', () => {
  test('claims and looks give the same with floors', async () => {
    // A clock by which every look seems to take long.
    let ms = 0;
    const slow = new SimClock();
    const clock = Object.assign(Object.create(slow) as SimClock, {
      monotonic: () => (ms += 30),
      after: (afterMs: number, act: () => void) => systemClock.after(afterMs, act),
    });
    const store = await openStore({}, { clock });
    await store.insert(['a', 'b', 'c'].map((id) => sampleEntry(id)));
    for (let n = 0; n < 4; n += 1) {
      const filter = { lane: 'delivery', states: ['incoming', 'active'] } as const;
      expect(await store.nextDueAt({ ...filter, topics: [], exceptDestinations: [] })).toBe(null);
      const [taken] = await store.claim(claimRequest(store, { max: 1 }));
      expect(taken?.envelope.id).toBe(['a', 'b', 'c'][n]);
    }
  });
});
