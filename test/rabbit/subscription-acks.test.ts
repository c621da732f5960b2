/** subscription — acks of one turn go together, and never past an open delivery. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { AmqpMessage } from 'respool/rabbit';
import { DeliveryChannel } from '../../src/rabbit/connection/delivery-channel.ts';
import type { AmqpChannel } from './amqp.ts';

/** A broker that counts what it has no answer for, and closes the broker as a real one does. */
class StrictChannel {
  readonly open = new Set<number>();
  readonly acked: number[] = [];
  readonly back: number[] = [];
  frames = 0;

  deliver(deliveryTag: number): AmqpMessage {
    this.open.add(deliveryTag);
    const fields = { deliveryTag, redelivered: false, exchange: '', routingKey: '' };
    return { content: Buffer.alloc(0), properties: {}, fields };
  }

  ack({ fields: { deliveryTag } }: AmqpMessage, allUpTo = false): void {
    this.frames += 1;
    if (!this.open.has(deliveryTag)) throw new Error(`unknown delivery tag ${deliveryTag}`);
    for (const tag of this.open) {
      if (tag !== deliveryTag && !(allUpTo && tag < deliveryTag)) continue;
      this.open.delete(tag);
      this.acked.push(tag);
    }
  }

  nack({ fields: { deliveryTag } }: AmqpMessage): void {
    if (!this.open.delete(deliveryTag)) throw new Error(`unknown delivery tag ${deliveryTag}`);
    this.back.push(deliveryTag);
  }
}

function setup() {
  const broker = new StrictChannel();
  const soon: (() => void)[] = [];
  const clock = {
    now: () => 0,
    monotonic: () => 0,
    after: () => () => undefined,
    soon: (call: () => void) => {
      soon.push(call);
    },
  };
  const deliveries = new DeliveryChannel(broker as unknown as AmqpChannel, clock);
  const turn = (): void => {
    for (const call of soon.splice(0)) call();
  };
  let tag = 0;
  const deliver = (): AmqpMessage => {
    tag += 1;
    const message = broker.deliver(tag);
    deliveries.note(message);
    return message;
  };
  return { broker, deliveries, turn, deliver };
}

test('all acks of a turn go in one frame where nothing before them is open', () => {
  const { broker, deliveries, turn, deliver } = setup();
  const messages = Array.from({ length: 100 }, deliver);
  for (const message of messages) deliveries.ack(message);
  expect(broker.frames).toBe(0);
  turn();
  expect(broker.frames).toBe(1);
  expect(broker.acked).toHaveLength(100);
});

test('an open delivery is never acked with the others', () => {
  const { broker, deliveries, turn, deliver } = setup();
  const [first, second, third] = [deliver(), deliver(), deliver()];
  deliveries.ack(third);
  deliveries.ack(first);
  turn();
  expect(new Set(broker.acked)).toEqual(new Set([1, 3]));
  deliveries.ack(second);
  turn();
  expect(new Set(broker.acked)).toEqual(new Set([1, 2, 3]));
});

test('after a loss nothing is sent any more', () => {
  const { broker, deliveries, turn, deliver } = setup();
  const message = deliver();
  deliveries.ack(message);
  deliveries.lose();
  turn();
  deliveries.giveBack(message);
  expect(broker.frames).toBe(0);
  expect(broker.back).toEqual([]);
  expect(deliveries.isOpen).toBe(false);
});

test('any order of deliveries, acks, returns and turns answers each delivery once', () => {
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.constant({ kind: 'deliver' as const }) },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('ack' as const), at: fc.nat() }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('back' as const), at: fc.nat() }) },
    { weight: 2, arbitrary: fc.constant({ kind: 'turn' as const }) },
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const { broker, deliveries, turn, deliver } = setup();
      const open: AmqpMessage[] = [];
      const acked: number[] = [];
      const back: number[] = [];
      for (const one of steps) {
        if (one.kind === 'deliver') open.push(deliver());
        else if (one.kind === 'turn') turn();
        else {
          const [message] = open.splice(one.at % Math.max(1, open.length), 1);
          if (message === undefined) continue;
          const { deliveryTag } = message.fields;
          if (one.kind === 'ack') {
            deliveries.ack(message);
            acked.push(deliveryTag);
          } else {
            deliveries.giveBack(message);
            back.push(deliveryTag);
          }
        }
      }
      turn();
      const byNumber = (a: number, b: number): number => a - b;
      expect(deliveries.isOpen).toBe(true);
      expect(broker.acked.toSorted(byNumber)).toEqual(acked.toSorted(byNumber));
      expect(broker.back).toEqual(back);
      expect([...broker.open]).toEqual(open.map(({ fields }) => fields.deliveryTag));
    }),
    { numRuns: 1_000 },
  );
});
