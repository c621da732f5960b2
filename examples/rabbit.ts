/**
 * rabbit — the same handler, the same policy, on a queue of RabbitMQ; and a publisher whose messages
 * wait in a spool while the broker is away. RABBITMQ_URL names the broker.
 */

import { createSpool, ladder, RetryableError } from 'respool';
import {
  createConsumer,
  createPublisher,
  perAttempt,
  perDelay,
  type RabbitDelivery,
  shared,
} from 'respool/rabbit';

const url = process.env['RABBITMQ_URL'] ?? 'amqp://localhost';

// Made up: the first attempt finds the stock locked, the second delivers.
const done = Promise.withResolvers<void>();
const handler = async (delivery: RabbitDelivery): Promise<void> => {
  const { orderId } = (await delivery.json()) as { orderId: number };
  console.log(`order ${orderId}, attempt ${delivery.attempt}, ${delivery.routingKey}`);
  if (delivery.attempt === 1) throw new RetryableError('stock.locked', 'another order is using it');
  done.resolve();
};

await using spool = createSpool({ path: './respool' });

await using consumer = createConsumer(
  {
    url,
    queue: 'orders',
    bindings: [{ exchange: 'shop', key: 'order.*' }],
    topology: shared(), // or perDelay(), perAttempt()
    policy: ladder(['2s', '5s', '15s']),
    prefetch: 50,
    concurrency: 10,
  },
  handler,
);
await consumer.start();

await using publisher = createPublisher({ url, exchange: 'shop', fallback: spool });
await spool.start(); // forwards what an earlier run had to keep
const { via } = await publisher.publish({ key: 'order.created', body: { orderId: 1 } });
console.log(`confirmed and routed, or safe in the spool: ${via}`);
await done.promise;

// What the other two styles would call the queues in which messages of "orders" wait.
const policy = ladder(['2s', '5s', '15s']);
for (const topology of [perDelay(), perAttempt()]) {
  const { plan } = createConsumer({ url, queue: 'orders', topology, policy }, handler);
  const waits = plan.topology.queues.filter(({ role }) => role === 'wait');
  console.log(`${topology.name}: ${waits.map(({ name }) => name).join(' ')}`);
}
