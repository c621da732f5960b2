/** stats — depths, rates and hints of a real broker, and that looking costs nothing. */

import { describe, expect, test } from 'vitest';
import {
  doctor,
  dumpText,
  dumpTopology,
  perDelay,
  queueStats,
  type QueueStats,
  shared,
  type StatsReport,
} from 'respool/rabbit';
import { hintsOf } from '../../../src/rabbit/admin/stats.ts';
import { withService } from '../../services/index.ts';
import { until } from '../until.ts';
import { bodies, freshName, openBench, orderOf } from './setup.ts';

const byName = ({ queues }: StatsReport, name: string): QueueStats => {
  const found = queues.find((one) => one.name === name);
  if (found === undefined) throw new Error(`no stats of ${name}`);
  return found;
};

withService('rabbitmq', () => {
  test('over AMQP alone depths and consumers are told, and what is not', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('stats')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, ['a', 'b']);
    const channel = await bench.connection.createChannel();
    await channel.consume(plan.queue, () => undefined);
    await channel.deleteQueue(plan.parked.key);
    const report = await queueStats({ connection: bench.connection, plans: [plan] });
    expect(report.source).toBe('passive');
    expect(report.note).toMatch(/depths and consumers only/);
    expect(report.queues.map(({ role }) => role)).toEqual([
      'main',
      'wait',
      'dead',
      'parked',
      'unrouted',
    ]);
    expect(byName(report, plan.dead.key)).toEqual({
      name: plan.dead.key,
      role: 'dead',
      of: [plan.queue],
      waitMs: undefined,
      isThere: true,
      type: undefined,
      ready: 2,
      unacked: undefined,
      deadLettering: undefined,
      consumers: 0,
      publishRate: undefined,
      deliverRate: undefined,
      ackRate: undefined,
      published: undefined,
      oldestAgeMs: undefined,
    });
    expect(byName(report, plan.queue).consumers).toBe(1);
    expect(report.hints).toMatchObject([{ kind: 'missing', level: 'bad', queue: plan.parked.key }]);
    await channel.close();
  });

  test.concurrent('the management API tells types, counts, rates and ages', async () => {
    await using bench = await openBench();
    const prefix = freshName('pre');
    const one = shared({ prefix }).plan(orderOf(freshName('one'), { type: 'classic' }));
    const two = shared({ prefix }).plan(orderOf(freshName('two'), { type: 'classic' }));
    await bench.declare(one, two);
    const timestamp = Math.floor(Date.now() / 1_000) - 60;
    // The broker forgets now and then what a channel that is gone had published: so it stays.
    const channel = await bench.connection.createConfirmChannel();
    const taken = (body: string): Promise<unknown> =>
      new Promise((resolve) => {
        channel.publish('', one.queue, Buffer.from(body), { timestamp }, resolve);
      });
    await Promise.all(['a', 'b', 'c'].map(taken));
    await channel.prefetch(1);
    await channel.consume(one.queue, () => undefined);
    const { connection, management } = bench;
    const report = await until(async () => {
      management.forget();
      const told = await queueStats({ connection, management, plans: [one, two] });
      const { unacked, published, consumers, oldestAgeMs } = byName(told, one.queue);
      // Each of them comes when the broker has counted it.
      const isCounted = unacked === 1 && published === 3 && consumers === 1;
      return isCounted && oldestAgeMs !== undefined ? told : undefined;
    });
    expect(report).toMatchObject({ source: 'management', note: undefined });
    const main = byName(report, one.queue);
    expect(main).toMatchObject({
      type: 'classic',
      ready: 2,
      unacked: 1,
      consumers: 1,
      published: 3,
    });
    expect(main.oldestAgeMs).toBeGreaterThanOrEqual(59_000);
    expect(main.oldestAgeMs).toBeLessThan(120_000);
    expect(main.publishRate).toBeTypeOf('number');
    expect(byName(report, `${prefix}.wait.200ms`)).toMatchObject({
      role: 'wait',
      of: [one.queue, two.queue],
      waitMs: 200,
    });
    const alone = await queueStats({ management, plans: [one] });
    expect(byName(alone, one.queue)).toMatchObject({ ready: 2, consumers: 1 });
    await channel.close();
  });

  test.concurrent('messages that cannot leave a wait queue are named as a stall', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('stall')));
    // Without the exchange that they return to, nobody confirms them.
    const exchanges = plan.topology.exchanges.filter(({ name }) => !name.endsWith('.return'));
    const bindings = plan.topology.bindings.filter(({ exchange }) => !exchange.endsWith('.return'));
    await bench.declare({ ...plan, topology: { ...plan.topology, exchanges, bindings } });
    const wait = plan.topology.queues.find(({ role }) => role === 'wait')?.name ?? '';
    await bench.publish(
      wait,
      Array.from({ length: 40 }, (_, at) => `m${at}`),
    );
    const { connection, management } = bench;
    const hint = await until(async () => {
      management.forget();
      const { hints } = await queueStats({ connection, management, plans: [plan] });
      return hints.find(({ kind, level }) => kind === 'stalled' && level === 'bad');
    });
    expect(hint.queue).toBe(wait);
    expect(hint.text).toMatch(/^40 messages .* everything behind them stands still$/);
    const findings = await doctor({ connection, management, plans: [plan] });
    expect(findings.map(({ name }) => name)).toContain('stats.stalled');
  });

  test.concurrent('25 looks at a dead queue with a delivery limit of 20 cost nothing', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('looks')));
    const queues = plan.topology.queues.map((spec) =>
      spec.role === 'dead'
        ? { ...spec, arguments: { ...spec.arguments, 'x-delivery-limit': 20 } }
        : spec,
    );
    const limited = { ...plan, topology: { ...plan.topology, queues } };
    await bench.declare(limited);
    await bench.publish(plan.dead.key, ['precious']);
    const { connection, management } = bench;
    const look = { connection, management, plans: [limited] };
    for (let at = 0; at < 25; at += 1) {
      management.forget();
      await queueStats(look);
      await doctor(look);
      await dumpTopology(look);
    }
    const [taken] = await bench.takeAll(plan.dead.key);
    expect(taken?.body).toBe('precious');
    // n.b. 3.10 writes it from the second delivery on, whoever took the message.
    expect(taken?.properties.headers?.['x-delivery-count'] ?? 0).toBe(0);
  });

  test('a dump has everything of the plans as the broker has it', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('dump')));
    await bench.declare(plan);
    await bench.publish(plan.dead.key, ['secret-body']);
    const channel = await bench.connection.createChannel();
    await channel.bindQueue(plan.queue, 'amq.topic', 'by.hand');
    await channel.deleteQueue(plan.parked.key);
    await channel.close();
    const { connection, management } = bench;
    const dump = await dumpTopology({ connection, management, plans: [plan] });
    expect(dump.version).toMatch(/^\d+\.\d+/);
    expect(dump.exchanges.map(({ name, isThere }) => [name, isThere])).toEqual(
      plan.topology.exchanges.map(({ name }) => [name, true]),
    );
    const dead = dump.queues.find(({ role }) => role === 'dead');
    expect(dead).toMatchObject({ ready: 1, arguments: { 'x-queue-type': 'quorum' } });
    expect(dead?.arguments).toEqual(dead?.planned);
    expect(dump.bindings.filter(({ isPlanned }) => !isPlanned)).toMatchObject([
      { exchange: 'amq.topic', queue: plan.queue, key: 'by.hand' },
    ]);
    const text = dumpText(dump);
    expect(text).toContain(`parked queue ${plan.parked.key} MISSING`);
    expect(text).toContain(`binding amq.topic -> ${plan.queue} by "by.hand" NOT PLANNED`);
    expect(text).not.toContain('secret-body');

    const blind = await dumpTopology({ connection, plans: [plan] });
    expect(blind.exchanges.every(({ isThere }) => isThere === true)).toBe(true);
    expect(blind.bindings.every(({ isThere }) => isThere === undefined)).toBe(true);
    expect(dumpText(blind)).toContain('n.b. depths and consumers only');
    expect(await bodies(bench, plan.dead.key)).toEqual(['secret-body']);
  });

  test('with nobody to ask there is an error, not an empty report', async () => {
    await expect(queueStats({ plans: [] })).rejects.toMatchObject({ code: 'config.invalid' });
    await expect(dumpTopology({ plans: [] })).rejects.toMatchObject({ code: 'config.invalid' });
  });
});

describe('hints', () => {
  const queue = (more: Partial<QueueStats>): QueueStats => ({
    name: 'q',
    role: 'wait',
    of: ['main'],
    waitMs: 1_000,
    isThere: true,
    type: 'quorum',
    ready: 0,
    unacked: 0,
    deadLettering: 0,
    consumers: 0,
    publishRate: 0,
    deliverRate: 0,
    ackRate: 0,
    published: 0,
    oldestAgeMs: undefined,
    ...more,
  });
  const report = (at: number, one: QueueStats): StatsReport => ({
    at,
    source: 'management',
    note: undefined,
    queues: [one],
    hints: [],
  });

  test.each([
    ['all came since', { ready: 10, published: 110 }, 61_000, []],
    ['more than came since', { ready: 11, published: 110 }, 61_000, ['deep-wait']],
    ['too early to say', { ready: 11, published: 110 }, 60_999, []],
    ['the broker counts anew', { ready: 11, published: 5 }, 61_000, []],
    ['no counts', { ready: 11, published: undefined }, 61_000, []],
  ])('a wait queue that does not empty: %s', (_what, more, at, expected) => {
    const previous = report(0, queue({ ready: 20, published: 100 }));
    const hints = hintsOf([queue(more)], { at, previous });
    expect(hints.map(({ kind }) => kind)).toEqual(expected);
  });

  test.each([
    ['grown since the last look', { ready: 3 }, { ready: 2 }, ['dead-growing']],
    ['as it was', { ready: 2 }, { ready: 2 }, []],
    ['messages come in', { ready: 2, publishRate: 0.4 }, undefined, ['dead-growing']],
    ['the first look', { ready: 2 }, undefined, []],
  ])('a dead queue: %s', (_what, now, before, expected) => {
    const previous = before && report(0, queue({ role: 'dead', waitMs: undefined, ...before }));
    const dead = queue({ role: 'dead', waitMs: undefined, ...now });
    const hints = hintsOf([dead], { at: 10, previous });
    expect(hints.map(({ kind }) => kind)).toEqual(expected);
    for (const { todo } of hints)
      expect(todo).toMatch(/header respool-ended-reason, .* then: respool rabbit drain q$/);
  });

  test.each([
    [0, []],
    [1, ['warn']],
    [31, ['warn']],
    [32, ['bad']],
  ])('%i messages being dead-lettered', (deadLettering, expected) => {
    const hints = hintsOf([queue({ deadLettering })], { at: 0, previous: undefined });
    expect(hints.map(({ level }) => level)).toEqual(expected);
  });
});
