/** record-lease — one process at a time, whatever the store does. */

import fc from 'fast-check';
import { createMemoryData, memory } from 'respool/stores/memory';
import { faultyStore, randomFaults, SimClock, seededDice } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import type { RecordStore } from 'respool';
import { changeRecord, type LeaseOptions, RecordLease } from '../../src/spool/record-lease.ts';

interface Value {
  readonly done?: number;
  readonly asked?: string;
  readonly holder?: { readonly name: string; readonly until: number };
}

const LEASE_MS = 30_000;
const place = { kind: 'dlq.lease', key: 'one', what: 'the work' };

function leaseOf(
  name: string,
  { records, clock }: { readonly records: RecordStore; readonly clock: SimClock },
): LeaseOptions<Value> {
  return {
    ...place,
    records,
    clock,
    name,
    leaseMs: LEASE_MS,
    beatMs: 1_000,
    marginMs: 5_000,
    now: () => clock.now(),
    read: (record) => record?.value ?? {},
    holderOf: ({ holder }) => holder?.name,
    isHeld: ({ holder }, now) => holder !== undefined && holder.until > now,
    hold: (value, until) => ({ ...value, holder: { name, until } }),
    free: (value) => {
      const { holder: _, ...rest } = value;
      return rest;
    },
    lostError: () => new Error(`${name} lost it`),
  };
}

async function setUp() {
  const clock = new SimClock();
  const store = faultyStore(memory(), { clock });
  await store.open();
  const { records } = store;
  const options = (name: string) => leaseOf(name, { records, clock });
  const take = (name: string) => RecordLease.take(options(name));
  const read = async () => (await records.get(place.kind, place.key))?.value as Value;
  return { clock, store, records, options, take, read };
}

async function taken<T>(lease: Promise<T | undefined>): Promise<T> {
  const found = await lease;
  if (found === undefined) throw new Error('it was not taken');
  return found;
}

describe('a lease', () => {
  test('is held by one at a time, until it is given back', async () => {
    const { take, read } = await setUp();
    const lease = await taken(take('a'));
    expect(await take('b')).toBeUndefined();
    await lease.release((value) => ({ ...value, done: 1 }));
    expect(await read()).toEqual({ done: 1 });
    const next = await taken(take('b'));
    expect(next.before).toEqual({ done: 1 });
    await next.drop();
  });

  test('goes to one of many that take it at the same time', async () => {
    const { take } = await setUp();
    const all = await Promise.all(['a', 'b', 'c', 'd'].map(take));
    const holders = all.filter((lease) => lease !== undefined);
    expect(holders.length).toBe(1);
    await holders[0]?.drop();
  });

  test('is renewed for as long as its holder lives, and free soon after', async () => {
    const { clock, take } = await setUp();
    const lease = await taken(take('a'));
    await clock.advance('10m');
    expect(lease.isHeld).toBe(true);
    expect(await take('b')).toBeUndefined();
    await lease.drop();
    await clock.advance('29s');
    expect(await take('b')).toBeUndefined();
    await clock.advance('1s');
    await (await taken(take('b'))).drop();
  });

  test('keeps what others write into its record, and its holder hears of it', async () => {
    const { clock, options, records, read } = await setUp();
    const heard: unknown[] = [];
    const lease = await taken(
      RecordLease.take({ ...options('a'), onBeat: ({ asked }) => void heard.push(asked) }),
    );
    await changeRecord({ ...place, records }, (record) => ({
      ...(record?.value as Value),
      asked: 'pause',
    }));
    await clock.advance('1s');
    expect(heard).toEqual(['pause']);
    await lease.change((value) => ({ ...value, done: 2 }));
    expect(await read()).toMatchObject({ asked: 'pause', done: 2, holder: { name: 'a' } });
    await lease.drop();
  });
});

describe('a holder', () => {
  test('survives a store that is away for less than its lease', async () => {
    const { clock, store, take } = await setUp();
    const lease = await taken(take('a'));
    store.faults.plan = () => 'before';
    await clock.advance('20s');
    store.faults.plan = () => 'ok';
    await clock.advance('2s');
    expect(lease.isHeld).toBe(true);
    expect(await take('b')).toBeUndefined();
    await lease.drop();
  });

  test('knows that its lease is lost before another can take it', async () => {
    const { clock, store, take } = await setUp();
    const lease = await taken(take('a'));
    store.faults.plan = () => 'before';
    await clock.advance('26s');
    expect(lease.isHeld).toBe(false);
    expect(lease.lost.aborted).toBe(true);
    store.faults.plan = () => 'ok';
    expect(await take('b')).toBeUndefined();
    await expect(lease.change((value) => value)).rejects.toThrow();
    await clock.advance('5s');
    await (await taken(take('b'))).drop();
  });

  test('that stood still for too long finds another in its place', async () => {
    const { options, clock, records, take } = await setUp();
    const lease = await taken(take('a'));
    const later = new SimClock({ startAt: clock.now() + LEASE_MS });
    const other = await taken(RecordLease.take({ ...leaseOf('b', { records, clock: later }) }));
    await expect(lease.release((value) => value)).rejects.toThrow('a lost it');
    expect([lease.isHeld, lease.lost.aborted]).toEqual([false, true]);
    expect(options('b').holderOf(other.before)).toBe('a');
    await other.drop();
  });

  test('whose write was done without an answer goes on', async () => {
    const { clock, store, take, read } = await setUp();
    const lease = await taken(take('a'));
    store.faults.plan = (operation, n) => (operation === 'records.put' && n === 2 ? 'after' : 'ok');
    await clock.advance('3s');
    expect(lease.isHeld).toBe(true);
    await lease.release((value) => ({ ...value, done: 1 }));
    expect(await read()).toEqual({ done: 1 });
  });
});

describe('a change of a record', () => {
  test('is given up when others change it all the time', async () => {
    const { records } = await setUp();
    const busy: RecordStore = { ...records, put: () => Promise.resolve('stale') };
    const changed = changeRecord({ ...place, records: busy }, () => ({ done: 1 }));
    await expect(changed).rejects.toMatchObject({ code: 'store.unavailable' });
    await expect(changed).rejects.toThrow('others changed it 100 times meanwhile');
  });

  test('that changes nothing writes nothing', async () => {
    const { records, read } = await setUp();
    expect(await changeRecord({ ...place, records }, () => undefined)).toBeUndefined();
    expect(await read()).toBeUndefined();
  });
});

test('of processes that lose their store by chance never two hold the lease', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: 2 ** 31 }), async (seed) => {
      const clock = new SimClock();
      const dice = seededDice(seed);
      const pick = (max: number): number => Math.floor(dice.random() * max);
      const shared = createMemoryData();
      const rates = { before: 0.1, after: 0.1, delay: 0.1, answerLate: 0.1, delayMaxMs: 40_000 };
      const makeProcess = async (name: string) => {
        const store = faultyStore(memory({ shared }), { clock });
        await store.open();
        const lease: RecordLease<Value> | undefined = undefined;
        return { name, store, lease: lease as RecordLease<Value> | undefined, isBusy: false };
      };
      const processes = await Promise.all(['a', 'b', 'c'].map(makeProcess));
      let wins = 0;
      for (let step = 0; step < 100; step += 1) {
        const one = processes[pick(3)] ?? expect.unreachable();
        const isAway = dice.random() < 0.3;
        one.store.faults.plan = isAway ? () => 'before' : randomFaults({ dice, ...rates });
        // A process takes the lease again only when its last request has ended, as callers do.
        const done = (): void => void (one.isBusy = false);
        if (one.isBusy) {
          // It waits for its store.
        } else if (one.lease?.isHeld !== true) {
          one.isBusy = true;
          const { records } = one.store;
          const taking = RecordLease.take(leaseOf(one.name, { records, clock }));
          void taking
            .then(
              (lease) => {
                one.lease = lease;
                wins += lease === undefined ? 0 : 1;
              },
              () => undefined,
            )
            .then(done);
        } else if (dice.random() < 0.1) {
          one.isBusy = true;
          const released = one.lease.release((value) => value);
          one.lease = undefined;
          void released.catch(() => undefined).then(done);
        }
        // Two that are held would both be held at some second.
        for (let seconds = pick(20); seconds >= 0; seconds -= 1) {
          await clock.advance('1s');
          const holders = processes.filter(({ lease }) => lease?.isHeld === true);
          expect(holders.map(({ name }) => name).slice(1)).toEqual([]);
        }
      }
      expect(wins).toBeGreaterThan(0);
      for (const { lease } of processes) void lease?.drop();
    }),
    { numRuns: 30 },
  );
});
