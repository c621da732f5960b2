/** outlet — how it ends while the broker says nothing. */

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
  const link = new ReconnectingConnection({
    clock: systemClock,
    dice: systemDice,
    isOwned: true,
    open,
  });
  const outlet = new ConfirmPublisher(link, systemClock, { confirmTimeoutMs });
  const published = new Promise((resolve) => channel.once('published', resolve));
  const sent = outlet.send(MESSAGE).then(
    () => 'confirmed',
    (error: { code?: string }) => error.code,
  );
  await published;
  return { outlet, link, sent, channel, connection };
}

// Regression: nobody told a close that the last message's time was over.
test('a close waits for confirms until their time is over, not for ever', async () => {
  const { outlet, link, sent } = await setup({ confirmTimeoutMs: 30 });
  await outlet.close();
  expect(await sent).toBe('broker.unconfirmed');
  await link.close();
});

test('a close that does not wait gives up at once what is on its way', async () => {
  const { outlet, link, sent } = await setup({ confirmTimeoutMs: 3_600_000 });
  await outlet.close({ waits: false });
  expect(await sent).toBe('broker.unconfirmed');
  expect(outlet.load).toEqual({ inFlight: 0, waiting: 0, waitingBytes: 0 });
  await link.close();
});

test('a close does not wait for the answer of a broker under an alarm', async () => {
  const { outlet, link, channel, connection } = await setup({ confirmTimeoutMs: 3_600_000 });
  connection.emit('blocked', 'low on memory');
  channel.close = () => new Promise<void>(() => undefined);
  const waiting = outlet.send(MESSAGE).catch((error: { code?: string }) => error.code);
  await outlet.close({ waits: false });
  expect(await waiting).toBe('engine.stopping');
  expect(channel.published).toBe(1);
  await link.close();
});
