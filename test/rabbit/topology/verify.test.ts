import { describe, expect, test } from 'vitest';
import { queueInfo } from '../../../src/rabbit/management/management.ts';
import { applyTopology, type Topology, verifyTopology } from 'respool/rabbit';
import {
  appliedPolicy,
  hazardOf,
  overruledSettings,
} from '../../../src/rabbit/topology/effective.ts';
import { withService } from '../../services/index.ts';
import { administer, freshUser } from '../admin/management/setup.ts';
import {
  bindingSpec,
  connectAs,
  exchangeSpec,
  queueSpec,
  setup,
  smallTopology,
  topologyOf,
} from './declare-setup.ts';

withService('rabbitmq', () => {
  describe('verifying a topology', () => {
    test('finds no problem where it was applied, with the management API or without', async () => {
      await using at = await setup();
      const { connection, management } = at;
      const topology = smallTopology(at.prefix);
      await applyTopology(connection, topology);
      expect(await verifyTopology(connection, topology)).toEqual([]);
      expect(await verifyTopology(connection, topology, { management })).toEqual([]);
    });

    test('names everything that is missing, in order, and changes nothing', async () => {
      await using at = await setup();
      const topology = smallTopology(at.prefix);
      const look = async (): Promise<unknown> =>
        (await verifyTopology(at.connection, topology)).map(({ kind, name }) => [kind, name]);
      const missing = [
        ['exchange.missing', `${at.prefix}.ex`],
        ['exchange.missing', `${at.prefix}.back`],
        ['queue.missing', `${at.prefix}.main`],
        ['queue.missing', `${at.prefix}.wait`],
      ];
      expect(await look()).toEqual(missing);
      expect(await look()).toEqual(missing);
    });

    test('looks for the exchanges of others that are only named by bindings', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const bindings = [bindingSpec(name, `${at.prefix}.theirs`, '#')];
      const topology = topologyOf({ queues: [queueSpec(name)], bindings });
      await applyTopology(at.connection, { ...topology, bindings: [] });
      const [problem, ...more] = await verifyTopology(at.connection, topology);
      expect(problem).toEqual({
        kind: 'exchange.missing',
        name: `${at.prefix}.theirs`,
        text: `there is no exchange "${at.prefix}.theirs"`,
        todo: 'create it: respool rabbit topology apply',
      });
      expect(more).toEqual([]);
    });

    test('works for a user who may do nothing at all', async () => {
      await using at = await setup();
      await using user = await freshUser({});
      await using theirs = await connectAs(user);
      const topology = smallTopology(at.prefix);
      expect(await verifyTopology(theirs, topology)).toHaveLength(4);
      await applyTopology(at.connection, topology);
      expect(await verifyTopology(theirs, topology)).toEqual([]);
    });

    test('an exclusive queue of another connection is a problem, not an error', async () => {
      await using at = await setup();
      await using other = await setup();
      const exclusive = { exclusive: true, durable: false, arguments: {} };
      const topology = topologyOf({ queues: [queueSpec(`${at.prefix}.q`, {}, exclusive)] });
      await applyTopology(other.connection, topology);
      const problems = await verifyTopology(at.connection, topology);
      expect(problems.map(({ kind }) => kind)).toEqual(['queue.refused']);
    });

    test('a connection that is gone is an error, not a problem', async () => {
      await using at = await setup();
      await using user = await freshUser({});
      const theirs = await connectAs(user);
      await theirs.close();
      const verified = verifyTopology(theirs, smallTopology(at.prefix));
      await expect(verified).rejects.toMatchObject({ code: 'broker.unavailable' });
    });
  });

  describe('verifying with the management API', () => {
    async function problemsOf(there: Partial<Topology>, wanted: Partial<Topology>, at: Bundle) {
      const { connection, management } = at;
      await applyTopology(connection, topologyOf(there), { management });
      return verifyTopology(connection, topologyOf(wanted), { management });
    }
    type Bundle = Awaited<ReturnType<typeof setup>>;

    test('tells every argument that differs', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const there = {
        exchanges: [exchangeSpec(name)],
        queues: [queueSpec(name, { 'x-message-ttl': 1000, 'x-max-length': 5 })],
      };
      const wanted = {
        exchanges: [exchangeSpec(name, { type: 'fanout', internal: true })],
        queues: [queueSpec(name, { 'x-message-ttl': 2000, 'x-queue-type': 'classic' })],
      };
      const [exchange, queue, ...more] = await problemsOf(there, wanted, at);
      expect(exchange).toMatchObject({
        kind: 'exchange.different',
        text:
          `the exchange "${name}" differs: "type" is topic there, fanout wanted, ` +
          '"internal" is false there, true wanted',
      });
      expect(queue).toMatchObject({
        kind: 'queue.different',
        text:
          `the queue "${name}" differs: "x-queue-type" is quorum there, classic wanted, ` +
          '"x-message-ttl" is 1000 there, 2000 wanted, "x-delivery-limit" is 1000000 there, ' +
          'not set wanted, "x-max-length" is 5 there, not set wanted',
      });
      expect(more).toEqual([]);
    });

    test('compares many queues as it compares few', async () => {
      await using at = await setup();
      const queues = (max: number) =>
        Array.from({ length: 41 }, (_, n) =>
          queueSpec(`${at.prefix}.${n}`, { 'x-queue-type': 'classic', 'x-max-length': max }),
        );
      const wanted = [...queues(1).slice(1), ...queues(2).slice(0, 1)];
      const problems = await problemsOf({ queues: queues(1) }, { queues: wanted }, at);
      expect(problems.map(({ kind, name }) => [kind, name])).toEqual([
        ['queue.different', `${at.prefix}.0`],
      ]);
    });

    test('a queue that is wanted without a type fits every type', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const plain = queueSpec(name, {}, { arguments: {} });
      expect(await problemsOf({ queues: [plain] }, { queues: [plain] }, at)).toEqual([]);
    });

    test('tells bindings that are missing, by key and by arguments', async () => {
      await using at = await setup();
      const topology = smallTopology(at.prefix);
      const problems = await problemsOf({ ...topology, bindings: [] }, topology, at);
      expect(problems.map(({ kind }) => kind)).toEqual(['binding.missing', 'binding.missing']);
      expect(problems[0]?.text).toContain('by the key "a.*"');
      expect(problems[1]?.text).toContain('return-to');
    });

    test('tells policies that are missing and those that differ', async () => {
      await using at = await setup();
      const policy = (name: string, length: number) => ({
        name: `${at.prefix}.${name}`,
        pattern: `^${at.prefix}\\.none$`,
        definition: { 'max-length': length },
        priority: 1,
      });
      const wanted = { policies: [policy('a', 2), policy('b', 2)] };
      const problems = await problemsOf({ policies: [policy('a', 1)] }, wanted, at);
      expect(problems.map(({ kind, name }) => [kind, name])).toEqual([
        ['policy.different', `${at.prefix}.a`],
        ['policy.missing', `${at.prefix}.b`],
      ]);
    });

    test('tells where a policy of somebody else shortens a delay or drops messages', async () => {
      await using at = await setup();
      const topology = smallTopology(at.prefix);
      await administer('PUT', `/policies/%2F/${at.prefix}.foreign`, {
        pattern: `^${at.prefix}\\.`,
        definition: { 'message-ttl': 500, 'max-length': 3 },
        priority: 99,
        'apply-to': 'queues',
      });
      const problems = await problemsOf(topology, topology, at);
      const wait = problems.filter(({ name }) => name === `${at.prefix}.wait`);
      expect(wait.map(({ kind, text }) => [kind, text])).toEqual([
        [
          'queue.overruled',
          `for the queue "${at.prefix}.wait" "message-ttl" is 500, needed is 60000 ` +
            `(applied: "${at.prefix}.foreign")`,
        ],
        [
          'queue.overruled',
          `for the queue "${at.prefix}.wait" "max-length" is 3, needed is not set ` +
            `(applied: "${at.prefix}.foreign")`,
        ],
      ]);
    });

    test('safety by a policy of our own is no problem while it holds', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const definition = {
        'dead-letter-exchange': `${at.prefix}.dlx`,
        'dead-letter-strategy': 'at-least-once',
        overflow: 'reject-publish',
      };
      const policies = [
        { name: `${at.prefix}.safe`, pattern: `^${at.prefix}\\.q$`, definition, priority: 1 },
      ];
      const topology = { queues: [queueSpec(name)], policies };
      expect(await problemsOf(topology, topology, at)).toEqual([]);
      await at.management.deletePolicy(`${at.prefix}.safe`);
      const kinds = (await problemsOf({}, topology, at)).map(({ kind }) => kind);
      expect(kinds).toEqual([
        'queue.overruled',
        'queue.overruled',
        'queue.overruled',
        'policy.missing',
      ]);
    });

    test('a strategy that the broker does not follow is unsafe', async () => {
      await using at = await setup();
      const args = {
        'x-dead-letter-exchange': `${at.prefix}.dlx`,
        'x-dead-letter-strategy': 'at-least-once',
      };
      const queues = [queueSpec(`${at.prefix}.q`, args)];
      const [problem] = await problemsOf({ queues }, { queues }, at);
      expect(problem).toMatchObject({ kind: 'queue.unsafe' });
      expect(problem?.text).toMatch(/overflow is not "reject-publish"/);
    });
  });
});

const NO_POLICY = { names: [], definition: {} };

describe('which policies hold for a queue', () => {
  const queue = queueInfo({
    name: 'orders',
    type: 'quorum',
    policy: 'told',
    effective_policy_definition: { expires: 1 },
  });
  const policy = (name: string, rest: object) => ({
    name,
    pattern: '^ord',
    applyTo: 'queues',
    definition: {},
    priority: 0,
    ...rest,
  });

  test('the one with the highest priority among those that match its name and type', () => {
    const applied = appliedPolicy(
      queue,
      [
        policy('low', { priority: 1 }),
        policy('high', { priority: 5, applyTo: 'quorum_queues', definition: { overflow: 'x' } }),
        policy('higher', { priority: 9, applyTo: 'classic_queues' }),
        policy('exchanges', { priority: 9, applyTo: 'exchanges' }),
        policy('others', { priority: 9, pattern: '^x' }),
      ],
      [],
    );
    expect(applied).toEqual({ names: ['high'], definition: { overflow: 'x' } });
  });

  test('and an operator policy lowers its numbers', () => {
    const own = policy('own', { definition: { 'max-length': 5, expires: 5 } });
    const operators = policy('limit', { definition: { 'max-length': 9, expires: 3, b: 1 } });
    expect(appliedPolicy(queue, [own], [operators])).toEqual({
      names: ['own', 'limit'],
      definition: { 'max-length': 5, expires: 3, b: 1 },
    });
  });

  test('what the broker told, where a pattern cannot be read here', () => {
    const applied = appliedPolicy(queue, [policy('pcre', { pattern: '(?i)^ord' })], []);
    expect(applied).toEqual({ names: ['told'], definition: { expires: 1 } });
  });
});

test.each([
  [5, ['delivery-limit']],
  // From 4.0 on the way to say that there is no limit.
  [-1, []],
])('a policy with a delivery limit of %i overrules %j', (limit, settings) => {
  const spec = queueSpec('q');
  const info = queueInfo({ name: 'q', type: 'quorum', arguments: spec.arguments });
  const applied = { names: ['theirs'], definition: { 'delivery-limit': limit } };
  expect(overruledSettings(spec, [], info, applied).map(({ setting }) => setting)).toEqual(
    settings,
  );
});

describe('what can lose messages of a queue', () => {
  const quorum = (args: object) => queueInfo({ name: 'q', type: 'quorum', arguments: args });

  test.each([
    ['4.0.5', {}, /takes 20/],
    ['4.3.6', { 'x-delivery-limit': 1_000_000 }, undefined],
    ['3.10.8', {}, undefined],
  ])('on %s with %j', (version, args, text) => {
    const hazard = hazardOf(quorum(args), NO_POLICY, version);
    if (text === undefined) expect(hazard).toBeUndefined();
    else expect(hazard).toMatch(text);
  });

  test('a classic queue never dead-letters at least once', () => {
    const args = { 'x-dead-letter-strategy': 'at-least-once', 'x-overflow': 'reject-publish' };
    const classic = queueInfo({ name: 'q', type: 'classic', arguments: args });
    expect(hazardOf(classic, NO_POLICY, '3.10.8')).toMatch(/only quorum/);
  });
});
