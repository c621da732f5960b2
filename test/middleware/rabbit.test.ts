/** The same middleware around the handler of a consumer, on a real broker (R97, R98, R113, R114). */
import { type Delivery, ladder, type Middleware, PermanentError } from 'respool';
import { circuitBreaker, guard, healthGate, inBatches, metrics } from 'respool/middleware';
import { rateLimit, retryBudget } from 'respool/middleware';
import { expect, test } from 'vitest';
import type { Consumer, RabbitHandler } from 'respool/rabbit';
import { consume, Hands, nextEvent, ownName, Tray } from '../rabbit/ground.ts';
import { withService } from '../services/index.ts';

interface World {
  readonly consumer: Consumer;
  readonly publish: (...ids: string[]) => Promise<void>;
}

withService('rabbitmq', () => {
  async function setup(middleware: Middleware[], handler: RabbitHandler): Promise<World> {
    const queue = ownName('mw');
    const hands = await Hands.open();
    const options = { queue, type: 'classic' as const, policy: ladder([100]), middleware };
    const consumer = await consume({ ...options, waits: [100] }, handler);
    const publish = async (...ids: string[]): Promise<void> => {
      for (const messageId of ids) await hands.publish('', queue, { messageId }, { messageId });
    };
    return { consumer, publish };
  }

  test('a health gate postpones messages of a queue until it is healthy, at no cost', async () => {
    let isHealthy = false;
    const attempts = new Tray<number>();
    const gate = healthGate({ isHealthy: () => isHealthy, every: 0, postpone: '100ms' });
    const { consumer, publish } = await setup([gate], ({ attempt }) => attempts.add(attempt));
    const postponed = nextEvent(consumer, 'deferred');
    await publish('m1');
    expect((await postponed).because.code).toBe('health.down');
    expect(attempts.items).toEqual([]);
    isHealthy = true;
    expect(await attempts.until(1)).toEqual([1]);
  });

  test('a retry budget holds back retries of a queue, and no first attempt', async () => {
    const firsts = new Tray<string>();
    const handler = ({ id, attempt }: Delivery): void => {
      if (attempt > 1) return;
      firsts.add(id);
      throw new Error('busy');
    };
    const { consumer, publish } = await setup([retryBudget({ perMinute: 1 })], handler);
    const held = nextEvent(consumer, 'deferred', ({ because }) => because.code === 'budget.spent');
    const delivered = nextEvent(consumer, 'delivered');
    await publish('m1', 'm2');
    expect((await delivered).attempt).toBe(2);
    expect((await held).attempt).toBe(2);
    expect(firsts.items.toSorted()).toEqual(['m1', 'm2']);
  });

  test('a circuit breaker keeps the messages of a queue from a shut door, then lets go', async () => {
    let isShut = true;
    const changes = new Tray<string>();
    const breaker = circuitBreaker({
      failures: 1,
      halfOpenAfter: '500ms',
      onChange: (change) => changes.add(change),
    });
    const { consumer, publish } = await setup([breaker], () => {
      if (isShut) throw new Error('the door is shut');
    });
    const away = nextEvent(consumer, 'deferred', ({ id }) => id === 'm2');
    await publish('m1');
    await changes.until(1);
    await publish('m2');
    const { attempt, because } = await away;
    expect(attempt).toBe(1);
    expect(because.code).toBe('circuit.open');
    isShut = false;
    const { attempt: last } = await nextEvent(consumer, 'delivered', ({ id }) => id === 'm2');
    expect(last).toBe(1);
    expect(changes.items[0]).toBe('open');
    expect(changes.items.at(-1)).toBe('closed');
  });

  test('a rate limit, a guard and metrics see the messages of a queue in listed order', async () => {
    const told = new Tray<string>();
    const { consumer, publish } = await setup(
      [
        metrics({ ended: ({ id }, { kind }) => told.add(`${id} ${kind}`) }),
        guard(({ id }) => id !== 'm2'),
        rateLimit({ max: 1, per: '100ms' }),
      ],
      (delivery) => delivery.note('seen', 'yes'),
    );
    const parked = nextEvent(consumer, 'held');
    await publish('m1', 'm2', 'm3');
    expect((await parked).because.code).toBe('guard.refused');
    const all = await told.until(3);
    expect(all.toSorted()).toEqual(['m1 delivered', 'm2 held', 'm3 delivered']);
  });

  test('messages of a queue come in batches, each with an outcome of its own', async () => {
    const calls = new Tray<readonly string[]>();
    const { consumer, publish } = await setup(
      [],
      inBatches({
        max: 3,
        within: '10s',
        handler: (deliveries) => {
          calls.add(deliveries.map(({ id }) => id));
          return deliveries.map(({ id }) =>
            id === 'm2' ? new PermanentError('odd', 'an even number') : undefined,
          );
        },
      }),
    );
    const bounced = nextEvent(consumer, 'bounced');
    const delivered = new Tray<string>();
    consumer.on('delivered', ({ id }) => delivered.add(id));
    await publish('m1', 'm2', 'm3');
    expect((await bounced).id).toBe('m2');
    expect((await delivered.until(2)).toSorted()).toEqual(['m1', 'm3']);
    expect(calls.items).toEqual([['m1', 'm2', 'm3']]);
  });
});
