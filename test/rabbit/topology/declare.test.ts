import { describe, expect, test } from 'vitest';
import { applyTopology } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { freshName, freshUser } from '../admin/management/setup.ts';
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
  describe('applying a topology', () => {
    test('makes everything exist, and does nothing when it does', async () => {
      await using at = await setup();
      const topology = smallTopology(at.prefix);
      const applied = {
        exchanges: 2,
        queues: 2,
        bindings: 2,
        policies: [],
        policiesNotApplied: [],
      };
      expect(await applyTopology(at.connection, topology)).toEqual(applied);
      expect(await applyTopology(at.connection, topology)).toEqual(applied);
      const wait = await at.management.queue(`${at.prefix}.wait`);
      expect(wait).toMatchObject({ type: 'quorum', durable: true });
      expect(wait?.arguments).toEqual(topology.queues[1]?.arguments);
      expect(await at.management.bindings(`${at.prefix}.main`)).toHaveLength(3);
    });

    test('a queue with other arguments stops it, and the argument is named', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      await applyTopology(
        at.connection,
        topologyOf({ queues: [queueSpec(name, { 'x-message-ttl': 1000 })] }),
      );
      const other = topologyOf({
        queues: [queueSpec(name, { 'x-message-ttl': 2000 })],
        bindings: [bindingSpec(name, 'amq.topic', at.prefix)],
      });
      const applied = applyTopology(at.connection, other);
      await expect(applied).rejects.toMatchObject({ code: 'topology.mismatch' });
      await expect(applied).rejects.toThrow(
        /declare the queue ".*\.q".*"x-message-ttl" is 1000 there, 2000 wanted.*migrate/,
      );
      const [binding, ...more] = await at.management.bindings(name);
      expect([binding?.exchange, more]).toEqual(['', []]);
      expect((await at.management.queue(name))?.arguments['x-message-ttl']).toBe(1000);
    });

    test.each([
      [{}, /"x-message-ttl" is 1000 there, not set wanted/],
      [{ 'x-message-ttl': 1000, 'x-max-length': 5 }, /"x-max-length" is not set there, 5 wanted/],
      [
        { 'x-message-ttl': 1000, 'x-queue-type': 'classic' },
        /"x-queue-type" is quorum there, classic wanted/,
      ],
    ])('a queue declared as %j differs in the words of a person', async (args, text) => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      await applyTopology(
        at.connection,
        topologyOf({ queues: [queueSpec(name, { 'x-message-ttl': 1000 })] }),
      );
      const other = topologyOf({ queues: [queueSpec(name, args)] });
      await expect(applyTopology(at.connection, other)).rejects.toThrow(text);
    });

    test('an exchange of another type, or with another alternate, is explained', async () => {
      await using at = await setup();
      const name = `${at.prefix}.ex`;
      await applyTopology(at.connection, topologyOf({ exchanges: [exchangeSpec(name)] }));
      const declare = (rest: object): Promise<unknown> =>
        applyTopology(at.connection, topologyOf({ exchanges: [exchangeSpec(name, rest)] }));
      await expect(declare({ type: 'direct' })).rejects.toThrow(/"type" is topic there, direct/);
      await expect(declare({ arguments: { 'alternate-exchange': 'x' } })).rejects.toThrow(
        /"alternate-exchange" is not set there, x wanted/,
      );
    });

    test('an argument that the broker does not take is a wrong setting', async () => {
      await using at = await setup();
      const queues = [queueSpec(`${at.prefix}.q`, { 'x-message-ttl': 'soon' })];
      const applied = applyTopology(at.connection, topologyOf({ queues }));
      await expect(applied).rejects.toMatchObject({ code: 'config.invalid' });
      await expect(applied).rejects.toThrow(/invalid arg 'x-message-ttl'/);
    });

    test('a binding to an exchange that is not there says how to have it', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const topology = topologyOf({
        queues: [queueSpec(name)],
        bindings: [bindingSpec(name, `${at.prefix}.none`, '#')],
      });
      const applied = applyTopology(at.connection, topology);
      await expect(applied).rejects.toMatchObject({ code: 'topology.mismatch' });
      await expect(applied).rejects.toThrow(/no exchange ".*\.none".*give the binding a "type"/);
    });

    test('an exclusive queue of another connection is explained', async () => {
      await using at = await setup();
      await using other = await setup();
      const exclusive = { exclusive: true, durable: false, arguments: {} };
      const queues = [queueSpec(`${at.prefix}.q`, {}, exclusive)];
      await applyTopology(other.connection, topologyOf({ queues }));
      const applied = applyTopology(at.connection, topologyOf({ queues }));
      await expect(applied).rejects.toThrow(/exclusive queue of another connection/);
    });

    test('a name that is too long is a wrong setting', async () => {
      await using at = await setup();
      const queues = [queueSpec(at.prefix.padEnd(256, 'x'))];
      const applied = applyTopology(at.connection, topologyOf({ queues }));
      await expect(applied).rejects.toMatchObject({ code: 'config.invalid' });
    });

    test('a closed connection is an unavailable broker', async () => {
      await using at = await setup();
      await using other = await setup();
      const lost = other.connection;
      await lost.close();
      const applied = applyTopology(lost, smallTopology(at.prefix));
      await expect(applied).rejects.toMatchObject({ code: 'broker.unavailable' });
      Object.assign(other.connection, { close: () => Promise.resolve() });
    });

    test('a hundred queues are declared with one call', async () => {
      await using at = await setup();
      const queues = Array.from({ length: 100 }, (_, n) =>
        queueSpec(`${at.prefix}.${n}`, { 'x-queue-type': 'classic' }),
      );
      await applyTopology(at.connection, topologyOf({ queues }));
      const channel = await at.connection.createChannel();
      for (const { name } of queues) {
        expect(await channel.checkQueue(name)).toMatchObject({ queue: name });
      }
    });
  });

  describe('policies', () => {
    const policyFor = (prefix: string, definition: object) => ({
      name: `${prefix}.policy`,
      pattern: `^${prefix}\\.q$`,
      definition: { ...definition },
      priority: 5,
    });

    test('are reported as not applied without the management API', async () => {
      await using at = await setup();
      const policies = [policyFor(at.prefix, { 'max-length': 9 })];
      const applied = await applyTopology(at.connection, topologyOf({ policies }));
      expect(applied).toMatchObject({ policies: [], policiesNotApplied: [`${at.prefix}.policy`] });
    });

    test('are there before the queues, once', async () => {
      await using at = await setup();
      const topology = topologyOf({
        queues: [queueSpec(`${at.prefix}.q`)],
        policies: [policyFor(at.prefix, { 'max-length': 9 })],
      });
      for (const round of [1, 2]) {
        const applied = await applyTopology(at.connection, topology, {
          management: at.management,
        });
        expect([round, applied.policies]).toEqual([round, [`${at.prefix}.policy`]]);
      }
      const found = await at.management.policies();
      expect(found.find(({ name }) => name === `${at.prefix}.policy`)?.definition).toEqual({
        'max-length': 9,
      });
    });

    test('one that differs is not overwritten', async () => {
      await using at = await setup();
      const apply = (definition: object): Promise<unknown> => {
        const policies = [policyFor(at.prefix, definition)];
        return applyTopology(at.connection, topologyOf({ policies }), {
          management: at.management,
        });
      };
      await apply({ 'max-length': 9 });
      await expect(apply({ 'max-length': 8 })).rejects.toThrow(/"max-length" is 9 there, 8 wanted/);
    });
  });

  describe('permissions', () => {
    test('a user without configure rights is told which one is missing', async () => {
      await using at = await setup();
      await using user = await freshUser({ read: '.*', write: '.*' });
      await using theirs = await connectAs(user);
      const applied = applyTopology(theirs, smallTopology(at.prefix));
      await expect(applied).rejects.toMatchObject({ code: 'config.invalid' });
      await expect(applied).rejects.toThrow(
        /"configure" on the exchange.*set_permissions -p \/ t-/,
      );
      await expect(applied).rejects.not.toThrow(user.password);
    });

    test('a dead-letter exchange needs the permission to write to it', async () => {
      await using at = await setup();
      await using user = await freshUser({ configure: '.*', read: '.*', write: '^nothing$' });
      await using theirs = await connectAs(user);
      const queues = [
        queueSpec(`${at.prefix}.q`, { 'x-dead-letter-exchange': `${at.prefix}.dlx` }),
      ];
      const applied = applyTopology(theirs, topologyOf({ queues }));
      await expect(applied).rejects.toThrow(/"write" on the exchange ".*\.dlx"/);
    });

    test('a binding needs to write to the queue and to read the exchange', async () => {
      await using at = await setup();
      const name = `${at.prefix}.q`;
      const topology = topologyOf({
        queues: [queueSpec(name)],
        bindings: [bindingSpec(name, 'amq.topic', freshName('key'))],
      });
      await using reader = await freshUser({ configure: '.*', read: '.*' });
      await using asReader = await connectAs(reader);
      await expect(applyTopology(asReader, topology)).rejects.toThrow(/"write" on the queue/);
      await using writer = await freshUser({ configure: '.*', write: '.*' });
      await using asWriter = await connectAs(writer);
      await expect(applyTopology(asWriter, topology)).rejects.toThrow(
        /"read" on the exchange "amq.topic"/,
      );
    });
  });
});
