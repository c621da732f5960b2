/** Wait queues that others use, too; delays side by side; headers that the broker judges by. */

import { expect, test } from 'vitest';
import { ladder, RetryableError } from 'respool';
import { type AmqpMessage, type QueueType, shared } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { consume, Hands, nextEvent, ownName, Tray } from '../ground.ts';
import { Gate } from './setup.ts';

withService('rabbitmq', () => {
  test('messages without a way back do not keep others in a shared wait queue', async () => {
    const prefix = ownName('shared');
    const hands = await Hands.open();
    const options = { topology: shared({ prefix }), policy: ladder(['300ms']), waits: [] };
    const lost = `${prefix}-lost`;
    const unbound = await consume({ ...options, queue: lost }, () => {
      throw new RetryableError('test.busy', 'again');
    });
    const seen = new Tray<number>();
    const well = await consume({ ...options, queue: `${prefix}-well` }, ({ attempt }) => {
      if (attempt === 1) throw new RetryableError('test.busy', 'again');
      seen.add(attempt);
    });
    const back = unbound.plan.topology.bindings.find(
      ({ queue, exchange }) => queue === lost && exchange === `${prefix}.return`,
    );
    await hands.channel.unbindQueue(lost, `${prefix}.return`, '', back?.arguments ?? {});
    const deferred = new Tray<string>();
    unbound.on('deferred', ({ id }) => deferred.add(id));
    for (let at = 0; at < 40; at += 1) await hands.publish('', lost, at, { messageId: `u${at}` });
    await deferred.until(40);
    for (let at = 0; at < 20; at += 1) await hands.publish('', well.queue, at);
    await seen.until(20);
    const unrouted = new Set<string | undefined>();
    while (unrouted.size < 40) {
      unrouted.add((await hands.take(`${prefix}.unrouted`)).properties.messageId);
    }
    expect(unrouted).toEqual(new Set(deferred.items));
    expect(await hands.depth(`${prefix}.unrouted`)).toBe(0);
  });

  test('long and short waits do not keep each other waiting, and none ends early', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const [waits, each] = [[100, 2_000, 3_600_000], 20];
    const failedAt = new Map<string, number>();
    const failed = new Tray<string>();
    const back = new Tray<{ readonly askedMs: number; readonly lateMs: number }>();
    await consume(
      { queue, topology: shared({ prefix: queue }), policy: ladder(waits), waits: [] },
      (delivery) => {
        const { id, attempt, headers } = delivery;
        const askedMs = Number(headers['wait']);
        if (attempt === 1) {
          failedAt.set(id, performance.now());
          failed.add(id);
          delivery.retry(askedMs);
        } else {
          back.add({ askedMs, lateMs: performance.now() - (failedAt.get(id) ?? 0) - askedMs });
        }
      },
    );
    for (let at = 0; at < waits.length * each; at += 1) {
      const wait = waits[waits.length - 1 - (at % waits.length)];
      await hands.publish('', queue, at, { messageId: `m${at}`, headers: { wait } });
    }
    await failed.until(waits.length * each);
    // Whatever waits behind an hour does not come here.
    await back.until(2 * each);
    const count = (ms: number): number => back.items.filter((one) => one.askedMs === ms).length;
    expect(waits.map(count)).toEqual([each, each, 0]);
    const lateMs = back.items.map((one) => Math.round(one.lateMs));
    expect(Math.min(...lateMs), `late by ms: ${lateMs.join(' ')}`).toBeGreaterThanOrEqual(0);
  });

  test.each<QueueType>(['quorum', 'classic'])(
    'copied headers of deaths in our own %s queues make the broker drop nothing',
    async (type) => {
      const queue = ownName();
      const hands = await Hands.open();
      const attempts: number[] = [];
      const options = { queue, type, topology: shared({ prefix: queue }), waits: [] };
      const { plan } = await consume({ ...options, policy: ladder([50, 60]) }, ({ attempt }) => {
        attempts.push(attempt);
        throw new RetryableError('test.busy', 'again');
      });
      const deaths = plan.topology.queues.map(({ name }) => ({
        queue: name,
        reason: 'expired',
        count: 7,
        exchange: `${queue}.return`,
        'routing-keys': [queue],
        time: { '!': 'timestamp', value: 1_700_000_000 },
      }));
      const headers = {
        'x-death': deaths,
        'x-first-death-queue': queue,
        'x-first-death-reason': 'expired',
        'x-first-death-exchange': '',
        'x-delivery-count': 9,
      };
      await hands.publish('', queue, 'm', { messageId: 'm', headers });
      const dead = await hands.take(plan.dead.key);
      // Three attempts are allowed; the last of them, too, ends in the dead queue.
      expect(attempts).toEqual([1, 2, 3]);
      expect(dead.properties.headers).toMatchObject({ 'respool-attempts': 3 });
      expect(dead.properties.headers).not.toHaveProperty('x-death');
    },
  );

  test('a redelivered message of a classic queue is published again, its count raised', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const gate = new Gate();
    const options = { queue, type: 'classic', topology: shared({ prefix: queue }) } as const;
    const runs = new Tray<AmqpMessage>();
    const first = await consume(options, async ({ message }) => {
      runs.add(message);
      await gate.opened;
    });
    await hands.publish('', queue, { body: 1 }, { messageId: 'm', correlationId: 'c' });
    await runs.until(1);
    await first.stop({ within: '1ms' });
    gate.open();
    const second = await consume(options, ({ message }) => runs.add(message));
    const delivered = nextEvent(second, 'delivered');
    const [before, after] = await runs.until(2);
    expect(before?.properties.headers).not.toHaveProperty('respool-lost');
    expect(after?.fields.redelivered).toBe(false);
    expect(after?.properties).toMatchObject({
      messageId: 'm',
      correlationId: 'c',
      headers: { 'respool-lost': 1 },
    });
    expect(after?.content.toString()).toBe('{"body":1}');
    await delivered;
    await second.stop();
    expect(await hands.depth(queue)).toBe(0);
  });
});
