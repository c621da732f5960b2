/** doctor — finds each fault that was planted at a real broker, and none where there is none. */

import { expect, test } from 'vitest';
import {
  createManagement,
  doctor,
  type BrokerFinding,
  perDelay,
  type QueuePlan,
  shared,
} from 'respool/rabbit';
import { service, withService } from '../../services/index.ts';
import { freshUser } from './management/setup.ts';
import { type Bench, freshName, openBench, orderOf } from './setup.ts';

const examine = (
  { connection, management }: Bench,
  plan: QueuePlan,
): Promise<readonly BrokerFinding[]> => doctor({ connection, management, plans: [plan] });

const namesOf = (findings: readonly BrokerFinding[], level: BrokerFinding['level']): string[] =>
  findings.filter((one) => one.level === level).map(({ name }) => name);

const textOf = (findings: readonly BrokerFinding[], name: string): string =>
  findings
    .filter((one) => one.name === name)
    .map(({ text }) => text)
    .join('\n');

function waitName({ topology }: QueuePlan): string {
  return topology.queues.find(({ role }) => role === 'wait')?.name ?? '';
}

/** A policy of one test over one queue. */
async function setPolicy(bench: Bench, queue: string, definition: object): Promise<void> {
  const policy = {
    name: freshName('policy'),
    pattern: `^${queue.replaceAll('.', String.raw`\.`)}$`,
    definition: { ...definition },
    priority: 10,
  };
  bench.alsoRemove({ policies: [policy] });
  await bench.management.putPolicy(policy);
}

/** The plan with a queue of it declared otherwise. */
async function declareOtherwise(
  bench: Bench,
  plan: QueuePlan,
  { queue, change }: { readonly queue: string; readonly change: object },
): Promise<void> {
  const queues = plan.topology.queues.map((spec) =>
    spec.name === queue ? { ...spec, arguments: { ...spec.arguments, ...change } } : spec,
  );
  await bench.declare({ ...plan, topology: { ...plan.topology, queues } });
}

withService('rabbitmq', () => {
  test('a topology as it should be has nothing bad', async () => {
    await using bench = await openBench();
    for (const style of [perDelay(), shared({ prefix: freshName('pre') })]) {
      const plan = style.plan(orderOf(freshName('well')));
      await bench.declare(plan);
      const findings = await examine(bench, plan);
      expect(namesOf(findings, 'bad')).toEqual([]);
      expect(namesOf(findings, 'ok')).toEqual(
        expect.arrayContaining(['broker.version', 'broker.alarms', 'topology', 'queues']),
      );
      expect(textOf(findings, 'queue.deleted')).toMatch(/in a deleted queue are lost/);
      expect(findings.every(({ level, todo }) => (level === 'ok') === (todo === ''))).toBe(true);
    }
  });

  test('queues are said to be safe only as far as they are there', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('none')));
    expect(namesOf(await examine(bench, plan), 'ok')).not.toContain('queues');
    await bench.declare(plan);
    expect(textOf(await examine(bench, plan), 'queues')).toBe(
      'no queue can lose what it was given',
    );
    const channel = await bench.connection.createChannel();
    await channel.deleteQueue(plan.dead.key);
    bench.management.forget();
    expect(textOf(await examine(bench, plan), 'queues')).toMatch(/^no queue that is there can/);
  });

  test('what is missing is named: a queue, a binding, an exchange', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(
      orderOf(freshName('gone'), { bindings: [{ exchange: 'amq.topic' }] }),
    );
    await bench.declare(plan);
    const channel = await bench.connection.createChannel();
    await channel.unbindQueue(plan.queue, 'amq.topic', '#');
    await channel.deleteQueue(plan.parked.key);
    await channel.deleteExchange(`${plan.queue}.return`);
    await channel.close();
    const findings = await examine(bench, plan);
    const bad = namesOf(findings, 'bad');
    expect(bad).toEqual(
      expect.arrayContaining([
        'queue.missing',
        'exchange.missing',
        'binding.missing',
        'queue.return',
      ]),
    );
    expect(textOf(findings, 'queue.missing')).toContain(plan.parked.key);
    expect(textOf(findings, 'binding.missing')).toContain('amq.topic');
    const blind = await doctor({ connection: bench.connection, plans: [plan] });
    expect(namesOf(blind, 'bad')).toEqual(
      expect.arrayContaining(['queue.missing', 'exchange.missing']),
    );
    expect(namesOf(blind, 'warn')).toContain('management');
  });

  const FAULTS: readonly [string, string, 'wait' | 'main' | 'dead', object][] = [
    ['a strategy without reject-publish', 'queue.strategy', 'wait', { 'x-overflow': 'drop-head' }],
    [
      'a strategy of at most once',
      'queue.strategy',
      'main',
      { 'x-dead-letter-strategy': 'at-most-once' },
    ],
    [
      'a low delivery limit without dead letters',
      'queue.delivery-limit',
      'dead',
      { 'x-delivery-limit': 20 },
    ],
    ['a queue that expires', 'queue.expires', 'dead', { 'x-expires': 3_600_000 }],
    ['a TTL on a dead queue', 'queue.ttl', 'dead', { 'x-message-ttl': 3_600_000 }],
    [
      'a length limit that drops',
      'queue.drops',
      'dead',
      { 'x-max-length': 10, 'x-overflow': 'drop-head' },
    ],
  ];

  test.each(FAULTS)('%s is found: %s', async (_what, name, role, change) => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('fault')));
    const queue = { wait: waitName(plan), main: plan.queue, dead: plan.dead.key }[role];
    await declareOtherwise(bench, plan, { queue, change });
    const findings = await examine(bench, plan);
    expect(namesOf(findings, 'bad')).toContain(name);
    expect(textOf(findings, name)).toContain(queue);
    expect(namesOf(findings, 'bad')).toContain('queue.different');
  });

  test('policies that make a queue another one are found', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('policy'), { extraWaitsMs: [600_000] }));
    await bench.declare(plan);
    const long = plan.topology.queues.find((one) => one.arguments['x-message-ttl'] === 600_000);
    await setPolicy(bench, long?.name ?? '', { 'message-ttl': 500 });
    await setPolicy(bench, plan.queue, { 'delivery-limit': 20 });
    const findings = await examine(bench, plan);
    expect(textOf(findings, 'queue.ttl')).toMatch(/500ms instead of 10m: retries are early/);
    expect(textOf(findings, 'queue.delivery-limit')).toMatch(/limit of 20/);
    expect(namesOf(findings, 'bad')).toContain('queue.overruled');
  });

  test('a way back without an alternate exchange is found', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('alt')));
    const exchanges = plan.topology.exchanges.map((one) => ({ ...one, arguments: {} }));
    await bench.declare({ ...plan, topology: { ...plan.topology, exchanges } });
    const findings = await examine(bench, plan);
    expect(textOf(findings, 'exchange.alternate')).toMatch(/has no alternate exchange/);
    expect(namesOf(findings, 'bad')).toContain('exchange.different');
  });

  test('a user that may not publish or declare is found', async () => {
    await using bench = await openBench();
    const plan = shared({ prefix: freshName('pre') }).plan(orderOf(freshName('user')));
    await bench.declare(plan);
    await using user = await freshUser({ tags: 'administrator', read: '.*', write: '^$' });
    const { name: username, password } = user;
    const url = await service('rabbitmq-management');
    await using management = createManagement({ url, username, password });
    const findings = await doctor({ connection: bench.connection, management, plans: [plan] });
    expect(namesOf(findings, 'bad')).toContain('user.write');
    expect(textOf(findings, 'user.write')).toContain('amq.default');
    expect(namesOf(findings, 'warn')).toContain('user.configure');
    expect(namesOf(findings, 'bad')).not.toContain('user.read');
  });

  test('the rights of who consumes are told, not those of who asks', async () => {
    await using bench = await openBench();
    const plan = shared({ prefix: freshName('pre') }).plan(orderOf(freshName('other')));
    await bench.declare(plan);
    await using user = await freshUser({ read: '.*', write: '^$' });
    const { connection, management } = bench;
    const findings = await doctor({ connection, management, plans: [plan], user: user.name });
    expect(textOf(findings, 'user.write')).toContain(`"${user.name}" lacks the permission`);
  });

  test('messages that found no queue are named, and what a shared system leaves unsafe', async () => {
    await using bench = await openBench();
    const plan = shared({ prefix: freshName('pre') }).plan(orderOf(freshName('lost')));
    await bench.declare(plan);
    const unrouted = plan.topology.queues.find(({ role }) => role === 'unrouted')?.name ?? '';
    await bench.publish(unrouted, ['a', 'b']);
    const { connection, management } = bench;
    const compat = [
      { name: 'goqueue', unsafe: ['their counters are lost at times'] },
      { name: 'spring', unsafe: ['theirs, too'] },
    ];
    const findings = await doctor({ connection, management, plans: [plan], compat });
    expect(textOf(findings, 'stats.unrouted')).toMatch(/^2 messages came back/);
    expect(textOf(findings, 'compat.goqueue')).toBe('their counters are lost at times');
    expect(textOf(findings, 'compat.spring')).toBe('theirs, too');
  });

  test('classic queues are said to lose what quorum queues keep', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('classic'), { type: 'classic' }));
    await bench.declare(plan);
    const findings = await examine(bench, plan);
    expect(namesOf(findings, 'bad')).toEqual([]);
    expect(namesOf(findings, 'warn')).toContain('classic.dead-lettering');
  });

  test('an alarm of the broker is bad', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('alarm')));
    await bench.declare(plan);
    const alarms = [{ node: 'rabbit@one', resource: 'disk' }];
    const management = {
      ...bench.management,
      alarms: () => Promise.resolve({ isWell: false, alarms }),
    };
    const findings = await doctor({ connection: bench.connection, management, plans: [plan] });
    expect(namesOf(findings, 'bad')).toEqual(['broker.alarms']);
    expect(textOf(findings, 'broker.alarms')).toContain('disk at rabbit@one');
  });

  test('a part that cannot be looked at does not hide the others', async () => {
    await using bench = await openBench();
    const plan = perDelay().plan(orderOf(freshName('part')));
    await bench.declare(plan);
    await using management = createManagement({ url: 'http://guest:guest@127.0.0.1:9' });
    const findings = await doctor({ connection: bench.connection, management, plans: [plan] });
    expect(namesOf(findings, 'warn')).toEqual(
      expect.arrayContaining(['alarms.failed', 'topology.failed', 'queues.failed', 'user.failed']),
    );
    expect(namesOf(findings, 'ok')).toContain('broker.version');
  });
});
