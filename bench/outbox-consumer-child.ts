/**
 * outbox-consumer-child — one consumer of the outbox bench, in a process of its own. It prints how
 * many messages it has seen whenever that has changed, and when it is told to stop, which and when.
 */

import { createInterface } from 'node:readline';
import { connect } from 'amqplib';
import { ourConsumer } from './outbox-ours.ts';
import { type ConsumerOrder, now, ROUTING_KEY } from './outbox-words.ts';

const TELL_EVERY_MS = 25;

const order = JSON.parse(process.argv[2] ?? '') as ConsumerOrder;
const ids: string[] = [];
const at: number[] = [];
const saw = (id: string): void => {
  at.push(now());
  ids.push(id);
};
const stop = await (order.by === 'listen' ? ourConsumer : bareConsumer)(order, saw);
console.log('ready');
let told = 0;
const telling = setInterval(() => {
  if (ids.length === told) return;
  told = ids.length;
  console.log(`count ${told}`);
}, TELL_EVERY_MS);
// Also when the process that started it is gone.
createInterface({ input: process.stdin }).once('close', () => {
  clearInterval(telling);
  console.log(`seen ${JSON.stringify({ ids, at })}`);
  void stop();
});

/** amqplib by hand: every delivery is acked. */
async function bareConsumer(
  { amqp, exchange, queue, prefetch }: ConsumerOrder,
  tell: (id: string) => void,
): Promise<() => Promise<void>> {
  const connection = await connect(amqp, { noDelay: true });
  const channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
  await channel.bindQueue(queue, exchange, ROUTING_KEY);
  await channel.prefetch(prefetch);
  await channel.consume(queue, (message) => {
    if (message === null) return;
    tell(message.properties.messageId);
    channel.ack(message);
  });
  return () => connection.close();
}
