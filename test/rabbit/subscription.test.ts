/** intake — acks of one turn go together, and never past an open delivery. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { AmqpChannel, AmqpMessage } from '../../src/rabbit/connection/amqp.ts';
import { Subscription } from '../../src/rabbit/consume/subscription.ts';

/** A broker that counts what it has no answer for, and closes the channel as a real one does. */
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
  const channel = new StrictChannel();
  const soon: (() => void)[] = [];
  const clock = {
    now: () => 0,
    monotonic: () => 0,
    after: () => () => undefined,
    soon: (call: () => void) => {
      soon.push(call);
    },
  };
  const intake = new Subscription(channel as unknown as AmqpChannel, clock);
  const turn = (): void => {
    for (const call of soon.splice(0)) call();
  };
  let tag = 0;
  const deliver = (): AmqpMessage => {
    tag += 1;
    const message = channel.deliver(tag);
    intake.note(message);
    return message;
  };
  return { channel, intake, turn, deliver };
}

test('all acks of a turn go in one frame where nothing before them is open', () => {
  const { channel, intake, turn, deliver } = setup();
  const messages = Array.from({ length: 100 }, deliver);
  for (const message of messages) intake.ack(message);
  expect(channel.frames).toBe(0);
  turn();
  expect(channel.frames).toBe(1);
  expect(channel.acked).toHaveLength(100);
});

test('an open delivery is never acked with the others', () => {
  const { channel, intake, turn, deliver } = setup();
  const [first, second, third] = [deliver(), deliver(), deliver()];
  intake.ack(third);
  intake.ack(first);
  turn();
  expect(new Set(channel.acked)).toEqual(new Set([1, 3]));
  intake.ack(second);
  turn();
  expect(new Set(channel.acked)).toEqual(new Set([1, 2, 3]));
});

test('after a loss nothing is sent any more', () => {
  const { channel, intake, turn, deliver } = setup();
  const message = deliver();
  intake.ack(message);
  intake.lose();
  turn();
  intake.giveBack(message);
  expect(channel.frames).toBe(0);
  expect(channel.back).toEqual([]);
  expect(intake.isOpen).toBe(false);
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
      const { channel, intake, turn, deliver } = setup();
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
            intake.ack(message);
            acked.push(deliveryTag);
          } else {
            intake.giveBack(message);
            back.push(deliveryTag);
          }
        }
      }
      turn();
      const byNumber = (a: number, b: number): number => a - b;
      expect(intake.isOpen).toBe(true);
      expect(channel.acked.toSorted(byNumber)).toEqual(acked.toSorted(byNumber));
      expect(channel.back).toEqual(back);
      expect([...channel.open]).toEqual(open.map(({ fields }) => fields.deliveryTag));
    }),
    { numRuns: 1_000 },
  );
});
