import { describe, expect, test } from 'vitest';
import { RetryableError } from '../../src/core/failure.ts';
import type { Entry } from '../../src/core/entry.ts';
import { systemDice } from '../../src/system/clock.ts';
import { createMemoryData, memory } from '../../src/stores/memory/index.ts';
import { createTestSpool } from '../../src/testkit/test-spool.ts';
import { type SealOptions, seal } from '../../src/transforms/seal.ts';
import { atEnd, KEYS } from './seal-setup.ts';

/** A started spool over sealed data, which a later one may share. */
async function setup(options: SealOptions, shared = createMemoryData()) {
  const raw = memory({ shared });
  await raw.open();
  const entries = seal(memory({ shared }), options);
  // Of the same chance, every spool would choose the same ids.
  const { spool, clock } = await createTestSpool({ entries, dice: systemDice });
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
    await spool.hold([id], 'canary-why', 'canary-ada');
    expect(await spool.audit()).toMatchObject([{ by: 'canary-ada', action: 'hold' }]);
    expect(await dump()).toContain(id);
    expect(await dump()).not.toContain('canary');
    await spool.release([id], 'canary-ada');
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
    await third.spool.release([id]);
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
    await last.spool.release([id]);
    await last.clock.advance('1m');
    expect(delivered).toEqual(['plain', 'acme']);
  });

  test('tells entries without a key as such, in a check and in a rekeying', async () => {
    const first = await setup({ keys: { k1: KEYS.k1 } });
    const { id } = await first.spool.enqueue({ topic: 'mail', headers: { tenant: 'acme' } });
    await first.spool.stop();
    const { spool } = await setup({ keys: { k2: KEYS.k2 } }, first.shared);
    const { findings } = await spool.check();
    expect(findings).toMatchObject([{ kind: 'key.unavailable', id }]);
    const { troubles } = await spool.rekey();
    expect(troubles).toMatchObject([{ id, code: 'key.unavailable' }]);
  });
});
