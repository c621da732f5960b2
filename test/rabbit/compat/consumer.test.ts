import { describe, expect, onTestFinished, test } from 'vitest';
import { createConsumer, type RabbitDelivery } from 'respool/rabbit';
import { openManagement } from '../admin/management/setup.ts';
import { withService } from '../../services/index.ts';
import { channels, deleteAll, takeOne } from './broker.ts';
import type { System } from './messages.ts';
import { ATTEMPTS, KEY, sharedSetup } from './systems.ts';

const SYSTEMS: readonly System[] = ['goqueue', 'spring', 'outbox'];
const MESSAGES = 12;

withService('rabbitmq', (url) => {
  describe.each(SYSTEMS)('a consumer of ours beside one of %s', (system) => {
    test('makes with it as many attempts as the policy has, and no message is lost', async () => {
      const { compat, order, fake, theirs: others, exchange } = sharedSetup(system);
      const { theirs, ours, close } = await channels(url());
      const seen = { theirs: new Map<string, number>(), ours: new Map<string, number>() };
      const count = (side: keyof typeof seen, body: string): void => {
        const { id, data } = JSON.parse(body) as { id?: string; data?: { id: string } };
        const name = id ?? data?.id ?? '';
        seen[side].set(name, (seen[side].get(name) ?? 0) + 1);
      };
      const attempts: number[] = [];
      const { queue, policy, bindings } = order;
      const consumer = createConsumer(
        { url: url(), queue, policy, bindings, compat, prefetch: 2, concurrency: 2 },
        async (delivery: RabbitDelivery) => {
          count('ours', await delivery.text());
          attempts.push(delivery.attempt);
          expect(delivery.envelope.topic).toBe(KEY);
          throw new Error('not today');
        },
      );
      onTestFinished(async () => {
        await consumer.stop();
        await deleteAll(ours, consumer.plan.topology, others);
        await close();
      });
      await fake.declare(theirs);
      await consumer.start();
      await theirs.prefetch(2);
      await theirs.consume(queue, (message) => {
        if (message === null) return;
        count('theirs', String(message.content));
        fake.fail(theirs, message);
      });
      for (let at = 0; at < MESSAGES; at += 1) fake.publish(theirs, `m${at}`);
      const dead = new Set<string>();
      while (dead.size < MESSAGES) {
        const message = await takeOne(ours, consumer.plan.dead.key);
        dead.add((JSON.parse(String(message.content)) as { id: string }).id);
        const { attempts: made, exchange: from } = compat.wire.read(message, queue);
        // Who rejects does not count the attempt that it rejects. From 4.0 on the broker writes its
        // own number over the counter of the outbox in what is rejected: then some is told at least.
        const isBrokersCount = typeof message.properties.headers?.['x-delivery-count'] === 'number';
        expect(made).toBeGreaterThanOrEqual(isBrokersCount ? 1 : ATTEMPTS - 1);
        if (message.properties.headers?.['respool-ended'] === 'dead') {
          expect(made).toBe(ATTEMPTS);
          if (system !== 'spring') expect(from).toBe(exchange);
        }
        ours.ack(message);
      }
      for (const id of dead) {
        expect((seen.theirs.get(id) ?? 0) + (seen.ours.get(id) ?? 0)).toBe(ATTEMPTS);
      }
      expect(seen.ours.size).toBeGreaterThan(0);
      expect(seen.theirs.size).toBeGreaterThan(0);
      expect(Math.max(...attempts)).toBeLessThanOrEqual(ATTEMPTS);
      for (const { name } of consumer.plan.topology.queues) {
        expect(await ours.checkQueue(name)).toMatchObject({ messageCount: 0 });
      }
    });

    test('has policies that the broker takes, and declares the same after them', async () => {
      const { compat, order, fake, theirs: others } = sharedSetup(system);
      const management = await openManagement();
      const { theirs, ours, close } = await channels(url());
      const { topology, dead } = compat.style.plan(order);
      const { queue, policy, bindings } = order;
      const consumer = createConsumer({ url: url(), queue, policy, bindings, compat }, () => {});
      onTestFinished(async () => {
        await consumer.stop();
        for (const { name } of topology.policies) await management.deletePolicy(name);
        await management.close();
        await deleteAll(ours, topology, others);
        await close();
      });
      for (const one of topology.policies) await management.putPolicy(one);
      await fake.declare(theirs);
      await consumer.start();
      await consumer.stop();
      await fake.declare(theirs);
      const known = await management.policies();
      for (const one of topology.policies) {
        expect(known).toContainEqual(expect.objectContaining(one));
        expect(topology.queues.some(({ name }) => new RegExp(one.pattern).test(name))).toBe(true);
      }
      // A wait comes back as before,
      fake.publish(theirs, 'waits');
      fake.fail(theirs, await takeOne(theirs, order.queue));
      const back = await takeOne(ours, order.queue);
      expect(compat.wire.read(back, order.queue).attempts).toBe(1);
      ours.ack(back);
      // and what their consumer rejects at once is in the dead queue.
      fake.publish(theirs, 'rejected');
      theirs.nack(await takeOne(theirs, order.queue), false, false);
      expect(String((await takeOne(ours, dead.key)).content)).toContain('rejected');
    });
  });
});
