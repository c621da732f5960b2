/** Consumers: which queues are consumed, how and by whom, checked before anything connects. */
import path from 'node:path';
import { fixed, noRetry } from 'respool';
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { describeHandler } from '../../src/config/load/routes.ts';
import type { QueuePlan } from 'respool/rabbit';
import { folderWith, load, refusal } from './setup.ts';

const http = { http: { url: 'https://example.com/' } };
const rabbit = { url: 'amqp://broker.example' };

async function first(consumer: object, more: object = {}) {
  const given = { queue: 'orders', deliver: http, ...consumer };
  const { config } = await load({ config: { rabbit, ...more, consumers: [given] } });
  const [found] = config.consumers;
  if (found === undefined) throw new Error('there is no consumer');
  return found;
}

function waitsOf({ topology }: QueuePlan): string[] {
  return topology.queues.filter(({ role }) => role === 'wait').map(({ name }) => name);
}

describe('a consumer', () => {
  test('has what the reference says unless it says otherwise', async () => {
    const { plan, deliver, ...rest } = await first({});
    expect(rest).toEqual({
      url: 'amqp://broker.example',
      queue: 'orders',
      bindings: [],
      type: 'quorum',
      policyName: 'default',
      prefetch: 20,
      concurrency: 10,
      timeout: '5m',
      declare: 'apply',
      maxLost: 10,
    });
    expect(waitsOf(plan)).toContain('respool.wait.5s');
    expect(deliver && describeHandler(deliver)).toMatchObject({ kind: 'http' });
  });

  test('takes everything that it may say', async () => {
    const said = {
      url: 'amqps://other.example/shop',
      bindings: [
        { exchange: 'shop', key: 'order.*' },
        { exchange: 'amq.topic', type: false },
        { exchange: 'heads', type: 'headers', arguments: { kind: 'order' } },
      ],
      type: 'classic',
      prefetch: 2_000,
      concurrency: 3,
      timeout: '25m',
      declare: 'verify',
      waits: ['1s', 250],
      maxLost: 0,
    };
    const { plan, ...found } = await first(said);
    expect(found).toMatchObject(said);
    expect(plan.type).toBe('classic');
    expect(plan.waitsMs).toEqual(expect.arrayContaining([250, 1_000]));
    expect(plan.topology.exchanges.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['shop', 'heads']),
    );
  });

  test('shares the queues of another system by its name, or with its options', async () => {
    const plain = await first({ compat: 'goqueue' });
    expect(plain.compat?.name).toBe('goqueue');
    expect(plain.plan.queue).toBe('orders');
    const own = await first({ compat: { spring: { waitExchange: 'mine' } } });
    expect(own.plan.topology.exchanges.map(({ name }) => name)).toContain('mine');
  });

  test('takes a policy by name or as data', async () => {
    const policies = { slow: { fixed: '9s' }, default: { fixed: '7s' } };
    expect(await first({ policy: 'slow' }, { policies })).toMatchObject({
      policy: fixed('9s'),
      policyName: 'slow',
    });
    expect((await first({}, { policies })).policy).toEqual(fixed('7s'));
    expect((await first({ policy: 'slow' }, { policies })).plan.waitsMs).toContain(9_000);
    const own = await first({ policy: 'noRetry' });
    expect(own.policy).toEqual(noRetry());
    expect(own.policyName).toBeUndefined();
  });

  test('takes a style by name, and with its options', async () => {
    const namesOf = async (topology: unknown) =>
      waitsOf((await first({ topology, policy: { fixed: '2s' } })).plan);
    expect(await namesOf('shared')).toContain('respool.wait.2s');
    expect(await namesOf({ shared: { prefix: 'mine' } })).toContain('mine.wait.2s');
    expect(await namesOf('perDelay')).toContain('orders.delay_2s');
    expect(await namesOf({ perDelay: { by: 'exchange', exchange: 'shop' } })).toContain(
      'shop.delay_2s',
    );
    expect(await namesOf({ perAttempt: {} })).toContain('orders__retry.1');
  });

  test('takes a style and a handler from a program', async () => {
    const folder = await folderWith({
      'respool.config.mjs': `
        import { perDelay } from 'respool/rabbit';
        const topology = { name: 'mine', plan: (order) => perDelay().plan(order) };
        function charge() {}
        export default { rabbit: { url: 'amqp://broker.example' }, consumers: [
          { queue: 'orders', topology, deliver: charge },
        ] };`,
    });
    const { config } = await loadConfig({ cwd: folder, env: {} });
    const [consumer] = config.consumers;
    expect(consumer?.topology?.name).toBe('mine');
    expect(consumer && waitsOf(consumer.plan)).toContain('orders.delay_5s');
    expect(consumer?.deliver?.name).toBe('charge');
  });

  test('runs a command in the folder of the file', async () => {
    const folder = await folderWith({
      'respool.config.json': JSON.stringify({
        rabbit,
        consumers: [{ queue: 'a', deliver: { exec: ['./a.sh'] } }],
      }),
      'inner/x': '',
    });
    const { config } = await loadConfig({ cwd: path.join(folder, 'inner'), env: {} });
    const deliver = config.consumers[0]?.deliver;
    expect(deliver && describeHandler(deliver)).toMatchObject({ kind: 'exec', cwd: folder });
  });

  const bad: [object, string[]][] = [
    [{ queue: undefined }, ['.queue']],
    [{ queue: 'amq.x' }, ['"amq.x"', '.queue', 'belong to the broker']],
    [{ queue: 'x'.repeat(256) }, ['.queue', '255 bytes']],
    [{ url: 'http://x/' }, ['.url', 'amqp://']],
    [{ url: 7 }, ['7', '.url']],
    [{ bindings: {} }, ['.bindings', 'a list of at most 1000']],
    [{ bindings: ['shop'] }, ['.bindings[0]', '{ exchange, key']],
    [{ bindings: [{ exchang: 'x' }] }, ['.bindings[0].exchang', 'did you mean "exchange"?']],
    [{ bindings: [{ key: 'x' }] }, ['.bindings[0].exchange']],
    [{ bindings: [{ exchange: 'x', key: 5 }] }, ['.bindings[0].key', '5']],
    [{ bindings: [{ exchange: 'x', type: 'topik' }] }, ['.bindings[0].type', '"topik"']],
    [{ bindings: [{ exchange: 'x', arguments: 'y' }] }, ['.bindings[0].arguments']],
    [{ topology: 'sharde' }, ['"sharde"', '.topology', 'did you mean "shared"?']],
    [{ topology: 5 }, ['5', '.topology']],
    [{ topology: {} }, ['.topology']],
    [{ topology: { perdelay: {} } }, ['.topology.perdelay', 'did you mean "perDelay"?']],
    [{ topology: { perDelay: { bye: 'queue' } } }, ['.topology.perDelay.bye', '"by"']],
    [{ topology: { perDelay: { by: 'x' } } }, ['.topology.perDelay.by', '"x"']],
    [{ topology: { shared: 'x' } }, ['.topology.shared', 'an object of options']],
    [{ type: 'qorum' }, ['"qorum"', '.type', 'quorum | classic']],
    [{ policy: 'slo' }, ['"slo"', '.policy', 'did you mean "slow"?']],
    [{ prefetch: 0 }, ['0', '.prefetch', '1 to 2000']],
    [{ prefetch: 2_001 }, ['2001', '.prefetch']],
    [{ concurrency: '5' }, ['"5"', '.concurrency', '1 to 10000']],
    [{ timeout: '26m' }, ['"26m"', '.timeout', '1ms to 25m']],
    [{ compat: 'sprong' }, ['"sprong"', '.compat', 'did you mean "spring"?']],
    [{ compat: { sprong: {} } }, ['.compat.sprong', 'did you mean "spring"?']],
    [{ compat: { outbox: { exchang: 'x' } } }, ['.compat.outbox', 'exchang']],
    [{ compat: { outbox: 5 } }, ['.compat.outbox', 'an object of options']],
    [{ compat: 5 }, ['5', '.compat']],
    [{ compat: 'spring', topology: 'shared' }, ['"topology" together with "compat"']],
    [{ topology: { perDelay: { by: 'exchange' } } }, ['exactly one is needed']],
    [{ declare: 'aply' }, ['"aply"', '.declare', 'apply | verify | none']],
    [{ waits: '1s' }, ['"1s"', '.waits', 'a list']],
    [{ waits: ['1s', 'x'] }, ['"x"', '.waits[1]']],
    [{ maxLost: -1 }, ['-1', '.maxLost']],
    [{ deliver: undefined }, ['.deliver', '{ http: { url: … } }']],
    [{ deliver: { htpp: {} } }, ['.deliver.htpp', 'did you mean "http"?']],
    [{ queu: 'x' }, ['.queu', 'did you mean "queue"?']],
  ];
  test.each(bad)('%j is refused with its whole key', async (consumer, words) => {
    const said = await refusal({
      config: {
        rabbit,
        policies: { slow: 'postfix' },
        consumers: [
          { queue: 'first', deliver: http },
          { queue: 'orders', deliver: http, ...consumer },
        ],
      },
    });
    for (const word of [...words, 'consumers[1]', 'respool.config.json']) {
      expect(said).toContain(word);
    }
  });
});

test('consumers are a list, each queue of a broker once', async () => {
  expect(await refusal({ config: { consumers: {} } })).toContain('"consumers"');
  expect(await refusal({ config: { consumers: ['x'] } })).toContain('"consumers[0]"');
  const one = { queue: 'a', deliver: http };
  const said = await refusal({ config: { rabbit, consumers: [one, one] } });
  expect(said).toContain('"consumers[1].queue": consumers[0] has it already');
  const other = { ...one, url: 'amqp://other.example' };
  const { config } = await load({ config: { rabbit, consumers: [one, other] } });
  expect(config.consumers.map(({ url }) => url)).toEqual([rabbit.url, other.url]);
});

test('without a broker anywhere a consumer is refused, with both places to name it', async () => {
  const said = await refusal({ config: { consumers: [{ queue: 'a', deliver: http }] } });
  expect(said).toContain('"consumers[0].url"');
  expect(said).toContain('"rabbit.url"');
});

test('the broker comes from the environment too, and numbers from variables', async () => {
  const { config } = await load({
    yaml: 'consumers: [{ queue: a, prefetch: "${AHEAD}", deliver: { exec: ["true"] } }]',
    env: { AHEAD: '7', RESPOOL_RABBIT_URL: 'amqp://from.env' },
  });
  expect(config.consumers[0]).toMatchObject({ url: 'amqp://from.env', prefetch: 7 });
});

describe('the broker', () => {
  const bad: [object, string[]][] = [
    [{ url: 'https://x' }, ['"rabbit.url"', 'amqp://']],
    [{ managementUrl: 'amqp://x' }, ['"rabbit.managementUrl"', 'http://']],
    [{ tls: { ca: '' } }, ['"rabbit.tls.ca"', 'the name of a file']],
    [{ tls: { key: 5 } }, ['"rabbit.tls.key"']],
    [{ tls: { cert: 5 } }, ['"rabbit.tls.cert"']],
    [{ tls: { passphrase: 123_456_789 } }, ['(secret)', '"rabbit.tls.passphrase"']],
    [{ tls: { servername: 'a b' } }, ['"rabbit.tls.servername"']],
    [{ tls: { rejectUnauthorized: 'no' } }, ['"rabbit.tls.rejectUnauthorized"', 'true or false']],
    [{ tls: { cart: 'x' } }, ['"rabbit.tls.cart"', 'did you mean "cert"?']],
    [{ uri: 'x' }, ['"rabbit.uri"', 'did you mean "url"?']],
  ];
  test.each(bad)('%j is refused with its whole key', async (given, words) => {
    const said = await refusal({ config: { rabbit: given } });
    for (const word of [...words, 'respool.config.json']) expect(said).toContain(word);
    expect(said).not.toContain('123456789');
  });

  test('has its files from the folder of the configuration, and says which cannot be read', async () => {
    const folder = await folderWith({
      'respool.config.json': JSON.stringify({ rabbit: { tls: { ca: './ca.pem', key: 'k.pem' } } }),
      'ca.pem': 'x',
      'inner/x': '',
    });
    const { config, warnings } = await loadConfig({ cwd: path.join(folder, 'inner'), env: {} });
    expect(config.rabbit.tls).toEqual({
      ca: path.join(folder, 'ca.pem'),
      key: path.join(folder, 'k.pem'),
    });
    expect(warnings).toEqual([expect.stringContaining('rabbit.tls.key: cannot read')]);
  });
});

test('a password is shown nowhere, and the key of a binding is no secret', async () => {
  const loaded = await load({
    config: {
      rabbit: {
        url: 'amqp://shop:hidden-word@broker.example/vhost',
        managementUrl: 'http://shop:hidden-word@broker.example:15672',
        tls: { passphrase: 'another-word' },
      },
      consumers: [
        { queue: 'orders', bindings: [{ exchange: 'shop', key: 'order.created' }], deliver: http },
        { queue: 'mails', url: 'amqp://m:third-word@m.example', waits: ['1s'], deliver: http },
      ],
    },
  });
  const lines = describeConfig(loaded).filter(({ key }) => /^(rabbit|consumers)/.test(key));
  const text = JSON.stringify(lines);
  for (const secret of ['hidden-word', 'another-word', 'third-word']) {
    expect(text).not.toContain(secret);
    expect(loaded.hide(`it said ${secret}`)).toBe('it said (secret)');
  }
  const valueOf = (key: string) => lines.find((line) => line.key === key)?.value;
  expect(valueOf('rabbit.url')).toBe('amqp://(secret)@broker.example/vhost');
  expect(valueOf('consumers[0].url')).toBe('amqp://broker.example/vhost');
  expect(valueOf('consumers[0].bindings[0]')).toBe('shop order.created (topic)');
  expect(valueOf('consumers[1].waits[0]')).toBe('1s');
  expect(valueOf('consumers[1].policy')).toBe('default');
  expect(loaded.hide('order.created')).toBe('order.created');
  expect(lines.find(({ key }) => key === 'consumers[0].prefetch')?.from).toBe('default');
  expect(lines.find(({ key }) => key === 'consumers[0].queue')?.from).toContain('file ');
});

test('a wrong address with a password is refused without showing it', async () => {
  const said = await refusal({ config: { rabbit: { url: 'ampq://shop:hidden-word@broker' } } });
  expect(said).not.toContain('hidden-word');
});

test('who does not deliver reads the queues without the secrets of their handlers', async () => {
  const folder = await folderWith({
    'respool.config.yaml': [
      'rabbit: { url: amqp://broker.example }',
      'routes: [{ topic: a, deliver: { http: { url: "${UNSET}" } } }]',
      'consumers: [{ queue: orders, deliver: { http: { url: "${UNSET}" } } }]',
    ].join('\n'),
  });
  const queues = await loadConfig({ cwd: folder, env: {}, routes: 'queues' });
  expect(queues.config.consumers).toMatchObject([{ queue: 'orders' }]);
  expect(queues.config.consumers[0]).not.toHaveProperty('deliver');
  expect(queues.config.routes).toEqual([]);
  const none = await loadConfig({ cwd: folder, env: {}, routes: false });
  expect(none.config.consumers).toEqual([]);
  await expect(loadConfig({ cwd: folder, env: {} })).rejects.toThrow('UNSET');
});
