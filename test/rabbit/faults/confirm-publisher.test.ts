/** confirm-publisher — how it ends while the broker says nothing. */

import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import type { AmqpConnection } from 'respool/rabbit';
import { ReconnectingConnection } from '../../../src/rabbit/connection/reconnecting-connection.ts';
import { ConfirmPublisher } from '../../../src/rabbit/publish/confirm-publisher.ts';
import { systemClock, systemDice } from '../../time.ts';

const MESSAGE = { exchange: '', key: 'q', content: Buffer.from('m'), properties: {} };

/** A broker that takes everything and answers nothing. */
async function setup({ confirmTimeoutMs }: { readonly confirmTimeoutMs: number }) {
  const events = new EventEmitter();
  const channel = Object.assign(events, {
    published: 0,
    publish() {
      this.published += 1;
      events.emit('published');
    },
    close: (): Promise<void> => Promise.resolve(),
  });
  const connection = Object.assign(new EventEmitter(), {
    createConfirmChannel: () => Promise.resolve(channel),
    close: () => Promise.resolve(),
  });
  const open = (): Promise<AmqpConnection> =>
    Promise.resolve(connection as unknown as AmqpConnection);
  const reconnecting = new ReconnectingConnection({
    clock: systemClock,
    dice: systemDice,
    isOwned: true,
    open,
  });
  const publisher = new ConfirmPublisher(reconnecting, systemClock, { confirmTimeoutMs });
  const published = new Promise((resolve) => channel.once('published', resolve));
  const sent = publisher.send(MESSAGE).then(
    () => 'confirmed',
    (error: { code?: string }) => error.code,
  );
  await published;
  return { publisher, reconnecting, sent, channel, connection };
}

// Regression: nobody told a close that the last message's time was over.
test('a close waits for confirms until their time is over, not for ever', async () => {
  const { publisher, reconnecting, sent } = await setup({ confirmTimeoutMs: 30 });
  await publisher.close();
  expect(await sent).toBe('broker.unconfirmed');
  await reconnecting.close();
});

test('a close that does not wait gives up at once what is on its way', async () => {
  const { publisher, reconnecting, sent } = await setup({ confirmTimeoutMs: 3_600_000 });
  await publisher.close({ waits: false });
  expect(await sent).toBe('broker.unconfirmed');
  expect(publisher.load).toEqual({ inFlight: 0, waiting: 0, waitingBytes: 0 });
  await reconnecting.close();
});

test('a close does not wait for the answer of a broker under an alarm', async () => {
  const { publisher, reconnecting, channel, connection } = await setup({
    confirmTimeoutMs: 3_600_000,
  });
  connection.emit('blocked', 'low on memory');
  channel.close = () => new Promise<void>(() => undefined);
  const waiting = publisher.send(MESSAGE).catch((error: { code?: string }) => error.code);
  await publisher.close({ waits: false });
  expect(await waiting).toBe('engine.stopping');
  expect(channel.published).toBe(1);
  await reconnecting.close();
});
