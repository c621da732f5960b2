/** Every program in examples/ runs as it is written, in an empty folder. */

import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { makeDatabase } from './docs/database.ts';
import { makeVhost } from './docs/vhost.ts';
import { service, skipReason } from './services/index.ts';

const run = promisify(execFile);
const examples = join(import.meta.dirname, '..', 'examples');

/** What each example must show. */
const SHOWS: Readonly<Record<string, readonly RegExp[]>> = {
  'spool.ts': [/enqueued \{ duplicate: false \}/, /state deferred/, /count \{/],
  'your-own-tests.ts': [/three attempts in 1h of virtual time/],
};

/** These need servers, which they find in the environment. */
const WITH_SERVERS = 'where-it-is-kept.ts';
const WITH_BROKER = 'rabbit.ts';
const WITH_BOTH = 'outbox.ts';

/** These are more than one file: a configuration, and what is around it. */
const FOLDERS = ['quickstart', 'without-code'];

test('every example has its expectation here', async () => {
  const files = await readdir(examples);
  const all = [...Object.keys(SHOWS), ...FOLDERS, WITH_SERVERS, WITH_BROKER, WITH_BOTH];
  expect(files.toSorted()).toEqual(all.toSorted());
});

test.skipIf([skipReason('postgres'), skipReason('s3')].some((reason) => reason !== undefined))(
  `examples/${WITH_SERVERS} runs as written, with both servers`,
  async () => {
    const env = {
      ...process.env,
      POSTGRES_URL: await service('postgres'),
      S3_URL: await service('s3'),
    };
    await makePlaces(env);
    const file = join(examples, WITH_SERVERS);
    const { stdout } = await run(process.execPath, ['--conditions=respool-source', file], { env });
    expect(stdout).toContain('of 1000000 bytes less than a tenth is kept: true');
    expect(stdout).toContain('5 bytes from PostgreSQL');
    expect(stdout).toContain('1000000 bytes from the bucket');
  },
);

/** The bucket that the example expects; its schema is gone afterwards. */
async function makePlaces(env: { readonly POSTGRES_URL: string; readonly S3_URL: string }) {
  const { origin, username, password } = new URL(env.S3_URL);
  const client = new S3Client({
    endpoint: origin,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: username, secretAccessKey: password },
  });
  await client.send(new CreateBucketCommand({ Bucket: 'spool' })).catch((error: Error) => {
    if (!error.name.startsWith('BucketAlready')) throw error;
  });
  client.destroy();
  onTestFinished(async () => {
    const database = new pg.Client({ connectionString: env.POSTGRES_URL });
    await database.connect();
    await database.query('SET client_min_messages = warning');
    await database.query('DROP SCHEMA IF EXISTS respool CASCADE');
    await database.end();
  });
}

test.skipIf(skipReason('rabbitmq') !== undefined)(
  `examples/${WITH_BROKER} runs as written, at a broker`,
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'respool-example-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const { url, remove } = await makeVhost();
    onTestFinished(remove);
    const env = { ...process.env, NO_COLOR: '1', RABBITMQ_URL: url };
    const args = ['--conditions=respool-source', join(examples, WITH_BROKER)];
    const { stdout } = await run(process.execPath, args, { cwd: folder, timeout: 240_000, env });
    expect(stdout).toContain('safe in the spool: broker');
    expect(stdout).toContain('order 1, attempt 1, order.created');
    expect(stdout).toContain('order 1, attempt 2, order.created');
    expect(stdout).toContain('perDelay: orders.delay_2s orders.delay_5s orders.delay_15s');
    expect(stdout).toContain('perAttempt: orders__retry.1 orders__retry.2 orders__retry.3');
  },
);

test.skipIf(
  [skipReason('postgres'), skipReason('rabbitmq')].some((reason) => reason !== undefined),
)(`examples/${WITH_BOTH} runs as written, with a database and a broker`, async () => {
  const { url, remove } = await makeVhost();
  onTestFinished(remove);
  const database = await makeDatabase();
  onTestFinished(database.remove);
  const env = { ...process.env, NO_COLOR: '1', RABBITMQ_URL: url, DATABASE_URL: database.url };
  const args = ['--conditions=respool-source', join(examples, WITH_BOTH)];
  // Twice, as anybody does who tries something.
  for (let times = 0; times < 2; times += 1) {
    const { stdout } = await run(process.execPath, args, { timeout: 240_000, env });
    expect(stdout).toBe('order.process: charged\n{ charges: 1 }\n');
  }
});

for (const [file, patterns] of Object.entries(SHOWS)) {
  test(`examples/${file} runs as written`, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'respool-example-'));
    try {
      const { stdout } = await run(
        process.execPath,
        ['--conditions=respool-source', join(examples, file)],
        { cwd: folder, timeout: 240_000, env: { ...process.env, NO_COLOR: '1' } },
      );
      for (const pattern of patterns) expect(stdout).toMatch(pattern);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}
