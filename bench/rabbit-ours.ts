/** rabbit-ours — the same with createConsumer and createPublisher. */

import { fixed, RetryableError } from 'respool';
import { createConsumer, createPublisher } from 'respool/rabbit';
import type { Sample } from './measure.ts';
import { BODY, type Broker, Count, type Errand, inFlight } from './rabbit-broker.ts';

/** A handler that does nothing. */
export function ourConsume(broker: Broker, errand: Errand): Promise<Sample> {
  return consumed(broker, errand, broker.countFor(errand), () => undefined);
}

/** A handler that fails: every delivery is published to a wait queue, confirmed, and then acked. */
export function ourRetry(broker: Broker, errand: Errand): Promise<Sample> {
  const later = new RetryableError('later', 'not now');
  return consumed(broker, errand, Math.ceil(broker.countFor(errand) / 2), () => {
    throw later;
  });
}

export async function ourPublish(broker: Broker, errand: Errand): Promise<Sample> {
  const plan = broker.plan(errand.type);
  await broker.lay(plan, 0);
  const publisher = createPublisher({ url: broker.url, exchange: '' });
  const sample = await inFlight(errand, () => publisher.publish({ key: plan.queue, body: BODY }));
  await publisher.close();
  await broker.remove(plan);
  return sample;
}

async function consumed(
  broker: Broker,
  errand: Errand,
  wanted: number,
  handler: () => void,
): Promise<Sample> {
  const plan = broker.plan(errand.type);
  await broker.lay(plan, wanted);
  const count = new Count(wanted);
  const { inFlight: concurrency } = errand;
  const consumer = createConsumer(
    {
      url: broker.url,
      queue: plan.queue,
      type: errand.type,
      topology: { name: 'as planned', plan: () => plan },
      policy: fixed('1h'),
      prefetch: concurrency,
      concurrency,
    },
    handler,
  );
  consumer.on('delivered', () => count.tick());
  consumer.on('deferred', () => count.tick());
  await consumer.start();
  const sample = await count.sample;
  await consumer.stop();
  await broker.remove(plan);
  return sample;
}
