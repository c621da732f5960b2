/** What becomes of sealed entries while the key of some of them cannot be had. */

import { describe, expect, test } from 'vitest';
import { seal } from 'respool/transforms';
import { createTestSpool, SAMPLE_AT, sampleEntries, sampleEntry, SimClock } from 'respool/testkit';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { createSpool, type Entry, type EntryStore, RespoolError } from 'respool';
import { atEnd, claimOf, KEYS, openSealed, openWith, speaking } from './seal-setup.ts';
import { systemDice } from '../time.ts';

/** Given back: where it was, without an attempt, and behind what is due now. */
const LATER = { attempts: 0, lost: 0, dueAt: SAMPLE_AT + 10_000 };
const OUT = { code: 'store.unavailable' };
const ids = (entries: readonly Entry[]) => entries.map(({ envelope }) => envelope.id);

/** A key service that knows `k2`, and `k1` when it is not out. */
function keyService(isHanging = false) {
  const world = { isOut: true, asked: 0 };
  const keys = (id: string): string | Promise<string> => {
    if (id === 'k2') return KEYS.k2;
    world.asked += 1;
    if (!world.isOut) return KEYS.k1;
    if (isHanging) return new Promise<string>(() => {});
    throw new Error('no route to the key service');
  };
  return { world, keys };
}

/** A store with entries of `k1`, read with `k2` and a key service that is out. */
async function setup(old: readonly Entry[], parts: { isHanging?: boolean } = {}) {
  const { raw, inner } = await openWith();
  await (await openSealed(inner)).insert(old);
  const clock = new SimClock({ startAt: SAMPLE_AT });
  const { world, keys } = keyService(parts.isHanging);
  const store = await openSealed(inner, { keys, primary: 'k2', clock });
  const statusOf = async (id: string) => (await raw.get(id))?.status;
  return { raw, inner, clock, world, store, statusOf };
}

describe('a claim, while the key of some entries cannot be had,', () => {
  test('hands out the others, and gives those back for later', async () => {
    const { store, statusOf } = await setup([speaking('a'), sampleEntry('b')]);
    await store.insert([speaking('c')]);
    expect(ids(await store.claim(claimOf()))).toEqual(['b', 'c']);
    expect(await statusOf('a')).toMatchObject({ ...LATER, state: 'deferred', revision: 3 });
    expect(await statusOf('a')).not.toHaveProperty('holder');
  });

  test('reaches what is due behind more of them than it may take', async () => {
    const old = sampleEntries(9, 'a', { headers: { h: '1' } });
    const { store, statusOf } = await setup(old);
    await store.insert([speaking('b', { dueAt: SAMPLE_AT })]);
    expect(ids(await store.claim(claimOf({ max: 2 })))).toEqual(['b']);
    // It came in and is not due any more: deferred, as a message that is put down for later.
    expect(await statusOf('a-00003')).toMatchObject({ ...LATER, state: 'deferred' });
  });

  test('that finds nothing else fails, once for an outage, and then has nothing', async () => {
    const { store, world, raw, clock } = await setup([speaking('a')]);
    await expect(store.claim(claimOf())).rejects.toThrow('no route to the key service');
    const again = claimOf({ now: SAMPLE_AT + 10_000, holder: 'h:2' });
    expect(await store.claim(again)).toEqual([]);
    expect(world.asked).toBe(1);
    expect((await raw.get('a'))?.status.dueAt).toBe(SAMPLE_AT + 20_000);
    await clock.advance('5s');
    const later = claimOf({ now: SAMPLE_AT + 20_000, holder: 'h:3' });
    await expect(store.claim(later)).rejects.toMatchObject(OUT);
    expect(world.asked).toBe(2);
  });

  test('hands them out when the key is back, as they were', async () => {
    const { store, world, clock } = await setup([speaking('a')]);
    await expect(store.claim(claimOf())).rejects.toMatchObject(OUT);
    world.isOut = false;
    await clock.advance('10s');
    const [taken] = await store.claim(claimOf({ now: SAMPLE_AT + 10_000, holder: 'h:2' }));
    expect(taken?.envelope).toEqual(speaking('a').envelope);
    expect(taken?.status).toMatchObject({ attempts: 1, notes: { tried: 'mx1' } });
  });

  test('holds what has no key at all, and gives back the others', async () => {
    const { inner, raw } = await openWith();
    await (await openSealed(inner)).insert([speaking('a')]);
    await (await openSealed(inner, { keys: { k3: KEYS.k1 } })).insert([speaking('b')]);
    const keys = (id: string) => {
      if (id === 'k1') throw new Error('no route to the key service');
      return id === 'k2' ? KEYS.k2 : undefined;
    };
    const store = await openSealed(inner, { keys, primary: 'k2' });
    await expect(store.claim(claimOf())).rejects.toMatchObject(OUT);
    expect((await raw.get('a'))?.status).toMatchObject({ ...LATER, state: 'deferred' });
    expect((await raw.get('b'))?.status).toMatchObject({
      state: 'hold',
      because: { code: 'key.unavailable' },
    });
  });

  test('leaves a lost holder lost: its entry goes back active', async () => {
    const { inner, raw } = await openWith();
    const first = await openSealed(inner);
    await first.insert([speaking('a')]);
    await first.claim(claimOf());
    const store = await openSealed(inner, { keys: keyService().keys, primary: 'k2' });
    const late = claimOf({ now: SAMPLE_AT + 1_000, holder: 'h:2' });
    await expect(store.claim(late)).rejects.toMatchObject(OUT);
    expect((await raw.get('a'))?.status).toMatchObject({
      state: 'active',
      attempts: 1,
      lost: 0,
      dueAt: SAMPLE_AT + 11_000,
    });
  });

  test('tells why also where the store does not take them back', async () => {
    const { inner } = await openWith();
    await (await openSealed(inner)).insert([speaking('a')]);
    const commit: EntryStore['commit'] = async () => {
      throw new RespoolError('store.unavailable', 'the disk is gone');
    };
    const { keys } = keyService();
    const store = await openSealed({ ...inner, commit }, { keys, primary: 'k2' });
    await expect(store.claim(claimOf())).rejects.toThrow('no route to the key service');
  });
});

describe('while a key service does not answer,', () => {
  test('a claim waits a second for it, and the next not at all', async () => {
    const { store, clock } = await setup([speaking('a')], { isHanging: true });
    await store.insert([speaking('b')]);
    const claim = store.claim(claimOf());
    await clock.advance('1s');
    expect(ids(await claim)).toEqual(['b']);
    await store.insert([speaking('c')]);
    const again = claimOf({ now: SAMPLE_AT + 10_000, holder: 'h:2', ids: ['a', 'c'] });
    expect(ids(await store.claim(again))).toEqual(['c']);
  });

  test('get and list give up after 30 s and say so', async () => {
    const { store, clock } = await setup([speaking('a')], { isHanging: true });
    await store.insert([speaking('b')]);
    const got = expect(store.get('a')).rejects.toMatchObject({
      ...OUT,
      message: expect.stringContaining('did not come within 30 s') as string,
    });
    const listed = store.list({ limit: 9 });
    await clock.advance('30s');
    await got;
    expect(ids((await listed).entries)).toEqual(['b']);
  });
});

describe('while the key of an entry cannot be had,', () => {
  test('it cannot be got, and is listed as one that cannot be read now, beside the others', async () => {
    const { store } = await setup([speaking('a')]);
    await store.insert([speaking('b')]);
    await expect(store.get('a')).rejects.toMatchObject(OUT);
    const page = await store.list({ limit: 9 });
    expect(ids(page.entries)).toEqual(['b']);
    expect(page.corrupt).toMatchObject([{ id: 'a', ...OUT }]);
    expect(page.corrupt[0]?.reason).toContain('no route to the key service');
  });

  test('lists and counts by code or fingerprint tell of the others', async () => {
    const { store } = await setup([speaking('a')]);
    await store.insert([speaking('b')]);
    const fingerprint = speaking('b').status.lastFailure?.fingerprint ?? '';
    for (const query of [{ code: 'smtp.550' }, { fingerprint }]) {
      expect(ids((await store.list({ limit: 9, ...query })).entries)).toEqual(['b']);
      expect(await store.tally('state', query)).toMatchObject([{ key: 'deferred', count: 1 }]);
    }
    expect(await store.tally('fingerprint', {})).toContainEqual({
      key: fingerprint,
      count: 1,
      oldestAt: SAMPLE_AT,
    });
  });
});

test('a spool goes on delivering while the key of old messages cannot be had, then those', async () => {
  const shared = createMemoryData();
  const first = await createTestSpool({
    entries: seal(memory({ shared }), { keys: { k1: KEYS.k1 } }),
    dice: systemDice,
  });
  const headers = { tenant: 'old' };
  for (let n = 0; n < 40; n += 1) await first.spool.enqueue({ topic: 'mail', headers });
  await first.spool.stop();
  const clock = new SimClock({ startAt: first.clock.now() });
  const { world, keys } = keyService();
  const spool = createSpool({
    entries: seal(memory({ shared }), { keys, primary: 'k2', clock }),
    bodies: memoryBodies({ clock }),
    clock,
  });
  atEnd(() => spool.stop());
  await spool.start();
  const delivered: unknown[] = [];
  spool.handle('mail', (delivery) => void delivered.push(delivery.headers['tenant']));
  await clock.advance('30s');
  for (let n = 0; n < 10; n += 1) {
    await spool.enqueue({ topic: 'mail', headers: { tenant: 'new' } });
  }
  await clock.advance('2s');
  expect(delivered).toEqual(Array.from({ length: 10 }, () => 'new'));
  world.isOut = false;
  await clock.advance('30s');
  expect(delivered.slice(10)).toEqual(Array.from({ length: 40 }, () => 'old'));
});
