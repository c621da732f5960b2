/** Consumers by their broker: what is needed there together, and how to reach it. */
import path from 'node:path';
import { expect, test } from 'vitest';
import { brokerAt, brokersOf, tlsOfRabbit } from '../../src/config/load/brokers.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { createConfiguredConsumers } from '../../src/config/open/open-consumers.ts';
import { folderWith, load, refusal, textOf } from './setup.ts';

const deliver = { exec: ['true'] };

test('consumers are put together by the broker they are at', async () => {
  const { config } = await load({
    config: {
      rabbit: { url: 'amqp://u:word-of-u@one.example/shop' },
      consumers: [
        { queue: 'a', deliver },
        { queue: 'b', deliver, url: 'amqps://two.example' },
        { queue: 'c', deliver },
      ],
    },
  });
  const [one, two, ...more] = brokersOf(config.consumers, config.rabbit);
  expect(more).toEqual([]);
  expect(one).toMatchObject({
    address: 'amqp://one.example/shop',
    managementUrl: 'http://u:word-of-u@one.example:15672',
    vhost: 'shop',
  });
  expect(one?.plans.map(({ queue }) => queue)).toEqual(['a', 'c']);
  const names = one?.topology.queues.map(({ name }) => name) ?? [];
  expect(names).toEqual(expect.arrayContaining(['a', 'c', 'a.dlq', 'c.parked']));
  // Both wait in the same queues, which are there once.
  expect(new Set(names).size).toBe(names.length);
  expect(two).toMatchObject({ managementUrl: 'https://two.example:15671', vhost: '/' });
});

test('the management API that is named is that of the broker that is named', async () => {
  const managementUrl = 'http://admin.example:8080';
  const rabbit = { url: 'amqp://one.example', managementUrl };
  expect(brokerAt(rabbit.url, [], rabbit).managementUrl).toBe(managementUrl);
  expect(brokerAt('amqp://two.example', [], rabbit).managementUrl).toBe('http://two.example:15672');
  expect(brokerAt('amqp://two.example', [], { managementUrl }).managementUrl).toBe(managementUrl);
});

test('who asks the management API is who consumes, unless its URL names somebody', () => {
  const url = 'amqp://shop:p%40ss@one.example/orders';
  const asks = (managementUrl?: string): unknown => {
    const broker = brokerAt(url, [], managementUrl === undefined ? {} : { url, managementUrl });
    return [broker.managementUrl, broker.isManagementNamed];
  };
  expect(asks('https://admin.example/rabbit')).toEqual([
    'https://shop:p%40ss@admin.example/rabbit',
    true,
  ]);
  expect(asks('http://root:r@admin.example/')).toEqual(['http://root:r@admin.example/', true]);
  expect(asks()).toEqual(['http://shop:p%40ss@one.example:15672', false]);
});

test('queues of one broker that do not go together are refused by what differs', async () => {
  const rabbit = { url: 'amqp://one.example' };
  const classic = { queue: 'b', type: 'classic', deliver };
  const said = await refusal({ config: { rabbit, consumers: [{ queue: 'a', deliver }, classic] } });
  expect(said).toMatch(/^cannot use "consumers": .*x-queue-type is "quorum" and "classic"/);
  const elsewhere = { queue: 'a', deliver, url: 'amqp://two.example' };
  const { config } = await load({ config: { rabbit, consumers: [elsewhere, classic] } });
  expect(config.consumers).toHaveLength(2);
});

test('the files of TLS are read when they are needed, and one that is missing is named', async () => {
  const folder = await folderWith({
    'respool.config.json': JSON.stringify({
      rabbit: {
        tls: { ca: 'ca.pem', cert: 'c.pem', servername: 's.example', rejectUnauthorized: false },
      },
    }),
    'ca.pem': 'authorities',
    'c.pem': 'certificate',
  });
  const { config } = await loadConfig({ cwd: folder, env: { RESPOOL_RABBIT_TLS_PASSPHRASE: 'p' } });
  expect(await tlsOfRabbit(config.rabbit)).toEqual({
    ca: Buffer.from('authorities'),
    cert: Buffer.from('certificate'),
    passphrase: 'p',
    servername: 's.example',
    rejectUnauthorized: false,
  });
  expect(await tlsOfRabbit({})).toBeUndefined();
  const missing = { tls: { key: path.join(folder, 'none.pem') } };
  expect(await textOf(tlsOfRabbit(missing))).toContain('as "rabbit.tls.key"');
});

test('consumers are made with what the configuration says, and nothing connects', async () => {
  const loaded = await load({
    config: {
      rabbit: { url: 'amqp://u:word-of-u@127.0.0.1:1' },
      policies: { slow: { fixed: '9s' } },
      consumers: [
        { queue: 'a', policy: 'slow', concurrency: 3, prefetch: 7, deliver },
        { queue: 'b', policy: { fixed: '2s' }, deliver },
      ],
    },
  });
  const made = await createConfiguredConsumers(loaded);
  expect(made.map(({ info }) => info)).toMatchObject([
    { queue: 'a', broker: 'amqp://127.0.0.1:1', policy: 'slow', concurrency: 3, prefetch: 7 },
    { queue: 'b', policy: expect.stringContaining('2s') },
  ]);
  expect(made[0]?.consumer.load).toMatchObject({ concurrency: 3, isConnected: false });
  expect(made[0]?.consumer.plan.waitsMs).toContain(9_000);
  expect(JSON.stringify(made.map(({ info }) => info))).not.toContain('word-of-u');
  const [, second] = loaded.config.consumers;
  const some = second === undefined ? [] : [second];
  const chosen = await createConfiguredConsumers(loaded, { consumers: some });
  expect(chosen.map(({ consumer }) => consumer.queue)).toEqual(['b']);
});

test('what a handler misses is said before anything starts, by the name of its consumer', async () => {
  const text = `import { RespoolError } from 'respool';
    export default {
      rabbit: { url: 'amqp://127.0.0.1:1' },
      consumers: [{ queue: 'a', deliver: Object.assign(() => {}, {
        describe: () => ({}),
        check() { throw new RespoolError('config.invalid', 'cannot sign'); },
      }) }],
    };`;
  const cwd = await folderWith({ 'respool.config.mjs': text });
  const loaded = await loadConfig({ cwd, env: {} });
  expect(await textOf(createConfiguredConsumers(loaded))).toMatch(
    /consumers\[0\]\.deliver.*cannot sign/,
  );
});
