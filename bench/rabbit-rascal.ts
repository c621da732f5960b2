/** rabbit-rascal — the same work with rascal's consumer. */

import rascal from 'rascal';
import type { Sample } from './measure.ts';
import { type Broker, Count, type Errand } from './rabbit-broker.ts';

/** Every delivery is acked. */
export function rascalConsume(broker: Broker, errand: Errand): Promise<Sample> {
  return consumed(broker, errand, broker.countFor(errand), false);
}

/** Every delivery is forwarded to a wait queue with a confirm, then acked. */
export function rascalForward(broker: Broker, errand: Errand): Promise<Sample> {
  return consumed(broker, errand, Math.ceil(broker.countFor(errand) / 2), true);
}

async function consumed(
  broker: Broker,
  errand: Errand,
  wanted: number,
  isForwarded: boolean,
): Promise<Sample> {
  const plan = broker.plan(errand.type);
  await broker.lay(plan, wanted);
  const { queue } = plan;
  const wait = plan.wait({ delayMs: 1, attempt: 1, routingKey: queue }).key;
  const theirs = await rascal.BrokerAsPromised.create(
    rascal.withDefaultConfig({
      vhosts: {
        '/': {
          connection: { url: broker.url },
          queues: {
            [queue]: { check: true, assert: false },
            [wait]: { check: true, assert: false },
          },
          publications: { later: { queue: wait, confirm: true } },
          subscriptions: { all: { queue, prefetch: errand.inFlight } },
        },
      },
    }),
  );
  theirs.on('error', () => undefined);
  const count = new Count(wanted);
  const subscription = await theirs.subscribe('all');
  subscription.on('message', (_message, _content, ackOrNack) => {
    if (!isForwarded) {
      ackOrNack();
      count.tick();
      return;
    }
    ackOrNack(new Error('not now'), { strategy: 'forward', publication: 'later' });
  });
  const watch = isForwarded ? await watched(broker, wait, count) : undefined;
  const sample = await count.sample;
  await watch?.();
  await theirs.shutdown();
  await broker.remove(plan);
  return sample;
}

/** rascal does not tell when a message is forwarded: whoever waits for it at the other end knows. */
async function watched(broker: Broker, queue: string, count: Count): Promise<() => Promise<void>> {
  const { connection } = await broker.hands();
  const channel = await connection.createChannel();
  await channel.prefetch(1_000);
  await channel.consume(queue, (message) => {
    if (message === null) return;
    channel.ack(message);
    count.tick();
  });
  return () => channel.close();
}
