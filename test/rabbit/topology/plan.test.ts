import { describe, expect, test } from 'vitest';
import {
  applyTopology,
  describePlan,
  type Plan,
  planTopology,
  type Topology,
  verifyTopology,
} from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { freshUser } from '../admin/management/setup.ts';
import {
  bindingSpec,
  connectAs,
  exchangeSpec,
  queueSpec,
  setup,
  smallTopology,
  topologyOf,
} from './declare-setup.ts';

function statesOf({ items }: Plan): readonly (readonly string[])[] {
  return items.map(({ what, name, state }) => [state, what, name]);
}

withService('rabbitmq', () => {
  describe.each(['with', 'without'])('a plan %s the management API', (how) => {
    const optionsOf = (at: Awaited<ReturnType<typeof setup>>) =>
      how === 'with' ? { management: at.management } : {};

    test('creates everything on an empty broker, and changes nothing itself', async () => {
      await using at = await setup();
      const topology = smallTopology(at.prefix);
      const plan = await planTopology(at.connection, topology, optionsOf(at));
      expect(plan.counts).toEqual({ create: 6, same: 0, different: 0, extra: 0, unknown: 0 });
      expect(plan.items.map(({ what }) => what)).toEqual([
        'exchange',
        'exchange',
        'queue',
        'queue',
        'binding',
        'binding',
      ]);
      expect(await verifyTopology(at.connection, topology)).toHaveLength(4);
    });

    test('finds the same where it was applied', async () => {
      await using at = await setup();
      const topology = smallTopology(at.prefix);
      await applyTopology(at.connection, topology);
      const { counts } = await planTopology(at.connection, topology, optionsOf(at));
      const bindings = how === 'with' ? { same: 6, unknown: 0 } : { same: 4, unknown: 2 };
      expect(counts).toEqual({ create: 0, different: 0, extra: 0, ...bindings });
    });

    test('tells what is there with other arguments, have and want', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const ofType = (type: 'topic' | 'direct', ttl: number): Topology =>
        topologyOf({
          exchanges: [exchangeSpec(name, { type })],
          queues: [queueSpec(name, { 'x-message-ttl': ttl }), queueSpec(`${name}2`)],
        });
      await applyTopology(at.connection, ofType('topic', 1000));
      const plan = await planTopology(at.connection, ofType('direct', 2000), optionsOf(at));
      expect(plan.items.map(({ state, differences }) => [state, differences])).toEqual([
        ['different', [{ argument: 'type', have: 'topic', want: 'direct' }]],
        ['different', [{ argument: 'x-message-ttl', have: '1000', want: '2000' }]],
        ['same', []],
      ]);
      expect(describePlan(plan)).toEqual([
        `! different exchange "${name}": "type" is topic there, direct wanted`,
        `! different queue "${name}": "x-message-ttl" is 1000 there, 2000 wanted`,
        '0 create, 1 same, 2 different, 0 extra, 0 unknown',
      ]);
    });

    test('a binding to an exchange that nobody declares would stop it', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const bindings = [bindingSpec(name, `${at.prefix}.theirs`, '#')];
      const topology = topologyOf({ queues: [queueSpec(name)], bindings });
      const { items } = await planTopology(at.connection, topology, optionsOf(at));
      expect(items[1]).toMatchObject({ what: 'binding', state: 'different' });
      expect(items[1]?.note).toContain(`there is no exchange "${at.prefix}.theirs"`);
    });
  });

  describe('a plan', () => {
    test('names wait queues of former delays and bindings that were taken out', async () => {
      await using at = await setup();
      const [main, wait] = [`${at.prefix}.main`, `${at.prefix}.wait.`];
      const waits = (...labels: string[]) =>
        labels.map((label) => queueSpec(wait + label, {}, { role: 'wait' }));
      const former = topologyOf({
        queues: [
          queueSpec(main),
          ...waits('2s', '250ms', '7s'),
          queueSpec(`${main}.delay_5s`, {}, { role: 'wait' }),
          queueSpec(`${main}__retry.1`, {}, { role: 'wait' }),
          queueSpec(`${main}.other`),
        ],
        bindings: [bindingSpec(main, 'amq.topic', 'old'), bindingSpec(main, 'amq.topic', 'new')],
      });
      await applyTopology(at.connection, former);
      const topology = topologyOf({
        queues: [queueSpec(main), ...waits('2s')],
        bindings: [bindingSpec(main, 'amq.topic', 'new')],
      });
      const plan = await planTopology(at.connection, topology, { management: at.management });
      const extra = statesOf(plan).filter(([state]) => state === 'extra');
      expect(new Set(extra.map(([, , name]) => name))).toEqual(
        new Set([
          `"amq.topic" → "${main}" (key "old")`,
          `${main}.delay_5s`,
          `${main}__retry.1`,
          `${wait}250ms`,
          `${wait}7s`,
        ]),
      );
      expect(plan.counts).toMatchObject({ same: 3, extra: 5, create: 0 });
    });

    test('compares policies, or says that it cannot', async () => {
      await using at = await setup();
      const { connection, management } = at;
      const policy = (max: number) => ({
        name: `${at.prefix}.policy`,
        pattern: `^${at.prefix}\\.none$`,
        definition: { 'max-length': max },
        priority: 1,
      });
      const stateOf = async (max: number, options: object): Promise<string | undefined> => {
        const topology = topologyOf({ policies: [policy(max)] });
        return (await planTopology(connection, topology, options)).items[0]?.state;
      };
      expect(await stateOf(1, {})).toBe('unknown');
      expect(await stateOf(1, { management })).toBe('create');
      await applyTopology(connection, topologyOf({ policies: [policy(1)] }), { management });
      expect(await stateOf(1, { management })).toBe('same');
      expect(await stateOf(2, { management })).toBe('different');
    });

    test('of a user who may not configure leaves open what it cannot see', async () => {
      await using at = await setup();
      const topology = smallTopology(at.prefix);
      await applyTopology(at.connection, { ...topology, queues: topology.queues.slice(0, 1) });
      await using user = await freshUser({});
      await using theirs = await connectAs(user);
      const plan = await planTopology(theirs, topology);
      expect(statesOf(plan).slice(0, 4)).toEqual([
        ['unknown', 'exchange', `${at.prefix}.ex`],
        ['unknown', 'exchange', `${at.prefix}.back`],
        ['unknown', 'queue', `${at.prefix}.main`],
        ['create', 'queue', `${at.prefix}.wait`],
      ]);
      expect(plan.items[0]?.note).toMatch(/"configure"/);
      expect(describePlan(plan)[0]).toMatch(/^\? unknown exchange ".*": cannot declare/);
    });

    test('needs a connection that works', async () => {
      await using user = await freshUser({});
      const theirs = await connectAs(user);
      await theirs.close();
      const planned = planTopology(theirs, smallTopology('none'));
      await expect(planned).rejects.toMatchObject({ code: 'broker.unavailable' });
    });
  });
});
