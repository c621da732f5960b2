/** Flags over file over environment over defaults, for each key by itself (R216). */
import { describe, expect, test } from 'vitest';
import { environmentName, isScalar, KEYS } from '../../src/config/schema/keys.ts';
import { at, load, refusal } from './setup.ts';

const sealed = (name: string): object => ({ keys: { k1: `env:${name}` } });

/** Three values for every key that a text can say: as a flag, in a file, in the environment. */
const VALUES: Readonly<Record<string, readonly [flag: unknown, file: unknown, env: unknown]>> = {
  store: ['memory:', 'file:./f', 'sqlite:./e'],
  entries: ['memory:', 'file:./f', 'sqlite:./e'],
  bodies: ['memory:', 'file:./f', 'sqlite:./e'],
  concurrency: [21, 22, 23],
  destinationConcurrency: [31, { '*': 4, 'a.example': 7 }, 33],
  lease: ['1m', 62_000, '63s'],
  settle: ['durable', 'lazy', 'durable'],
  'retention.delivered': ['remove', { archive: '2d' }, { archive: '3d' }],
  'retention.bounced': [{ archive: '1d' }, 'keep', { archive: '3d' }],
  'retention.removed': ['1d', '2d', '3d'],
  'retention.dedupeWindow': ['1h', '2h', 10_800_000],
  'limits.bodyBytes': [1, 2, 3],
  'limits.headerBytes': [0, 2, 3],
  'limits.inlineBodyBytes': [0, 2, 3],
  poll: ['1s', '2s', '3s'],
  unhandled: ['leave', 'hold', 'leave'],
  requireDurability: ['process', 'server', 'power-loss'],
  'caretaker.every': ['2m', '3m', '4m'],
  'caretaker.orphanGrace': ['2h', '3h', '4h'],
  transforms: ['zstd', 'gzip', 'brotli'],
  seal: [sealed('FLAG'), sealed('FILE'), sealed('ENVIRONMENT')],
  'rabbit.url': ['amqp://flag.example', 'amqps://file.example/v', 'amqp://env.example'],
  'rabbit.managementUrl': ['http://flag.example', 'https://file.example', 'http://env.example'],
  'rabbit.tls.ca': ['/flag.pem', '/file.pem', '/env.pem'],
  'rabbit.tls.key': ['/flag.pem', '/file.pem', '/env.pem'],
  'rabbit.tls.cert': ['/flag.pem', '/file.pem', '/env.pem'],
  // As a token it is refused on the command line.
  'rabbit.tls.passphrase': [undefined, 'word of the file', 'word of the environment'],
  'rabbit.tls.servername': ['flag.example', 'file.example', 'env.example'],
  'rabbit.tls.rejectUnauthorized': [false, true, false],
  'outbox.store': ['postgres://flag.example/a', 'postgres://file.example/a', 'sqlite:./app.db'],
  'outbox.schema': ['flagged', 'filed', 'environed'],
  'outbox.tables': ['flag_', 'file_', 'env_'],
  'outbox.listenUrl': [
    'postgres://a.example/x',
    'postgres://b.example/x',
    'postgres://c.example/x',
  ],
  'outbox.expires': ['1h', '2h', 10_800_000],
  'outbox.relay.to': [
    { amqp: 'amqp://a.example', exchange: 'a' },
    { spool: true },
    { http: { url: 'https://example.com/' } },
  ],
  'outbox.relay.batch': [1, 2, 3],
  'outbox.relay.concurrency': [1, 2, 3],
  'outbox.relay.cleanUp': ['never', '7d', { partition: '1d', keep: '30d' }],
  'outbox.relay.topics': [['a.*'], ['b', 'c.#'], ['d']],
  'outbox.relay.expires': ['1h', '2h', 10_800_000],
  'outbox.relay.lease': ['1m', 62_000, '63s'],
  'outbox.relay.poll': ['1s', '2s', '3s'],
  'outbox.relay.pauseAfter': ['1s', '2s', '3s'],
  'deadLetters.replaysMax': [4, 5, 6],
  'deadLetters.parkedQueue': ['flag.parked', 'file.parked', 'env.parked'],
  'serve.host': ['::1', 'localhost', '0.0.0.0'],
  'serve.port': [0, 8080, 65_535],
  'serve.tls.key': ['/flag.pem', '/file.pem', '/env.pem'],
  'serve.tls.cert': ['/flag.pem', '/file.pem', '/env.pem'],
  'serve.behindProxy': [false, true, false],
  'serve.stopWithin': ['1s', '0s', '3s'],
  'serve.limits.connections': [1, 2, 3],
  'serve.limits.events': [0, 2, 3],
  'serve.limits.requestsPerSecond': [1, 2, 3],
  'serve.limits.requestTimeout': ['1m', '2m', '3m'],
  'metrics.enabled': [false, true, false],
  'metrics.topicsMax': [1, 2, 3],
  'metrics.queuesMax': [1, 2, 3],
  'metrics.every': ['1s', '2s', '3s'],
  'tracing.enabled': [true, false, true],
  'alerts.every': ['1s', '2s', '3s'],
  'log.format': ['json', 'pretty', 'json'],
  'log.level': ['debug', 'warn', 'error'],
  // A token on the command line is refused: the first of its values is never taken.
  'serve.token': [undefined, `sha256:${'ab'.repeat(32)}`, 'token-of-the-environment'],
};

const asText = (value: unknown): string => {
  if (typeof value !== 'object' || value === null) return String(value);
  return 'archive' in value ? `archive:${String(value.archive)}` : JSON.stringify(value);
};

const OUTBOX = { store: 'postgres://other.example/x', relay: { to: { spool: true } } };

/** TLS wants both of its files, an outbox its store, a relay its target. */
const beside = (key: string): object => {
  if (key === 'outbox.store') return {};
  if (key.startsWith('outbox.')) return { outbox: OUTBOX };
  return key.startsWith('serve.tls.') ? { serve: { tls: { key: '/k', cert: '/c' } } } : {};
};

const nested = (key: string, value: unknown, into: object): object => {
  const copy = structuredClone(into) as Record<string, unknown>;
  const words = key.split('.');
  const last = words.pop() ?? '';
  let node = copy;
  for (const word of words) node = (node[word] ??= {}) as Record<string, unknown>;
  node[last] = value;
  return copy;
};

test('the table has every key that a flag or a variable can say', () => {
  const keys = KEYS.filter(isScalar).map(({ key }) => key);
  expect(Object.keys(VALUES).toSorted()).toEqual(keys.toSorted());
});

describe.each(Object.entries(VALUES))('%s', (key, [flag, file, variable]) => {
  const name = environmentName(key);
  const env = { [name]: asText(variable) };
  const config = nested(key, file, beside(key));
  const both = key.startsWith('serve.tls.') ? nested('serve.tls', {}, {}) : {};
  const outbox = key.startsWith('outbox.') ? beside(key) : {};
  const otherTls =
    key === 'serve.tls.key'
      ? { RESPOOL_SERVE_TLS_CERT: '/c' }
      : key === 'serve.tls.cert'
        ? { RESPOOL_SERVE_TLS_KEY: '/k' }
        : {};

  test('is taken from the flag before the file and the environment', async () => {
    if (flag === undefined) {
      const text = await refusal({ config, env, flags: { [key]: 'canary-token' } });
      expect(text).toContain('from the command line');
      expect(text).not.toContain('canary');
      return;
    }
    const loaded = await load({ config, env, flags: { [key]: flag } });
    expect(at(loaded, key)).toEqual(flag);
    expect(loaded.origins.get(key)).toMatchObject({ from: 'flag' });
    const asWritten = await load({ config, env, flags: { [key]: asText(flag) } });
    expect(at(asWritten, key)).toEqual(flag);
  });

  test('is taken from the file before the environment', async () => {
    const loaded = await load({ config, env, flags: { [key]: undefined } });
    expect(at(loaded, key)).toEqual(file);
    expect(loaded.origins.get(key)).toEqual({ from: 'file', name: loaded.file });
  });

  test('is taken from the environment before the default', async () => {
    const others =
      key === 'outbox.relay.to' ? { outbox: { store: OUTBOX.store } } : { ...both, ...outbox };
    const loaded = await load({ config: others, env: { ...env, ...otherTls } });
    expect(at(loaded, key)).toEqual(variable);
    expect(loaded.origins.get(key)).toEqual({ from: 'environment', name });
  });

  test('has its default when nobody says it, or says nothing', async () => {
    const loaded = await load({ config: both, env: { [name]: '' } });
    const { byDefault } = KEYS.find((one) => one.key === key) ?? {};
    const expected = key === 'concurrency' ? 10 : byDefault;
    expect(at(loaded, key)).toEqual(expected);
  });
});

describe('one store for both, or one for each', () => {
  test('is refused when one source says both', async () => {
    const said = await refusal({ config: { store: 'memory:', bodies: 'memory:' } });
    expect(said).toContain('"store" together with "entries" or "bodies"');
    expect(said).toContain('respool.config.json');
  });

  test('whoever comes first decides which way it is', async () => {
    const apart = { entries: 'file:./e', bodies: 'memory:' };
    const flagged = await load({ config: apart, flags: { store: 'memory:' } });
    expect(flagged.config).toMatchObject({ store: 'memory:' });
    expect(flagged.config.entries).toBeUndefined();
    expect(flagged.config.bodies).toBeUndefined();
    const filed = await load({ config: apart, env: { RESPOOL_STORE: 'sqlite:./x' } });
    expect(filed.config).toMatchObject(apart);
    expect(filed.config.store).toBeUndefined();
    const mixed = await load({ config: { bodies: 'file:./b' }, flags: { entries: 'memory:' } });
    expect(mixed.config).toMatchObject({ entries: 'memory:', bodies: 'file:./b' });
  });

  test('the one that is not said is where it would be by default', async () => {
    const { config, origins } = await load({ config: { entries: 'memory:' } });
    expect(config.bodies).toBe('file:./respool/bodies');
    expect(origins.get('bodies')?.from).toBe('default');
    expect((await load({ config: { bodies: 'memory:' } })).config.entries).toBe('sqlite:./respool');
  });
});

test('RESPOOL_TOKEN is the token too, RESPOOL_SERVE_TOKEN goes before it', async () => {
  const env = { RESPOOL_TOKEN: 'one-of-the-tokens' };
  const one = await load({ config: {}, env });
  expect(one.config.serve.token).toBe('one-of-the-tokens');
  expect(one.origins.get('serve.token')?.name).toBe('RESPOOL_TOKEN');
  const two = await load({ config: {}, env: { ...env, RESPOOL_SERVE_TOKEN: 'the-other-token' } });
  expect(two.config.serve.token).toBe('the-other-token');
});
