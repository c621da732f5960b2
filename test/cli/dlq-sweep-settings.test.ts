/** dlq sweep — every setting under its new and its old names, and who overrides whom. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import { Options } from '../../src/cli/options.ts';
import { createOut } from '../../src/cli/ui/output.ts';
import type { CommandContext, Globals } from '../../src/cli/spec.ts';
import {
  readSettings,
  type SweepCommandSettings,
} from '../../src/cli/commands/dlq/sweep/settings.ts';
import { setup } from './setup.ts';
import { systemClock } from '../time.ts';

interface Given {
  readonly options?: Readonly<Record<string, unknown>>;
  readonly globals?: Globals;
  readonly env?: Record<string, string>;
  /** A file of the old shape, given by --config. */
  readonly old?: string;
  /** A configuration of ours. */
  readonly config?: object;
  readonly dotEnv?: string;
}

interface Read {
  readonly settings: SweepCommandSettings;
  readonly context: CommandContext;
  readonly stderr: string;
  readonly folder: string;
}

async function read({ options = {}, globals = {}, env = {}, ...files }: Given): Promise<Read> {
  const { folder } = await setup();
  const put = (name: string, text: string): Promise<void> =>
    writeFile(path.join(folder, name), text);
  if (files.old !== undefined) await put('old.yaml', files.old);
  if (files.config !== undefined) await put('respool.config.json', JSON.stringify(files.config));
  if (files.dotEnv !== undefined) await put('.env', files.dotEnv);
  const stderr = new PassThrough();
  const io: CommandContext['io'] = {
    stdin: new PassThrough(),
    stdout: new PassThrough(),
    stderr,
    env,
    cwd: folder,
    user: 'tester',
    isTTY: () => false,
    columns: () => 80,
    clock: systemClock,
    onSignal: () => () => undefined,
    exit: () => undefined,
  };
  const quiet = { quiet: false, verbose: false, color: false };
  const told = await readSettings({
    args: [],
    options: new Options(options),
    globals: files.old === undefined ? globals : { ...globals, config: 'old.yaml' },
    io,
    out: createOut(io, { json: options['json'] === true, ...quiet }),
    commands,
    config: () => Promise.reject(new Error('the settings read it with their own file')),
    session: () => Promise.reject(new Error('nobody asks')),
    atEnd: () => undefined,
  });
  return { ...told, stderr: String(stderr.read() ?? ''), folder };
}

/** What a setting comes to, in words. */
const EFFECTS: Readonly<Record<string, (read: Read) => unknown>> = {
  host: ({ settings }) => new URL(settings.broker.url).hostname,
  port: ({ settings }) => new URL(settings.broker.url).port,
  management: ({ settings }) => URL.parse(settings.broker.managementUrl)?.port,
  username: ({ settings }) => decodeURIComponent(new URL(settings.broker.url).username),
  password: ({ settings }) => decodeURIComponent(new URL(settings.broker.url).password),
  vhost: ({ settings }) => settings.broker.vhost,
  tls: ({ settings }) => new URL(settings.broker.url).protocol,
  checks: ({ settings }) => settings.loaded.config.rabbit.tls?.rejectUnauthorized,
  queues: ({ settings }) => settings.patterns,
  target: ({ settings }) => settings.target,
  max: ({ settings }) => settings.max,
  file: ({ settings, folder }) => path.relative(folder, settings.dedupe?.file ?? ''),
  hours: ({ settings }) => (settings.dedupe?.maxAgeMs ?? 0) / 3_600_000,
};

/** Old name by old name: flag, key of the file, variable; then effect, two values and default. */
const OLD = [
  ['host', 'rabbitmq.host', 'RMQ_HOST', 'host', 'mq-1', 'mq-2', 'localhost'],
  ['port', 'rabbitmq.port', 'RMQ_PORT', 'port', '5673', '5674', '5672'],
  ['mgmtPort', 'rabbitmq.mgmt_port', 'RMQ_MGMT_PORT', 'management', '8080', '8081', '15672'],
  ['username', 'rabbitmq.username', 'RMQ_USERNAME', 'username', 'jörg', 'bob', 'guest'],
  ['password', 'rabbitmq.password', 'RMQ_PASSWORD', 'password', 'pä:ss/@%', '123', 'guest'],
  ['vhost', 'rabbitmq.vhost', 'RMQ_VHOST', 'vhost', 'a/b', 'ö', '/'],
  ['dlq', 'queues.dlq_name', 'DLQ_NAME', 'queues', ['a.*'], ['b'], ['my_dlq']],
  [
    'targetQueue',
    'queues.target_queue',
    'TARGET_QUEUE',
    'target',
    'x',
    'y',
    'permanent_failure_queue',
  ],
  ['maxRetries', 'queues.max_retry_count', 'MAX_RETRY_COUNT', 'max', 7, 0, 3],
] as const;

function yamlOf(key: string, value: unknown): string {
  const [section = '', name = ''] = key.split('.');
  return `${section}:\n  ${name}: ${JSON.stringify(value)}\n`;
}

/** A value as it is typed. */
function typed(value: string | number | readonly string[]): string {
  return Array.isArray(value) ? String(value[0]) : String(value);
}

describe('an old name', () => {
  test.each(OLD)(
    '%s holds as a flag, in the file and in the environment, in this order',
    async (...row) => {
      const [flag, key, variable, effect, one, other, byDefault] = row;
      const effectOf = async (given: Given): Promise<unknown> =>
        EFFECTS[effect]?.(await read(given));
      const options = { [flag]: typed(one) };
      const old = yamlOf(key, typed(one));
      const env = { [variable]: typed(one) };
      expect(await effectOf({ options })).toEqual(one);
      expect(await effectOf({ old })).toEqual(one);
      expect(await effectOf({ env })).toEqual(one);
      expect(await effectOf({ dotEnv: `${variable}='${typed(one)}'` })).toEqual(one);
      expect(await effectOf({ options, old: yamlOf(key, typed(other)) })).toEqual(one);
      expect(await effectOf({ old, env: { [variable]: typed(other) } })).toEqual(one);
      expect(await effectOf({ options, env: { [variable]: typed(other) } })).toEqual(one);
      // Another old name switches the old defaults on; a variable that is set to nothing is not set.
      const another = flag === 'host' ? { RMQ_VHOST: '/' } : { RMQ_HOST: 'localhost' };
      expect(await effectOf({ env: { ...another, [variable]: '' } })).toEqual(byDefault);
    },
  );

  test('--ssl, use_ssl and RMQ_USE_SSL mean TLS, and no certificate is checked when told so', async () => {
    const { tls, checks, management } = EFFECTS;
    for (const given of [
      { options: { ssl: true } },
      { old: 'rabbitmq: { use_ssl: true }' },
      { env: { RMQ_USE_SSL: 'True' } },
      { options: { ssl: true }, old: 'rabbitmq: { use_ssl: false }' },
      { old: 'rabbitmq: { use_ssl: yes }', env: { RMQ_USE_SSL: '0' } },
    ]) {
      const told = await read(given);
      expect(tls?.(told)).toBe('amqps:');
      expect(checks?.(told)).toBeUndefined();
      expect(management?.(told)).toBe('15672');
      expect(told.settings.broker.managementUrl).toMatch(/^https:/);
    }
    expect(tls?.(await read({ env: { RMQ_USE_SSL: 'no' } }))).toBe('amqp:');
    for (const given of [
      { options: { sslVerify: false } },
      { old: 'rabbitmq: { ssl_verify: false }' },
      { env: { RMQ_SSL_VERIFY: 'false' } },
    ]) {
      const told = await read(given);
      expect(checks?.(told)).toBe(false);
      expect(told.stderr).toContain('certificates are not verified');
    }
    const strict = { config: { rabbit: { tls: { rejectUnauthorized: true } } } };
    expect(checks?.(await read({ ...strict, env: { RMQ_SSL_VERIFY: 'false' } }))).toBe(true);
    expect(checks?.(await read({ ...strict, options: { sslVerify: false } }))).toBe(false);
  });

  test('a file of what was moved is kept only where it is asked for', async () => {
    const { file, hours } = EFFECTS;
    expect((await read({ env: { RMQ_HOST: 'a' } })).settings.dedupe).toBeUndefined();
    for (const [given, name, age] of [
      [{ options: { dedupFile: 'x' } }, 'x', 168],
      [{ old: 'queues: { dedup_file: x }' }, 'x', 168],
      [{ env: { DEDUP_FILE: 'x' } }, 'x', 168],
      [{ options: { dedupMaxAgeHours: '2' } }, '.rmq_processed_ids', 2],
      [{ old: 'queues: { dedup_max_age_hours: 2 }' }, '.rmq_processed_ids', 2],
      [{ env: { DEDUP_MAX_AGE_HOURS: '2', DEDUP_FILE: 'y' } }, 'y', 2],
    ] as const) {
      const told = await read(given);
      expect([file?.(told), hours?.(told)]).toEqual([name, age]);
    }
  });

  test('--output-format json is --json', async () => {
    const queues = { queue: ['a'], target: 'b' };
    const globals = { url: 'amqp://h' };
    const format = async (options: object): Promise<boolean> =>
      (await read({ options: { ...queues, ...options }, globals })).context.out.json;
    expect(await format({})).toBe(false);
    expect(await format({ outputFormat: 'text' })).toBe(false);
    expect(await format({ outputFormat: 'json' })).toBe(true);
    expect(await format({ outputFormat: 'json', json: true })).toBe(true);
    await expect(format({ outputFormat: 'text', json: true })).rejects.toThrow('give one of them');
  });

  test('a password on the command line works, with a warning that does not show it', async () => {
    const told = await read({ options: { password: 'sesame-1' } });
    expect(told.stderr).toContain('can be read by every user');
    expect(told.stderr).not.toContain('sesame-1');
    expect((await read({ env: { RMQ_PASSWORD: 'sesame-1' } })).stderr).toBe('');
  });

  test.each([
    [{ options: { port: '0' } }, 'cannot use "0" as --port: allowed is a whole number 1 to 65535'],
    [{ old: 'rabbitmq: { port: 0 }' }, 'cannot use 0 as rabbitmq.port in old.yaml'],
    [{ env: { RMQ_PORT: '0' } }, 'cannot use "0" as RMQ_PORT'],
    [{ env: { RMQ_MGMT_PORT: 'x' } }, 'RMQ_MGMT_PORT'],
    [{ env: { RMQ_USE_SSL: 'maybe' } }, 'allowed is true or false'],
    [{ old: 'queues: { max_retry_count: -1 }' }, 'max_retry_count'],
    [{ old: 'queues: { dedup_max_age_hours: 0 }' }, 'dedup_max_age_hours'],
    [
      { old: 'rabbitmq: { password: [sesame-1] }' },
      'cannot use what was given as rabbitmq.password',
    ],
    [{ old: 'rabbitmq: { hots: a }' }, '(did you mean "host"?)'],
    [{ old: 'rabbitmq: a' }, 'allowed is an object of keys'],
    [{ options: { host: '' } }, 'it is empty'],
    [{ options: { host: 'a/b@c' } }, 'allowed is a name or an address alone'],
  ])('%j is refused', async (given, text) => {
    await expect(read(given)).rejects.toThrow(text);
  });

  test('other sections of an old file are not read, and that is said', async () => {
    const { stderr } = await read({ old: 'queues: { dlq_name: a }\nlogging: { level: debug }' });
    expect(stderr).toContain('not read is logging');
  });
});

describe('old and new names together', () => {
  const url = 'amqp://bob:secret@mq:5673/v';

  test.each([
    [{ queue: ['a'], dlq: 'b' }, '--queue ("a") and --dlq ("b")'],
    [{ queue: ['a', 'b'], dlq: 'a' }, '--queue'],
    [{ target: 'a', targetQueue: 'b' }, '--target'],
    [{ max: '1', maxRetries: '2' }, '--max (1) and --max-retries (2)'],
    [{ host: 'other' }, '--url'],
    [{ port: '1' }, '--url'],
    [{ username: 'eve' }, '--url'],
    [{ vhost: 'w' }, '--url'],
    [{ ssl: true }, '--url'],
    [{ managementUrl: 'http://mq:1', mgmtPort: '2' }, '--mgmt-port (2) and --management-url (1)'],
  ])('%j is refused beside a URL that says otherwise', async (options, text) => {
    const given = { queue: ['a'], target: 'x', ...options };
    await expect(read({ options: given, globals: { url } })).rejects.toThrow(text);
  });

  test('another password is refused, and not shown', async () => {
    const options = { queue: ['a'], target: 'x', password: 'sesame-1' };
    const error = await read({ options, globals: { url } }).catch(String);
    expect(error).toContain('--password');
    expect(error).not.toMatch(/sesame|secret/);
  });

  test('the same said twice is taken', async () => {
    const { settings } = await read({
      options: {
        queue: ['a'],
        dlq: 'a',
        target: 'x',
        targetQueue: 'x',
        max: '1',
        maxRetries: '1',
        host: 'mq',
        port: '5673',
        username: 'bob',
        password: 'secret',
        vhost: 'v',
        managementUrl: 'http://mq:8',
        mgmtPort: '8',
      },
      globals: { url },
    });
    expect(settings).toMatchObject({ patterns: ['a'], target: 'x', max: 1 });
    expect(settings.broker).toMatchObject({ url, isManagementNamed: true });
  });

  test('a flag goes before the configuration, and that before the environment', async () => {
    const config = { rabbit: { url } };
    const options = { queue: ['a'], target: 'x' };
    const urlOf = async (given: Given): Promise<string> =>
      (await read({ options, ...given })).settings.broker.url;
    expect(await urlOf({ config, env: { RMQ_HOST: 'other', RMQ_USERNAME: 'eve' } })).toBe(url);
    expect(await urlOf({ config, options: { ...options, host: 'other' } })).toBe(
      'amqp://bob:secret@other:5673/v',
    );
    const old = 'rabbitmq: { host: third }';
    expect(await urlOf({ config, old })).toBe('amqp://bob:secret@third:5673/v');
    // Who is not named in a URL is guest, whatever a lower source says.
    expect(await urlOf({ globals: { url: 'amqp://mq' }, env: { RMQ_USERNAME: 'eve' } })).toBe(
      'amqp://guest:guest@mq:5672/%2F',
    );
  });
});

describe('new names', () => {
  const globals = { url: 'amqp://mq' };

  test.each([
    [{}, 'name the queues to sweep'],
    [{ queue: ['a'] }, 'name the queue for what died too often'],
    [{ queue: ['a.*'], target: 'b.*.*' }, 'it has 2 of * and ?, the pattern has 1'],
    [{ queue: ['a'], target: 'b', listen: '1' }, 'add --every'],
    [{ queue: ['a'], target: 'b', every: '1m', listen: 'x' }, 'as --listen'],
    [{ queue: ['a'], target: 'b', every: '10ms' }, '--every'],
    [{ queue: ['a'], target: 'b', max: 'x' }, '--max'],
    [{ queue: ['a'], target: 'b', limit: '0' }, '--limit'],
    [{ queue: ['a'], target: 'b', parallel: '65' }, '--parallel'],
    [{ queue: ['a'], target: 'b', window: '0' }, '--window'],
    [{ queue: ['a'], target: 'b', countQueues: [''] }, 'as a pattern of queues'],
  ])('%j is refused', async (options, text) => {
    await expect(read({ options, globals })).rejects.toThrow(text);
  });

  test('nobody names a broker: refused', async () => {
    await expect(read({ options: { queue: ['a'], target: 'b' } })).rejects.toThrow(
      'name the broker',
    );
  });

  test('all are read', async () => {
    const { settings } = await read({
      globals,
      options: {
        queue: ['a.*', 'b.*'],
        target: 'c.*',
        max: '0',
        limit: '5',
        parallel: '2',
        window: '7',
        requireTarget: true,
        countReasons: ['rejected'],
        countQueues: ['w*'],
        trustLimit: true,
        dryRun: true,
        every: '5m',
        listen: '[::1]:9',
      },
    });
    expect(settings).toMatchObject({
      isOld: false,
      patterns: ['a.*', 'b.*'],
      target: 'c.*',
      max: 0,
      limit: 5,
      parallel: 2,
      window: 7,
      createsTarget: false,
      reasons: ['rejected'],
      queues: ['w*'],
      isTrusted: true,
      isDryRun: true,
      everyMs: 300_000,
      listen: { host: '::1', port: 9 },
    });
  });

  test('--listen takes a port alone, and then only this machine', async () => {
    const listen = async (text: string): Promise<unknown> => {
      const options = { queue: ['a'], target: 'b', every: '1m', listen: text };
      return (await read({ options, globals })).settings.listen;
    };
    expect(await listen('9419')).toEqual({ host: '127.0.0.1', port: 9419 });
    expect(await listen(':9419')).toEqual({ host: '127.0.0.1', port: 9419 });
    expect(await listen('0.0.0.0:9419')).toEqual({ host: '0.0.0.0', port: 9419 });
  });
});
