/** A walk that is left early goes on only as far as the order of a quorum queue needs it. */

import { describe, expect, test } from 'vitest';
import type { AmqpMessage } from 'respool/rabbit';
import { type QueuePass, QueueWalk } from '../../../src/rabbit/queues/queue-pass.ts';
import type { Table } from '../amqp.ts';

function messageOf(tag: number, redelivered: boolean, headers: Table = {}): AmqpMessage {
  const fields = { deliveryTag: tag, redelivered, exchange: '', routingKey: 'q' };
  return { content: Buffer.from(''), fields, properties: { headers } };
}

/** A pass over these, and what it was told. */
function passOver(messages: readonly AmqpMessage[], error?: Error) {
  const left: number[] = [];
  let given = 0;
  let isClosed = false;
  const next = async (): Promise<IteratorResult<AmqpMessage, undefined>> => {
    const value = messages[given];
    given += 1;
    if (value !== undefined) return { done: false, value };
    if (error !== undefined) throw error;
    return { done: true, value: undefined };
  };
  const pass: QueuePass = {
    total: messages.length,
    end: undefined,
    isLost: false,
    unsure: 0,
    leave: ({ fields }) => {
      left.push(fields.deliveryTag);
    },
    done: () => undefined,
    close: async () => {
      isClosed = true;
    },
    [Symbol.asyncIterator]: () => ({ next }),
  };
  return { pass, left, isClosed: () => isClosed };
}

const returned = (tag: number): AmqpMessage => messageOf(tag, true, { 'x-delivery-count': 1 });

describe('a walk that sees one of several', () => {
  test.each<[string, readonly AmqpMessage[], readonly number[]]>([
    ['nothing more where none was given back', [1, 2, 3].map((tag) => messageOf(tag, false)), []],
    ['nothing more of a classic queue', [1, 2, 3].map((tag) => messageOf(tag, true)), []],
    ['all that were given back', [1, 2, 3].map(returned), [2, 3]],
    [
      'up to the first that was not',
      [returned(1), returned(2), messageOf(3, false), returned(4)],
      [2, 3],
    ],
    [
      'those that 4.3 counts by another name',
      [1, 2].map((tag) => messageOf(tag, true, { 'x-acquired-count': 2 })),
      [2],
    ],
  ])('goes on through %s', async (_, messages, expected) => {
    const { pass, left, isClosed } = passOver(messages);
    const walk = new QueueWalk(pass, { max: 1 });
    expect(await walk.next()).toBe(messages[0]);
    expect(await walk.next()).toBeUndefined();
    expect(left).toEqual([]);
    await walk.close();
    expect(left).toEqual(expected);
    expect(isClosed()).toBe(true);
  });

  test('closes the pass also when it is lost on the way', async () => {
    const { pass, left, isClosed } = passOver([returned(1), returned(2)], new Error('lost'));
    const walk = new QueueWalk(pass, { max: 1 });
    await walk.next();
    await walk.close();
    await walk.close();
    expect(left).toEqual([2]);
    expect(isClosed()).toBe(true);
  });

  test('does not wait for the next one when a signal ends it', async () => {
    const { pass } = passOver([]);
    const never = new Promise<never>(() => undefined);
    const quiet: QueuePass = { ...pass, [Symbol.asyncIterator]: () => ({ next: () => never }) };
    const stop = new AbortController();
    const walk = new QueueWalk(quiet, { signal: stop.signal });
    const next = walk.next();
    stop.abort();
    expect(await next).toBeUndefined();
    expect(await walk.next()).toBeUndefined();
    await walk.close();
  });
});
