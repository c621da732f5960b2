/** Every key: what is not allowed is refused by name, value, range and source (R214, R215). */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { spoolOptionsOf } from '../../src/config/load/effective-config.ts';
import { environmentName, KEYS } from '../../src/config/schema/keys.ts';
import { spoolSettingsOf } from '../../src/spool/options.ts';
import { load, refusal } from './setup.ts';

const sha256 = createHash('sha256').update('a token').digest('hex');

describe('a bad value is refused with its key, the value, what is allowed and the file', () => {
  const cases: [object, string[]][] = [
    [
      { store: 'mysql:x' },
      ['"store"', '"mysql:x"', 'sqlite:DIR, file:DIR, memory:, postgres://… or'],
    ],
    [{ store: 's3://bucket' }, ['"store"', 'keeps bodies only']],
    [{ store: './respool' }, ['"./respool"', 'sqlite:DIR']],
    [{ store: 'sqlite:' }, ['"store"', 'sqlite: and a folder']],
    [{ store: 'file://host/x' }, ['"store"', 'file: and a folder']],
    [{ store: 'memory:x' }, ['memory: with nothing after it']],
    [{ store: 5 }, ['5', '"store"']],
    [{ store: 'sqlite:./x?synchronus=normal' }, ['"store?synchronus"', '"synchronous"']],
    [{ store: 'sqlite:./x?synchronous=off' }, ['"off"', '"store?synchronous"', 'full | normal']],
    [{ store: 'sqlite:./x?path=./y' }, ['"store?path"']],
    [{ store: 'sqlite:./x?thread=true&thread=false' }, ['"thread" is there twice']],
    [{ store: 'file:./x?sync=never' }, ['"never"', '"store?sync"', 'full | batch | none']],
    [{ store: 'memory:?sync=full' }, ['"store?sync"', 'known are none']],
    [{ entries: { not: 'a store' } }, ['"entries.not"', 'known are postgres, nats, s3']],
    [{ bodies: 'file:./x?spareFiles=1' }, ['"bodies?spareFiles"']],
    [{ policies: [] }, ['"policies"', 'an object of names']],
    [{ policies: { 'a b': 'postfix' } }, ['"policies"', '"a b"', 'letters, digits']],
    [{ backoffs: { a: 1 } }, ['"backoffs.a"', 'a function']],
    [{ concurrency: 0 }, ['0', '"concurrency"', '1 to 10000']],
    [{ concurrency: '5' }, ['"5"', '"concurrency"']],
    [{ destinationConcurrency: { x: 0 } }, ['"destinationConcurrency.x"']],
    [{ lease: '1ms' }, ['"1ms"', '"lease"', '1s to 1d']],
    [{ settle: 'x' }, ['"settle"', 'lazy | durable']],
    [{ retention: { delivered: 'keep' } }, ['"retention.delivered"', "'remove'"]],
    [{ retention: { bounced: 'remove' } }, ['"retention.bounced"', "'keep'"]],
    [{ retention: { removed: 'x' } }, ['"retention.removed"']],
    [{ retention: { dedupeWindow: -1 } }, ['"retention.dedupeWindow"']],
    [{ limits: { bodyBytes: -1 } }, ['"limits.bodyBytes"']],
    [{ limits: { headerBytes: 2 ** 21 } }, ['"limits.headerBytes"', '0 to 1048576']],
    [{ limits: { inlineBodyBytes: 1.5 } }, ['1.5', '"limits.inlineBodyBytes"']],
    [{ poll: '1ms' }, ['"poll"', '10ms to 1h']],
    [{ unhandled: 'drop' }, ['"unhandled"', 'hold | leave']],
    [{ requireDurability: 'total' }, ['"requireDurability"', 'power-loss']],
    [{ caretaker: { every: '1ms' } }, ['"caretaker.every"']],
    [{ caretaker: { orphanGrace: 'x' } }, ['"caretaker.orphanGrace"']],
    [{ middleware: ['x'] }, ['"middleware"', 'a list of functions']],
    [{ serve: { host: 'a b' } }, ['"a b"', '"serve.host"', 'a host name']],
    [{ serve: { port: 65_536 } }, ['65536', '"serve.port"', '0 to 65535']],
    [{ serve: { tokens: {} } }, ['"serve.tokens"', 'a list']],
    [{ serve: { tokens: ['x'] } }, ['"serve.tokens[0]"', '{ name, role, sha256 }']],
    [{ serve: { tokens: [{ name: '', role: 'read', sha256 }] } }, ['"serve.tokens[0].name"']],
    [
      { serve: { tokens: [{ name: 'a', role: 'root', sha256 }] } },
      ['"root"', '"serve.tokens[0].role"', 'post | read | operate | admin'],
    ],
    [
      { serve: { tokens: [{ name: 'a', role: 'read', sha256: 'abc' }] } },
      ['"serve.tokens[0].sha256"', '64 hex digits'],
    ],
    [
      {
        serve: {
          tokens: [
            { name: 'a', role: 'read', sha256 },
            { name: 'a', role: 'post', sha256 },
          ],
        },
      },
      ['"serve.tokens[1].name"', 'every name once'],
    ],
    [
      {
        serve: {
          tokens: [
            { name: 'a', role: 'read', sha256 },
            { name: 'b', role: 'admin', sha256: sha256.toUpperCase() },
          ],
        },
      },
      ['the token of "a" as "serve.tokens[1].sha256" too', 'every token once'],
    ],
    [{ serve: { tls: { key: '', cert: 'x' } } }, ['"serve.tls.key"', 'the name of a file']],
    [{ serve: { tls: { key: 'k.pem' } } }, ['"serve.tls.cert"', 'both key and cert']],
    [{ serve: { tls: { cert: 'c.pem' } } }, ['"serve.tls.key"', 'both key and cert']],
    [{ serve: { hosts: 'x' } }, ['"serve.hosts"', 'a list']],
    [{ serve: { hosts: ['ok.example', 'a/b'] } }, ['"a/b"', '"serve.hosts[1]"']],
    [{ serve: { behindProxy: 'yes' } }, ['"yes"', '"serve.behindProxy"', 'true or false']],
    [{ serve: { stopWithin: '2h' } }, ['"serve.stopWithin"', '0s to 1h']],
    [{ serve: { limits: { connections: 0 } } }, ['"serve.limits.connections"', '1 to 100000']],
    [{ serve: { limits: { events: -1 } } }, ['"serve.limits.events"', '0 to 10000']],
    [{ serve: { limits: { requestsPerSecond: 0 } } }, ['"serve.limits.requestsPerSecond"']],
    [{ serve: { limits: { requestTimeout: '1ms' } } }, ['"serve.limits.requestTimeout"']],
    [{ log: { format: 'xml' } }, ['"log.format"', 'pretty | json | auto']],
    [{ log: { level: 'loud' } }, ['"log.level"', 'error | warn | info | debug']],
  ];
  test.each(cases)('%j', async (config, words) => {
    const said = await refusal({ config });
    for (const word of [...words, 'respool.config.json']) expect(said).toContain(word);
  });
});

test('a bad flag and a bad variable are refused with their names', async () => {
  expect(await refusal({ config: {}, flags: { 'serve.port': 'x' } })).toMatch(
    /"x" as "serve.port".*from --port$/,
  );
  expect(await refusal({ config: {}, env: { RESPOOL_LEASE: 'long' } })).toMatch(
    /"long" as "lease".*from RESPOOL_LEASE$/,
  );
  expect(await refusal({ config: {}, dotEnv: 'RESPOOL_SERVE_BEHIND_PROXY=maybe' })).toMatch(
    /"maybe" as "serve.behindProxy".*from RESPOOL_SERVE_BEHIND_PROXY in .env$/,
  );
});

test('texts of the environment become numbers and truth', async () => {
  const { config } = await load({
    config: {},
    env: {
      RESPOOL_SERVE_PORT: '0',
      RESPOOL_LEASE: '5000',
      RESPOOL_SERVE_BEHIND_PROXY: '1',
      RESPOOL_LIMITS_INLINE_BODY_BYTES: '12',
    },
  });
  expect(config).toMatchObject({
    lease: 5_000,
    serve: { port: 0, behindProxy: true },
    limits: { inlineBodyBytes: 12 },
  });
});

test('the defaults are those of createSpool', async () => {
  const { config } = await load({ config: {} });
  const { bounces, serve, log, store } = config;
  expect({ bounces, store, log }).toEqual({
    bounces: [],
    store: 'sqlite:./respool',
    log: { format: 'auto', level: 'info', redact: [] },
  });
  expect(serve).toEqual({
    host: '127.0.0.1',
    port: 7667,
    tokens: [],
    hosts: [],
    behindProxy: false,
    stopWithin: '10s',
    limits: { connections: 1_000, events: 50, requestsPerSecond: 100, requestTimeout: '5m' },
  });
  expect(spoolSettingsOf(spoolOptionsOf(config))).toEqual(spoolSettingsOf({}));
});

test('a name in the environment follows from the key, and no two keys share one', () => {
  expect(environmentName('serve.port')).toBe('RESPOOL_SERVE_PORT');
  expect(environmentName('limits.bodyBytes')).toBe('RESPOOL_LIMITS_BODY_BYTES');
  const names = KEYS.map(({ key }) => environmentName(key));
  expect(new Set(names).size).toBe(names.length);
  const flags = KEYS.flatMap(({ flag }) => flag ?? []);
  expect(new Set(flags).size).toBe(flags.length);
});

test('lists of the service are taken as they are, hashes in lower case', async () => {
  const tokens = [{ name: 'ci', role: 'post', sha256: sha256.toUpperCase() }];
  const { config } = await load({ config: { serve: { tokens, hosts: ['spool.example'] } } });
  expect(config.serve.tokens).toEqual([{ name: 'ci', role: 'post', sha256 }]);
  expect(config.serve.hosts).toEqual(['spool.example']);
});

test('a short token is a warning', async () => {
  const short = await load({ config: {}, env: { RESPOOL_TOKEN: 'short' } });
  expect(short.warnings).toEqual(['serve.token has fewer than 16 characters: it can be guessed']);
  const long = await load({ config: {}, env: { RESPOOL_TOKEN: 'x'.repeat(16) } });
  expect(long.warnings).toEqual([]);
});
