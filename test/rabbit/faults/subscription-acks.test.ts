/** subscription — which acks go out, at the level of frames. */

import { expect, test } from 'vitest';
import type { AmqpMessage } from 'respool/rabbit';
import { DeliveryChannel } from '../../../src/rabbit/connection/delivery-channel.ts';
import type { AmqpChannel } from '../amqp.ts';
import { systemClock } from '../../time.ts';

function setup() {
  const sent: string[] = [];
  const channel: Partial<AmqpChannel> = {
    ack: ({ fields }, allUpTo) =>
      void sent.push(`ack ${fields.deliveryTag}${allUpTo === true ? ' and before' : ''}`),
    nack: ({ fields }) => void sent.push(`nack ${fields.deliveryTag}`),
    close: () => Promise.resolve(),
  };
  const deliveries = new DeliveryChannel(channel as AmqpChannel, systemClock);
  const message = (deliveryTag: number): AmqpMessage =>
    ({ fields: { deliveryTag } }) as AmqpMessage;
  for (const tag of [1, 2, 3, 4]) deliveries.note(message(tag));
  return { deliveries, sent, message };
}

// Regression: the ack was taken for sent, and the message stayed with us until the channel ended.
test('an ack that waits for its turn is sent although the next delivery is given back', () => {
  const { deliveries, sent, message } = setup();
  deliveries.ack(message(1));
  deliveries.giveBack(message(2));
  deliveries.flush();
  expect(sent).toEqual(['nack 2', 'ack 1 and before']);
});

test('acks of one turn go together as far as nothing earlier is open', () => {
  const { deliveries, sent, message } = setup();
  for (const tag of [4, 2, 1]) deliveries.ack(message(tag));
  deliveries.flush();
  deliveries.ack(message(3));
  deliveries.flush();
  expect(sent).toEqual(['ack 2 and before', 'ack 4', 'ack 3 and before']);
});

test('nothing is sent on a channel that is gone', async () => {
  const { deliveries, sent, message } = setup();
  deliveries.ack(message(1));
  deliveries.lose();
  deliveries.flush();
  deliveries.ack(message(2));
  deliveries.giveBack(message(3));
  await deliveries.close();
  expect(sent).toEqual([]);
});
