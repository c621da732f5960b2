/** confirm-publisher — a resolved send is in a queue; what is not known to be there is told as not known. */

import { describe, expect, onTestFinished, test } from 'vitest';
import { createConnection } from 'respool/rabbit';
import { type Clock, isRespoolError } from 'respool';
import {
  ConfirmPublisher,
  type ConfirmPublisherLimits,
} from '../../src/rabbit/publish/confirm-publisher.ts';
import { FaultProxy } from '../nodes/proxy.ts';
import { withService } from '../services/index.ts';
import { Hands, ownName } from './ground.ts';
import { systemClock } from '../time.ts';

withService('rabbitmq', (url) => {
  async function setup(
    limits: Partial<ConfirmPublisherLimits> = {},
    at = url(),
    clock: Clock = systemClock,
  ) {
    const connection = createConnection({ url: at });
    const publisher = new ConfirmPublisher(connection.publishing, clock, limits);
    const hands = await Hands.open();
    const queue = ownName();
    await hands.channel.assertQueue(queue, { durable: true });
    onTestFinished(async () => {
      await connection.close();
      await hands.channel.deleteQueue(queue);
    });
    const send = (key = queue, exchange = '', messageId?: string): Promise<void> =>
      publisher.send({ exchange, key, content: Buffer.from('x'), properties: { messageId } });
    return { connection, publisher, hands, queue, send };
  }

  const codeOf = (work: Promise<unknown>): Promise<string> =>
    work.then(
      () => 'done',
      (error: unknown) => (isRespoolError(error) ? error.code : String(error)),
    );

  test('a message that no queue takes is told apart from its neighbours', async () => {
    const { send, hands, queue } = await setup();
    const codes = await Promise.all([
      codeOf(send(queue, '', 'a')),
      codeOf(send('nobody', '', 'a')),
      codeOf(send(queue, '', 'a')),
      codeOf(send('nobody')),
      codeOf(send(queue)),
    ]);
    const unroutable = 'broker.unroutable';
    expect(codes).toEqual(['done', unroutable, 'done', unroutable, 'done']);
    expect(await hands.depth(queue)).toBe(3);
  });

  test('a missing exchange harms nobody else', async () => {
    const { send, hands, queue } = await setup();
    const codes = await Promise.all([
      codeOf(send()),
      codeOf(send('k', 'no-such-exchange')),
      codeOf(send()),
    ]);
    expect(codes).toEqual(['done', 'broker.unroutable', 'done']);
    expect(await hands.depth(queue)).toBe(2);
  });

  test('an exchange that is deleted later ends the channel, and sending goes on', async () => {
    const { send, hands, queue, publisher } = await setup();
    const exchange = ownName('ex');
    await hands.channel.assertExchange(exchange, 'fanout', { durable: true });
    await hands.channel.bindQueue(queue, exchange, '');
    await send('', exchange);
    await hands.channel.deleteExchange(exchange);
    expect(await codeOf(send('', exchange))).toBe('broker.unroutable');
    await send();
    expect(await hands.depth(queue)).toBe(2);
    expect(publisher.load).toEqual({ inFlight: 0, waiting: 0, waitingBytes: 0 });
  });

  // Regression: it asked again at once for ever, and nothing else ran in the process.
  test('a message to another exchange does not hold up a connection that is closing', async () => {
    const { send, connection, publisher } = await setup();
    await send();
    const closed = connection.close();
    const code = codeOf(send('k', 'amq.topic'));
    await closed;
    await publisher.close({ waits: false });
    expect(await code).toBe('engine.stopping');
  });

  test('a thousand and one in flight keep their order and their window', async () => {
    const { publisher, hands, queue } = await setup({ windowMax: 7 });
    const seen: number[] = [];
    await hands.channel.consume(queue, (message) => {
      if (message !== null) seen.push(Number(message.content.toString()));
    });
    let most = 0;
    const sends = Array.from({ length: 1_001 }, (_, at) => {
      const content = Buffer.from(String(at));
      const sent = publisher.send({ exchange: '', key: queue, content, properties: {} });
      most = Math.max(most, publisher.load.inFlight);
      return sent.then(() => {
        most = Math.max(most, publisher.load.inFlight);
      });
    });
    await Promise.all(sends);
    expect(most).toBeLessThanOrEqual(7);
    await hands.publish('', queue, -1);
    while (seen.at(-1) !== -1) await hands.depth(queue);
    expect(seen).toEqual([...Array.from({ length: 1_001 }, (_, at) => at), -1]);
  });

  describe('while the broker is away', () => {
    test('messages wait within their bounds, and time out as not sent', async () => {
      const { publisher } = await setup(
        { confirmTimeoutMs: 200, waitingMax: 2, waitingMaxBytes: 1_000 },
        'amqp://127.0.0.1:1',
      );
      const send = (bytes: number): Promise<void> =>
        publisher.send({ exchange: '', key: 'q', content: Buffer.alloc(bytes), properties: {} });
      const first = codeOf(send(1));
      expect(await codeOf(send(1_000))).toBe('limit.exceeded');
      const second = codeOf(send(1));
      expect(await codeOf(send(1))).toBe('limit.exceeded');
      expect(await Promise.all([first, second])).toEqual([
        'broker.unavailable',
        'broker.unavailable',
      ]);
      expect(publisher.load).toEqual({ inFlight: 0, waiting: 0, waitingBytes: 0 });
    });

    test('what was on its way is not known, what waited goes later', async () => {
      await using proxy = await FaultProxy.start(url());
      const { send, hands, queue } = await setup({ windowMax: 1 }, proxy.url);
      await send();
      proxy.spoil('hold-down');
      const lost = codeOf(send());
      const later = send();
      proxy.spoil('reset');
      proxy.recover();
      expect(await lost).toBe('broker.unconfirmed');
      await later;
      expect(await hands.depth(queue)).toBeGreaterThanOrEqual(2);
    });

    test('a confirm that never comes is not known after its time', async () => {
      await using proxy = await FaultProxy.start(url());
      let isHeld = false;
      // A busy machine may need as long for the first one: its time does not pass.
      const after: Clock['after'] = (ms, call) =>
        ms === 317 && !isHeld ? () => undefined : systemClock.after(ms, call);
      const clock = { ...systemClock, after };
      const { send } = await setup({ confirmTimeoutMs: 317 }, proxy.url, clock);
      await send();
      proxy.spoil('hold-down');
      isHeld = true;
      expect(await codeOf(send())).toBe('broker.unconfirmed');
    });
  });

  test('closing waits for what was handed over, and takes no more', async () => {
    const { publisher, hands, queue, send } = await setup();
    const sent = Array.from({ length: 50 }, () => send());
    await publisher.close();
    await Promise.all(sent);
    expect(await hands.depth(queue)).toBe(50);
    expect(await codeOf(send())).toBe('engine.stopping');
  });
});
