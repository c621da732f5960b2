/** Sweeping one dead queue of the real broker. */

import { expect, onTestFinished, test } from 'vitest';
import type { SweepDetails, SweepProgress } from 'respool/rabbit';
import { lockQueue } from '../../../src/rabbit/queues/lock.ts';
import { isThere } from '../../../src/rabbit/queues/discover.ts';
import { HEADER } from '../../../src/rabbit/message-history.ts';
import { withService } from '../../services/index.ts';
import { KINDS, numberOf, openConnection, range } from './queues.ts';
import { died, halfDead, openGround } from './sweep-ground.ts';

const isOdd = (value: number): boolean => value % 2 === 1;
const isEven = (value: number): boolean => value % 2 === 0;

withService('rabbitmq', (url) => {
  for (const kind of KINDS) {
    test(`half of a ${kind} queue is moved, and the rest keeps its order over sweeps`, async () => {
      const { queues, pair, sweep } = await openGround();
      const { queue, target } = await pair(kind);
      await queues.fill(queue, 1_000, halfDead);
      const first = await sweep({ queue, target });
      expect(first).toMatchObject({ queue, target, total: 1_000, seen: 1_000, already: 0 });
      expect(first).toMatchObject({ moved: 500, left: 500, end: 'done' });
      expect(first.error).toBeUndefined();
      for (let round = 0; round < 5; round += 1) {
        const next = await sweep({ queue, target, window: 10 + 30 * round });
        expect(next).toMatchObject({ total: 500, seen: 500, moved: 0, left: 500, end: 'done' });
      }
      const left = await queues.takeAll(queue, 500);
      expect(left.map(numberOf)).toEqual(range(1_000).filter(isOdd));
      const moved = await queues.takeAll(target, 500);
      expect(moved.map(numberOf)).toEqual(range(1_000).filter(isEven));
    });
  }

  test('a dry run says what it would move, and changes nothing', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 20, halfDead);
    const audited: SweepDetails[] = [];
    const audit = async (details: SweepDetails): Promise<void> => void audited.push(details);
    const report = await sweep({ queue, target, dryRun: true, audit });
    expect(report).toMatchObject({ total: 20, seen: 20, moved: 10, left: 10, end: 'done' });
    expect(audited).toEqual([]);
    expect((await queues.takeAll(queue, 20)).map(numberOf)).toEqual(range(20));
    const connection = await openConnection();
    const channel = await connection.createChannel();
    channel.on('error', () => undefined);
    await expect(channel.checkQueue(target)).rejects.toThrow(/NOT_FOUND/);
  });

  test('no more are moved than the limit of the run', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 40, halfDead);
    expect(await sweep({ queue, target, limit: 7 })).toMatchObject({ moved: 7, end: 'limit' });
    expect(await queues.hands.depth(queue)).toBe(33);
    expect(await sweep({ queue, target, limit: 13 })).toMatchObject({ moved: 13, end: 'done' });
    expect((await queues.takeAll(queue, 20)).map(numberOf)).toEqual(range(40).filter(isOdd));
  });

  test('a message is moved when it died more often than max, 3 by default', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 8, died);
    expect(await sweep({ queue, target, max: 5 })).toMatchObject({ moved: 2 });
    expect(await sweep({ queue, target })).toMatchObject({ moved: 2 });
    expect(await sweep({ queue, target, max: 0 })).toMatchObject({ moved: 3 });
    expect((await queues.takeAll(queue, 1)).map(numberOf)).toEqual([0]);
  });

  test('reasons and queues say which deaths count', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 1, () => died(9, 'work.a'));
    const dry = { queue, target, dryRun: true };
    expect(await sweep({ ...dry, reasons: ['expired'] })).toMatchObject({ moved: 0 });
    expect(await sweep({ ...dry, reasons: ['rejected'] })).toMatchObject({ moved: 1 });
    expect(await sweep({ ...dry, queues: ['play.*'] })).toMatchObject({ moved: 0 });
    expect(await sweep({ ...dry, queues: ['work.?'] })).toMatchObject({ moved: 1 });
  });

  test('a target that is required and not there ends the sweep before it begins', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 3, () => died(9));
    const report = await sweep({ queue, target, createsTarget: false });
    expect(report).toMatchObject({ moved: 0, seen: 0, end: 'failed' });
    expect(report.error).toMatch(/there is no such queue, and it is not to be made/);
    expect(await queues.hands.depth(queue)).toBe(3);
  });

  test('a target is made when there is something to move, after it is on record', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const connection = await openConnection();
    const isMade = (): Promise<boolean> => isThere(connection, target);
    await queues.fill(queue, 3, () => died(2));
    expect(await sweep({ queue, target })).toMatchObject({ seen: 3, moved: 0, end: 'done' });
    expect(await isMade()).toBe(false);
    const seen: boolean[] = [];
    const audit = async (): Promise<void> => void seen.push(await isMade());
    expect(await sweep({ queue, target, max: 1, audit })).toMatchObject({ moved: 3, end: 'done' });
    expect(seen).toEqual([false]);
    expect(await isMade()).toBe(true);
  });

  test('a target that is there is used as it is', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.declare('classic', { 'x-max-priority': 3 }, target);
    await queues.fill(queue, 3, () => died(9));
    expect(await sweep({ queue, target })).toMatchObject({ moved: 3, end: 'done' });
    expect(await queues.hands.depth(target)).toBe(3);
  });

  test('what a full target refuses stays, in its order, and the report says why', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.declare('classic', { 'x-max-length': 5, 'x-overflow': 'reject-publish' }, target);
    await queues.fill(queue, 300, () => died(9));
    const report = await sweep({ queue, target, window: 20 });
    expect(report.end).toBe('failed');
    expect(report.error).toMatch(/refused it; its queue is full/);
    const there = await queues.hands.depth(target);
    expect(report.moved).toBe(there);
    expect(await queues.hands.depth(queue)).toBe(300 - there);
    const left = (await queues.takeAll(queue, 300 - there)).map(numberOf);
    expect(left).toEqual(left.toSorted((a, b) => a - b));
    expect(new Set(left).size).toBe(left.length);
  });

  test('what finds no target any more stays', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 5, () => died(9));
    // Gone between the look at it and the first message.
    await queues.declare('classic', {}, target);
    const audit = async (): Promise<void> => void (await queues.hands.channel.deleteQueue(target));
    const report = await sweep({ queue, target, audit, createsTarget: false });
    expect(report).toMatchObject({ moved: 0, end: 'failed' });
    expect(report.error).toMatch(/no queue takes it/);
    expect((await queues.takeAll(queue, 5)).map(numberOf)).toEqual(range(5));
  });

  test('an audit record is written before the first message, and none without it', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.declare('own', {}, target);
    await queues.fill(queue, 10, halfDead);
    const refuse = (): Promise<void> => Promise.reject(new Error('no room for records'));
    const refused = await sweep({ queue, target, audit: refuse });
    expect(refused).toMatchObject({ moved: 0, end: 'failed', error: 'no room for records' });
    expect(await queues.hands.depth(queue)).toBe(10);
    const audited: unknown[] = [];
    const audit = async (details: SweepDetails): Promise<void> => {
      audited.push({ ...details, there: await queues.hands.depth(target) });
    };
    await sweep({ queue, target, audit });
    await sweep({ queue, target, audit });
    expect(audited).toEqual([{ queue, target, total: 10, max: 3, there: 0 }]);
  });

  test('a queue that another connection works on is left alone', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 3, () => died(9));
    const lock = await lockQueue(await openConnection(), queue);
    expect(await sweep({ queue, target })).toMatchObject({ end: 'locked', moved: 0, total: 0 });
    if (lock !== 'elsewhere') await lock.release();
    expect(await sweep({ queue, target })).toMatchObject({ end: 'done', moved: 3 });
  });

  test('a sweep that is called off leaves every message in one place', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 2_000, halfDead);
    const abort = new AbortController();
    const onProgress = ({ seen }: SweepProgress): void => {
      if (seen >= 500) abort.abort();
    };
    const report = await sweep({ queue, target, signal: abort.signal, onProgress });
    expect(report.end).toBe('aborted');
    expect(report.error).toBeUndefined();
    const moved = await queues.takeAll(target, report.moved);
    expect(await queues.hands.depth(target)).toBe(0);
    const left = await queues.takeAll(queue, 2_000 - report.moved);
    const all = [...moved, ...left].map(numberOf).toSorted((a, b) => a - b);
    expect(all).toEqual(range(2_000));
    expect(left.map(numberOf)).toEqual(left.map(numberOf).toSorted((a, b) => a - b));
  });

  test('a queue whose messages would be dropped by looking is refused, with the remedy', async () => {
    const { queues, sweep } = await openGround();
    const queue = await queues.declare('own', { 'x-delivery-limit': 2 });
    await queues.fill(queue, 3, () => died(9));
    const report = await sweep({ queue, target: `${queue}.dead` });
    expect(report).toMatchObject({ end: 'refused', seen: 0 });
    expect(report.error).toMatch(/delivery limit of 2.*no policy can lift/s);
    const blind = await sweep({ queue, target: `${queue}.dead`, management: undefined });
    expect(blind.error).toMatch(/no management API.*--trust-limit/s);
  });

  test('a queue is swept without the management API when its limit is trusted', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 3, () => died(9));
    const report = await sweep({ queue, target, management: undefined, isTrusted: true });
    expect(report).toMatchObject({ end: 'done', moved: 3 });
  });

  test('a queue that is its own target, or not there, is said to be', async () => {
    const { pair, sweep } = await openGround();
    const { queue } = await pair();
    expect((await sweep({ queue, target: queue })).error).toMatch(/into itself/);
    const none = await sweep({ queue: `${queue}.none`, target: queue });
    expect(none.error).toMatch(/there is no such queue/);
  });

  test('options that cannot be used are refused before anybody is asked', async () => {
    const { sweep } = await openGround();
    const pair = { queue: 'a', target: 'b', url: 'amqp://127.0.0.1:1' };
    await expect(sweep({ ...pair, max: -1 })).rejects.toThrow(/"max"|max/);
    await expect(sweep({ ...pair, window: 0 })).rejects.toThrow(/window/);
    await expect(sweep({ ...pair, limit: 0 })).rejects.toThrow(/limit/);
    await expect(sweep({ ...pair, queues: [''] })).rejects.toThrow(/pattern/);
    await expect(sweep(pair)).rejects.toMatchObject({ code: 'broker.unavailable' });
  });

  test('the copy has all properties, its past and why it was moved, and lasts', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair('classic');
    const userId = new URL(url()).username;
    const headers = {
      text: 'é',
      int: 7,
      yes: true,
      none: null,
      float: { '!': 'double', value: 1.5 },
      bytes: Buffer.from([0, 255]),
      list: [1, 'two', [3]],
      table: { nested: { deep: 1 } },
      at: { '!': 'timestamp', value: 1_700_000_000 },
      ...died(9).headers,
    };
    const properties = {
      headers,
      contentType: 'application/x-thing',
      contentEncoding: 'identity',
      priority: 4,
      correlationId: 'c',
      replyTo: 'r',
      expiration: '600000',
      messageId: 'id-1',
      timestamp: 1_700_000_001,
      type: 't',
      userId,
      appId: 'a',
    };
    const body = Buffer.from([1, 0, 2]);
    await queues.hands.publish('', queue, body, properties);
    expect(await sweep({ queue, target })).toMatchObject({ moved: 1 });
    const copy = await queues.hands.take(target);
    const { headers: copied = {}, ...rest } = copy.properties;
    expect(copy.content).toEqual(body);
    const { headers: _, expiration: __, userId: ___, ...kept } = properties;
    expect(rest).toMatchObject({ ...kept, deliveryMode: 2 });
    expect(rest.expiration).toBeUndefined();
    expect(rest.userId).toBeUndefined();
    expect(copied).toMatchObject({
      text: 'é',
      int: 7,
      yes: true,
      none: null,
      float: 1.5,
      bytes: Buffer.from([0, 255]),
      list: [1, 'two', [3]],
      table: { nested: { deep: 1 } },
      at: { '!': 'timestamp', value: 1_700_000_000 },
      [HEADER.queue]: 'work',
      [HEADER.exchange]: 'orders',
      [HEADER.routingKey]: 'order.new',
      [HEADER.userId]: userId,
      [HEADER.expiresAfterMs]: 600_000,
      [HEADER.sweptFrom]: queue,
      [HEADER.sweptDeaths]: 9,
    });
    expect(copied[HEADER.sweptAt]).toBeGreaterThan(1_700_000_000_000);
    expect(String(copied[HEADER.deaths])).toContain('"rejected"');
    expect(copied).not.toHaveProperty('x-death');
    expect(copied).not.toHaveProperty('x-first-death-queue');
  });

  test('a message without an id gets the same one in every sweep', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    for (let round = 0; round < 2; round += 1) {
      await queues.hands.publish('', queue, 'same', died(9));
      await sweep({ queue, target });
    }
    const [one, other] = await queues.takeAll(target, 2);
    expect(one?.properties.messageId).toMatch(/^[0-9a-f]{24}$/);
    expect(other?.properties.messageId).toBe(one?.properties.messageId);
  });

  test('how a message ended stays with it', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const headers = {
      [HEADER.attempts]: 9,
      [HEADER.ended]: 'bounced',
      [HEADER.endedReason]: 'no such address',
    };
    await queues.hands.publish('', queue, 'x', { headers, messageId: 'm' });
    await sweep({ queue, target });
    const copy = await queues.hands.take(target);
    expect(copy.properties.headers).toMatchObject({ ...headers, [HEADER.sweptDeaths]: 9 });
  });

  test('a dead queue that leads back to work after a while is swept by its round trips', async () => {
    const { queues, sweep } = await openGround();
    const work = await queues.declare('own');
    const dlq = `${work}.dlq`;
    const target = `${work}.dead`;
    queues.removeLater(target);
    const back = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': work };
    await queues.declare('own', { ...back, 'x-message-ttl': 200 }, dlq);
    const { channel, connection } = queues.hands;
    await channel.deleteQueue(work);
    const away = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': dlq };
    await channel.assertQueue(work, {
      durable: true,
      arguments: { 'x-queue-type': 'quorum', ...away },
    });
    const consuming = await connection.createChannel();
    onTestFinished(() => consuming.close().catch(() => undefined));
    let rejected = 0;
    await consuming.consume(work, (message) => {
      if (message === null) return;
      rejected += 1;
      consuming.nack(message, false, false);
    });
    await queues.hands.publish('', work, 'poison', { messageId: 'p' });
    // Each sweep looks while it waits, or finds nothing; it is moved after its third death.
    const sweepUntilMoved = async (): Promise<number> =>
      (await sweep({ queue: dlq, target, max: 2 })).moved;
    await expect.poll(sweepUntilMoved).toBe(1);
    expect(rejected).toBeGreaterThanOrEqual(3);
    const copy = await queues.hands.take(target);
    expect(copy.properties.headers?.[HEADER.sweptDeaths]).toBe(rejected);
    expect(await queues.hands.depth(work)).toBe(0);
    expect(await queues.hands.depth(dlq)).toBe(0);
  });
});
