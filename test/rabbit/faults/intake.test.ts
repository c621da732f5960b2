/** intake — which acks go out, at the level of frames. */

import { expect, test } from 'vitest';
import type { AmqpChannel, AmqpMessage } from '../../../src/rabbit/connection/amqp.ts';
import { Subscription } from '../../../src/rabbit/consume/subscription.ts';
import { systemClock } from '../../../src/system/clock.ts';

function setup() {
  const sent: string[] = [];
  const channel: Partial<AmqpChannel> = {
    ack: ({ fields }, allUpTo) =>
      void sent.push(`ack ${fields.deliveryTag}${allUpTo === true ? ' and before' : ''}`),
    nack: ({ fields }) => void sent.push(`nack ${fields.deliveryTag}`),
    close: () => Promise.resolve(),
  };
  const intake = new Subscription(channel as AmqpChannel, systemClock);
  const message = (deliveryTag: number): AmqpMessage =>
    ({ fields: { deliveryTag } }) as AmqpMessage;
  for (const tag of [1, 2, 3, 4]) intake.note(message(tag));
  return { intake, sent, message };
}

// Regression: the ack was taken for sent, and the message stayed with us until the channel ended.
test('an ack that waits for its turn is sent although the next delivery is given back', () => {
  const { intake, sent, message } = setup();
  intake.ack(message(1));
  intake.giveBack(message(2));
  intake.flush();
  expect(sent).toEqual(['nack 2', 'ack 1 and before']);
});

test('acks of one turn go together as far as nothing earlier is open', () => {
  const { intake, sent, message } = setup();
  for (const tag of [4, 2, 1]) intake.ack(message(tag));
  intake.flush();
  intake.ack(message(3));
  intake.flush();
  expect(sent).toEqual(['ack 2 and before', 'ack 4', 'ack 3 and before']);
});

test('nothing is sent on a channel that is gone', async () => {
  const { intake, sent, message } = setup();
  intake.ack(message(1));
  intake.lose();
  intake.flush();
  intake.ack(message(2));
  intake.giveBack(message(3));
  await intake.close();
  expect(sent).toEqual([]);
});
