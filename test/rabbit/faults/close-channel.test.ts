/** close-channel — channels whose connection ends before the broker answers. */

import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { closeChannel } from '../../../src/rabbit/connection/amqp.ts';
import { FaultProxy } from '../../nodes/proxy.ts';
import { withService } from '../../services/index.ts';
import { Hands } from '../ground.ts';
import type { AmqpChannel } from '../amqp.ts';

test('closing a channel that is closed already is no error', async () => {
  const close = (): never => {
    throw new Error('Channel closed');
  };
  const channel = Object.assign(new EventEmitter(), { close }) as unknown as AmqpChannel;
  await expect(closeChannel(channel)).resolves.toBeUndefined();
});

withService('rabbitmq', (url) => {
  // Regression: a consumer hung for ever while it looked at its topology.
  test('closing a channel ends with its connection, although nobody answers', async () => {
    await using proxy = await FaultProxy.start(url());
    const hands = await Hands.open(proxy.url);
    const channel = await hands.connection.createChannel();
    proxy.spoil('hold');
    const closed = closeChannel(channel);
    proxy.spoil('reset');
    await expect(closed).resolves.toBeUndefined();
  });
});
