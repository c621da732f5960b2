/** doctor — what is unsafe is found, said with its remedy, and nothing is changed by looking. */
import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import { chmod, copyFile, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import path from 'node:path';
import { SimClock } from 'respool/testkit';
import { generateKey } from 'respool/transforms';
import { describe, expect, onTestFinished, test } from 'vitest';
import { examineStats } from '../../src/cli/commands/doctor/message-checks.ts';
import { fileSystem, freeSpace } from '../../src/cli/commands/doctor/storage-checks.ts';
import { loadSqlite } from '../../src/stores/shared/client.ts';
import { isDocumented } from './doctor-ids.ts';
import { fill } from './fill.ts';
import { type CallOptions, setup, type Shell } from './setup.ts';

const MANIFEST = path.join(import.meta.dirname, '../../package.json');
/** Nobody listens on port 1. */
const NO_SERVICE = { RESPOOL_SERVE_PORT: '1' };

type Findings = Readonly<Record<string, { level: string; text: string; todo?: string }>>;

/** The findings by id, and the exit code. */
async function examined(
  { cli }: Shell,
  argv: readonly string[] = [],
  options: CallOptions = {},
): Promise<{ readonly code: number; readonly found: Findings }> {
  const env = { ...NO_SERVICE, ...options.env };
  const ran = await cli(['doctor', '--json', ...argv], { ...options, env });
  const findings = ran.objects() as { id: string; level: string }[];
  // Whatever a test finds is in the list of ids.
  expect(findings.filter(({ id, level }) => !isDocumented(id, level))).toEqual([]);
  const pairs = findings.map(({ id, ...rest }) => [id, rest]);
  return { code: ran.code, found: Object.fromEntries(pairs) as Findings };
}

async function configured(config: object | string): Promise<Shell & { readonly file: string }> {
  const shell = await setup();
  const file = path.join(shell.folder, 'respool.config.json');
  await writeFile(file, typeof config === 'string' ? config : JSON.stringify(config));
  return { ...shell, file };
}

test('in an empty folder nothing is unsafe, and nothing is made', async () => {
  const shell = await setup();
  const { code, found } = await examined(shell);
  expect(code).toBe(0);
  expect(found['version.node']?.text).toBe(`Node ${process.versions.node}`);
  expect(found['version.sqlite']?.text).toMatch(/^SQLite 3\.\d+\.\d+$/);
  expect(found['version.respool']?.level).toBe('ok');
  expect(found['config.file']?.level).toBe('note');
  expect(found['store.entries.there']?.text).toContain('nothing there yet');
  expect(found['store.entries.durability']).toMatchObject({
    level: 'ok',
    text: expect.stringContaining('survives a power cut') as string,
  });
  expect(found['clock']?.level).toBe('ok');
  expect(found['service']?.text).toContain('no service answers');
  expect(await readdir(shell.folder)).toEqual([]);
});

test('for people each line has its level, and what to do below it', async () => {
  const shell = await setup();
  const { stdout, code } = await shell.cli(['doctor', '--store', 'memory:'], { env: NO_SERVICE });
  expect(code).toBe(1);
  expect(stdout).toMatch(/^ok {6}respool /m);
  expect(stdout).toMatch(
    /^unsafe {2}entries in memory: none, everything is lost .*\n {8}→ use sq/m,
  );
  expect(stdout).toMatch(/\n\d+ ok, \d+ notes?, 2 unsafe\n$/);
});

describe('messages', () => {
  test('held, bounced, deferred and paused ones are counted', async () => {
    const shell = await setup();
    await fill(shell);
    await shell.cli(['pause', 'mail.*']);
    const { code, found } = await examined(shell);
    expect(code).toBe(0);
    expect(found['messages.waiting']?.text).toBe('2 wait, 0 are being delivered');
    expect(found['messages.held']).toMatchObject({ level: 'note', text: '1 held' });
    expect(found['messages.bounced']).toMatchObject({ level: 'note', text: '1 bounced' });
    expect(found['messages.paused']?.text).toBe('"mail.*" is paused by tester@cli');
    expect(found['messages.deferred']?.level).toBe('ok');
    expect(found['messages.no-service']?.todo).toBe('respool serve');
    expect(found['store.entries.sqlite']?.text).toMatch(/^journal mode wal/);
  });

  test.each([
    [3_600_000, 'ok', 'the oldest deferred message came 1h ago'],
    [2 * 86_400_000, 'note', 'the oldest deferred message came 2d ago'],
  ])('a deferred message that is %i ms old is %s', (ageMs, level, text) => {
    const at = Date.UTC(2026, 5, 1);
    const none = { count: 0, oldestAt: null };
    const deferred = { count: 1, oldestAt: at - ageMs };
    const others = { incoming: none, active: none, hold: none, bounce: none, archived: none };
    const stats = { at, states: { ...others, deferred }, nextDueAt: null, paused: [] };
    const found = examineStats(stats, true).find(({ id }) => id === 'messages.deferred');
    expect(found).toMatchObject({ level, text });
  });

  test('a policy that messages name and nobody configured is found', async () => {
    const shell = await configured({ policies: { old: { fixed: '1s' } } });
    await shell.spool().enqueue({ id: 'one', topic: 'a' });
    await shell.cli(['policy', 'set', 'old', 'one']);
    await writeFile(shell.file, '{}');
    const { found } = await examined(shell);
    expect(found['messages.policy']?.text).toContain(
      '1 of the first 1 messages name the policy "old"',
    );
  });
});

describe('routing', () => {
  const ROUTES = [
    { topic: 'hook.special', deliver: { http: { url: 'https://a.example/' } } },
    { topic: 'hook.*', deliver: { http: { urls: { ann: 'https://b.example/' } } } },
    { topic: 'job.#', deliver: { exec: ['true'] } },
  ];

  test('what waits in a topic without a route is found, with its topics', async () => {
    const shell = await configured({ routes: ROUTES });
    const spool = shell.spool();
    for (const topic of ['lost', 'lost', 'job.a', 'other.b', 'hook.special']) {
      await spool.enqueue({ topic });
    }
    await spool.stop();
    const { found } = await examined(shell);
    expect(found['messages.unrouted']?.text).toMatch(/^3 messages wait .*"lost" \(2\)/);
    expect(found['messages.unrouted']?.text).toContain('"other.b" (1)');
    expect(found['messages.destination']).toBeUndefined();
  });

  test('what waits for a destination without a URL is found, also without one at all', async () => {
    const shell = await configured({ routes: ROUTES });
    const spool = shell.spool();
    await spool.enqueue({ topic: 'hook.new', destination: 'ann' });
    await spool.enqueue({ topic: 'hook.new', destination: 'bob' });
    await spool.enqueue({ topic: 'hook.new' });
    // The first route that fits sends these wherever they are meant for.
    await spool.enqueue({ topic: 'hook.special', destination: 'eve' });
    await spool.stop();
    const { found } = await examined(shell);
    expect(found['messages.destination']).toMatchObject({ todo: 'name it in "urls" of routes[1]' });
    expect(found['messages.destination']?.text).toMatch(
      /^2 messages wait in "hook\.new" .* held: "bob" \(1\), 1 without a destination$/,
    );
    expect(found['messages.unrouted']).toBeUndefined();
  });
});

test('routes are not held against the messages of another store or service', async () => {
  const shell = await configured({ routes: [{ topic: 'a', deliver: { exec: ['true'] } }] });
  const other = await setup();
  await other.cli(['enqueue', 'lost', '--body', 'x']);
  const store = `sqlite:${path.join(other.folder, 'respool')}`;
  const byStore = await examined(shell, ['--store', store]);
  const serving = other.start(['serve', '--port', '0']);
  const [url = ''] = await serving.printed(/http:\/\/127\.0\.0\.1:(?!7667|0\b)\d+/);
  const byUrl = await examined(shell, ['--url', url]);
  serving.signal('SIGTERM');
  await serving.ended;
  for (const { found } of [byStore, byUrl]) {
    expect(found['messages.waiting']?.text).toContain('1 wait');
    expect(found['messages.unrouted']).toBeUndefined();
  }
});

describe('a place that is no store', () => {
  test.each([
    ['a text', (file: string) => writeFile(file, 'once upon a time')],
    ['a database', (file: string) => makeDatabase(file)],
  ])('%s named as the store is said to be a file', async (_, make) => {
    const shell = await setup();
    await make(path.join(shell.folder, 'package.json'));
    for (const kind of ['sqlite', 'file']) {
      const store = `${kind}:./package.json`;
      const { code, found } = await examined(shell, ['--store', store]);
      expect(code).toBe(1);
      expect(found['store.place']?.text).toContain('it is a file, and a Respool store is a folder');
      expect(found['service']).toBeDefined();
    }
  });

  test.each([
    ['a text', 'nor any SQLite database', (file: string) => writeFile(file, 'x'.repeat(2_000))],
    ['a database', 'of another program', (file: string) => makeDatabase(file)],
  ])('%s named as entries is said to be no store', async (_, what, make) => {
    const shell = await configured({ entries: 'sqlite:./other.db', bodies: 'file:./bodies' });
    await make(path.join(shell.folder, 'other.db'));
    const { found } = await examined(shell);
    expect(found['store.entries.sqlite']?.level).toBe('unsafe');
    expect(found['store.entries.sqlite']?.text).toContain(`is not a Respool store`);
    expect(found['store.entries.sqlite']?.text).toContain(what);
  });
});

/** A database of another program. */
async function makeDatabase(file: string): Promise<void> {
  const database = (await loadSqlite())(file);
  database.exec('CREATE TABLE users (id)');
  database.close();
}

describe('the clock', () => {
  test('one that went back before the newest message is unsafe', async () => {
    const shell = await setup();
    await shell.spool().enqueue({ topic: 'a' });
    const clock = new SimClock({ startAt: Date.now() - 3_600_000 });
    const { code, found } = await examined(shell, [], { clock });
    expect(code).toBe(1);
    expect(found['clock.newest']?.text).toMatch(/the clock went back/);
    expect(found['clock']?.text).toMatch(/apart$/);
  });

  test('one from before our time is unsafe', async () => {
    const shell = await setup();
    const clock = new SimClock({ startAt: Date.UTC(1970, 0, 2) });
    const { found } = await examined(shell, [], { clock });
    expect(found['clock']).toMatchObject({
      level: 'unsafe',
      text: 'the clock says 1970-01-02T00:00:00.000Z, which is over',
    });
  });
});

describe('the configuration', () => {
  test('one that is wrong is unsafe, and ends the report', async () => {
    const shell = await configured({ lease: '1ms' });
    const { code, found } = await examined(shell);
    expect(code).toBe(1);
    expect(found['config']).toMatchObject({ level: 'unsafe' });
    expect(found['config']?.text).toContain('"lease"');
    expect(found['store.entries.durability']).toBeUndefined();
  });

  test('one whose routes alone are wrong is unsafe, and the rest is looked at', async () => {
    const deliver = { http: { url: '${NOT_SET}' } };
    const { code, found } = await examined(await configured({ routes: [{ topic: 'a', deliver }] }));
    expect(code).toBe(1);
    expect(found['config']?.text).toContain('NOT_SET');
    expect(found['store.entries.durability']?.level).toBe('ok');
    expect(found['routes.none']).toBeUndefined();
  });

  test('consumers are looked at as routes are, and their broker too', async () => {
    const consumer = { queue: 'a', deliver: { http: { url: 'http://far.example/' } } };
    const url = 'amqp://u:canary-1234@broker.example';
    const plain = await examined(await configured({ rabbit: { url }, consumers: [consumer] }));
    expect(plain.found['consumers[0].plain']?.level).toBe('unsafe');
    expect(plain.found['consumers[0].url.plain']?.text).toContain('broker.example');
    expect(JSON.stringify(plain.found)).not.toContain('canary');
    expect(plain.found['routes.none']).toBeUndefined();
    const safe = { url: 'amqps://u@broker.example', queue: 'a', deliver: { exec: ['true'] } };
    const { found } = await examined(await configured({ consumers: [safe] }));
    expect(found['routes']?.text).toBe('0 routes and 1 consumer, no problems found');
  });

  test.each([
    [0o644, 'unsafe'],
    [0o640, 'note'],
    [0o600, 'ok'],
  ])('a file with secrets and the rights %o is %s', async (mode, level) => {
    const http = { url: 'https://example.com/', headers: { authorization: 'canary-1234567890' } };
    const shell = await configured({ routes: [{ topic: 'a', deliver: { http } }] });
    await chmod(shell.file, mode);
    const { found } = await examined(shell);
    expect(found['config.secrets']?.level).toBe(level);
    expect(JSON.stringify(found)).not.toContain('canary');
  });

  test('the hash of a token is no secret', async () => {
    const tokens = [{ name: 'a', role: 'read', sha256: 'ab'.repeat(32) }];
    const token = `sha256:${'cd'.repeat(32)}`;
    const shell = await configured({ serve: { token, tokens } });
    await chmod(shell.file, 0o644);
    const { code, found } = await examined(shell);
    expect(code).toBe(0);
    expect(found['config.secrets']).toBeUndefined();
    expect(found['serve.listen']).toMatchObject({ level: 'ok' });
  });

  test('listening everywhere without a token is unsafe', async () => {
    const { found } = await examined(await configured({ serve: { host: '0.0.0.0' } }));
    expect(found['serve.listen']).toMatchObject({ level: 'unsafe' });
  });

  test('listening everywhere behind a proxy is worth a note', async () => {
    const serve = { host: '0.0.0.0', token: `sha256:${'cd'.repeat(32)}`, behindProxy: true };
    const { found } = await examined(await configured({ serve }));
    expect(found['serve.listen']).toMatchObject({ level: 'note' });
    expect(found['serve.listen']?.todo).toContain('only the proxy');
  });

  test('routes in plain text, to metadata, or with limits that do not fit are found', async () => {
    const http = (url: string, more: object = {}): object => ({ http: { url, ...more } });
    const { code, found } = await examined(
      await configured({
        lease: '2s',
        routes: [
          { topic: 'plain', deliver: http('http://example.com/') },
          { topic: 'meta', deliver: http('https://a.example/', { allow: ['169.254.169.254'] }) },
          { topic: 'slow', deliver: http('https://b.example/', { timeout: '1m' }), timeout: '5s' },
          { topic: 'fine', deliver: http('http://127.0.0.1:1/', { allow: ['127.0.0.1'] }) },
        ],
      }),
    );
    expect(code).toBe(1);
    const odd = Object.entries(found).filter(([id]) => /^(?:routes|lease)/.test(id));
    expect(Object.fromEntries(odd.map(([id, { level }]) => [id, level]))).toEqual({
      'routes[0].plain': 'unsafe',
      'routes[1].allow': 'unsafe',
      'routes[2].timeout': 'note',
      'lease.short': 'note',
    });
  });

  test('a command that is not there, may not be run, or is given no file is found', async () => {
    const shell = await configured({
      routes: [
        { topic: 'gone', deliver: { exec: ['./send.sh'] } },
        { topic: 'rights', deliver: { exec: ['./plain.sh'] } },
        { topic: 'path', deliver: { exec: ['no-such-program-anywhere'] } },
        { topic: 'script', deliver: { exec: ['sh', './missing.sh'] } },
        { topic: 'folder', deliver: { exec: { command: ['true'], cwd: './nowhere' } } },
        { topic: 'fine', deliver: { exec: ['sh', './plain.sh', '--fast'] } },
        { topic: 'also', deliver: { exec: ['sh', '-c', 'exit 0'] } },
      ],
      bounces: [{ topic: '#', deliver: { exec: ['./told.sh'] } }],
      alerts: { to: { me: { exec: ['./alarm.sh'] } } },
      outbox: { store: 'sqlite:./app.db', relay: { to: { exec: ['./relay.sh'] } } },
    });
    await writeFile(path.join(shell.folder, 'plain.sh'), 'exit 0\n', { mode: 0o644 });
    const { code, found } = await examined(shell);
    expect(code).toBe(1);
    const odd = Object.entries(found).filter(([id]) => id.endsWith('.exec'));
    expect(Object.fromEntries(odd.map(([id, { level }]) => [id, level]))).toEqual({
      'routes[0].exec': 'unsafe',
      'routes[1].exec': 'unsafe',
      'routes[2].exec': 'unsafe',
      'routes[3].exec': 'note',
      'routes[4].exec': 'unsafe',
      'bounces[0].exec': 'unsafe',
      'alerts.to.me.exec': 'unsafe',
      'outbox.relay.to.exec': 'unsafe',
    });
    expect(found['routes[0].exec']?.text).toContain(path.join(shell.folder, 'send.sh'));
    expect(found['routes[1].exec']?.text).toContain('chmod +x');
    expect(found['routes[2].exec']?.text).toContain('not found in PATH');
  });

  test('the topology of consumers is said to be assumed, since no broker is asked', async () => {
    const consumers = [{ url: 'amqp://127.0.0.1:1', queue: 'orders', deliver: { exec: ['true'] } }];
    const { found } = await examined(await configured({ consumers }));
    expect(found['consumers.topology']).toMatchObject({
      level: 'note',
      text: expect.stringContaining('assumed, not verified') as string,
      todo: 'respool rabbit doctor',
    });
  });

  test('fewer slots than the routes may use is worth a note', async () => {
    const deliver = { exec: ['true'] };
    const routes = [{ topic: 'a', deliver, concurrency: 20 }];
    const { found } = await examined(await configured({ concurrency: 5, routes }));
    expect(found['config.warning']?.text).toContain('concurrency is 5, the routes may use 20');
  });
});

describe('TLS', () => {
  const PAIR = path.join(import.meta.dirname, '../web/tls');

  /** A service with this key, or the right one. */
  async function withTls(mode: number, key?: string): Promise<Shell> {
    const shell = await configured({ serve: { tls: { key: 'key.pem', cert: 'cert.pem' } } });
    await copyFile(path.join(PAIR, 'cert.pem'), path.join(shell.folder, 'cert.pem'));
    const file = path.join(shell.folder, 'key.pem');
    await writeFile(file, key ?? (await readFile(path.join(PAIR, 'key.pem'))));
    await chmod(file, mode);
    return shell;
  }

  test('a pair that fits and is kept well is fine', async () => {
    const { found } = await examined(await withTls(0o600));
    expect(found['serve.tls']).toMatchObject({ level: 'ok' });
    expect(found['serve.tls.key']).toBeUndefined();
  });

  test('a key that everybody can read is unsafe', async () => {
    const { code, found } = await examined(await withTls(0o644));
    expect(code).toBe(1);
    expect(found['serve.tls.key']?.todo).toMatch(/^chmod 600 /);
  });

  test('a certificate that is over, or will be soon, is found', async () => {
    const { validTo } = new X509Certificate(await readFile(path.join(PAIR, 'cert.pem')));
    const end = Date.parse(validTo);
    const shell = await withTls(0o600);
    for (const [startAt, level] of [
      [end + 86_400_000, 'unsafe'],
      [end - 86_400_000, 'note'],
    ] as const) {
      const { found } = await examined(shell, [], { clock: new SimClock({ startAt }) });
      expect(found['serve.tls']?.level).toBe(level);
    }
  });

  test('another key, or none, is unsafe', async () => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const other = privateKey.export({ type: 'pkcs8', format: 'pem' });
    const wrong = await examined(await withTls(0o600, String(other)));
    expect(wrong.found['serve.tls']?.text).toContain('is not that of the certificate');
    const broken = await examined(await withTls(0o600, 'nonsense'));
    expect(broken.found['serve.tls']).toMatchObject({ level: 'unsafe' });
  });
});

describe('stores', () => {
  test('a promise that a power cut breaks is worth a note', async () => {
    const shell = await setup();
    const { found } = await examined(shell, ['--store', 'sqlite:./respool?synchronous=normal']);
    expect(found['store.entries.durability']).toMatchObject({ level: 'note' });
    expect(found['store.entries.durability']?.todo).toContain('synchronous=normal');
  });

  test.each([
    [0o755, 'unsafe'],
    [0o750, 'note'],
    [0o700, 'ok'],
  ])('a folder with the rights %o is %s', async (mode, level) => {
    const shell = await setup();
    const folder = path.join(shell.folder, 'respool');
    await mkdir(folder);
    await chmod(folder, mode);
    const { found } = await examined(shell);
    expect(found['store.entries.rights']?.level).toBe(level);
  });

  test.each([
    [0xef53, 'ok'],
    [0x6969, 'unsafe'],
    [0x01021994, 'unsafe'],
    [0x794c7630, 'note'],
    [0x12345, 'ok'],
  ])('a file system of type 0x%x is %s', (type, level) => {
    expect(fileSystem('a', type)).toMatchObject({ id: 'a.file-system', level });
  });

  test.each([
    ['plenty', { bavail: 1e6, ffree: 1e6 }, ['ok', 'ok']],
    ['less than 1 GiB', { bavail: 1e5, ffree: 2e4 }, ['note', 'note']],
    ['nearly nothing', { bavail: 1e4, ffree: 10 }, ['unsafe', 'unsafe']],
  ])('room on the disk: %s', (_, free, levels) => {
    const disk = { bsize: 4_096, blocks: 2e6, files: 2e6, ...free };
    expect(freeSpace('a', disk).map(({ level }) => level)).toEqual(levels);
  });

  test('a file system that counts no inodes is not asked for them', () => {
    const disk = { bavail: 1e6, bsize: 4_096, blocks: 2e6, files: 0, ffree: 0 };
    expect(freeSpace('a', disk).map(({ id }) => id)).toEqual(['a.free']);
  });
});

describe('the environment', () => {
  test.each([
    [{ NODE_TLS_REJECT_UNAUTHORIZED: '0' }, 'environment.tls', 'unsafe'],
    [{ NODE_OPTIONS: '--insecure-http-parser' }, 'environment.node-options', 'unsafe'],
    [{ NODE_OPTIONS: '--inspect=0.0.0.0:9229' }, 'environment.node-options', 'unsafe'],
    [{ NODE_OPTIONS: '--max-old-space-size=512' }, 'environment.node-options', 'note'],
  ])('%j is %s', async (env, id, level) => {
    const { found } = await examined(await setup(), [], { env });
    expect(found[id]?.level).toBe(level);
  });
});

describe('the service', () => {
  test.each(['file:./files', 'sqlite:./rows'])(
    'one that runs on %s is found ready',
    async (store) => {
      const shell = await configured({ store });
      const serving = shell.start(['serve', '--port', '0']);
      const [url = ''] = await serving.printed(/http:\/\/127\.0\.0\.1:(?!7667|0\b)\d+/);
      const post = await fetch(`${url}/v1/topics/a/messages`, { method: 'POST', body: 'x' });
      expect(post.status).toBe(201);
      const env = { RESPOOL_SERVE_PORT: new URL(url).port };
      const { code, found } = await examined(shell, [], { env });
      expect(code).toBe(0);
      const { version } = JSON.parse(await readFile(MANIFEST, 'utf8')) as { version: string };
      expect(found['service']?.text).toBe(`respool ${version} answers at ${url}, ready`);
      expect(found['service.version']).toBeUndefined();
      expect(found['messages.waiting']?.level).toBe('ok');
      expect(found['messages.no-service']).toBeUndefined();
      serving.signal('SIGTERM');
      await serving.ended;
    },
  );

  test('something else at its address is unsafe', async () => {
    const server = createServer((_, response) => response.writeHead(404).end('who?'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.close();
    });
    const env = { RESPOOL_SERVE_PORT: String((server.address() as AddressInfo).port) };
    const { code, found } = await examined(await setup(), [], { env });
    expect(code).toBe(1);
    expect(found['service']?.text).toContain('not respool (status 404)');
  });

  test.each(['sqlite:./mine', 'memory:'])(
    'one that has another store open than %s is not taken for its own',
    async (store) => {
      const other = await configured({ store: 'sqlite:./other' });
      const serving = other.start(['serve', '--port', '0']);
      const [url = ''] = await serving.printed(/http:\/\/127\.0\.0\.1:(?!7667|0\b)\d+/);
      const shell = await configured({ store });
      if (store !== 'memory:') await shell.cli(['enqueue', 'a', '--body', 'x']);
      const env = { RESPOOL_SERVE_PORT: new URL(url).port };
      const { code, found } = await examined(shell, [], { env });
      expect(code).toBe(1);
      expect(found['service.store']).toMatchObject({ level: 'unsafe' });
      expect(found['service.store']?.text).toContain(`the service at ${url} has another store`);
      if (store !== 'memory:') expect(found['messages.no-service']?.level).toBe('note');
      serving.signal('SIGTERM');
      await serving.ended;
    },
  );

  test('what takes its port and never answers is unsafe, and is asked for nothing else', async () => {
    const server = createTcpServer((socket) => socket.resume());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.close();
    });
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { code, found } = await examined(await setup(), ['--url', url]);
    expect(code).toBe(1);
    expect(found['service']).toMatchObject({ level: 'unsafe' });
    expect(found['service']?.text).toContain(`what listens at ${url} does not answer`);
    expect(found['messages']).toBeUndefined();
  });

  test('a store whose owner is no service is looked at without its messages', async () => {
    const shell = await setup();
    const { filesystem } = await import('respool/stores/filesystem');
    const entries = filesystem({ path: path.join(shell.folder, 'files', 'entries') });
    await entries.open();
    const { code, found } = await examined(shell, ['--store', 'file:./files']);
    await entries.close();
    expect(code).toBe(0);
    expect(found['messages']?.level).toBe('note');
    expect(found['messages']?.text).toContain('it is open in process');
  });

  test('an address in plain text elsewhere is unsafe', async () => {
    const { found } = await examined(await setup(), ['--url', 'http://respool.invalid:1/']);
    expect(found['url.plain']).toMatchObject({ level: 'unsafe' });
    expect(found['store.entries.durability']).toBeUndefined();
  });
});

describe('transforms', () => {
  const KEY = generateKey();

  async function withKeys(transforms: object, seal?: object): Promise<Shell & { file: string }> {
    const shell = await configured({ transforms, ...(seal === undefined ? {} : { seal }) });
    await chmod(shell.file, 0o600);
    for (const name of ['k1.key', 'k2.key']) {
      await writeFile(path.join(shell.folder, name), generateKey(), { mode: 0o600 });
    }
    return shell;
  }

  test('the codec and the ids of the keys that can be had are told, and no key', async () => {
    const keys = { k1: 'file:k1.key', k2: 'file:k2.key', k3: KEY };
    const encrypt = { keys, primary: 'k2', pad: true };
    const shell = await withKeys(['zstd', { encrypt }], { keys: { s1: 'file:k1.key' } });
    const { code, found } = await examined(shell);
    expect(code).toBe(0);
    expect(found['transforms[0]']?.text).toBe('bodies are compressed with zstd');
    expect(found['transforms[1].keys']).toMatchObject({
      level: 'ok',
      text: 'keys of encrypt that can be had here: k1, k2 (primary), k3',
    });
    expect(found['seal.keys']?.text).toContain('the seal that can be had here: s1 (primary)');
    expect(found['transforms.length']).toBeUndefined();
    expect(JSON.stringify(found)).not.toContain(KEY);
  });

  test.each<[string, object]>([
    ['alone', { keys: { k1: 'file:gone.key' } }],
    ['among others', { keys: { k1: 'file:gone.key', k2: 'file:k2.key' }, primary: 'k1' }],
  ])('a key that writes and cannot be had is unsafe: %s', async (_, encrypt) => {
    const { code, found } = await examined(await withKeys({ encrypt }));
    expect(code).toBe(1);
    expect(found['transforms[0].keys.k1']).toMatchObject({ level: 'unsafe' });
  });

  test('a key that only reads and cannot be had here is worth a note', async () => {
    const shell = await withKeys({ decrypt: { keys: { k1: 'file:gone.key', k2: 'env:NOT_SET' } } });
    const { code, found } = await examined(shell);
    expect(code).toBe(0);
    expect(found['transforms[0].keys.k1']).toMatchObject({ level: 'note' });
    expect(found['transforms[0].keys.k2']?.text).toContain('NOT_SET');
    expect(found['transforms[0].keys']).toBeUndefined();
  });

  test.each([
    [0o644, 'unsafe'],
    [0o640, 'note'],
  ])('a file of a key with the rights %o is %s', async (mode, level) => {
    const shell = await withKeys({ encrypt: { keys: { k1: 'file:./k1.key' } } });
    await chmod(path.join(shell.folder, 'k1.key'), mode);
    const { found } = await examined(shell);
    expect(found['transforms[0].keys.k1.file']).toMatchObject({ level });
    expect(found['transforms[0].keys.k1.file']?.todo).toContain('chmod 600');
  });

  test('a key in a configuration that others can read is unsafe', async () => {
    const shell = await withKeys({ encrypt: { keys: { k1: KEY } } });
    expect((await examined(shell)).found['config.secrets']?.level).toBe('ok');
    await chmod(shell.file, 0o644);
    const { code, found } = await examined(shell);
    expect(code).toBe(1);
    expect(found['config.secrets']).toMatchObject({ level: 'unsafe' });
    expect(JSON.stringify(found)).not.toContain(KEY);
  });

  test('what the length of a compressed body gives away is worth a note', async () => {
    const shell = await withKeys(['gzip', { encrypt: { keys: { k1: 'file:k1.key' } } }]);
    const { code, found } = await examined(shell);
    expect(code).toBe(0);
    expect(found['transforms.length']).toMatchObject({ level: 'note' });
    expect(found['transforms.length']?.todo).toContain('pad: true');
  });

  test('without any there is nothing to tell', async () => {
    const { found } = await examined(await configured({}));
    expect(Object.keys(found).filter((id) => /^(?:transforms|seal)/.test(id))).toEqual([]);
  });
});

test('--sql prints the statements of the configured tables, and looks at nothing', async () => {
  const store = 'postgres://nobody@127.0.0.1:1/none?schema=mail&tables=out_';
  const shell = await configured({ store });
  const ran = await shell.cli(['doctor', '--sql']);
  expect(ran.code).toBe(0);
  expect(ran.stdout).toContain('-- Claim: filtered scan\n\\set now ');
  expect(ran.stdout).toContain('"mail"."out_entries"');
  const statements = (await shell.cli(['doctor', '--sql', '--json'])).objects();
  expect(statements[0]).toMatchObject({
    title: 'Insert a batch, with its receipt',
    sql: expect.stringContaining('INSERT INTO "mail"."out_entries"') as string,
    parameters: { topic: 'a.b' },
  });
});

// Regression: it asked for the secrets of the routes, which only the service has.
test('--sql needs no secret of a route', async () => {
  const deliver = { http: { url: 'https://example.com', secret: '${WEBHOOK_SECRET}' } };
  const shell = await configured({ store: 'memory:', routes: [{ topic: 'a', deliver }] });
  expect((await shell.cli(['doctor', '--sql'])).code).toBe(0);
});

test('--sql of a store that is not on PostgreSQL prints those of the default tables', async () => {
  const shell = await setup();
  const ran = await shell.cli(['doctor', '--sql']);
  expect(ran.code).toBe(0);
  expect(ran.stderr).toContain('not on PostgreSQL');
  expect(ran.stdout).toContain('"respool"."entries"');
});

test('a route behind one that takes all its topics is a finding, and a warning of serve', async () => {
  const deliver = { exec: ['true'] };
  const shell = await configured({
    routes: ['a.#', 'a.b'].map((topic) => ({ topic, deliver })),
    bounces: ['c.*', 'c.d'].map((topic) => ({ topic, deliver })),
  });
  const text = 'routes[1] "a.b" gets nothing: routes[0] "a.#" before it takes all';
  const ran = await shell.cli(['doctor', '--json'], { env: NO_SERVICE });
  const texts = ran
    .objects()
    .flatMap((one) => (one['id'] === 'config.warning' ? [one['text']] : []));
  expect(texts).toEqual([
    text,
    'bounces[1] "c.d" gets nothing: bounces[0] "c.*" before it takes all',
  ]);
  const running = shell.start(['serve', '--port', '0']);
  onTestFinished(async () => {
    running.signal('SIGTERM');
    await running.ended;
  });
  await running.printed(/routes\[1\] "a\.b" gets nothing/);
});
