/** Acks with few commands: what is done is covered once, and nothing else ever is. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { AmqpMessage } from 'respool/rabbit';
import { Acks } from '../../../src/rabbit/connection/delivery-channel.ts';
import type { AmqpChannel } from '../amqp.ts';
import { systemClock } from '../../time.ts';

test('a hundred done in one turn are one command, and the one after a gap is another', async () => {
  const ledger = new Ledger(120);
  for (let tag = 1; tag <= 100; tag += 1) ledger.acks.add(message(tag));
  ledger.acks.add(message(102));
  expect(ledger.commands).toEqual([]);
  await turn();
  expect(ledger.commands).toEqual(['all up to 100', '102']);
  ledger.acks.add(message(101));
  ledger.acks.add(message(103));
  await turn();
  expect(ledger.commands).toEqual(['all up to 100', '102', 'all up to 103']);
});

test('one that fills a gap before acked ones is named itself, since those are unknown now', async () => {
  const ledger = new Ledger(3);
  ledger.acks.add(message(2));
  ledger.acks.add(message(3));
  await turn();
  ledger.acks.add(message(1));
  await turn();
  expect(ledger.commands).toEqual(['2', '3', 'all up to 1']);
});

test('behind one that is held each is acked by itself, and before it together', async () => {
  const ledger = new Ledger(6);
  ledger.acks.add(message(1));
  ledger.acks.keepUnacked(message(4));
  ledger.acks.add(message(2));
  ledger.acks.add(message(5));
  await turn();
  ledger.acks.add(message(6));
  ledger.acks.add(message(3));
  ledger.acks.flush();
  await turn();
  expect(ledger.commands).toEqual(['all up to 2', '5', 'all up to 3', '6']);
});

test('whatever is done in whatever order, that is acked, once, and nothing else', async () => {
  const steps = fc.array(
    fc.record({ pick: fc.nat(), act: fc.constantFrom('done', 'done', 'done', 'hold', 'turn') }),
    { maxLength: 60 },
  );
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const ledger = new Ledger(40);
      const left = Array.from({ length: 40 }, (_, at) => at + 1);
      const done: number[] = [];
      for (const { pick, act } of all) {
        if (act === 'turn' || left.length === 0) await turn();
        else {
          // Mostly the oldest, as confirms come.
          const [tag = 0] = left.splice(pick % Math.min(3, left.length), 1);
          if (act === 'hold') ledger.acks.keepUnacked(message(tag));
          else {
            done.push(tag);
            ledger.acks.add(message(tag));
          }
        }
      }
      await turn();
      expect(ledger.acked).toEqual(done.toSorted((a, b) => a - b));
    }),
  );
});

test('a channel that is gone is told, and breaks nothing else', async () => {
  const told: unknown[] = [];
  const gone = new Error('the channel is closed');
  const channel = {
    ack() {
      throw gone;
    },
  };
  const acks = new Acks(channel as unknown as AmqpChannel, systemClock, (error) =>
    told.push(error),
  );
  for (const tag of [1, 2]) {
    acks.note(message(tag));
    acks.add(message(tag));
    await turn();
  }
  expect(told).toEqual([gone, gone]);
});

/** What a broker makes of acks: unknown tags are refused. */
class Ledger {
  readonly commands: string[] = [];
  readonly #open: Set<number>;
  readonly #given: number;
  readonly acks: Acks;

  constructor(given: number) {
    this.#given = given;
    this.#open = new Set(Array.from({ length: given }, (_, at) => at + 1));
    const channel = {
      ack: ({ fields: { deliveryTag } }: AmqpMessage, allUpTo = false) => {
        this.commands.push(allUpTo ? `all up to ${deliveryTag}` : String(deliveryTag));
        expect(this.#open.has(deliveryTag), `tag ${deliveryTag} is known`).toBe(true);
        this.#open.delete(deliveryTag);
        if (allUpTo) for (const tag of this.#open) if (tag < deliveryTag) this.#open.delete(tag);
      },
    };
    this.acks = new Acks(channel as unknown as AmqpChannel, systemClock, (error) => {
      throw error;
    });
    for (let tag = 1; tag <= given; tag += 1) this.acks.note(message(tag));
  }

  get acked(): number[] {
    return Array.from({ length: this.#given }, (_, at) => at + 1).filter(
      (tag) => !this.#open.has(tag),
    );
  }
}

function message(deliveryTag: number): AmqpMessage {
  const fields = { deliveryTag, redelivered: false, exchange: '', routingKey: '' };
  return { content: Buffer.alloc(0), fields, properties: {} };
}

function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
