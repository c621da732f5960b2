/**
 * backlog-postgres — what a claim costs in PostgreSQL beside many messages that are not due.
 *
 * The backlog is one message, written by our store, copied within the server.
 */

import { Client } from 'pg';
import type { EntryStore } from 'respool';
import { postgres } from 'respool/stores/postgres';
import { sampleEntry } from 'respool/testkit';
import { multiplyRows } from './backlog-fill.ts';
import { dropSchema, newName } from './places.ts';

const LEASE_MS = 60_000;
const DAY_MS = 86_400_000;
const ROUNDS = 21;
/** Messages of one claim. */
const MAX = 100;
/** As an engine with one handler asks; others' topics would be passed over. */
const TOPICS = [{ pattern: 'bench', take: true }];

/** The median ms of a claim of 100, before the server knows its tables and after. */
export interface ClaimCost {
  readonly freshMs: number;
  readonly analyzedMs: number;
}

/** Fills a schema of its own with this many deferred messages and claims beside them. */
export async function postgresClaimCost(url: string, backlog: number): Promise<ClaimCost> {
  const schema = newName();
  const store = postgres({ url, schema });
  await store.open();
  try {
    const dueAt = Date.now() + DAY_MS;
    await store.insert([sampleEntry('later-0', { topic: 'bench', state: 'deferred', dueAt })]);
    await multiplyRows(url, schema, backlog);
    const freshMs = await medianClaim(store, 'fresh');
    await run(url, [
      `VACUUM ANALYZE "${schema}".entries`,
      `VACUUM ANALYZE "${schema}".contents`,
      'CHECKPOINT',
    ]);
    return { freshMs, analyzedMs: await medianClaim(store, 'analyzed') };
  } finally {
    await store.close();
    await dropSchema(url, schema);
  }
}

async function medianClaim(store: EntryStore, prefix: string): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const parts = { topic: 'bench', state: 'deferred', dueAt: Date.now() - 1 } as const;
    const due = Array.from({ length: MAX }, (_, at) =>
      sampleEntry(`${prefix}-${round}-${at}`, parts),
    );
    await store.insert(due);
    const beganAt = performance.now();
    const got = await store.claim({
      lane: 'delivery',
      states: ['deferred'],
      topics: TOPICS,
      now: Date.now(),
      leaseMs: LEASE_MS,
      holder: `${store.instance}/${prefix}${round}`,
      max: MAX,
    });
    times.push(performance.now() - beganAt);
    if (got.length !== MAX) throw new Error(`claimed ${got.length} of ${MAX}`);
  }
  return times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)] ?? Number.NaN;
}

async function run(url: string, statements: readonly string[]): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}
