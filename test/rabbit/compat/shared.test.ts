import { describe, expect, onTestFinished, test } from 'vitest';
import { withService } from '../../services/index.ts';
import { channels, declareAll, deleteAll, failOurs, takeOne } from './broker.ts';
import type { System } from './messages.ts';
import { ATTEMPTS, DELAYS_MS, KEY, sharedSetup } from './systems.ts';

const SYSTEMS: readonly System[] = ['goqueue', 'spring', 'outbox'];
const SIDES = ['theirs', 'ours'] as const;
type Side = (typeof SIDES)[number];

withService('rabbitmq', (url) => {
  async function setup(system: System, first: Side) {
    const shared = sharedSetup(system);
    const { compat, order, fake, theirs } = shared;
    const plan = compat.style.plan(order);
    const both = await channels(url());
    onTestFinished(async () => {
      await deleteAll(both.ours, plan.topology, theirs);
      await both.close();
    });
    // A refused declaration ends its channel, and with it the test.
    if (first === 'theirs') await fake.declare(both.theirs);
    await declareAll(both.ours, plan.topology);
    if (first === 'ours') await fake.declare(both.theirs);
    const { wire } = compat;
    const rules = { plan, wire, maxAttempts: ATTEMPTS, delaysMs: DELAYS_MS };
    return { ...shared, ...both, plan, wire, rules };
  }

  describe.each(SYSTEMS)('a queue shared with %s', (system) => {
    test.each(SIDES)('ends a message after all its attempts when %s fail first', async (side) => {
      const { fake, plan, wire, rules, theirs, ours, exchange } = await setup(system, side);
      fake.publish(theirs, 'one');
      for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
        const isTheirs = (attempt % 2 === 1) === (side === 'theirs');
        const message = await takeOne(isTheirs ? theirs : ours, plan.queue);
        const past = wire.read(message, plan.queue);
        expect([attempt, fake.attemptOf(message), past.attempts + 1]).toEqual(
          Array(3).fill(attempt),
        );
        expect(past.routingKey).toBe(KEY);
        // Spring writes the exchange nowhere: it is known once a message was ours.
        if (system !== 'spring' || side === 'ours') expect(past.exchange).toBe(exchange);
        if (isTheirs) fake.fail(theirs, message);
        else await failOurs(ours, message, rules);
      }
      const dead = await takeOne(ours, plan.dead.key);
      expect(String(dead.content)).toContain('one');
      expect(dead.properties.expiration).toBeUndefined();
      ours.ack(dead);
      for (const { name } of plan.topology.queues) {
        expect(await ours.checkQueue(name)).toMatchObject({ messageCount: 0 });
      }
    });
  });

  test('a long wait holds back no shorter one in a queue shared with goqueue', async () => {
    const { fake, plan, rules, theirs, ours } = await setup('goqueue', 'ours');
    for (const [id, delayMs] of [
      ['long', 400],
      ['short', 50],
    ] as const) {
      fake.publish(theirs, id);
      // Both failed for the first time: GoQueue would let them wait in the same queue.
      const message = await takeOne(ours, plan.queue);
      await failOurs(ours, message, { ...rules, delaysMs: [delayMs] });
    }
    for (const id of ['short', 'long']) {
      const message = await takeOne(ours, plan.queue);
      expect(String(message.content)).toContain(id);
      ours.ack(message);
    }
  });

  test('a crash of an outbox worker does not make us forget its attempts', async () => {
    const { fake, plan, wire, theirs, ours, another, major } = await setup('outbox', 'theirs');
    fake.publish(theirs, 'one');
    for (const _ of [1, 2]) fake.fail(theirs, await takeOne(theirs, plan.queue));
    const crashing = await another();
    await takeOne(crashing, plan.queue);
    await crashing.close();
    const message = await takeOne(ours, plan.queue);
    expect(message.fields.redelivered).toBe(true);
    // The broker's own count is over theirs, so that they begin anew.
    expect(message.properties.headers?.['x-delivery-count']).toBe(1);
    // From 4.0 on a message tells of its last wait only.
    expect(wire.read(message, plan.queue).attempts).toBe(major < 4 ? 2 : 1);
    ours.ack(message);
  });
});
