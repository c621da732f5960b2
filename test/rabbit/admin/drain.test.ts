/** drain — messages go back to work, or elsewhere, and none is lost on the way. */

import type { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { drainQueue, goqueue, perDelay, shared } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { until } from '../until.ts';
import { bodies, freshName, openBench, orderOf } from './setup.ts';
import { connectAmqp } from '../amqp.ts';

const names = (count: number, first = 0): string[] =>
  Array.from({ length: count }, (_, at) => `m${first + at}`);

withService('rabbitmq', () => {
  test('a dead queue goes back to its main queue, with fresh attempts and a clean past', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    const headers = {
      'respool-attempts': 3,
      'respool-ended': 'dead',
      'respool-ended-code': 'x',
      'x-death': [{ queue: plan.queue, reason: 'expired', count: 1 }],
      mine: 'kept',
    };
    await bench.publish(plan.dead.key, names(250), { headers, expiration: '3600000' });
    const told: number[] = [];
    const report = await drainQueue({
      connection: bench.connection,
      queue: plan.dead.key,
      plans: [plan],
      window: 10,
      onProgress: ({ moved }) => told.push(moved),
    });
    expect(report).toEqual({
      queue: plan.dead.key,
      total: 250,
      moved: 250,
      skipped: 0,
      unroutable: 0,
      end: 'done',
    });
    expect(told).toEqual([100, 200, 250]);
    expect(await bench.depth(plan.dead.key)).toBe(0);
    const taken = await bench.takeAll(plan.queue);
    expect(taken.map(({ body }) => body)).toEqual(names(250));
    const { headers: after, expiration, messageId } = taken[0]?.properties ?? {};
    expect(after).toMatchObject({ mine: 'kept', 'respool-attempts': 0 });
    expect(after).not.toHaveProperty('x-death');
    expect(after).not.toHaveProperty('respool-ended');
    expect(after).toMatchObject({ 'respool-expires-after-ms': 3_600_000 });
    expect(expiration).toBeUndefined();
    expect(messageId).toBe('m0');
  });

  test('attempts are kept where that is asked for', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, ['a'], { headers: { 'respool-attempts': 3 } });
    const { connection } = bench;
    await drainQueue({ connection, queue: plan.dead.key, plans: [plan], attempts: 'keep' });
    const [taken] = await bench.takeAll(plan.queue);
    expect(taken?.properties.headers).toMatchObject({ 'respool-attempts': 3 });
  });

  test('messages of a shared wait queue go to the queue that each came from', async () => {
    await using bench = await openBench();
    const style = shared({ prefix: freshName('pre') });
    const extraWaitsMs = [600_000];
    const one = style.plan(orderOf(freshName('one'), { extraWaitsMs }));
    const two = style.plan(orderOf(freshName('two'), { extraWaitsMs }));
    await bench.declare(one, two);
    const wait = one.topology.queues.find((queue) => queue.name.endsWith('.600s'));
    if (wait === undefined) throw new Error('no wait queue');
    await bench.publish(wait.name, ['a'], { headers: { 'return-to': one.queue } });
    await bench.publish(wait.name, ['b', 'c'], { headers: { 'return-to': two.queue } });
    await bench.publish(wait.name, ['d'], { headers: { 'return-to': 'nobody' } });
    const { connection } = bench;
    // With one plan alone the messages of the other queue stay.
    const first = await drainQueue({ connection, queue: wait.name, plans: [one] });
    expect(first).toMatchObject({ total: 4, moved: 1, unroutable: 3, end: 'done' });
    expect((await bench.takeAll(one.queue)).map(({ body }) => body)).toEqual(['a']);
    await until(async () => ((await bench.depth(wait.name)) === 3 ? true : undefined));
    const report = await drainQueue({ connection, queue: wait.name, plans: [one, two] });
    expect(report).toMatchObject({ total: 3, moved: 2, unroutable: 1, end: 'done' });
    expect((await bench.takeAll(two.queue)).map(({ body }) => body)).toEqual(['b', 'c']);
    expect(await bodies(bench, wait.name, 1)).toEqual(['d']);
  });

  test('the TTL by which a message waits is not taken for the end of its life', async () => {
    await using bench = await openBench();
    const { style, wire } = goqueue();
    const plan = style.plan(orderOf(freshName('level'), { type: 'classic' }));
    await bench.declare(plan);
    const { queue } = plan;
    const level = `${queue}__retry.1`;
    const headers = { 'goqueue-retry-count': 1 };
    await bench.publish(level, ['a'], { expiration: '600000', headers });
    const { connection } = bench;
    const report = await drainQueue({ connection, queue: level, plans: [plan], wire });
    expect(report).toMatchObject({ moved: 1, end: 'done' });
    const [taken] = await bench.takeAll(queue, 1);
    expect(taken?.properties.expiration).toBeUndefined();
    expect(taken?.properties.headers).toMatchObject({ 'respool-attempts': 1 });
    expect(taken?.properties.headers).not.toHaveProperty('respool-expires-after-ms');
  });

  test('without plans a message goes where its headers say that it came from', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    const { connection } = bench;
    const { key: queue } = plan.dead;
    await bench.publish(queue, ['ours'], { headers: { 'respool-queue': plan.queue } });
    await bench.publish(plan.queue, ['rejected']);
    const channel = await connection.createChannel();
    await channel.consume(plan.queue, (message) => {
      if (message !== null) channel.nack(message, false, false);
    });
    await until(async () => ((await bench.depth(queue)) === 2 ? true : undefined));
    await channel.close();
    await bench.publish(queue, ['unknown']);
    const report = await drainQueue({ connection, queue });
    expect(report).toMatchObject({ total: 3, moved: 2, unroutable: 1, end: 'done' });
    expect((await bodies(bench, plan.queue)).toSorted()).toEqual(['ours', 'rejected']);
    expect(await bodies(bench, queue, 1)).toEqual(['unknown']);
  });

  test('only what matches goes, also past a window full of others', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.parked.key, [...names(60), 'wanted', ...names(20, 60), 'wanted']);
    const report = await drainQueue({
      connection: bench.connection,
      queue: plan.parked.key,
      plans: [plan],
      window: 7,
      match: ({ content }) => content.toString() === 'wanted',
    });
    expect(report).toMatchObject({ total: 82, moved: 2, skipped: 80, end: 'done' });
    expect(await bench.takeAll(plan.queue)).toHaveLength(2);
    expect(await bodies(bench, plan.parked.key, 80)).toEqual(names(80));
  });

  test('no more than "max" go, although a window brings more', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, names(30));
    const { connection } = bench;
    const report = await drainQueue({ connection, queue: plan.dead.key, plans: [plan], max: 4 });
    expect(report).toMatchObject({ total: 30, moved: 4, end: 'max' });
    expect((await bench.takeAll(plan.queue)).map(({ body }) => body)).toEqual(names(4));
    expect(await bodies(bench, plan.dead.key, 26)).toEqual(names(26, 4));
  });

  test('what comes back while it drains is not taken again', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, names(20));
    // A consumer that gives up at once: everything is dead again.
    const channel = await bench.connection.createChannel();
    await channel.consume(plan.queue, (message) => {
      if (message !== null) channel.nack(message, false, false);
    });
    const { connection } = bench;
    const report = await drainQueue({ connection, queue: plan.dead.key, plans: [plan], window: 2 });
    expect(report).toMatchObject({ total: 20, moved: 20, end: 'done' });
    await channel.close();
  });

  test('a road that no queue takes leaves the messages where they are', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, names(5));
    const to = { exchange: '', key: freshName('nowhere') };
    const { connection } = bench;
    const draining = drainQueue({ connection, queue: plan.dead.key, to });
    await expect(draining).rejects.toMatchObject({ code: 'broker.unroutable' });
    expect(await bench.takeAll(plan.dead.key, 5)).toHaveLength(5);
  });

  test('discarding needs the name of the queue once more', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, names(5));
    const options = { connection: bench.connection, queue: plan.dead.key, to: 'discard' } as const;
    await expect(drainQueue(options)).rejects.toMatchObject({ code: 'config.invalid' });
    expect(await bench.depth(plan.dead.key)).toBe(5);
    const report = await drainQueue({ ...options, confirm: plan.dead.key });
    expect(report.moved).toBe(5);
    expect(await bench.depth(plan.dead.key)).toBe(0);
  });

  test('it stops when it is told to, and gives back what it holds', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, names(300));
    const stop = new AbortController();
    const report = await drainQueue({
      connection: bench.connection,
      queue: plan.dead.key,
      plans: [plan],
      window: 5,
      signal: stop.signal,
      onProgress: () => stop.abort(),
    });
    expect(report.end).toBe('aborted');
    expect(report.moved).toBeLessThan(300);
    const rest = await bench.takeAll(plan.dead.key, 300 - report.moved);
    expect(rest).toHaveLength(300 - report.moved);
  });

  test('a connection that is lost in the middle leaves every message in one of both', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, names(500));
    const connection = await connectAmqp(bench.url);
    const draining = drainQueue({
      connection,
      queue: plan.dead.key,
      plans: [plan],
      onProgress: () => void connection.close(),
    });
    await expect(draining).rejects.toMatchObject({ code: expect.stringMatching(/^broker\./) });
    const moved = await bodies(bench, plan.queue);
    const there = [moved, await bodies(bench, plan.dead.key, 500 - new Set(moved).size)];
    expect(new Set(there.flat())).toEqual(new Set(names(500)));
    expect(there.flat().length).toBeLessThanOrEqual(500 + 100);
  });

  test('a connection that was passed in is left without listeners of ours', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('ears')));
    await bench.declare(plan);
    const { connection } = bench;
    const ears = (): number[] =>
      ['error', 'close', 'blocked', 'unblocked'].map((event) =>
        (connection as unknown as EventEmitter).listenerCount(event),
      );
    const drain = (): Promise<unknown> =>
      drainQueue({ connection, queue: plan.dead.key, plans: [plan] });
    await drain();
    const before = ears();
    await drain();
    await drain();
    expect(ears()).toEqual(before);
    // One for an error stays: without any it would end the process.
    expect(before.slice(1)).toEqual([0, 0, 0]);
  });

  test('what another consumer took meanwhile is not waited for', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, names(400));
    const channel = await bench.connection.createChannel();
    const { connection } = bench;
    const draining = drainQueue({
      connection,
      queue: plan.dead.key,
      plans: [plan],
      window: 1,
      match: (message) => {
        // The other one starts when we have the first.
        if (message.content.toString() === 'm0') {
          void channel.consume(plan.dead.key, (other) => other !== null && channel.ack(other));
        }
        return true;
      },
    });
    const report = await draining;
    expect(report.end).toBe('done');
    expect(report.moved).toBeLessThan(400);
    await channel.close();
  });

  test.each([
    [{ window: 0 }, /window/],
    [{ max: 0 }, /max/],
    [{ attempts: 'none' }, /attempts/],
    [{ wnidow: 1 }, /wnidow/],
    [{ to: { exchange: '', key: 'q' } }, /into itself/],
  ])('the options %j are refused', async (more, text) => {
    await using bench = await openBench();
    const options = { connection: bench.connection, queue: 'q', ...more } as never;
    await expect(drainQueue(options)).rejects.toThrow(text);
  });

  test('a queue that is in none of the plans is refused, and a main queue without a road', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('drain')));
    const { connection } = bench;
    const plans = [plan];
    await expect(drainQueue({ connection, plans, queue: 'other' })).rejects.toThrow(/none of the/);
    await expect(drainQueue({ connection, plans, queue: plan.queue })).rejects.toThrow(
      /into itself/,
    );
    await expect(drainQueue({ connection, plans, queue: plan.dead.key })).rejects.toMatchObject({
      code: 'topology.mismatch',
    });
  });
});
