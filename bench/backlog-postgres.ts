/**
 * backlog-postgres — what a claim costs in PostgreSQL beside many messages that are not due.
 *
 * The backlog is one message, written by our store, copied within the server.
 */

import { Client } from 'pg';
import type { EntryStore } from 'respool';
import { postgres } from 'respool/stores/postgres';
import { sampleEntry } from 'respool/testkit';
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
    await multiply(url, schema, backlog);
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

/** Makes `count` messages of the one that is there. */
async function multiply(url: string, schema: string, count: number): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ name: string }>(
      `SELECT column_name AS name FROM information_schema.columns
      WHERE table_schema = $1 AND table_name = 'entries' ORDER BY ordinal_position`,
      [schema],
    );
    const names = rows.map(({ name }) => name);
    const values = names.map((name) => {
      if (name === 'seq') return `e.seq + n`;
      if (name === 'id') return `e.id || '-' || n`;
      return name === 'due_at' ? 'e.due_at + n % 1000' : `e.${name}`;
    });
    const numbers = `generate_series(1, ${count - 1}) AS n`;
    await client.query('SET synchronous_commit = off');
    await client.query(`INSERT INTO "${schema}".contents (seq, envelope, body)
      SELECT k.seq + n, replace(k.envelope, '"later-0"', '"later-0-' || n || '"'), k.body
      FROM "${schema}".contents k, ${numbers}`);
    await client.query(`INSERT INTO "${schema}".entries (${names.join(', ')})
      SELECT ${values.join(', ')} FROM "${schema}".entries e, ${numbers}`);
    await client.query(`SELECT setval('"${schema}".entries_seq', ${count + 1})`);
    await client.query('CHECKPOINT');
  } finally {
    await client.end();
  }
}

async function run(url: string, statements: readonly string[]): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}
