/**
 * drain — how fast a backlog that is due is delivered, beside graphile-worker on the same server.
 *
 * Both fetch ahead and complete in batches; handlers do nothing. What waits is put there before the
 * clock starts, by the quickest way each has.
 */

import { Logger, makeWorkerUtils, run, type Runner } from 'graphile-worker';
import { Client } from 'pg';
import { createSpool } from 'respool';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import type { BenchCase, Sample } from './measure.ts';
import { bytes } from './ours.ts';
import { dropSchema, newName } from './places.ts';
import type { Servers } from './servers.ts';

const WAITING = 100_000;
const WARM_UP_WAITING = 5_000;
const BODY_BYTES = 1_024;
const CONCURRENCY = 500;
/** Messages of one call while filling. */
const FILL_BATCH = 1_000;

/** The case; ours has 500 slots, theirs 500 at once out of a local queue of 500. */
export async function drainCase(servers: Servers, name: string): Promise<BenchCase> {
  const url = await servers.url('postgres');
  const waitingFor = (ms: number): number => (ms < 1_000 ? WARM_UP_WAITING : WAITING);
  return {
    bench: 'stores',
    name,
    unit: '/s',
    against: 'graphile-worker',
    forMs: 1_000,
    rounds: 7,
    wanted: 1,
    ours: (ms) => ourDrain(url, waitingFor(ms)),
    theirs: (ms) => theirDrain(url, waitingFor(ms)),
  };
}

async function ourDrain(url: string, waiting: number): Promise<Sample> {
  const schema = newName();
  const open = (): ReturnType<typeof createSpool> =>
    createSpool({
      entries: postgres({ url, schema }),
      bodies: postgresBodies({ url, schema }),
      concurrency: CONCURRENCY,
    });
  const filling = open();
  const body = bytes(BODY_BYTES);
  for (let at = 0; at < waiting; at += FILL_BATCH) {
    await filling.enqueueMany(Array.from({ length: FILL_BATCH }, () => ({ topic: 'bench', body })));
  }
  await filling.stop();
  await settle(url, schema);
  const spool = open();
  try {
    const { drained, one } = countdown(waiting);
    spool.handle('bench', async (delivery) => {
      await delivery.body();
      one();
    });
    await spool.count();
    const beganAt = performance.now();
    await spool.start();
    await drained;
    // Until the last is gone from the table, as theirs.
    await untilEmpty(url, `"${schema}".entries`);
    return { value: (waiting / (performance.now() - beganAt)) * 1_000 };
  } finally {
    await spool.stop();
    await dropSchema(url, schema);
  }
}

async function theirDrain(url: string, waiting: number): Promise<Sample> {
  const schema = newName();
  const logger = new Logger(() => () => undefined);
  const utils = await makeWorkerUtils({ connectionString: url, schema, logger });
  await utils.migrate();
  const payload = { body: 'x'.repeat(BODY_BYTES) };
  for (let at = 0; at < waiting; at += FILL_BATCH) {
    await utils.addJobs(
      Array.from({ length: FILL_BATCH }, () => ({ identifier: 'bench', payload })),
    );
  }
  await utils.release();
  await settle(url, schema);
  const { drained, one } = countdown(waiting);
  const beganAt = performance.now();
  const runner: Runner = await run({
    preset: {
      worker: {
        connectionString: url,
        schema,
        logger,
        concurrentJobs: CONCURRENCY,
        localQueue: { size: CONCURRENCY },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    noHandleSignals: true,
    taskList: { bench: async () => one() },
  });
  await drained;
  await untilEmpty(url, `"${schema}"._private_jobs`);
  const tookMs = performance.now() - beganAt;
  await runner.stop();
  await dropSchema(url, schema);
  return { value: (waiting / tookMs) * 1_000 };
}

function countdown(from: number): { drained: Promise<void>; one: () => void } {
  let left = from;
  let finish = (): void => undefined;
  const drained = new Promise<void>((resolve) => {
    finish = resolve;
  });
  return {
    drained,
    one: () => {
      left -= 1;
      if (left === 0) finish();
    },
  };
}

/** Both begin with tables that were cleaned up and measured, and nothing left to write. */
export async function settle(url: string, schema: string): Promise<void> {
  await withClient(url, async (client) => {
    const { rows } = await client.query<{ name: string }>(
      'SELECT tablename AS name FROM pg_tables WHERE schemaname = $1',
      [schema],
    );
    for (const { name } of rows) await client.query(`VACUUM ANALYZE "${schema}"."${name}"`);
    await client.query('CHECKPOINT');
  });
}

async function untilEmpty(url: string, table: string): Promise<void> {
  await withClient(url, async (client) => {
    for (;;) {
      const { rowCount } = await client.query(`SELECT 1 FROM ${table} LIMIT 1`);
      if (rowCount === 0) return;
    }
  });
}

async function withClient(url: string, work: (client: Client) => Promise<void>): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}
