/** Commands, service and doctor on stores that a server keeps; no password is ever printed. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import {
  CreateBucketCommand,
  ListObjectsV2Command,
  PutBucketLifecycleConfigurationCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, onTestFinished, test } from 'vitest';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { createSpool } from 'respool';
import { usePlaces } from '../spool/places.ts';
import { clientOf } from '../stores/s3/setup.ts';
import { type CallOptions, setup, type Shell } from './setup.ts';

const CANARY = 'c4nary-Zm9vYmFyYmF6cXV4';
const NO_SERVICE = { RESPOOL_SERVE_PORT: '1' };
const places = usePlaces();

type Findings = Readonly<Record<string, { level: string; text: string; todo?: string }>>;

async function configured(config: object, mode = 0o600): Promise<Shell> {
  const shell = await setup();
  const file = path.join(shell.folder, 'respool.config.json');
  await writeFile(file, JSON.stringify(config), { mode });
  return shell;
}

async function examined(
  { cli }: Shell,
  options: CallOptions = {},
): Promise<{ readonly code: number; readonly found: Findings; readonly printed: string }> {
  const env = { ...NO_SERVICE, ...options.env };
  const ran = await cli(['doctor', '--json'], { ...options, env });
  const pairs = ran.objects().map(({ id, ...rest }) => [id as string, rest]);
  const printed = ran.stdout + ran.stderr;
  return { code: ran.code, found: Object.fromEntries(pairs) as Findings, printed };
}

describe.each(['postgres', 'nats'])('a store in %s', (kind) => {
  test('takes messages from one command and shows them to the next', async () => {
    const shell = await configured({ store: places.address(kind, 'entries') });
    const put = await shell.cli(['enqueue', 'mail.send', '--id', 'one'], { stdin: 'hello' });
    expect(put.stderr).toBe('');
    expect((await shell.cli(['cat', 'one'])).stdout).toBe('hello');
    expect((await shell.cli(['hold', 'one'])).code).toBe(0);
    const listed = await shell.cli(['list', '--json']);
    expect(listed.objects()).toMatchObject([{ id: 'one', status: { state: 'hold' } }]);
    const stats = await shell.cli(['stats', '--json'], { env: NO_SERVICE });
    expect(stats.code).toBe(0);
  });

  test('is not made by a look', async () => {
    const shell = await configured({ store: places.address(kind, 'entries') });
    for (const argv of [['list'], ['stats'], ['hold', 'x']]) {
      const ran = await shell.cli(argv, { env: NO_SERVICE });
      expect(ran.stderr).toContain(`there is no Respool store in "${kind}://`);
      expect(ran.code).not.toBe(0);
    }
  });

  test('is named without its user by the service, which delivers what a command put there', async () => {
    const address = places.address(kind, 'entries');
    const route = { topic: '#', deliver: { exec: ['cat'] } };
    const shell = await configured({ store: address, routes: [route], serve: { port: 0 } });
    const serving = shell.start(['serve']);
    const [, store = ''] = await serving.printed(/store (\S+)/);
    expect(store).toMatch(new RegExp(`^${kind}://[^@?]+$`));
    await shell.cli(['enqueue', 'mail.send'], { stdin: 'hello' });
    await serving.printed(/delivered/);
    serving.signal('SIGTERM');
    expect((await serving.ended).code).toBe(0);
  });
});

describe('the service prints what its stores say when they open:', () => {
  test('what NATS promises', async () => {
    const store = places.address('nats', 'entries');
    const shell = await configured({ store, serve: { port: 0 } });
    const serving = shell.start(['serve']);
    await serving.printed(/"level":"info","text":"NATS [\d.]+: what is acknowledged survives/);
    await serving.printed(/listening on/);
    serving.signal('SIGTERM');
    expect((await serving.ended).code).toBe(0);
  });

  test('a lifecycle rule of S3 that removes bodies', async () => {
    const bodies = places.address('s3', 'bodies');
    await expireAll(new URL(bodies).hostname);
    const shell = await configured({ entries: 'memory:', bodies, serve: { port: 0 } });
    const serving = shell.start(['serve', '--quiet']);
    await serving.printed(/"level":"warn","text":"[^"]*\\"tidy\\" removes bodies after 3 days/);
    serving.signal('SIGTERM');
    expect((await serving.ended).code).toBe(0);
  });
});

async function keysIn(bucket: string): Promise<unknown[]> {
  const client = clientOf(places.server('s3'));
  const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket: bucket }));
  client.destroy();
  return Contents.map(({ Key }) => Key);
}

async function expireAll(bucket: string): Promise<void> {
  const client = clientOf(places.server('s3'));
  const rule = { ID: 'tidy', Filter: { Prefix: '' }, Expiration: { Days: 3 } };
  const LifecycleConfiguration = { Rules: [{ ...rule, Status: 'Enabled' as const }] };
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const input = { Bucket: bucket, LifecycleConfiguration };
  await client.send(new PutBucketLifecycleConfigurationCommand(input));
  client.destroy();
}

describe('doctor', () => {
  test('on PostgreSQL tells version, settings, tables and the promise of the pair', async () => {
    const address = places.address('postgres', 'entries');
    const shell = await configured({ store: address, requireDurability: 'power-loss' });
    const before = await examined(shell);
    expect(before.found['store.entries.tables']?.text).toContain('no tables in schema');
    await shell.cli(['enqueue', 'a'], { stdin: 'x' });
    const { found, code } = await examined(shell);
    expect(found['store.entries.version']?.text).toMatch(/^PostgreSQL \d+/);
    expect(found['store.entries.primary']?.level).toBe('ok');
    expect(found['store.entries.tables']?.text).toContain('tables of version');
    expect(found['store.entries.listen']).toMatchObject({ level: 'ok' });
    expect(found['store.entries.pooler']?.level).toBe('ok');
    expect(found['store.entries.connections']?.text).toMatch(/^\d+ of \d+ connections/);
    expect(found['messages.waiting']?.text).toContain('1 wait');
    const dangers = Object.entries(found).filter(([, { level }]) => level === 'unsafe');
    expect(dangers.map(([id]) => id)).toEqual([]);
    expect(code).toBe(0);
    expect(found['store.durability']).toMatchObject({
      level: 'ok',
      text: 'entries and bodies together: power-loss, and requireDurability is power-loss',
    });
  });

  test('says which pair is below what is required', async () => {
    const bodies = places.address('nats', 'bodies');
    const shell = await configured({
      entries: 'sqlite:./x',
      bodies,
      requireDurability: 'power-loss',
    });
    const { found, code } = await examined(shell);
    expect(code).toBe(1);
    expect(found['store.durability']).toMatchObject({
      level: 'unsafe',
      text: expect.stringContaining(
        'together: server, but requireDurability is power-loss',
      ) as string,
    });
  });

  test('on NATS tells version, replicas, sync and its stream, before and after it is made', async () => {
    const shell = await configured({ store: places.address('nats', 'entries') });
    const before = await examined(shell);
    expect(before.found['store.entries.stream']?.text).toContain('no stream');
    await shell.cli(['enqueue', 'a'], { stdin: 'x' });
    const { found } = await examined(shell);
    expect(found['store.entries.version']?.text).toMatch(/^NATS \d+/);
    expect(found['store.entries.replicas']?.text).toContain('compare-and-swap is safe');
    expect(found['store.entries.sync']?.level).toBe('note');
    expect(found['store.entries.payload']?.level).toBe('ok');
    expect(found['store.entries.stream']?.text).toMatch(/\d+ messages/);
    expect(found['store.durability']?.text).toContain('server');
    expect(found['messages.waiting']?.text).toContain('1 wait');
  });

  test('on S3 tells of conditional writes, lifecycle and versions', async () => {
    const bodies = places.address('s3', 'bodies');
    const shell = await configured({ entries: 'sqlite:./respool', bodies });
    const before = await examined(shell);
    expect(before.found['store.bodies.reached']?.text).toContain('there is no such bucket');
    expect(before.code).toBe(1);
    await shell.cli(['enqueue', 'a'], { stdin: Buffer.alloc(100_000) });
    const { found } = await examined(shell);
    expect(found['store.bodies.conditional-writes']).toBeDefined();
    expect(found['store.bodies.lifecycle']?.level).toBe('ok');
    expect(found['store.bodies.versions']?.level).toBe('ok');
    expect(found['store.bodies.durability']?.text).toContain('s3://');
    expect(await keysIn(new URL(bodies).hostname)).toEqual([expect.stringMatching(/^app\/\w\w\//)]);
    expect(found['store.durability']?.text).toContain('server');
  });

  test('says that a server cannot be reached, and goes on with the rest', async () => {
    const shell = await configured({ store: `postgres://me:${CANARY}@127.0.0.1:1/db` });
    const { found, code, printed } = await examined(shell);
    expect(code).toBe(1);
    expect(found['store.entries.reached']).toMatchObject({ level: 'unsafe' });
    expect(found['service']).toBeDefined();
    expect(printed).not.toContain(CANARY);
  });
});

test.each([
  ['postgres://app@127.0.0.1:1/db', false],
  ['postgres://app:${DB_PASSWORD}@127.0.0.1:1/db', false],
  ['nats://app:${DB_PASSWORD}@127.0.0.1:1', false],
  ['postgres://app:a-password@127.0.0.1:1/db', true],
  ['nats://a-long-token@127.0.0.1:1', true],
])('%s in a file that others can read: a danger is %s', async (store, isDanger) => {
  const shell = await configured({ store }, 0o644);
  const { found } = await examined(shell, { env: { DB_PASSWORD: CANARY } });
  expect(found['config.secrets']?.level).toBe(isDanger ? 'unsafe' : undefined);
});

test('requireDurability of a configuration refuses a server that promises less', async () => {
  const store = places.address('nats', 'entries');
  const shell = await configured({ store, requireDurability: 'node-loss' });
  const ran = await shell.cli(['enqueue', 'a'], { stdin: 'x' });
  expect(ran.code).not.toBe(0);
  expect(ran.stderr).toContain('store "nats" only promises "server"');
});

describe('config set', () => {
  test('takes an address of PostgreSQL that gets its password from the environment', async () => {
    const shell = await setup();
    const value = 'postgres://app:${DB_PASSWORD}@db.example/app';
    const env = { DB_PASSWORD: CANARY };
    const ran = await shell.cli(['config', 'set', 'store', value], { env });
    expect(ran.code).toBe(0);
    expect(ran.stderr).not.toContain('contains a password');
    const shown = await shell.cli(['config', '--json'], { env });
    expect(shown.stdout).toContain('postgres://(secret)@db.example/app');
    expect(shown.stdout + shown.stderr).not.toContain(CANARY);
  });

  test.each(['store', 'bodies'])(
    'of %s prints no password, and says where it is now',
    async (key) => {
      const shell = await setup();
      const value = `postgres://app:${CANARY}@db.example/app`;
      for (const argv of [['--json'], []]) {
        const ran = await shell.cli(['config', 'set', key, value, ...argv]);
        expect(ran.code).toBe(0);
        expect(ran.stdout + ran.stderr).not.toContain(CANARY);
        expect(ran.stderr).toContain('contains a password');
      }
    },
  );
});

describe('no command prints the password of a store that it cannot reach', () => {
  const stores: Record<string, object> = {
    postgres: { store: `postgres://me:${CANARY}@127.0.0.1:1/db?retryFor=1ms` },
    nats: { store: `nats://me:${CANARY}@127.0.0.1:1?timeoutMs=100` },
    s3: {
      entries: 'memory:',
      bodies: `s3://spool?attemptsMax=1&endpoint=http://me:${CANARY}@127.0.0.1:1`,
    },
  };
  test.each(Object.entries(stores))('%s', async (_, config) => {
    const shell = await configured({ ...config, serve: { port: 0 } });
    for (const argv of [['list'], ['doctor'], ['config'], ['enqueue', 'a'], ['serve'], ['check']]) {
      const ran = await shell.cli([...argv, '--verbose'], { env: NO_SERVICE, stdin: 'x' });
      expect(ran.stdout + ran.stderr, argv.join(' ')).not.toContain(CANARY);
      if (argv[0] === 'enqueue') expect(ran.stderr).toContain('cannot');
    }
  });
});

test('stores that a program made are used as they are', async () => {
  const url = places.server('postgres');
  const [schema = ''] = /(?<=schema=)\w+/.exec(places.address('postgres', 'entries')) ?? [];
  const options = { url, schema };
  const spool = createSpool({ entries: postgres(options), bodies: postgresBodies(options) });
  onTestFinished(() => spool.stop());
  const { id } = await spool.enqueue({ topic: 'a', body: 'hello' });
  const shell = await configured({ store: { postgres: options } });
  expect((await shell.cli(['cat', id])).stdout).toBe('hello');
});
