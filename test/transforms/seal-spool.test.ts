import { describe, expect, test } from 'vitest';
import { seal, type SealOptions } from 'respool/transforms';
import { createTestSpool } from 'respool/testkit';
import { createMemoryData, memory } from 'respool/stores/memory';
import { type Entry, fixed, RetryableError, type SpoolOptions } from 'respool';
import { atEnd, KEYS } from './seal-setup.ts';
import { systemDice } from '../time.ts';

/** A started spool over sealed data, which a later one may share. */
async function setup(options: SealOptions, shared = createMemoryData(), more: SpoolOptions = {}) {
  const raw = memory({ shared });
  await raw.open();
  const entries = seal(memory({ shared }), options);
  // Of the same chance, every spool would choose the same ids.
  const { spool, clock } = await createTestSpool({ entries, dice: systemDice, ...more });
  atEnd(() => spool.stop());
  const dump = async () => {
    const { entries: stored } = await raw.list({ limit: 500 });
    return JSON.stringify([stored, await raw.records.read('audit', 0, 100)]);
  };
  const stored = async (id: string): Promise<Entry | undefined> => raw.get(id);
  return { spool, clock, dump, stored, shared };
}

describe('a spool over a sealed store', () => {
  test('delivers, fails, remembers and audits as over any other, and keeps it to itself', async () => {
    const { spool, clock, dump } = await setup({ keys: { k1: KEYS.k1 } });
    const seen: unknown[] = [];
    spool.handle('mail', (delivery) => {
      seen.push([delivery.headers['tenant'], { ...delivery.notes }]);
      delivery.note('mark', 'canary-note');
      if (seen.length === 1) throw new RetryableError('canary.code', 'canary-reason');
    });
    const message = { topic: 'mail', headers: { tenant: 'canary-tenant' }, body: 'x' };
    const { id } = await spool.enqueue(message);
    await clock.advance('1m');
    const found = await spool.get(id);
    expect(found?.status.lastFailure).toMatchObject({ reason: 'canary-reason' });
    const listed: string[] = [];
    for await (const { envelope } of spool.list({ code: 'canary.code' })) listed.push(envelope.id);
    expect(listed).toEqual([id]);
    await spool.operator({ by: 'canary-ada' }).hold([id], { reason: 'canary-why' });
    expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([
      { by: 'canary-ada', action: 'hold' },
    ]);
    expect(await dump()).toContain(id);
    expect(await dump()).not.toContain('canary');
    await spool.operator({ by: 'canary-ada' }).release([id]);
    await clock.advance('1m');
    expect(seen).toEqual([
      ['canary-tenant', {}],
      ['canary-tenant', { mark: 'canary-note' }],
    ]);
    expect(await spool.get(id)).toBeUndefined();
  });

  test('holds a message whose key is gone, and delivers it when the key is back', async () => {
    const first = await setup({ keys: { k1: KEYS.k1 } });
    const { id } = await first.spool.enqueue({ topic: 'mail', headers: { tenant: 'acme' } });
    await first.spool.stop();
    const second = await setup({ keys: { k2: KEYS.k2 } }, first.shared);
    const delivered: unknown[] = [];
    second.spool.handle('mail', (delivery) => void delivered.push(delivery.headers['tenant']));
    const { id: other } = await second.spool.enqueue({ topic: 'mail', headers: { tenant: 'new' } });
    await second.clock.advance('1m');
    expect(delivered).toEqual(['new']);
    expect(await second.stored(other)).toBeUndefined();
    expect((await second.stored(id))?.status).toMatchObject({
      state: 'hold',
      attempts: 0,
      because: { code: 'key.unavailable' },
    });
    await second.spool.stop();
    const third = await setup({ keys: KEYS, primary: 'k2' }, first.shared);
    third.spool.handle('mail', (delivery) => void delivered.push(delivery.headers['tenant']));
    await third.spool.operator({ by: 'ops' }).release([id]);
    await third.clock.advance('1m');
    expect(delivered).toEqual(['new', 'acme']);
  });

  test('that lost its seal holds what was sealed, and delivers it when the seal is back', async () => {
    const first = await setup({ keys: { k1: KEYS.k1 } });
    const { id } = await first.spool.enqueue({ topic: 'mail', headers: { tenant: 'acme' } });
    await first.spool.stop();
    const { spool: bare, clock } = await createTestSpool({
      entries: memory({ shared: first.shared }),
      dice: systemDice,
    });
    const delivered: unknown[] = [];
    bare.handle('mail', (delivery) => void delivered.push(delivery.headers['tenant']));
    const { id: other } = await bare.enqueue({ topic: 'mail', headers: { tenant: 'plain' } });
    await clock.advance('1m');
    expect(delivered).toEqual(['plain']);
    expect(await bare.get(other)).toBeUndefined();
    expect((await bare.get(id))?.status).toMatchObject({
      state: 'hold',
      attempts: 0,
      because: { code: 'transform.missing', by: 'engine' },
    });
    await expect(bare.process(id, () => undefined)).rejects.toMatchObject({
      code: 'transform.missing',
    });
    await bare.stop();
    const last = await setup({ keys: { k1: KEYS.k1 } }, first.shared);
    last.spool.handle('mail', (delivery) => void delivered.push(delivery.headers['tenant']));
    await last.spool.operator({ by: 'ops' }).release([id]);
    await last.clock.advance('1m');
    expect(delivered).toEqual(['plain', 'acme']);
  });

  test('tells entries without a key as such, in a check and in a rekeying', async () => {
    const first = await setup({ keys: { k1: KEYS.k1 } });
    const { id } = await first.spool.enqueue({ topic: 'mail', headers: { tenant: 'acme' } });
    await first.spool.stop();
    const { spool } = await setup({ keys: { k2: KEYS.k2 } }, first.shared);
    const { findings } = await spool.operator({ by: 'ops' }).check();
    expect(findings).toMatchObject([{ kind: 'key.unavailable', id }]);
    const { troubles } = await spool.operator({ by: 'ops' }).rekey();
    expect(troubles).toMatchObject([{ id, code: 'key.unavailable' }]);
  });
});

describe('messages to one destination, some in the clear, some of an old key,', () => {
  const BOTH = { keys: KEYS, primary: 'k2' };
  const there = { topic: 'mail', destination: 'canary-mx', policy: 'canary-policy' };
  const policies = { 'canary-policy': fixed('1h') };

  /** Some of each kind that are still to be delivered, and the data they lie in. */
  async function before(count: number) {
    const shared = createMemoryData();
    const entries = memory({ shared });
    const { spool: bare } = await createTestSpool({ entries, policies, dice: systemDice });
    for (let n = 0; n < count; n += 1) await bare.enqueue(there);
    await bare.stop();
    const first = await setup({ keys: { k1: KEYS.k1 } }, shared, { policies });
    for (let n = 0; n < count; n += 1) await first.spool.enqueue(there);
    await first.spool.stop();
    return shared;
  }

  test('keep to its limit together, and wait where others need not', async () => {
    const more = { policies, destinationConcurrency: 2 };
    const { spool, clock } = await setup(BOTH, await before(20), more);
    const gate = Promise.withResolvers<void>();
    const running = new Map<string, number>();
    const most = new Map<string, number>();
    spool.handle('mail', async ({ envelope: { destination = '' } }) => {
      const now = (running.get(destination) ?? 0) + 1;
      running.set(destination, now);
      most.set(destination, Math.max(now, most.get(destination) ?? 0));
      await gate.promise;
      running.set(destination, (running.get(destination) ?? 0) - 1);
    });
    for (let n = 0; n < 20; n += 1) await spool.enqueue(there);
    await spool.enqueue({ ...there, destination: 'canary-other' });
    await clock.settle();
    expect(Object.fromEntries(running)).toEqual({ 'canary-mx': 2, 'canary-other': 1 });
    const { active } = await spool.count();
    gate.resolve();
    // Left out of the claims: no more are taken than there were free slots at first.
    expect(active).toBeLessThanOrEqual(12);
    await clock.advance('1m');
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0 });
    expect(Object.fromEntries(most)).toEqual({ 'canary-mx': 2, 'canary-other': 1 });
  });

  test('are rekeyed: afterwards neither it nor their policy can be read in the store', async () => {
    const { spool, dump } = await setup(BOTH, await before(3), { policies });
    expect(await dump()).toContain('canary');
    expect(await spool.operator({ by: 'ops' }).rekey()).toMatchObject({
      count: 6,
      done: 6,
      left: 0,
    });
    expect(await dump()).not.toMatch(/canary|v1:k1:/);
    expect(await spool.operator({ by: 'ops' }).rekey()).toMatchObject({ count: 0 });
    const found = await spool
      .operator({ by: 'ops' })
      .tally('destination', { destination: 'canary-mx' });
    expect(found).toMatchObject([{ key: 'canary-mx', count: 6 }]);
    for await (const { envelope, status } of spool.list({ destination: 'canary-mx' })) {
      expect([envelope.destination, status.policy]).toEqual(['canary-mx', 'canary-policy']);
    }
  });
});
