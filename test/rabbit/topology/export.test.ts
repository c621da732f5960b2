/** export — topologies as definitions of RabbitMQ and as Terraform, there and back. */

import { describe, expect, test } from 'vitest';
import {
  type Definitions,
  mergeTopologies,
  type PolicySpec,
  type QueueType,
  shared,
  toDefinitions,
  type Topology,
  toTerraform,
} from 'respool/rabbit';
import { service, withService } from '../../services/index.ts';
import { declareAll, removeAll } from './broker.ts';
import { freshPrefix, KINDS, orderOf, STYLES } from './order.ts';
import { readTerraform } from './read-terraform.ts';
import { connectAmqp } from '../amqp.ts';

withService('rabbitmq', (url) => {
  test.each(KINDS)(
    '%s, %s: the broker takes the definitions and gives them back',
    async (...kind) => {
      const prefix = freshPrefix();
      const topology = topologyOf(prefix, ...kind);
      const connection = await connectAmqp(url());
      const channel = await connection.createChannel();
      try {
        const definitions = toDefinitions(topology, { vhost: '/' });
        await ask('POST', 'definitions', definitions);
        for (const { name } of topology.queues) await channel.checkQueue(name);
        for (const { name } of topology.exchanges) await channel.checkExchange(name);
        const found = (await ask('GET', 'definitions')) as Definitions;
        expect(sorted(ofPrefix(found, prefix))).toEqual(sorted(definitions));
        // A difference in any argument of a queue or an exchange would be a 406. Bindings are told
        // apart by the type of a number too: one made here lies beside the one that was imported.
        await declareAll(channel, topology);
      } finally {
        await removeAll(await connection.createChannel(), topology);
        await ask('DELETE', `policies/%2F/${prefix}.policy`);
        await connection.close();
      }
    },
  );
});

describe('definitions', () => {
  test('carry the vhost, and are JSON through and through', () => {
    const definitions = toDefinitions(topologyOf('p', 'shared', 'quorum'), { vhost: 'shop' });
    const all = Object.values(definitions).flat() as { vhost: string }[];
    expect(new Set(all.map((one) => one.vhost))).toEqual(new Set(['shop']));
    expect(JSON.parse(JSON.stringify(definitions))).toEqual(definitions);
    expect(toDefinitions(shared().plan(orderOf()).topology).queues[0]?.vhost).toBe('/');
  });

  test('take typed numbers of amqplib as numbers, and leave out what is not set', () => {
    const queueArguments = { 'x-max-length': { '!': 'long', value: 5 }, 'x-none': undefined };
    const { topology } = shared().plan(orderOf({ queueArguments }));
    const [main] = toDefinitions(topology).queues;
    expect(main?.arguments).toMatchObject({ 'x-max-length': 5 });
    expect(main?.arguments).not.toHaveProperty('x-none');
  });

  test.each([Buffer.from('x'), Number.NaN, 5n, new Date(0)])('refuse %s', (value) => {
    const { topology } = shared().plan(orderOf({ queueArguments: { 'x-odd': value } }));
    expect(() => toDefinitions(topology)).toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringMatching(/argument "x-odd" of queue "orders".*no place in JSON/),
      }),
    );
  });

  test('refuse a queue that lives with a connection', () => {
    const { topology } = shared().plan(orderOf({ type: 'classic', exclusive: true }));
    expect(() => toDefinitions(topology)).toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringMatching(/"orders": it is exclusive/),
      }),
    );
  });
});

describe('Terraform', () => {
  test.each(KINDS)('%s, %s: the text says what the definitions say', (...kind) => {
    const topology = topologyOf('p', ...kind);
    const text = toTerraform(topology, { vhost: 'shop' });
    expect(sorted(readTerraform(text))).toEqual(sorted(toDefinitions(topology, { vhost: 'shop' })));
  });

  test('labels are unique and of allowed characters, and every reference has its resource', () => {
    const bindings = ['a.b', 'a_b', 'a b', '9', 'ä'].map((exchange) => ({ exchange }));
    const text = toTerraform(shared().plan(orderOf({ bindings })).topology);
    const heads = [...text.matchAll(/^resource "(\w+)" "(.*)" \{$/gm)];
    const labels = heads.map(([, type, label]) => `${type}.${label}`);
    expect(new Set(labels).size).toBe(labels.length);
    for (const [, , label] of heads) expect(label).toMatch(/^[A-Za-z_][A-Za-z0-9_-]*$/);
    const references = [...text.matchAll(/ = (rabbitmq_\w+\.[\w-]+)\.name$/gm)];
    expect(references.length).toBeGreaterThan(10);
    for (const [, target] of references) expect(labels).toContain(target);
  });

  test('text that means something to Terraform stays text', () => {
    const odd = 'a"b\\c${d}%{e}\u00e9';
    const { topology } = shared().plan(
      orderOf({
        queue: odd,
        bindings: [{ exchange: 'old', type: false, key: `${odd}\n\b\f\\b` }],
        queueArguments: { [odd]: [odd, { [odd]: true }, null] },
      }),
    );
    const text = toTerraform(topology, { vhost: odd });
    expect(text).toContain('$${d}%%{e}');
    expect(text).not.toMatch(/[^$]\$\{|[^%]%\{/);
    expect(text).toContain('\\u0008\\u000c\\\\b');
    expect(sorted(readTerraform(text))).toEqual(sorted(toDefinitions(topology, { vhost: odd })));
  });

  test('a resource reads as terraform fmt would leave it', () => {
    const text = toTerraform(shared().plan(orderOf({ type: 'classic' })).topology);
    expect(text.split('\n\n')).toContain(
      [
        'resource "rabbitmq_queue" "orders" {',
        '  name  = "orders"',
        '  vhost = "/"',
        '  settings {',
        '    durable     = true',
        '    auto_delete = false',
        '    arguments_json = jsonencode({',
        '      "x-queue-type" : "classic",',
        '      "x-dead-letter-exchange" : "respool.dlx",',
        '      "x-dead-letter-routing-key" : "orders.dlq"',
        '    })',
        '  }',
        '}',
      ].join('\n'),
    );
  });

  test('brackets and quotes are balanced', () => {
    const text = toTerraform(topologyOf('p', 'shared', 'quorum'));
    const bare = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, '').replaceAll(/^#.*$/gm, '');
    expect(bare).not.toContain('"');
    for (const [open, close] of ['{}', '()', '[]'].map((pair) => pair.split(''))) {
      expect(bare.split(open as string).length).toBe(bare.split(close as string).length);
    }
  });

  test('says what the provider has no words for', () => {
    const { topology } = shared().plan(orderOf());
    const [first, ...others] = topology.exchanges;
    const refused = (change: object, text: RegExp) => {
      const exchanges = [{ ...(first as object), ...change }, ...others] as Topology['exchanges'];
      expect(() => toTerraform({ ...topology, exchanges })).toThrow(
        expect.objectContaining({ code: 'config.invalid', message: expect.stringMatching(text) }),
      );
    };
    refused({ internal: true }, /with "internal" for Terraform/);
    refused({ arguments: { depth: 5 } }, /argument "depth" of exchange/);
    const policies = [{ ...policyOf('p'), definition: { odd: true } }];
    expect(() => toTerraform({ ...topology, policies })).toThrow(/"odd" of policy "p.policy"/);
  });
});

/** Two queues, bindings of a user, and a policy. */
function topologyOf(prefix: string, style: string, type: QueueType): Topology {
  const build = STYLES[style] as (typeof STYLES)[string];
  const plans = ['a', 'b'].map((name) =>
    build(prefix).plan(
      orderOf({
        queue: `${prefix}.${name}`,
        type,
        bindings: [
          { exchange: `${prefix}.shop`, key: 'order.*' },
          { exchange: `${prefix}.match`, type: 'headers', key: '', arguments: { size: 5 } },
        ],
        extraWaitsMs: [60_000],
      }),
    ),
  );
  return { ...mergeTopologies(plans), policies: [policyOf(prefix)] };
}

function policyOf(prefix: string): PolicySpec {
  return {
    name: `${prefix}.policy`,
    pattern: `^${prefix}\\.never$`,
    definition: { 'max-length': 1000, 'dead-letter-exchange': 'x' },
    priority: 3,
  };
}

async function ask(method: string, path: string, body?: object): Promise<unknown> {
  const address = new URL(`/api/${path}`, await service('rabbitmq-management'));
  const login = `${address.username}:${address.password}`;
  address.username = '';
  address.password = '';
  const response = await fetch(address, {
    method,
    headers: {
      authorization: `Basic ${Buffer.from(login).toString('base64')}`,
      'content-type': 'application/json',
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  expect({ path, ok: response.ok, text: response.ok ? '' : text }).toMatchObject({ ok: true });
  return text === '' ? undefined : JSON.parse(text);
}

function ofPrefix(all: Definitions, prefix: string): Definitions {
  const isOurs = (name: string): boolean => name.startsWith(prefix);
  return {
    exchanges: all.exchanges.filter((one) => isOurs(one.name)),
    queues: all.queues.filter((one) => isOurs(one.name)),
    bindings: all.bindings.filter((one) => isOurs(one.destination)),
    policies: all.policies.filter((one) => isOurs(one.name)),
  };
}

/** Lists in one order, since none of them has a meaning. */
function sorted(all: Definitions): object {
  const keyOf = (one: object): string =>
    ['name', 'source', 'destination', 'routing_key', 'arguments']
      .map((key) => JSON.stringify((one as Record<string, unknown>)[key]))
      .join();
  return Object.fromEntries(
    Object.entries(all).map(([key, list]) => [
      key,
      (list as object[]).toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1)),
    ]),
  );
}
