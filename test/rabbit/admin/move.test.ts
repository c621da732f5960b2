/** move — what was moved is gone from its queue for good, and what stays lies as it lay. */

import { expect, test } from 'vitest';
import {
  type AmqpConnection,
  type AmqpMessage,
  drainQueue,
  type MoveProgress,
} from 'respool/rabbit';
import type { Clock } from 'respool';
import type { Outgoing } from '../../../src/rabbit/connection/amqp.ts';
import { moveMessages } from '../../../src/rabbit/queues/drain.ts';
import { withService } from '../../services/index.ts';
import { DeadQueues, KINDS, numberOf, openConnection, range } from '../queues/queues.ts';
import { MINUTE_MS, systemClock } from '../../time.ts';

const ROUNDS = 5;
const COUNT = 800;

const isEven = (message: AmqpMessage): boolean => numberOf(message) % 2 === 0;
const even = range(COUNT).filter((value) => value % 2 === 0);
const odd = range(COUNT).filter((value) => value % 2 === 1);

withService('rabbitmq', () => {
  for (const kind of KINDS) {
    test(`each message of a ${kind} queue is here or there, once and in order`, async () => {
      const { queues, connection } = await setup();
      for (let round = 0; round < ROUNDS; round += 1) {
        const [queue, target] = [await queues.declare(kind), await queues.declare(kind)];
        await queues.fill(queue, COUNT);
        const to = { exchange: '', key: target };
        const report = await drainQueue({ connection, queue, to, match: isEven, window: 1_000 });
        expect(report).toMatchObject({ total: COUNT, moved: 400, skipped: 400, end: 'done' });
        await expect.poll(() => queues.hands.depth(queue)).toBe(400);
        expect((await queues.takeAll(queue, 400)).map(numberOf)).toEqual(odd);
        expect(await queues.hands.depth(target)).toBe(400);
        expect((await queues.takeAll(target, 400)).map(numberOf)).toEqual(even);
      }
    });

    test(`what is discarded from a ${kind} queue does not come back`, async () => {
      const { queues, connection } = await setup();
      for (let round = 0; round < ROUNDS; round += 1) {
        const queue = await queues.declare(kind);
        await queues.fill(queue, COUNT);
        const match = (message: AmqpMessage): boolean => numberOf(message) >= 400;
        const how = { to: 'discard', confirm: queue, window: 1_000, match } as const;
        const report = await drainQueue({ connection, queue, ...how });
        expect(report).toMatchObject({ total: COUNT, moved: 400, skipped: 400, end: 'done' });
        await expect.poll(() => queues.hands.depth(queue)).toBe(400);
        expect((await queues.takeAll(queue, 400)).map(numberOf)).toEqual(range(400));
      }
    });

    test(`a ${kind} queue is in order after no more than "max" went`, async () => {
      const { queues, connection } = await setup();
      const [queue, target] = [await queues.declare(kind), await queues.declare(kind)];
      await queues.fill(queue, COUNT);
      const to = { exchange: '', key: target };
      const how = { connection, queue, to, match: isEven, max: 100, window: 30 };
      // All of them were looked at and given back once, as after a list.
      await drainQueue({ connection, queue, to, match: () => false });
      for (const first of [0, 200]) {
        expect(await drainQueue(how)).toMatchObject({ moved: 100, end: 'max' });
        const wanted = even.filter((value) => value >= first && value < first + 200);
        expect((await queues.takeAll(target, 100)).map(numberOf)).toEqual(wanted);
      }
      const left = range(COUNT).filter((value) => value >= 400 || value % 2 === 1);
      await expect.poll(() => queues.hands.depth(queue)).toBe(left.length);
      expect((await queues.takeAll(queue, left.length)).map(numberOf)).toEqual(left);
    });
  }

  test('a drain that takes long goes on, and counts what it leaves once', async () => {
    const { queues, connection } = await setup();
    const [queue, target] = [await queues.declare('own'), await queues.declare('own')];
    await queues.fill(queue, COUNT);
    const told: MoveProgress[] = [];
    let looks = 0;
    const limit = new OwnLimit();
    const report = await drainQueue({
      connection,
      queue,
      to: { exchange: '', key: target },
      clock: limit.clock,
      window: 20,
      match: (message) => {
        looks += 1;
        if (looks === 300 || looks === 700) limit.isOver();
        return isEven(message);
      },
      onProgress: (progress) => told.push(progress),
    });
    expect(limit.passes).toBe(3);
    expect(report).toMatchObject({ total: COUNT, moved: 400, skipped: 400, end: 'done' });
    expect(told.at(-1)).toEqual({ queue, total: COUNT, moved: 400, skipped: 400 });
    expect(told.every(({ total }) => total === COUNT)).toBe(true);
    const skips = told.map(({ skipped }) => skipped);
    expect(skips).toEqual(skips.toSorted((a, b) => a - b));
    expect((await queues.takeAll(target, 400)).map(numberOf)).toEqual(even);
    expect(await queues.hands.depth(queue)).toBe(400);
    expect((await queues.takeAll(queue, 400)).map(numberOf)).toEqual(odd);
  });

  test('what comes while a move takes long is not taken', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('classic');
    await queues.fill(queue, 50);
    const limit = new OwnLimit();
    const publisher = {
      send: async () => {
        await queues.fill(queue, 5);
        limit.isOver();
      },
    };
    const report = await moveMessages(
      {
        queue,
        decide: (message) => (numberOf(message) === 0 ? OUTGOING : 'unroutable'),
        max: undefined,
        window: 1,
        onProgress: undefined,
        signal: undefined,
      },
      { connection, publisher, clock: limit.clock },
    );
    expect(limit.passes).toBe(2);
    expect(report).toMatchObject({ total: 50, moved: 1, unroutable: 49, end: 'done' });
    const left = [...range(50).slice(1), ...range(5)];
    expect((await queues.takeAll(queue, left.length)).map(numberOf)).toEqual(left);
  });

  test('a pass that comes no further than the one before ends the drain', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 50);
    const limit = new OwnLimit();
    let looks = 0;
    const match = (): boolean => {
      looks += 1;
      if (looks === 30 || looks === 50) limit.isOver();
      return false;
    };
    const how = { to: 'discard', confirm: queue, match, clock: limit.clock } as const;
    const report = await drainQueue({ connection, queue, ...how });
    expect([limit.passes, looks]).toEqual([2, 50]);
    expect(report).toMatchObject({ total: 50, moved: 0, skipped: 30, end: 'held' });
    expect((await queues.takeAll(queue, 50)).map(numberOf)).toEqual(range(50));
  });

  test('a connection that is lost at the very end is told, for acks may be lost with it', async () => {
    const { queues } = await setup();
    const connection = await openConnection();
    const queue = await queues.declare('own');
    await queues.fill(queue, 10);
    const match = (message: AmqpMessage): boolean => {
      if (numberOf(message) === 9) connection.connection?.stream?.destroy(new Error('cut'));
      return true;
    };
    const draining = drainQueue({ connection, queue, to: 'discard', confirm: queue, match });
    await expect(draining).rejects.toMatchObject({ code: 'broker.unavailable' });
  });
});

const OUTGOING: Outgoing = {
  exchange: '',
  key: 'nowhere',
  content: Buffer.from('x'),
  properties: {},
};

/** A clock on which the time of a pass is over when the test says so. */
class OwnLimit {
  passes = 0;
  #call: () => void = () => undefined;

  readonly clock: Clock = {
    ...systemClock,
    after: (ms, call) => {
      if (ms !== 10 * MINUTE_MS) return systemClock.after(ms, call);
      this.passes += 1;
      this.#call = call;
      return () => undefined;
    },
  };

  isOver(): void {
    this.#call();
  }
}

async function setup(): Promise<{ queues: DeadQueues; connection: AmqpConnection }> {
  return { queues: await DeadQueues.open(), connection: await openConnection() };
}
