/** standby — with a synchronous standby, what is acknowledged is on two machines. */

import type pg from 'pg';
import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { postgres } from 'respool/stores/postgres';
import { withService } from '../../services/index.ts';
import { atEnd, connect } from './setup.ts';
import { copier, startPair } from './standby.ts';
import { claimRequest } from '../requests.ts';

const copy = copier() ?? '';

/** Our commits that wait for the standby: process and statement. */
async function waiting(client: pg.Client): Promise<readonly { pid: number; query: string }[]> {
  const sql = `SELECT pid, query FROM pg_stat_activity
    WHERE application_name = 'respool' AND wait_event = 'SyncRep'`;
  return (await client.query(sql)).rows;
}

withService('postgres', () => {
  // Where servers come from containers, there is no program to copy one with.
  test.skipIf(copy === '')(
    'nothing is told as stored before the standby has it, also when the wait is cut short',
    async () => {
      const { primary, standby, standbyUrl } = await startPair(copy);
      const store = postgres({ url: primary.url, statementTimeout: '60s' });
      await store.open();
      atEnd(() => store.close());
      expect(store.traits.durability).toBe('node-loss');
      expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);

      const client = await connect(primary.url);
      atEnd(() => client.end());
      await standby.freeze();
      let isTold = false;
      const inserting = store.insert([sampleEntry('b')]).finally(() => {
        isTold = true;
      });
      const waits = async () => (await waiting(client)).map(({ query }) => query).join();
      await expect.poll(waits).toMatch(/INSERT INTO .*"entries"/s);
      // A claim waits for nobody: what a crash forgets of it is delivered once more.
      const taken = await store.claim(claimRequest(store));
      expect(taken.map(({ envelope }) => envelope.id)).toContain('a');

      // The server calls a commit done whose wait was cancelled, and warns. So we wait for another
      // one; and where that is cancelled too, the insert is asked for its receipt.
      for (const next of [/pg_logical_emit_message/, /^COMMIT/]) {
        const [first] = await waiting(client);
        await client.query('SELECT pg_cancel_backend($1)', [first?.pid]);
        await expect.poll(waits).toMatch(next);
        expect(isTold).toBe(false);
      }

      await standby.thaw();
      expect(await inserting).toEqual(['stored']);
      const reader = await connect(standbyUrl);
      atEnd(() => reader.end());
      const sql = "SELECT count(*)::int AS n FROM respool.entries WHERE id = 'b'";
      await expect.poll(async () => (await reader.query(sql)).rows[0].n).toBe(1);
    },
  );
});
