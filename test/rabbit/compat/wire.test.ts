import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type AmqpMessage, goqueue, outbox, spring } from 'respool/rabbit';
import { compatOf } from '../../../src/rabbit/consume/options.ts';
import { messageOf, nextOf, plainHeaders, recorded, successorOf, type System } from './messages.ts';

const SYSTEMS: readonly System[] = ['goqueue', 'spring', 'outbox'];
const COUNTERS = {
  goqueue: 'goqueue-retry-count',
  spring: 'x-message-retries',
  outbox: 'x-delivery-count',
} as const;

/** The counter as the other system writes it after so many failed attempts. */
function counterAfter(system: System, attempts: number): number | string {
  return system === 'outbox' ? String(attempts + 1) : attempts;
}

describe.each(SYSTEMS)('recorded messages of %s', (system) => {
  const { wire } = compatOf(system);
  const rows = recorded(system).map((row) => [`${row.name} (${row.family})`, row] as const);

  test.each(rows)('tell their past: %s', (_, row) => {
    const message = messageOf(row);
    const { payload, id, ...past } = row.expected;
    expect(wire.read(message, row.queue)).toMatchObject({ ...past, lost: 0, restMs: 0 });
    if (id !== undefined) expect(wire.id?.(message)).toBe(id);
    if (payload !== undefined) {
      expect(JSON.parse(String(wire.unwrap?.(message)))).toEqual(payload);
    }
  });

  test.each(rows)('are continued without a trace of the broker: %s', (_, row) => {
    const message = messageOf(row);
    const past = wire.read(message, row.queue);
    const attempts = past.attempts + 1;
    const properties = wire.write(message, successorOf({ ...past, attempts }));
    const headers = plainHeaders(properties);
    expect(headers[COUNTERS[system]]).toBe(counterAfter(system, attempts));
    const names = Object.keys(headers);
    expect(
      names.filter((name) => /^x-.*death|^wait-for$|^return-to$|expiration/.test(name)),
    ).toEqual([]);
    expect(properties).toMatchObject({ deliveryMode: 2 });
    expect(properties.expiration).toBeUndefined();
    for (const name of ['contentType', 'contentEncoding', 'appId', 'priority'] as const) {
      expect(properties[name]).toBe(row.properties[name]);
    }
  });
});

describe.each(SYSTEMS)('the wire of %s', (system) => {
  const { wire } = compatOf(system);

  test('keeps the attempts and the origin from one consumer of ours to the next', () => {
    const count = fc.integer({ min: 0, max: 1_000 });
    fc.assert(
      fc.property(
        count,
        count,
        fc.boolean(),
        fc.integer({ min: 0 }),
        (before, made, redelivered, rest) => {
          const first = messageOf({
            properties: { headers: { [COUNTERS[system]]: counterAfter(system, before) } },
          });
          const past = wire.read(first, 'orders');
          expect(past.attempts).toBe(before);
          const attempts = before + made;
          const properties = wire.write(
            first,
            successorOf({ ...past, attempts, restMs: rest, lost: 2 }),
          );
          const back = nextOf(first, properties, {
            exchange: '',
            routingKey: 'orders',
            redelivered,
          });
          expect(wire.read(back, 'orders')).toMatchObject({
            attempts,
            restMs: rest,
            lost: 2,
            exchange: 'shop',
            routingKey: 'order.created',
          });
        },
      ),
    );
  });

  test('counts an attempt of theirs after ours, and forgets what was to be waited for', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1_000 }), (ours) => {
        const first = messageOf();
        const past = { ...wire.read(first, 'orders'), attempts: ours, restMs: 5_000, lost: 3 };
        const properties = wire.write(first, successorOf(past));
        const counter = { [COUNTERS[system]]: counterAfter(system, ours + 1) };
        const theirs = { ...properties, headers: { ...plainHeaders(properties), ...counter } };
        const read = wire.read(nextOf(first, theirs), 'orders');
        expect(read).toMatchObject({ attempts: ours + 1, restMs: 0, lost: 0 });
      }),
    );
  });

  test('begins anew when a message is sent again with no attempts', () => {
    const [row] = recorded(system).filter(({ name }) => name === 'last retry');
    const message = messageOf(row ?? {});
    const past = wire.read(message, 'orders');
    expect(past.attempts).toBeGreaterThan(0);
    const again = nextOf(message, wire.write(message, successorOf({ ...past, attempts: 0 })));
    expect(wire.read(again, 'orders').attempts).toBe(0);
  });

  test('writes whole numbers as wide as Java and Go expect them', () => {
    const given = { 'their-number': 7, long: 2 ** 40, real: 0.5, text: '7' };
    const message = messageOf({ properties: { headers: given } });
    const { headers } = wire.write(message, successorOf(wire.read(message, 'orders')));
    expect(headers).toMatchObject({ ...given, 'their-number': { '!': 'int', value: 7 } });
    if (system === 'outbox') expect(headers?.[COUNTERS[system]]).toBe('1');
    else expect(headers?.[COUNTERS[system]]).toEqual({ '!': 'int', value: 0 });
  });

  test('takes what is no count for none', () => {
    for (const nonsense of [-1, 'many', null, {}, Number.NaN, '1e3', [3]]) {
      const message = messageOf({ properties: { headers: { [COUNTERS[system]]: nonsense } } });
      expect(wire.read(message, 'orders').attempts).toBe(0);
    }
  });
});

describe('goqueue', () => {
  const { wire } = goqueue();

  test('counts by the names of the document too where a message came with them', () => {
    const message = messageOf({ properties: { headers: { 'x-retry-count': 2 } } });
    const past = { ...wire.read(message, 'orders'), attempts: 3 };
    const headers = plainHeaders(wire.write(message, successorOf(past)));
    expect(headers).toMatchObject({ 'x-retry-count': 3, 'goqueue-retry-count': 3 });
    expect(wire.write(messageOf(), successorOf(past)).headers).not.toHaveProperty('x-retry-count');
  });

  test('gives a message that waits the delay of its level, and no other an expiration', () => {
    const routing = { 'respool-expiration': '2000' };
    const past = wire.read(messageOf(), 'orders');
    const properties = wire.write(messageOf(), successorOf(past, { routing }));
    expect(properties.expiration).toBe('2000');
    expect(properties.headers).not.toHaveProperty('respool-expiration');
    expect(wire.write(messageOf(), successorOf(past)).expiration).toBeUndefined();
  });

  test('names a message by its header or its envelope, else by the id of ours', () => {
    const past = wire.read(messageOf(), 'orders');
    const idAfter = (message: AmqpMessage): unknown =>
      wire.write(message, successorOf(past)).messageId;
    expect(idAfter(messageOf({ properties: { headers: { 'goqueue-message-id': 'h' } } }))).toBe(
      'h',
    );
    expect(idAfter(messageOf({ body: { id: 'e', data: 1 } }))).toBe('e');
    expect(idAfter(messageOf({ properties: { messageId: 'p' } }))).toBe('p');
    expect(idAfter(messageOf())).toBe('id-of-ours');
  });
});

describe('spring', () => {
  test('returns through the exchange that it was told', () => {
    const message = messageOf({ fields: { exchange: 'back', routingKey: 'order.created' } });
    expect(spring({ returnExchange: 'back' }).wire.read(message, 'orders').exchange).toBe('');
    expect(spring().wire.read(message, 'orders').exchange).toBe('back');
  });
});

describe('outbox', () => {
  test('believes waits only of the exchange that it was told', () => {
    const deaths = [{ queue: 'shop.delay_1s', reason: 'expired', count: 2 }];
    const message = messageOf({ properties: { headers: { 'x-death': deaths } } });
    expect(outbox({ exchange: 'shop' }).wire.read(message, 'orders').attempts).toBe(2);
    expect(outbox().wire.read(message, 'orders').attempts).toBe(0);
  });

  test('survives the number of the broker over a message that was ours before', () => {
    const { wire } = outbox();
    const first = messageOf();
    const past = { ...wire.read(first, 'orders'), attempts: 2 };
    const headers = plainHeaders(wire.write(first, successorOf(past)));
    const deaths = [
      { queue: 'outbox.delay_1m', reason: 'expired', count: 1 },
      { queue: 'outbox.delay_10s', reason: 'expired', count: 1 },
    ];
    const overwritten = messageOf({
      properties: { headers: { ...headers, 'x-delivery-count': 1, 'x-death': deaths } },
      fields: { exchange: '', routingKey: 'orders', redelivered: true },
    });
    // One of the waits was ours and is counted already, the other followed an attempt of theirs.
    expect(wire.read(overwritten, 'orders').attempts).toBe(3);
  });
});
