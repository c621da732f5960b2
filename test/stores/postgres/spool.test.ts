/** spool — a whole spool on PostgreSQL, entries and bodies, alone and two at once. */

import pg from 'pg';
import { createSpool } from 'respool';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { expect, test } from 'vitest';
import { withService } from '../../services/index.ts';
import { atEnd, openClient, ownSchema, serverUrl } from './setup.ts';

withService('postgres', () => {
  test('messages with small and large bodies are delivered, and nothing of them stays', async () => {
    const pool = new pg.Pool({ connectionString: await serverUrl(), max: 6 });
    atEnd(() => pool.end());
    const schema = ownSchema();
    await using spool = createSpool({
      entries: postgres({ pool, schema }),
      bodies: postgresBodies({ pool, schema }),
      requireDurability: 'power-loss',
    });
    const sizes: number[] = [];
    spool.handle('#', async (delivery) => {
      sizes.push((await delivery.body()).byteLength);
    });
    await spool.start();
    const large = Buffer.alloc(600_000, 'x');
    await Promise.all([
      spool.enqueue({ topic: 'a', body: 'small' }),
      spool.enqueue({ topic: 'a', body: large }),
    ]);
    await expect.poll(() => sizes.toSorted((a, b) => a - b)).toEqual([5, 600_000]);
    const client = await openClient();
    const left = async () => {
      const count = (table: string) => `(SELECT count(*) FROM "${schema}".${table})::int`;
      const tables = ['entries', 'contents', 'bodies', 'chunks'].map(count).join(' + ');
      return Number((await client.query(`SELECT ${tables} AS n`)).rows[0].n);
    };
    await expect.poll(left).toBe(0);
  });

  test('two spools share the work, and each message is delivered once', async () => {
    const [url, schema] = [await serverUrl(), ownSchema()];
    const seen: string[] = [];
    const by = [0, 0];
    const spools = [0, 1].map((n) => {
      const spool = createSpool({
        entries: postgres({ url, schema }),
        bodies: postgresBodies({ url, schema }),
        concurrency: 5,
      });
      spool.handle('#', async (delivery) => {
        seen.push(delivery.id);
        by[n] = (by[n] ?? 0) + 1;
        // A real handler waits for something; so the other spool gets its turn.
        await expect.poll(() => by.every((count) => count > 0)).toBe(true);
      });
      atEnd(() => spool.stop());
      return spool;
    });
    await Promise.all(spools.map((spool) => spool.start()));
    const [first] = spools;
    for (let n = 0; n < 60; n += 1) await first?.enqueue({ topic: 'a', body: String(n) });
    await expect.poll(() => seen.length).toBe(60);
    expect(new Set(seen).size).toBe(60);
    expect(Math.min(...by)).toBeGreaterThan(0);
  });
});
