/** A message of a dead queue as a letter: our headers, those of others, and what brokers write. */

import { describe, expect, test } from 'vitest';
import { perDelay } from 'respool/rabbit';
import { LETTER_HEADER_MAX_CHARS, LETTER_HEADERS_MAX } from '../../../src/rabbit/queues/letter.ts';
import { queuePlaceOf } from '../../../src/rabbit/message-history.ts';
import { orderOf } from '../admin/setup.ts';
import { at, death, letterOf, QUEUE } from './letter-ground.ts';
import type { Table } from '../amqp.ts';

describe('the home of a letter', () => {
  test.each<[string, Table, string | undefined]>([
    ['the queue that our header names', { 'respool-queue': 'orders' }, 'orders'],
    [
      'our header before what the broker says',
      { 'respool-queue': 'orders', 'x-death': [death('other', 'rejected')] },
      'orders',
    ],
    ['not the queue that it lies in', { 'respool-queue': QUEUE }, undefined],
    [
      'not the queue that a sweep took it from',
      { 'respool-queue': 'a.dlq', 'respool-swept-from': 'a.dlq' },
      undefined,
    ],
    ['the queue where it died', { 'x-death': [death('orders', 'rejected')] }, 'orders'],
    [
      'the oldest of several',
      { 'x-death': [death('late', 'rejected'), death('early', 'rejected')] },
      'early',
    ],
    [
      'not the queue where it only waited',
      { 'x-death': [death('orders', 'rejected'), death('orders.wait', 'expired')] },
      'orders',
    ],
    [
      'the queue where it only waited when there is no other',
      { 'x-death': [death('orders.wait', 'expired')] },
      'orders.wait',
    ],
    [
      'not the dead queue that it came back to',
      { 'x-death': [death(QUEUE, 'expired'), death('orders', 'rejected')] },
      'orders',
    ],
    [
      'the first of all when the broker names it',
      {
        'x-death': [death('b', 'rejected'), death('a', 'rejected')],
        'x-first-death-queue': 'b',
      },
      'b',
    ],
    ['the first alone', { 'x-first-death-queue': 'orders' }, 'orders'],
    [
      'what we kept of the broker',
      { 'respool-deaths': JSON.stringify([death('orders', 'rejected')]) },
      'orders',
    ],
    ['nobody knows', {}, undefined],
    ['nobody knows by headers that say nothing', { 'x-death': 'x', 'respool-queue': 7 }, undefined],
  ])('is: %s', (_, headers, key) => {
    const home = key === undefined ? undefined : { kind: 'queue', exchange: '', key };
    expect(letterOf(headers).home).toEqual(home);
  });

  test('is the main queue of the plan that the dead queue belongs to', () => {
    const plan = perDelay().plan(orderOf('orders'));
    const place = queuePlaceOf(plan.dead.key, [plan]);
    expect(letterOf({}, { place }).home).toEqual({ kind: 'queue', exchange: '', key: 'orders' });
  });

  test('is the exchange and key of our headers when no queue is known', () => {
    const headers = { 'respool-exchange': 'shop', 'respool-routing-key': 'order.new' };
    const home = { kind: 'queue', exchange: 'shop', key: 'order.new' };
    expect(letterOf(headers).home).toEqual(home);
  });

  test('is nobody knows where our headers name an exchange and no key', () => {
    expect(letterOf({ 'respool-exchange': 'shop' }).home).toBeUndefined();
  });

  test('is not the queue that it lies in, by the default exchange', () => {
    const headers = { 'respool-exchange': '', 'respool-routing-key': QUEUE };
    expect(letterOf(headers).home).toBeUndefined();
  });
});

describe('topic and origin of a letter', () => {
  test.each<[string, Table, string, string]>([
    [
      'our headers',
      { 'respool-routing-key': 'a.b', 'respool-exchange': 'ex', 'respool-queue': 'orders' },
      'a.b',
      'ex/orders',
    ],
    ['the oldest death', { 'x-death': [death('orders', 'rejected')] }, 'order.new', 'shop/orders'],
    ['the delivery itself', {}, QUEUE, 'dlx/'],
    [
      'the queue where the key is empty',
      { 'x-death': [death('orders', 'rejected', { 'routing-keys': [''] })] },
      'orders',
      'shop/orders',
    ],
    [
      'the delivery where keys are missing',
      { 'x-death': [death('orders', 'rejected', { 'routing-keys': undefined })] },
      QUEUE,
      'shop/orders',
    ],
  ])('come from %s', (_, headers, topic, origin) => {
    expect(letterOf(headers)).toMatchObject({ topic, origin });
  });

  test('are nobody knows where it was put straight into its queue', () => {
    expect(letterOf({}, { fields: { exchange: '' } }).origin).toBe('');
  });
});

describe('the cause of a letter', () => {
  test.each<[string, Table, string, string]>([
    [
      'how it ended',
      {
        'respool-ended-code': 'expired',
        'respool-ended-reason': 'too old',
        'respool-code': 'http.503',
        'x-death': [death('orders', 'rejected')],
      },
      'expired',
      'too old',
    ],
    [
      'our last failure',
      { 'respool-code': 'http.503', 'respool-reason': 'closed' },
      'http.503',
      'closed',
    ],
    [
      'our last failure before an expired wait',
      {
        'respool-code': 'http.503',
        'respool-last-failed-at': 1_000,
        'x-death': [death('wait', 'expired', at(9))],
      },
      'http.503',
      '',
    ],
    [
      'what the broker did after our last failure',
      {
        'respool-code': 'http.503',
        'respool-last-failed-at': 1_000,
        'x-death': [death('orders', 'rejected', at(9))],
      },
      'amqp.rejected',
      'rejected in queue "orders"',
    ],
    ['an exception', { 'x-exception-message': 'no\nstock' }, 'spring.exception', 'no stock'],
    [
      'a rejection',
      { 'x-death': [death('orders', 'rejected')] },
      'amqp.rejected',
      'rejected in queue "orders"',
    ],
    ['an expiry', { 'x-death': [death('o', 'expired')] }, 'amqp.expired', 'expired in queue "o"'],
    ['a full queue', { 'x-death': [death('o', 'maxlen')] }, 'amqp.maxlen', 'maxlen in queue "o"'],
    [
      'too many deliveries',
      { 'x-death': [death('o', 'delivery_limit')] },
      'amqp.delivery_limit',
      'delivery_limit in queue "o"',
    ],
    [
      'the newest death, but not one in the queue itself',
      { 'x-death': [death(QUEUE, 'expired'), death('b', 'maxlen'), death('a', 'rejected')] },
      'amqp.maxlen',
      'maxlen in queue "b"',
    ],
    [
      'a word that is none',
      { 'x-death': [death('o', 'a b')] },
      'amqp.unknown',
      'unknown in queue "o"',
    ],
    ['nothing', {}, 'unknown', ''],
  ])('is %s', (_, headers, code, reason) => {
    expect(letterOf(headers)).toMatchObject({ code, reason });
  });

  test.each<[string, Table, number | undefined]>([
    [
      'our own header',
      { 'respool-ended-at': 5_000, 'x-death': [death('o', 'rejected', at(9))] },
      5_000,
    ],
    [
      'the newest death',
      { 'x-death': [death('b', 'rejected', at(9)), death('a', 'x', at(7))] },
      9_000,
    ],
    ['the last failure', { 'respool-code': 'x', 'respool-last-failed-at': 4_000 }, 4_000],
    ['nobody', {}, undefined],
  ])('is told with its time by %s', (_, headers, diedAt) => {
    expect(letterOf(headers).diedAt).toBe(diedAt);
  });

  test('makes a group with the queue, whatever the routing key', () => {
    const group = (key: string, reason = 'rejected'): string =>
      letterOf({ 'x-death': [death('orders', reason, { 'routing-keys': [key] })] }).group;
    expect(group('order.1')).toBe(group('order.2'));
    expect(group('order.1')).not.toBe(group('order.1', 'maxlen'));
  });
});

describe('the key of a letter', () => {
  test('is the same at every look, whatever the broker counts', () => {
    const first = letterOf(undefined);
    const again = letterOf(
      { 'x-delivery-count': 7, 'x-acquired-count': 2 },
      { fields: { redelivered: true, deliveryTag: 9 } },
    );
    expect(again.key).toBe(first.key);
    expect(first.key).toMatch(/^m1\.[0-9a-f]{12}$/);
  });

  test('tells messages of one id apart by body, header or property', () => {
    const keys = [
      letterOf({}),
      letterOf({}, { content: 'other' }),
      letterOf({ a: 1 }),
      letterOf({}, { properties: { type: 'x' } }),
    ].map(({ key, id }) => {
      expect(id).toBe('m1');
      return key;
    });
    expect(new Set(keys).size).toBe(4);
  });

  test.each([undefined, '', 'a\nb', 'x'.repeat(256), 7 as unknown as string])(
    'is made of what the message is where its id is %j',
    (messageId) => {
      const one = letterOf({}, { properties: { messageId } });
      expect(one.id).toMatch(/^[0-9a-f]{24}$/);
      expect(one.key).toBe(one.id);
      expect(letterOf({}, { properties: { messageId }, content: 'other' }).id).not.toBe(one.id);
    },
  );
});

describe('the rest of a letter', () => {
  test('is counted and timed by our headers', () => {
    const headers = {
      'respool-attempts': 3,
      'respool-replays': 2,
      'respool-replay': 'r7',
      'respool-first-at': 1_234,
    };
    expect(letterOf(headers, { properties: { contentType: 'text/plain' } })).toMatchObject({
      attempts: 3,
      replays: 2,
      replayedBy: 'r7',
      enqueuedAt: 1_234,
      size: 4,
      contentType: 'text/plain',
      kind: 'dead',
      place: QUEUE,
    });
  });

  test('counts its deaths, but not the return trips of its own queue', () => {
    const deaths = [death('orders', 'rejected', { count: 4 }), death(QUEUE, 'expired')];
    expect(letterOf({ 'x-death': deaths }).deaths).toBe(4);
  });

  test('shows headers as text, cut, without control characters', () => {
    const { headers } = letterOf({
      text: 'a\u0000b\u009fc',
      number: 7,
      nested: { a: [1, true, null] },
      bytes: Buffer.from([0, 255]),
      long: 'x'.repeat(LETTER_HEADER_MAX_CHARS + 1),
    });
    expect(headers).toMatchObject({
      text: 'a b c',
      number: '7',
      nested: '{"a":[1,true,null]}',
      bytes: 'AP8=',
    });
    expect(headers['long']).toHaveLength(LETTER_HEADER_MAX_CHARS);
  });

  test('shows so many headers and no more', () => {
    const many = Array.from({ length: LETTER_HEADERS_MAX + 9 }, (_, index) => [`h${index}`, 1]);
    const { headers } = letterOf(Object.fromEntries(many) as Table);
    expect(Object.keys(headers)).toHaveLength(LETTER_HEADERS_MAX);
  });

  test('is there for headers that are nested without an end', () => {
    let deep: unknown = 'x';
    for (let level = 0; level < 20_000; level += 1) deep = { deep };
    const letter = letterOf({ deep, 'x-death': deep });
    expect(letter).toMatchObject({ id: 'm1', headers: { deep: expect.any(String) } });
  });
});
