/** defineConfig: types for a configuration that is a program; returns what it got. */
import { type Config, defineConfig, exponential } from 'respool';
import { exec, http } from 'respool/deliver';
import { memory } from 'respool/stores/memory';
import { expect, test } from 'vitest';

test('a configuration comes back as it is', () => {
  const config: Config = {
    entries: memory(),
    bodies: 'file:./bodies',
    policies: {
      default: exponential({ first: '5s' }),
      a: { ladder: ['1s', '2s'] },
      b: { fixed: '5s', attempts: 3 },
      c: { exponential: { first: '5s', max: '6h', attempts: 20 } },
      d: 'postfix',
      e: { custom: 'mine', rungs: ['1s'] },
    },
    routes: [
      { topic: 'a', deliver: http({ url: 'https://example.com/' }), policy: 'a' },
      { topic: 'b', deliver: exec(['./b.sh']), policy: { fixed: '1s' }, timeout: '5m' },
      { topic: 'c', deliver: { exec: { command: ['./c.sh'], timeout: '1m' } }, concurrency: 3 },
      { topic: 'd', deliver: async (delivery) => void (await delivery.json()) },
    ],
    serve: { port: 0, limits: { events: 3 }, tls: { key: 'k.pem', cert: 'c.pem' } },
    log: { level: 'debug' },
  };
  expect(defineConfig(config)).toBe(config);
});

test('a store on a server is data, with the options of what it keeps', () => {
  const url = 'nats://127.0.0.1';
  const configs: readonly Config[] = [
    { store: { nats: { url, maxChunkSize: 65_536, maxValueSize: 65_536 } } },
    {
      entries: { nats: { url, maxValueSize: 65_536 } },
      bodies: { nats: { url, maxChunkSize: 65_536 } },
    },
    { entries: { postgres: { url: 'postgres://h/db' } }, bodies: { s3: { bucket: 'spool' } } },
    // @ts-expect-error Entries have no chunks.
    { entries: { nats: { url, maxChunkSize: 65_536 } } },
    // @ts-expect-error Bodies are no values.
    { bodies: { nats: { url, maxValueSize: 65_536 } } },
    // @ts-expect-error S3 keeps bodies only.
    { entries: { s3: { bucket: 'spool' } } },
  ];
  for (const config of configs) expect(defineConfig(config)).toBe(config);
});

test('what is no configuration is no configuration to the compiler either', () => {
  const wrong = [
    // @ts-expect-error There is no such key.
    defineConfig({ stor: 'memory:' }),
    // @ts-expect-error There is no such constructor.
    defineConfig({ policies: { a: { exponentiel: {} } } }),
    // @ts-expect-error There is no such format.
    defineConfig({ log: { format: 'xml' } }),
    // @ts-expect-error A route says who delivers.
    defineConfig({ routes: [{ topic: 'a' }] }),
  ];
  expect(wrong).toHaveLength(4);
});
