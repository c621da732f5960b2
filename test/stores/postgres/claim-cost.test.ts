/** claim-cost — a claim looks at little more than it takes, also in tables nobody has measured. */

import type pg from 'pg';
import { expect, test } from 'vitest';
import { sampleEntries } from 'respool/testkit';
import { Claims } from '../../../src/stores/postgres/claim.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import { OrderKeys } from '../../../src/stores/postgres/order-keys.ts';
import { keyedEntry } from '../../../src/testkit/entry-cases/order.ts';
import { withService } from '../../services/index.ts';
import { faultyPool } from './faulty-pool.ts';
import { mostRows, type Node } from './plan.ts';
import { asking, misjudge, openClient, openStore, ownSchema } from './setup.ts';
import { systemClock } from '../../time.ts';
import { claimIds, claimRequest } from '../requests.ts';

/** Claims in a transaction that is taken back, and says what that cost. */
async function rowsOfClaim(
  client: pg.Client,
  schema: string,
  request: Parameters<Claims['claim']>[1],
  isOrdered = false,
): Promise<number> {
  let most = 0;
  const orderKeys = new OrderKeys(namesOf(schema, ''));
  if (isOrdered) orderKeys.note();
  const ask = asking(client);
  await ask('BEGIN');
  await new Claims(namesOf(schema, ''), systemClock, { orderKeys }).claim(
    async (text, values) => {
      const explained = text.replace('WITH RECURSIVE', 'EXPLAIN (ANALYZE, FORMAT JSON) $&');
      if (explained !== text) {
        const [[plan] = []] = await ask(explained, values);
        const [{ Plan }] = JSON.parse(plan as string) as readonly [{ readonly Plan: Node }];
        most = Math.max(most, mostRows(Plan));
        await ask('ROLLBACK');
        await ask('BEGIN');
      }
      // As many as were asked for, so that nothing more is looked for.
      return ask(text, values);
    },
    request,
    false,
  );
  await client.query('ROLLBACK');
  return most;
}

/** A store that nobody cleans up, and a connection beside it. */
async function setup() {
  const schema = ownSchema();
  const store = await openStore({ schema });
  const client = await openClient();
  await client.query(`ALTER TABLE "${schema}".entries SET (autovacuum_enabled = false)`);
  return { schema, store, client };
}

withService('postgres', () => {
  test('a claim by ids goes by them alone, also in a table that the server takes for empty', async () => {
    const { schema, store, client } = await setup();
    for (let part = 0; part < 5; part += 1) await store.insert(sampleEntries(1_000, `m${part}`));
    await misjudge(client, schema);
    const ids = (await claimIds(store, { max: 20 })).slice(0, 10);
    const request = claimRequest(store, { ids: ids.map((id) => id.replace('m0', 'm3')), max: 10 });
    expect(await rowsOfClaim(client, schema, request)).toBeLessThan(100);
  });

  test('a claim of 10 among 5,000 due messages goes through few of them', async () => {
    const { schema, store, client } = await setup();
    for (let part = 0; part < 5; part += 1) await store.insert(sampleEntries(1_000, `m${part}`));
    const topics = [{ pattern: 'mail.*', take: true }];
    const plain = claimRequest(store, { max: 10 });
    expect(await rowsOfClaim(client, schema, plain)).toBeLessThan(100);
    expect(await rowsOfClaim(client, schema, { ...plain, topics })).toBeLessThan(100);
    await client.query(`ANALYZE "${schema}".entries`);
    expect(await rowsOfClaim(client, schema, { ...plain, topics })).toBeLessThan(100);
  });

  test('a claim that puts one behind goes through few of the other keys', async () => {
    const { schema, store, client } = await setup();
    const urgent = { priority: 0 };
    await store.insert([
      keyedEntry('head', { state: 'hold', dueAt: null }),
      keyedEntry('next', urgent),
    ]);
    for (let part = 0; part < 5; part += 1) {
      await store.insert(sampleEntries(1_000, `m${part}`, (at) => ({ orderKey: `${part} ${at}` })));
    }
    const request = claimRequest(store, { max: 10 });
    expect(await rowsOfClaim(client, schema, request, true)).toBeLessThan(100);
    await client.query(`ANALYZE "${schema}".entries`);
    expect(await rowsOfClaim(client, schema, request, true)).toBeLessThan(100);
  });

  test('where keys are, a claim thinks of those that wait only after it met one', async () => {
    const pool = await faultyPool();
    const store = await openStore({ pool });
    const looks: string[] = [];
    pool.plan = (text) => {
      if (text.includes('claimed_from = c.slot')) {
        looks.push(text.includes('behind = true') ? 'puts behind' : 'takes');
      }
      return 'none';
    };
    const claimed = async (max = 1) => {
      looks.length = 0;
      return [...(await claimIds(store, { max })), ...looks];
    };
    await store.insert([keyedEntry('head', { state: 'hold', dueAt: null })]);
    await store.insert([keyedEntry('own', { orderKey: 'own' }), ...sampleEntries(7, 'm')]);
    expect(await claimed()).toEqual(['m-00000', 'takes']);
    await store.insert([keyedEntry('next', { priority: 0 })]);
    expect(await claimed()).toEqual(['m-00001', 'takes', 'puts behind']);
    for (const id of ['m-00002', 'm-00003', 'm-00004', 'm-00005']) {
      expect(await claimed()).toEqual([id, 'puts behind']);
    }
    // Short of what was asked for, with none that waits in the way: that was all.
    expect(await claimed(100)).toEqual(['m-00006', 'own', 'takes']);
    expect(await claimed(100)).toEqual(['takes']);
  });
});
