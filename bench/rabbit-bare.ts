/** rabbit-bare — amqplib and nothing else: what a careful person would write by hand. */

import { connect } from 'amqplib';
import type { Sample } from './measure.ts';
import { BODY, type Broker, Count, type Errand, inFlight } from './rabbit-broker.ts';

/** Every delivery is acked. */
export async function bareConsume(broker: Broker, errand: Errand): Promise<Sample> {
  const wanted = broker.countFor(errand);
  const plan = broker.plan(errand.type);
  await broker.lay(plan, wanted);
  const connection = await connect(broker.url, { noDelay: true });
  const channel = await connection.createChannel();
  await channel.prefetch(errand.inFlight);
  const count = new Count(wanted);
  await channel.consume(plan.queue, (message) => {
    if (message === null) return;
    channel.ack(message);
    count.tick();
  });
  const sample = await count.sample;
  await connection.close();
  await broker.remove(plan);
  return sample;
}

/** Every message is confirmed, and would come back if no queue took it. */
export async function barePublish(broker: Broker, errand: Errand): Promise<Sample> {
  const plan = broker.plan(errand.type);
  await broker.lay(plan, 0);
  const connection = await connect(broker.url, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  let at = 0;
  const sample = await inFlight(
    errand,
    () =>
      new Promise<void>((resolve, reject) => {
        at += 1;
        const messageId = `0198${at.toString(16).padStart(12, '0')}`;
        const options = { persistent: true, mandatory: true, messageId, timestamp: at };
        channel.publish('', plan.queue, BODY, options, (error: Error | null) => {
          if (error === null) resolve();
          else reject(error);
        });
      }),
  );
  await connection.close();
  await broker.remove(plan);
  return sample;
}

/** Every delivery is published to a wait queue, confirmed, and then acked. */
export async function bareForward(broker: Broker, errand: Errand): Promise<Sample> {
  const wanted = Math.ceil(broker.countFor(errand) / 2);
  const plan = broker.plan(errand.type);
  await broker.lay(plan, wanted);
  const { exchange, key } = plan.wait({ delayMs: 1, attempt: 1, routingKey: plan.queue });
  const consuming = await connect(broker.url, { noDelay: true });
  const publishing = await connect(broker.url, { noDelay: true });
  const channel = await consuming.createChannel();
  const outgoing = await publishing.createConfirmChannel();
  await channel.prefetch(errand.inFlight);
  const count = new Count(wanted);
  await channel.consume(plan.queue, (message) => {
    if (message === null) return;
    const { messageId, timestamp } = message.properties;
    const headers = { ...message.properties.headers, attempts: 1, code: 'later' };
    const options = { persistent: true, mandatory: true, messageId, timestamp, headers };
    outgoing.publish(exchange, key, message.content, options, (error: Error | null) => {
      if (error !== null) throw error;
      channel.ack(message);
      count.tick();
    });
  });
  const sample = await count.sample;
  await consuming.close();
  await publishing.close();
  await broker.remove(plan);
  return sample;
}
