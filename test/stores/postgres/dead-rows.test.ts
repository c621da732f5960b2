/**
 * dead-rows — what a transaction that somebody left open costs: the server takes no dead row away
 * meanwhile, and looks for work pass over them all the same. Pages are counted; the rates beside
 * such a transaction are measured by `npm run torture -- nodes`.
 */

import { expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries } from 'respool/testkit';
import { Claims, DueLowerBounds } from '../../../src/stores/postgres/claim.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import type { QueryRequest } from '../../../src/stores/postgres/connection.ts';
import { withService } from '../../services/index.ts';
import { asking, openClient, openStore, ownSchema } from './setup.ts';
import { systemClock } from '../../time.ts';
import { claimRequest, DELIVERY } from '../requests.ts';

const DEAD = 10_000;
const LIVE_AT = SAMPLE_AT + 10_000;
interface Read {
  readonly 'Shared Hit Blocks': number;
  readonly 'Shared Read Blocks': number;
}

withService('postgres', () => {
  test('beside a transaction left open, a claim passes over dead rows once looks took long', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const [client, idle] = [await openClient(), await openClient()];
    await client.query(`ALTER TABLE "${schema}".entries SET (autovacuum_enabled = false)`);
    await store.insert(sampleEntries(20, 'live', { dueAt: LIVE_AT }));

    const ask = asking(client);
    let pages = 0;
    const counting: QueryRequest = async (text, values) => {
      const explained = text.replace(
        'WITH RECURSIVE',
        'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) $&',
      );
      if (explained === text) return ask(text, values);
      await ask('SAVEPOINT look');
      const [[plan] = []] = await ask(explained, values);
      const [{ Plan }] = JSON.parse(plan as string) as readonly [{ readonly Plan: Read }];
      pages += Plan['Shared Hit Blocks'] + Plan['Shared Read Blocks'];
      await ask('ROLLBACK TO look');
      return ask(text, values);
    };
    // A clock by which every look takes long, or none.
    let [ms, stepMs] = [0, 0];
    const clock = { ...systemClock, monotonic: () => (ms += stepMs) };
    const floors = new DueLowerBounds(namesOf(schema, ''), clock);
    const claims = new Claims(namesOf(schema, ''), clock, { lowerBounds: floors });
    const request = { max: 10, now: LIVE_AT + 10_000 };
    const look = async () => {
      pages = 0;
      await ask('BEGIN');
      const taken = await claims.claim(counting, claimRequest(store, request), false);
      const dueAt = await claims.nextDueAt(counting, DELIVERY);
      await ask('ROLLBACK');
      return { taken: taken.length, dueAt, pages };
    };

    const clean = await look();
    // With a snapshot of its own, as a report that nobody ended.
    await idle.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await idle.query('SELECT count(*) FROM pg_class');
    for (let part = 0; part < DEAD / 1_000; part += 1) {
      const entries = sampleEntries(1_000, `dead${part}`);
      await store.insert(entries);
      await store.commit(
        entries.map(({ envelope: { id }, status }) => ({
          id,
          revision: status.revision,
          to: 'remove',
        })),
      );
    }
    const wading = await look();
    stepMs = 60;
    // Two that take long raise the floors; the next one finds where the live rows begin.
    for (let looks = 0; looks < 3; looks += 1) await look();
    const passing = await look();
    expect(floors.isRaised).toBe(true);
    for (const { taken, dueAt } of [clean, wading, passing]) {
      expect({ taken, dueAt }).toEqual({ taken: 10, dueAt: LIVE_AT });
    }
    const more = ({ pages: all }: { readonly pages: number }): number => all - clean.pages;
    // Otherwise nothing was in the way.
    expect(more(wading)).toBeGreaterThan(DEAD / 50);
    // What is left: the index got another level, and each of the many looks into it pays for that.
    expect(more(passing)).toBeLessThan(more(wading) / 4);
    await idle.query('ROLLBACK');
  });
});
