/** A message of a queue as a copy in a spool, and back into its queue as it was. */

import { describe, expect, test } from 'vitest';
import type { KeptCopy } from 'respool';
import type { AmqpMessage, Properties } from 'respool/rabbit';
import { checkHeaders, checkTopic } from '../../../src/core/limits.ts';
import type { Letter } from '../../../src/ports/dead-letters.ts';
import {
  ARCHIVED_HEADERS_MAX_BYTES,
  archiveCopyOf,
  restoredOf,
  restoreArchived,
} from '../../../src/rabbit/queues/letter-copy.ts';
import { readLetter } from '../../../src/rabbit/queues/letter.ts';
import { ConfirmPublisher } from '../../../src/rabbit/publish/confirm-publisher.ts';
import { withService } from '../../services/index.ts';
import { REMOVE, setup } from './queue-letters-ground.ts';
import { systemClock } from '../../time.ts';

function keptOf(queue: string, properties: Properties = {}, why = 'removed'): KeptCopy {
  const { message, letter } = heldIn(queue, properties);
  return archiveCopyOf(letter, message, why);
}

function heldIn(queue: string, properties: Properties): { message: AmqpMessage; letter: Letter } {
  const message: AmqpMessage = {
    content: Buffer.from('body'),
    fields: { deliveryTag: 1, redelivered: false, exchange: 'ex\n', routingKey: 'k\u0000' },
    properties: { messageId: 'm1', ...properties },
  };
  const place = { queue, role: undefined, of: [], kind: 'dead' as const };
  return { message, letter: readLetter(message, place).letter };
}

describe('a kept copy', () => {
  test.each<[string, string]>([
    ['orders.dlq', 'rabbit.orders.dlq'],
    ['orders dead/letters', 'rabbit.orders-dead-letters'],
    ['..a..b.', 'rabbit.a.b'],
    ['ä', 'rabbit.-'],
    ['...', 'rabbit'],
    [`${'x'.repeat(200)}.${'y'.repeat(54)}`, `rabbit.${'x'.repeat(200)}.${'y'.repeat(47)}`],
  ])('of queue %s has a topic that every spool takes', (queue, topic) => {
    const kept = keptOf(queue);
    expect(kept.topic).toBe(topic);
    expect(checkTopic(kept.topic)).toBe(topic);
    expect(kept.headers['respool-amqp-queue']).toBe(queue);
  });

  test('says why it is kept, and has headers that every spool takes', () => {
    const kept = keptOf('orders.dlq', { headers: { deep: { bytes: Buffer.from('x') } } });
    expect(kept).toMatchObject({ id: 'm1', reason: 'removed' });
    expect(checkHeaders(kept.headers, ARCHIVED_HEADERS_MAX_BYTES)).toEqual(kept.headers);
    expect(keptOf('q', {}, 'changed by a replay').reason).toBe('changed by a replay');
  });

  test('whose properties are too long for a spool is refused', () => {
    const headers = { long: 'x'.repeat(ARCHIVED_HEADERS_MAX_BYTES) };
    expect(() => keptOf('orders.dlq', { headers })).toThrow(
      expect.objectContaining({
        code: 'limit.exceeded',
        message: expect.stringMatching(/"m1" of queue "orders.dlq".*it stays where it is/s),
      }),
    );
  });

  test.each<[string, Readonly<Record<string, string>>, RegExp]>([
    ['nothing', {}, /headers respool-amqp and respool-amqp-queue are needed/],
    ['no queue', { 'respool-amqp': '{}' }, /are needed/],
    ['null', { 'respool-amqp': 'null', 'respool-amqp-queue': 'q' }, /it holds no properties/],
    ['a list', { 'respool-amqp': '[]', 'respool-amqp-queue': 'q' }, /it holds no properties/],
    ['no JSON', { 'respool-amqp': '{', 'respool-amqp-queue': 'q' }, /cannot be read/],
  ])('cannot be restored from %s', (_, headers, text) => {
    expect(() => restoredOf({ headers, body: new Uint8Array() })).toThrow(text);
  });

  test('is restored without what the broker would act upon or refuse', () => {
    const headers = {
      CC: ['other'],
      'x-delivery-count': 3,
      mine: 'x',
      'x-death': [{ queue: 'q' }],
    };
    const kept = keptOf('q', { userId: 'me', deliveryMode: 1, headers });
    const { exchange, key, content, properties } = restoredOf(kept);
    expect({ exchange, key, content: content.toString() }).toEqual({
      exchange: '',
      key: 'q',
      content: 'body',
    });
    expect(properties).toEqual({
      messageId: 'm1',
      deliveryMode: 2,
      headers: { mine: 'x', 'respool-deaths': '[{"queue":"q"}]', 'respool-user-id': 'me' },
    });
  });
});

withService('rabbitmq', () => {
  test('what is removed and restored is the letter that it was', async () => {
    const ground = await setup();
    const { queue, home, connection } = ground;
    const death = {
      queue: home,
      reason: 'rejected',
      count: 2,
      time: { '!': 'timestamp', value: 9 },
    };
    const headers = { count: 7, text: 'ä', list: [1, 'a', true], 'x-death': [death] };
    await ground.put(['a'], { headers, type: 't', priority: 2, timestamp: 1_700_000_000 });
    const [before] = await ground.lying(queue, 1);
    const door = ground.open();
    const kept = [];
    for await (const taken of door.take({ isWanted: () => true })) {
      kept.push(await taken.copy('removed'));
      await door.settle(taken, REMOVE);
    }
    await ground.lying(queue, 0);
    const publisher = new ConfirmPublisher(connection.publishing, systemClock);
    for (const one of kept) await restoreArchived(one, publisher);
    await publisher.close();
    const [after] = await ground.lying(queue, 1);
    expect(after?.content).toEqual(before?.content);
    const { 'x-death': deaths, ...others } = before?.properties.headers ?? {};
    // n.b. What the broker wrote is kept under a name of ours: it would act upon its own.
    expect(after?.properties).toEqual({
      ...before?.properties,
      headers: { ...others, 'respool-deaths': JSON.stringify(deaths) },
    });
    const lettersOf = (message: AmqpMessage | undefined): Letter | undefined =>
      message && readLetter(message, { queue, role: undefined, of: [], kind: 'dead' }).letter;
    expect(lettersOf(after)).toMatchObject({ deaths: 2, home: lettersOf(before)?.home });
  });
});
