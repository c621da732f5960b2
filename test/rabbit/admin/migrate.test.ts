/** migrate — from one topology to another with messages in it. */

import { expect, test } from 'vitest';
import {
  goqueue,
  type MigrateReport,
  migrateTopology,
  perDelay,
  type QueuePlan,
  shared,
} from 'respool/rabbit';
import { respoolWire, type HistoryWire } from '../../../src/rabbit/message-history.ts';
import { withService } from '../../services/index.ts';
import { oldAndNew, waitName } from './migrate-plans.ts';
import { until } from '../until.ts';
import { bodies, freshName, openBench, orderOf } from './setup.ts';

const kinds = (report: MigrateReport, kind: string): string[] =>
  report.steps.filter((step) => step.kind === kind).map(({ name }) => name);

const backOf = ({ topology }: QueuePlan, wait: string): unknown =>
  topology.queues.find(({ name }) => name === wait)?.arguments['x-dead-letter-exchange'];

/** Queues of other tests hold messages meanwhile, whose way back only they know. */
const ANY: readonly string[] = ['*'];

withService('rabbitmq', () => {
  test.concurrent('other delays of the same style move what waits; a queue of the same name stays', async () => {
    await using bench = await openBench();
    const name = freshName('same');
    const old = perDelay().plan(orderOf(name, { extraWaitsMs: [600_000] }));
    const next = perDelay().plan(orderOf(name, { extraWaitsMs: [700_000] }));
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    await bench.publish(name, ['stays']);
    await bench.publish(waitName(old, 600_000), ['waits']);
    const channel = await bench.connection.createChannel();
    await channel.prefetch(1);
    await channel.consume(name, () => undefined);
    const { connection, management } = bench;
    const options = { connection, management, from: old.topology, to: next, unrelated: ANY };
    const first = await migrateTopology(options);
    expect(first.isDone).toBe(false);
    expect(first.todo.join()).toMatch(/has consumers, which may still use it/);
    expect(await bodies(bench, waitName(next, 700_000))).toEqual(['waits']);
    const last = await migrateTopology({ ...options, oldConsumersGone: true });
    expect(last).toMatchObject({ isDone: true, todo: [] });
    expect(kinds(last, 'remove')).toEqual([waitName(old, 600_000)]);
    await channel.close();
    expect(await bodies(bench, name, 1)).toEqual(['stays']);
  });

  // Regression: the consumer that had moved the dead messages was taken for somebody's.
  test.concurrent('a consumer that is gone keeps no queue, though the broker still tells of it', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('gone'));
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    const { connection, management } = bench;
    const channel = await connection.createChannel();
    await channel.consume(old.dead.key, () => undefined);
    await until(async () => {
      management.forget();
      const found = (await management.queues()).find(({ name }) => name === old.dead.key);
      return found?.consumers === 1 ? true : undefined;
    });
    await channel.close();
    const report = await migrateTopology({
      connection,
      management,
      from: old.topology,
      to: next,
      unrelated: ANY,
    });
    expect(report).toMatchObject({ isDone: true, todo: [] });
  });

  test.concurrent('a queue that holds messages, has consumers or is bound elsewhere is kept', async () => {
    await using bench = await openBench();
    const name = freshName('keep');
    const { old, next } = oldAndNew(name);
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    const channel = await bench.connection.createChannel();
    await bench.publish(old.queue, ['in-hand']);
    await channel.consume(old.queue, () => undefined);
    await channel.bindQueue(old.dead.key, 'amq.topic', `${name}.mine`);
    await bench.publish(waitName(old, 600_000), ['waits']);
    const { connection, management } = bench;
    const report = await migrateTopology({
      connection,
      management,
      from: old.topology,
      to: next,
      waits: 'leave',
      unrelated: ANY,
    });
    expect(report.isDone).toBe(false);
    const said = report.todo.join('\n');
    expect(said).toContain(`"${waitName(old, 600_000)}": left to run out: run again in 10m`);
    expect(kinds(report, 'keep')).toEqual(expect.arrayContaining([old.queue, old.dead.key]));
    expect(await bodies(bench, waitName(old, 600_000))).toEqual(['waits']);
    await channel.close();
    expect(await bodies(bench, old.queue, 1)).toEqual(['in-hand']);
  });

  test.concurrent('no queue around an old main queue goes while that one has consumers', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('busy'));
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    const channel = await bench.connection.createChannel();
    await channel.consume(old.queue, () => undefined);
    const { connection, management } = bench;
    const options = { connection, management, from: old.topology, to: next, unrelated: ANY };
    // What is said of the wait queues of a queue that keeps its name does not reach these.
    const first = await migrateTopology({ ...options, oldConsumersGone: true });
    expect(first.isDone).toBe(false);
    expect(kinds(first, 'remove')).toEqual([]);
    expect(first.todo).toContain(
      `"${old.dead.key}": consumers of "${old.queue}" may still put messages into it; stop them, ` +
        'and run again',
    );
    await bench.publish(waitName(old, 600_000), ['late']);
    await channel.close();
    const last = await until(async () => {
      const report = await migrateTopology(options);
      return report.isDone ? report : undefined;
    });
    expect(last.todo).toEqual([]);
    expect(await bodies(bench, waitName(next, 900_000))).toEqual(['late']);
  });

  test.concurrent('a wait queue of the old main queue that is not described stops the migration', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('stray'));
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    const stray = waitName(old, 600_000);
    await bench.publish(stray, ['waits']);
    const queues = old.topology.queues.filter(({ name }) => name !== stray);
    const { connection, management } = bench;
    const from = { ...old.topology, queues };
    const options = { connection, management, to: next, unrelated: ANY };
    await expect(migrateTopology({ ...options, from })).rejects.toThrow(
      `cannot migrate: the queue "${stray}", which is not in the old topology and`,
    );
    expect(await bench.depth(old.queue)).toBe(0);
    const last = await migrateTopology({ ...options, from: old.topology });
    expect(last).toMatchObject({ isDone: true, todo: [] });
    expect(await bodies(bench, waitName(next, 900_000))).toEqual(['waits']);
  });

  test.concurrent('wait queues that other queues share are kept, and their messages left alone', async () => {
    await using bench = await openBench();
    const style = shared({ prefix: freshName('pre') });
    const extraWaitsMs = [600_000];
    const mine = style.plan(orderOf(freshName('mine'), { extraWaitsMs }));
    const other = style.plan(orderOf(freshName('other'), { extraWaitsMs }));
    const next = perDelay().plan(orderOf(`${mine.queue}.v2`, { extraWaitsMs }));
    await bench.declare(mine, other);
    bench.alsoRemove(next.topology);
    const wait = waitName(mine, 600_000);
    await bench.publish(wait, ['mine'], { headers: { 'return-to': mine.queue } });
    await bench.publish(wait, ['other'], { headers: { 'return-to': other.queue } });
    const { connection, management } = bench;
    const options = {
      connection,
      management,
      from: mine.topology,
      to: next,
      unrelated: ANY,
    };
    const { steps } = await migrateTopology({ ...options, dryRun: true });
    const text = 'into the new topology, at most: those of queues that are not migrated stay';
    expect(steps).toContainEqual({ kind: 'move', name: wait, messages: 2, text });
    const report = await migrateTopology(options);
    expect(report.isDone).toBe(false);
    expect(await bodies(bench, waitName(next, 600_000))).toEqual(['mine']);
    expect(await bodies(bench, wait, 1)).toEqual(['other']);
    expect(report.todo.join('\n')).toMatch(
      /1 messages in .* belong to queues that are not migrated/,
    );
  });

  test.concurrent('with wait queues that stay, the old queue goes when nothing waits there', async () => {
    await using bench = await openBench();
    const style = shared({ prefix: freshName('pre') });
    const bindings = [{ exchange: freshName('shop'), key: 'order.*' }];
    const extraWaitsMs = [600_000];
    const old = style.plan(orderOf(freshName('orders'), { bindings, extraWaitsMs }));
    const next = style.plan(orderOf(`${old.queue}-2`, { bindings, extraWaitsMs }));
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    const wait = waitName(old, 600_000);
    await bench.publish(wait, ['waits'], { headers: { 'return-to': old.queue } });
    const { connection, management } = bench;
    const options = { connection, management, from: old.topology, to: next, unrelated: ANY };
    const first = await migrateTopology(options);
    expect(first.isDone).toBe(false);
    expect(kinds(first, 'remove')).toEqual([]);
    const said = `"${old.queue}": messages may still wait for it, up to 10m: "${wait}" holds 1,`;
    expect(first.todo).toContainEqual(expect.stringContaining(said));
    expect(first.todo.join()).not.toContain('its successor is not');
    // The way back is still there: what comes back finds its queue.
    const bound = await management.bindings(old.queue);
    expect(bound.map(({ exchange }) => exchange)).toContain(backOf(old, wait));
    expect(await bodies(bench, wait, 1)).toEqual(['waits']);
    const last = await migrateTopology(options);
    expect(last).toMatchObject({ isDone: true, todo: [] });
    expect(kinds(last, 'remove').toSorted()).toEqual(
      [old.queue, old.dead.key, old.parked.key].toSorted(),
    );
    expect(await bench.depth(old.queue)).toBeUndefined();
    expect(await bench.depth(wait)).toBe(0);
  });

  test('a dry run tells what would be done, and does nothing', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('dry'));
    await bench.declare(old);
    await bench.publish(old.queue, ['a', 'b']);
    const { connection, management } = bench;
    const options = {
      connection,
      management,
      from: old.topology,
      to: next,
      unrelated: ANY,
      dryRun: true,
    };
    const report = await migrateTopology(options);
    expect(report).toMatchObject({ isDryRun: true, isDone: false, todo: [] });
    expect(kinds(report, 'declare')).toEqual(next.topology.queues.map(({ name }) => name));
    expect(kinds(report, 'unbind')).toEqual([old.queue]);
    expect(report.steps.filter(({ kind }) => kind === 'move')).toEqual([
      { kind: 'move', name: old.queue, messages: 2, text: 'into the new topology' },
    ]);
    expect(kinds(report, 'remove').toSorted()).toEqual(
      old.topology.queues.map(({ name }) => name).toSorted(),
    );
    expect(await bench.depth(next.queue)).toBeUndefined();
    expect(await bench.depth(old.queue)).toBe(2);
  });

  test('a migration that is stopped tells so, and removes nothing', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('stop'));
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    await bench.publish(old.queue, ['a', 'b']);
    const { connection, management } = bench;
    const signal = AbortSignal.abort();
    const from = old.topology;
    const report = await migrateTopology({
      connection,
      management,
      from,
      to: next,
      unrelated: ANY,
      signal,
    });
    expect(report).toMatchObject({ isDone: false, todo: ['it was stopped: run it again'] });
    expect(kinds(report, 'remove')).toEqual([]);
    expect(await bench.depth(old.queue)).toBe(2);
  });

  test('a queue that would have to change under its name is refused before anything is done', async () => {
    await using bench = await openBench();
    const name = freshName('clash');
    const from = perDelay().plan(orderOf(name)).topology;
    const to = shared({ prefix: `${name}.new` }).plan(orderOf(name));
    const { connection } = bench;
    await expect(migrateTopology({ connection, from, to })).rejects.toMatchObject({
      code: 'topology.mismatch',
      message: expect.stringContaining('give the new one another name'),
    });
    expect(await bench.depth(name)).toBeUndefined();
  });

  test('what waits by its own TTL waits on for as long, with its past', async () => {
    await using bench = await openBench();
    const name = freshName('levels');
    const { style, wire } = goqueue();
    const old = style.plan(orderOf(name, { type: 'classic' }));
    const { next } = oldAndNew(name);
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    const headers = { 'goqueue-retry-count': 2 };
    await bench.publish(`${name}__retry.2`, ['theirs'], { expiration: '600000', headers });
    const { connection } = bench;
    const both: HistoryWire = { ...respoolWire, read: (message, from) => wire.read(message, from) };
    const options = { connection, from: old.topology, to: next, wire: both };
    const left = await migrateTopology({ ...options, waits: 'leave', dryRun: true });
    expect(left.steps).toContainEqual({
      kind: 'keep',
      name: `${name}__retry.2`,
      messages: 1,
      text: 'left to run out: run again when it is empty',
    });
    await migrateTopology(options);
    const [moved, ...more] = await bench.takeAll(waitName(next, 900_000), 1);
    expect(more).toEqual([]);
    expect(moved).toMatchObject({
      body: 'theirs',
      properties: { headers: { 'respool-attempts': 2, 'return-to': next.queue } },
    });
    expect(moved?.properties.headers).not.toHaveProperty('respool-expires-after-ms');
    expect(await bench.depth(`${name}__retry.2`)).toBe(0);
  });

  test('old queues may be given by name and role', async () => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('named'));
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    await bench.publish(old.queue, ['a']);
    await bench.publish(waitName(old, 600_000), ['b']);
    const from = [
      { name: old.queue, role: 'main' },
      { name: waitName(old, 600_000), role: 'wait', waitMs: 600_000 },
    ] as const;
    const { connection } = bench;
    const renamed = { [old.queue]: next.queue };
    const report = await migrateTopology({ connection, from, to: [next], renamed });
    expect(report.todo.join()).toMatch(/give the management API/);
    expect(await bodies(bench, next.queue)).toEqual(['a']);
    expect(await bodies(bench, waitName(next, 900_000))).toEqual(['b']);
    const nobody = { connection, from, to: [next], renamed: { [old.queue]: 'x' } };
    await expect(migrateTopology(nobody)).rejects.toThrow(/not in the new topology/);
  });

  test.each([
    [{ window: 0 }, /window/],
    [{ waits: 'drop' }, /waits/],
    [{ dryrun: true }, /dryrun/],
    [{ to: [] }, /no new topology/],
  ])('the options %j are refused', async (more, text) => {
    await using bench = await openBench();
    const { old, next } = oldAndNew(freshName('bad'));
    const options = { connection: bench.connection, from: old.topology, to: next, ...more };
    await expect(migrateTopology(options as never)).rejects.toThrow(text);
  });
});
