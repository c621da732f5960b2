/** One way through a queue: each once, nothing lost, the rest in its order. */

import { expect, test } from 'vitest';
import type { AmqpConnection, AmqpMessage } from 'respool/rabbit';
import { openPass, type QueuePass, type PassOrder } from '../../../src/rabbit/queues/queue-pass.ts';
import { withService } from '../../services/index.ts';
import { Tray } from '../ground.ts';
import { DeadQueues, KINDS, numberOf, openConnection, range } from './queues.ts';
import { systemClock } from '../../time.ts';

withService('rabbitmq', () => {
  for (const kind of KINDS) {
    test(`a ${kind} queue keeps its order through ten looks at everything`, async () => {
      const { queues, connection } = await setup();
      const queue = await queues.declare(kind);
      await queues.fill(queue, 1_000);
      for (let round = 0; round < 10; round += 1) {
        const pass = await begin(connection, { queue, window: 7 + 20 * round });
        expect(pass.total).toBe(1_000);
        expect(await leaveAll(pass)).toEqual(range(1_000));
        expect(pass.end).toBe('done');
      }
      expect((await queues.takeAll(queue, 1_000)).map(numberOf)).toEqual(range(1_000));
    });

    test(`what is done in a ${kind} queue is gone, and the rest is in order`, async () => {
      const { queues, connection } = await setup();
      const queue = await queues.declare(kind);
      await queues.fill(queue, 3_000);
      let left = range(3_000);
      for (const part of [2, 3, 5, 7]) {
        const pass = await begin(connection, { queue, window: 100 });
        const seen: number[] = [];
        for await (const message of pass) {
          seen.push(numberOf(message));
          if (numberOf(message) % part === 0) pass.done(message);
          else pass.leave(message);
        }
        await pass.close();
        expect(seen).toEqual(left);
        left = left.filter((value) => value % part !== 0);
        expect(await queues.hands.depth(queue)).toBe(left.length);
      }
      expect((await queues.takeAll(queue, left.length)).map(numberOf)).toEqual(left);
    });

    test(`a ${kind} queue keeps its order when the connection is cut`, async () => {
      const { queues } = await setup();
      const queue = await queues.declare(kind);
      await queues.fill(queue, 2_000);
      for (let round = 0; round < 5; round += 1) {
        const connection = await openConnection();
        const pass = await begin(connection, { queue, window: 50 });
        let seen = 0;
        const going = (async () => {
          for await (const message of pass) {
            pass.leave(message);
            seen += 1;
            if (seen === 900) connection.connection?.stream?.destroy(new Error('cut by the test'));
          }
        })();
        await expect(going).rejects.toMatchObject({ code: 'broker.unavailable' });
        await pass.close();
        await expect.poll(() => queues.hands.depth(queue)).toBe(2_000);
      }
      expect((await queues.takeAll(queue, 2_000)).map(numberOf)).toEqual(range(2_000));
    });

    test(`what is done last is not forgotten by the close of a ${kind} queue`, async () => {
      const { queues, connection } = await setup();
      const queue = await queues.declare(kind);
      await queues.fill(queue, 1_000);
      const pass = await begin(connection, { queue, window: 1_000 });
      const taken: AmqpMessage[] = [];
      for await (const message of pass) {
        taken.push(message);
        // All at once, just before the end.
        if (taken.length === 1_000) for (const one of taken.slice(0, 900)) pass.done(one);
      }
      await pass.close();
      expect(await queues.hands.depth(queue)).toBe(100);
      const rest = (await queues.takeAll(queue, 100)).map(numberOf);
      expect(rest).toEqual(range(1_000).slice(900));
    });
  }

  test('where the end of a channel counts, all is given back by nacks', async () => {
    const { queues, connection } = await setup();
    // n.b. Only the way is tried here; how such a release keeps order is not.
    const modern = told(connection, '4.3.6');
    for (const kind of KINDS) {
      const queue = await queues.declare(kind);
      await queues.fill(queue, 300);
      const pass = await begin(modern, { queue, window: 20 });
      let seen = 0;
      for await (const message of pass) {
        seen += 1;
        if (seen % 3 === 0) pass.done(message);
        else pass.leave(message);
        if (seen === 250) break;
      }
      await pass.close();
      await expect.poll(() => queues.hands.depth(queue)).toBe(217);
      const left = (await queues.takeAll(queue, 217)).map(numberOf);
      const wanted = range(300).filter((value) => value >= 250 || value % 3 !== 2);
      if (kind === 'classic') expect(left).toEqual(wanted);
      else expect(left.toSorted((a, b) => a - b)).toEqual(wanted);
    }
  });

  test.each(KINDS)('what comes after the beginning of a %s queue is not given', async (kind) => {
    const { queues, connection } = await setup();
    const queue = await queues.declare(kind);
    await queues.fill(queue, 100);
    // n.b. More than once: on 4.0.5 it was out of order behind every third pass.
    for (let round = 0; round < 5; round += 1) {
      const pass = await begin(connection, { queue, window: 10 });
      await queues.fill(queue, 100);
      const seen: number[] = [];
      for await (const message of pass) {
        seen.push(numberOf(message));
        pass.done(message);
      }
      await pass.close();
      expect(seen).toEqual(range(100));
    }
    expect((await queues.takeAll(queue, 100)).map(numberOf)).toEqual(range(100));
  });

  test('an empty queue brings nothing, at once', async () => {
    const { queues, connection } = await setup();
    const pass = await begin(connection, { queue: await queues.declare('own'), window: 10 });
    expect(await leaveAll(pass)).toEqual([]);
    expect([pass.total, pass.end]).toEqual([0, 'done']);
  });

  test('no more are looked at than were asked for', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 100);
    const pass = await begin(connection, { queue, window: 10, max: 30 });
    expect(await leaveAll(pass)).toEqual(range(30));
    expect([pass.total, pass.end]).toEqual([100, 'max']);
    expect(await queues.hands.depth(queue)).toBe(100);
  });

  test('no more are held than may be, and the pass says so', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 100);
    const pass = await begin(connection, { queue, window: 10, heldMax: 40 });
    expect(await leaveAll(pass)).toEqual(range(40));
    expect(pass.end).toBe('held');
  });

  test('no more are in hand than the window allows', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 60);
    const pass = await begin(connection, { queue, window: 3 });
    const inHand: AmqpMessage[] = [];
    const most: number[] = [];
    const given = new Tray<number>();
    const going = (async () => {
      for await (const message of pass) {
        inHand.push(message);
        most.push(inHand.length);
        given.add(1);
      }
    })();
    for (let count = 1; count <= 60; count += 1) {
      await given.until(Math.min(60, count + 2));
      const oldest = inHand.shift();
      if (oldest !== undefined) pass.done(oldest);
    }
    await going;
    await pass.close();
    expect(Math.max(...most)).toBe(3);
    expect(await queues.hands.depth(queue)).toBe(0);
  });

  test('a pass that is called off gives back what is in hand, in its order', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 200);
    const abort = new AbortController();
    const pass = await begin(connection, { queue, window: 20, signal: abort.signal });
    let seen = 0;
    for await (const message of pass) {
      seen += 1;
      if (seen % 3 === 0) pass.leave(message);
      if (seen === 25) abort.abort();
    }
    expect(pass.end).toBe('aborted');
    await pass.close();
    await pass.close();
    expect((await queues.takeAll(queue, 200)).map(numberOf)).toEqual(range(200));
  });

  test('a pass that is over before it begins touches nothing', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 5);
    const pass = await begin(connection, { queue, window: 20, signal: AbortSignal.abort() });
    expect(await leaveAll(pass)).toEqual([]);
    expect(pass.end).toBe('aborted');
  });

  test('a pass ends when its time is over', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 30);
    const pass = await begin(connection, { queue, window: 20, maxMs: 50 });
    // None is settled: no more come than the window, and only the time ends it.
    let seen = 0;
    for await (const _ of pass) seen += 1;
    await pass.close();
    expect([seen, pass.end]).toEqual([20, 'time']);
    expect(await queues.hands.depth(queue)).toBe(30);
  });

  test('a queue whose messages somebody else took meanwhile ends the pass', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('classic');
    await queues.fill(queue, 200);
    const pass = await begin(connection, { queue, window: 50 });
    const seen: number[] = [];
    for await (const message of pass) {
      if (seen.length === 0) await queues.takeAll(queue, 150);
      seen.push(numberOf(message));
      pass.leave(message);
    }
    await pass.close();
    expect(seen).toEqual(range(50));
    expect(pass.end).toBe('done');
  });

  test('a queue that somebody else has for himself is said to be quiet', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own', { 'x-single-active-consumer': true });
    const other = await queues.hands.connection.createChannel();
    await other.prefetch(1);
    await other.consume(queue, () => undefined);
    await queues.fill(queue, 3);
    await expect.poll(() => queues.hands.depth(queue)).toBe(2);
    const pass = await begin(connection, { queue, window: 5 });
    expect(await leaveAll(pass)).toEqual([]);
    expect(pass.end).toBe('quiet');
  });

  test('a queue that is deleted meanwhile ends the pass with an error', async () => {
    const { queues, connection } = await setup();
    const queue = await queues.declare('own');
    await queues.fill(queue, 200);
    const pass = await begin(connection, { queue, window: 10 });
    const going = (async () => {
      for await (const message of pass) {
        if (numberOf(message) === 5) await queues.hands.channel.deleteQueue(queue);
        else pass.leave(message);
      }
    })();
    await expect(going).rejects.toMatchObject({ code: 'broker.unavailable' });
    await pass.close();
  });

  test('what is done after the channel is lost says that it is not', async () => {
    const { queues } = await setup();
    const connection = await openConnection();
    const queue = await queues.declare('own');
    await queues.fill(queue, 3);
    const pass = await begin(connection, { queue, window: 10 });
    const next = await pass[Symbol.asyncIterator]().next();
    await connection.close();
    expect(() => pass.done(next.value as AmqpMessage)).toThrow(/still in the queue/);
    await pass.close();
    await expect.poll(() => queues.hands.depth(queue)).toBe(3);
  });

  test('a queue that is not there is named', async () => {
    const connection = await openConnection();
    await expect(begin(connection, { queue: 't-not-there', window: 1 })).rejects.toThrow(
      /there is no queue "t-not-there"/,
    );
  });
});

async function setup(): Promise<{ queues: DeadQueues; connection: AmqpConnection }> {
  return { queues: await DeadQueues.open(), connection: await openConnection() };
}

/** The same connection, to a broker that says it is another release. */
function told(connection: AmqpConnection, version: string): AmqpConnection {
  return {
    connection: { serverProperties: { version } },
    on: (event, listener) => connection.on(event, listener),
    createChannel: () => connection.createChannel(),
    createConfirmChannel: () => connection.createConfirmChannel(),
    close: () => connection.close(),
  };
}

function begin(connection: AmqpConnection, order: PassOrder): Promise<QueuePass> {
  return openPass(order, { connection, clock: systemClock });
}

/** Looks at everything, and gives it all back. */
async function leaveAll(pass: QueuePass): Promise<number[]> {
  const seen: number[] = [];
  for await (const message of pass) {
    seen.push(numberOf(message));
    pass.leave(message);
  }
  await pass.close();
  return seen;
}
