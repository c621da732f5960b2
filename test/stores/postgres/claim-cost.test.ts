/** claim-cost — a claim looks at little more than it takes, also in tables nobody has measured. */

import type pg from 'pg';
import { expect, test } from 'vitest';
import { systemClock } from '../../../src/system/clock.ts';
import { Claims } from '../../../src/stores/postgres/claims.ts';
import { namesOf } from '../../../src/stores/postgres/names.ts';
import { claimRequest } from '../../../src/testkit/entry-cases/shared.ts';
import { sampleEntries } from '../../../src/testkit/samples.ts';
import { withService } from '../../services/index.ts';
import { openClient, openStore, ownSchema } from './setup.ts';

/** A node of a plan, as EXPLAIN tells of it. */
interface Node {
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly Node[];
}

/** The most rows that any step of a plan went through. */
function mostRows(node: Node): number {
  const perLoop = node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0);
  return Math.max(perLoop * node['Actual Loops'], ...(node.Plans ?? []).map(mostRows));
}

/** Claims in a transaction that is taken back, and says what that cost. */
async function rowsOfClaim(
  client: pg.Client,
  schema: string,
  request: Parameters<Claims['claim']>[1],
): Promise<number> {
  let most = 0;
  await client.query('BEGIN');
  await new Claims(namesOf(schema, ''), systemClock).claim(
    async (text, values = []) => {
      const explained = `EXPLAIN (ANALYZE, FORMAT JSON) ${text}`;
      const { rows } = await client.query<{ 'QUERY PLAN': readonly [{ Plan: Node }] }>(explained, [
        ...values,
      ]);
      most = Math.max(most, ...rows.map((row) => mostRows(row['QUERY PLAN'][0].Plan)));
      await client.query('ROLLBACK');
      await client.query('BEGIN');
      // As many as were asked for, so that nothing more is looked for.
      return (await client.query({ text, values: [...values], rowMode: 'array' })).rows;
    },
    request,
    false,
  );
  await client.query('ROLLBACK');
  return most;
}

withService('postgres', () => {
  test('a claim of 10 among 5,000 due messages goes through few of them', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const client = await openClient();
    await client.query(`ALTER TABLE "${schema}".entries SET (autovacuum_enabled = false)`);
    for (let part = 0; part < 5; part += 1) await store.insert(sampleEntries(1_000, `m${part}`));
    const topics = [{ pattern: 'mail.*', take: true }];
    const plain = claimRequest(store, { max: 10 });
    expect(await rowsOfClaim(client, schema, plain)).toBeLessThan(100);
    expect(await rowsOfClaim(client, schema, { ...plain, topics })).toBeLessThan(100);
    await client.query(`ANALYZE "${schema}".entries`);
    expect(await rowsOfClaim(client, schema, { ...plain, topics })).toBeLessThan(100);
  });
});
