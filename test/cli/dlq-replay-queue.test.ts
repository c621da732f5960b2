/** dlq replay and dlq replays — over dead queues of a real broker, with the record in SQLite. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { Replay } from 'respool/dead-letters';
import type { AmqpMessage } from 'respool/rabbit';
import { lockName } from '../../src/rabbit/queues/lock.ts';
import { type DeadQueue, deadQueue, names } from './dlq-queue-ground.ts';
import type { Ran } from './setup.ts';

/** The one replay that was told of. */
function replayOf(ran: Ran): Replay {
  const [replay] = ran.objects();
  if (replay === undefined) throw new Error(`nothing was told: ${ran.stderr}`);
  return replay as unknown as Replay;
}

async function replay(ground: DeadQueue, argv: readonly string[] = []): Promise<Ran> {
  const quick = ['--canary', '0', '--end-wait', '1s', '--yes', '--json'];
  return ground.cli(['dlq', 'replay', '--queue', ground.dead, ...quick, ...argv]);
}

/** Begins a slow replay, and resolves when it has sent some. */
async function running(ground: DeadQueue, rate = '20') {
  const argv = ['--canary', '0', '--rate', rate, '--window', '1', '--yes', '--json'];
  const run = ground.start(['dlq', 'replay', '--queue', ground.dead, ...argv]);
  let id = '';
  await expect
    .poll(async () => {
      const ran = await ground.cli(['dlq', 'replays', 'list', '--state', 'running', '--json']);
      id = (ran.code === 0 ? (ran.objects()[0]?.['id'] as string | undefined) : undefined) ?? '';
      return id === '' ? 0 : ground.depth(ground.main);
    })
    .toBeGreaterThan(2);
  return { run, id };
}

test('plan, canary, rest: everything goes where it came from, in order, with a mark', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main);
  const ids = names(25);
  await ground.die(ids);
  const arrived: AmqpMessage[] = [];
  await ground.channel.consume(ground.main, (message) => {
    if (message === null) return;
    arrived.push(message);
    ground.channel.ack(message);
  });
  const waits = ['--canary-wait', '1s', '--end-wait', '1s'];
  const argv = ['--canary', '5', ...waits, '--window', '1', '--yes', '--json'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...argv]);
  expect(ran.code, ran.stderr).toBe(0);
  const { id, state, because, counts, plan, canaries } = replayOf(ran);
  // All were taken, and none came back: it is plainly done.
  expect([because, counts.again]).toEqual([undefined, 0]);
  expect([state, counts.sent, plan.routes]).toEqual(['done', 25, [{ to: ground.main, count: 25 }]]);
  expect(canaries).toEqual({ passed: 5, failed: 0, waiting: 0 });
  expect(await ground.depth(ground.dead)).toBe(0);
  await expect.poll(() => arrived.length).toBe(25);
  expect(arrived.map(({ properties }) => properties.messageId)).toEqual(ids);
  const marks = arrived.map(({ properties: { headers } }) => [
    headers?.['respool-replays'],
    headers?.['respool-replay'],
  ]);
  expect(new Set(marks.map(String))).toEqual(new Set([`1,${id}`]));
  const audit = (await ground.cli(['audit', '--json'])).objects();
  expect(audit.map(({ action }) => action)).toEqual(['replay.plan', 'replay.run']);
});

test('canaries that no consumer takes stop it; a resume without canaries sends the rest', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main);
  await ground.die(names(10));
  const argv = ['--canary', '3', '--canary-wait', '1s', '--yes'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...argv]);
  expect(ran.code).toBe(1);
  expect(ran.stdout).toContain('0 of 3 canaries were attempted; nothing else was sent');
  expect(await ground.depth(ground.dead)).toBe(7);
  const [, id = ''] = /^replay (\S+) is stopped: /m.exec(ran.stdout) ?? [];
  expect(ran.stderr).toContain(`respool dlq replays resume ${id} --canary 0`);
  expect((await ground.shown(id)).canaries).toEqual({ passed: 0, failed: 0, waiting: 3 });
  const resumed = await ground.cli(['dlq', 'replays', 'resume', id, '--canary', '0', '--json']);
  expect(resumed.code, resumed.stderr).toBe(0);
  expect(replayOf(resumed)).toMatchObject({ state: 'done', counts: { sent: 10 } });
  expect((await ground.idsIn(ground.main)).toSorted()).toEqual(names(10));
});

test('canaries that are gone from a queue without a consumer stop it', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main, { arguments: { 'x-message-ttl': 1 } });
  await ground.die(names(8));
  const argv = ['--canary', '3', '--canary-wait', '1s', '--yes', '--json'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...argv]);
  const { state, counts, because, canaries } = replayOf(ran);
  expect([ran.code, state, counts.sent]).toEqual([1, 'stopped', 3]);
  expect(because).toMatch(/^it cannot be determined whether the 3 canaries were attempted/);
  expect(canaries).toEqual({ passed: 0, failed: 0, waiting: 3 });
  expect(await ground.depth(ground.main)).toBe(0);
  expect(await ground.depth(ground.dead)).toBe(5);
});

test('canaries behind a backlog that a consumer has not come to stop it', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main);
  await ground.put(ground.main, ['1', '2', '3', '4', '5']);
  await ground.channel.prefetch(2);
  // Takes two, and never answers.
  await ground.channel.consume(ground.main, () => undefined);
  await ground.die(names(10));
  const argv = ['--canary', '3', '--canary-wait', '1s', '--yes', '--json'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...argv]);
  expect(ran.code).toBe(1);
  const { state, because, counts } = replayOf(ran);
  expect([state, counts.sent]).toEqual(['stopped', 3]);
  expect(because).toMatch(/^0 of 3 canaries were attempted; .*6 messages wait/);
});

test('a dry run tells the plan and what looking costs, and takes nothing', async () => {
  const ground = await deadQueue();
  await ground.die(names(3));
  await ground.die(['lost'], { from: '' });
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, '--dry-run', '--json']);
  expect(ran.code, ran.stderr).toBe(0);
  expect(ran.objects()).toMatchObject([
    {
      dryRun: true,
      source: { kind: 'queue', queue: ground.dead },
      plan: {
        count: 4,
        routes: [{ to: ground.main, count: 3 }],
        cannot: [{ why: 'unroutable', count: 1, ids: ['lost'] }],
        caution: expect.stringContaining('count'),
      },
    },
  ]);
  expect(await ground.idsIn(ground.dead)).toEqual([...names(3), 'lost']);
});

test('a missing destination stops it by its guard; made, it is resumed, none is lost or twice', async () => {
  const ground = await deadQueue();
  const ids = names(30);
  await ground.die(ids);
  const argv = ['--canary', '3', '--canary-wait', '0s', '--yes'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...argv]);
  expect(ran.code).toBe(1);
  const [, id = ''] = /^replay (\S+) is stopped: /m.exec(ran.stdout) ?? [];
  expect(ran.stderr).toContain(`respool dlq replays resume ${id}`);
  expect((await ground.shown(id)).counts.sent).toBe(0);
  expect(await ground.depth(ground.dead)).toBe(30);
  const failed = await ground.cli(['dlq', 'replays', 'report', id, '--result', 'failed', '--json']);
  expect(failed.objects()[0]).toMatchObject({ result: 'failed', code: expect.any(String) });
  await ground.declare(ground.main);
  const resumed = await ground.cli(['dlq', 'replays', 'resume', id, '--canary', '0', '--json']);
  expect(resumed.code, resumed.stderr).toBe(0);
  expect(replayOf(resumed)).toMatchObject({ state: 'done', counts: { sent: 30, failed: 0 } });
  const arrived = await ground.idsIn(ground.main);
  expect(arrived.toSorted()).toEqual(ids);
  expect(await ground.depth(ground.dead)).toBe(0);
  const report = await ground.cli(['dlq', 'replays', 'report', id, '--json']);
  expect(report.objects().map((line) => [line['id'], line['result'], line['to']])).toEqual(
    ids.map((one) => [one, 'sent', ground.main]),
  );
});

test('a destination that is full half way stops it; with room again nothing is lost or twice', async () => {
  const ground = await deadQueue();
  const full = { 'x-max-length': 1_000, 'x-overflow': 'reject-publish' };
  await ground.declare(ground.main, { arguments: full });
  const ids = names(2_000);
  await ground.die(ids);
  const argv = ['--canary', '0', '--yes', '--json'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...argv]);
  expect(ran.code).toBe(1);
  const { id, state, because, counts } = replayOf(ran);
  expect([state, because]).toEqual(['stopped', expect.stringContaining('queue is full')]);
  expect(counts.sent).toBeGreaterThanOrEqual(1_000);
  const first = await ground.idsIn(ground.main);
  expect([first.length, await ground.depth(ground.dead)]).toEqual([
    counts.sent,
    2_000 - counts.sent,
  ]);
  const resumed = await ground.cli(['dlq', 'replays', 'resume', id, '--json']);
  expect(resumed.code, resumed.stderr).toBe(0);
  expect(replayOf(resumed)).toMatchObject({ state: 'done', counts: { sent: 2_000, failed: 0 } });
  const second = await ground.idsIn(ground.main);
  expect([...first, ...second].toSorted()).toEqual(ids);
  expect(await ground.depth(ground.dead)).toBe(0);
});

test('a pause from elsewhere is obeyed, and a resume brings the rest', async () => {
  const ground = await deadQueue({ type: 'classic' });
  await ground.declare(ground.main);
  const ids = names(80);
  await ground.die(ids);
  const { run, id } = await running(ground);
  const twice = await ground.cli(['dlq', 'replays', 'resume', id]);
  expect([twice.code, twice.stderr]).toEqual([1, expect.stringContaining('pause it there first')]);
  const paused = await ground.cli(['dlq', 'replays', 'pause', id, '--json']);
  expect(paused.code, paused.stderr).toBe(0);
  expect(replayOf(paused).state).toBe('paused');
  expect((await run.ended).code).toBe(1);
  const { counts } = await ground.shown(id);
  expect(await ground.depth(ground.main)).toBe(counts.sent);
  expect(await ground.depth(ground.dead)).toBe(80 - counts.sent);
  const resumed = ground.start(['dlq', 'replays', 'resume', id, '--json']);
  const ended = await resumed.ended;
  expect([ended.code, replayOf(ended).counts.sent]).toEqual([0, 80]);
  expect(await ground.idsIn(ground.main)).toEqual(ids);
});

test('a cancel leaves what was not sent where it was, in its order', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main);
  const ids = names(80);
  await ground.die(ids);
  const { run, id } = await running(ground);
  const cancelled = await ground.cli(['dlq', 'replays', 'cancel', id, '--json']);
  expect(cancelled.code, cancelled.stderr).toBe(0);
  expect(replayOf(cancelled).state).toBe('cancelled');
  await run.ended;
  const { counts } = await ground.shown(id);
  expect(await ground.idsIn(ground.main)).toEqual(ids.slice(0, counts.sent));
  expect(await ground.idsIn(ground.dead)).toEqual(ids.slice(counts.sent));
});

test('Ctrl-C pauses, and says how to go on', async () => {
  const ground = await deadQueue({ type: 'classic' });
  await ground.declare(ground.main);
  await ground.die(names(60));
  const { run, id } = await running(ground);
  run.signal('SIGINT');
  const ended = await run.ended;
  expect(ended.code).toBe(130);
  expect(ended.stderr).toContain(`respool dlq replays resume ${id}`);
  expect(await ground.shown(id)).toMatchObject({ state: 'paused' });
  const { counts } = await ground.shown(id);
  const left = await ground.depth(ground.dead);
  expect([left, await ground.depth(ground.main)]).toEqual([60 - counts.sent, counts.sent]);
});

test('letters that came back at the end are said, with exit code 1, and are in the report', async () => {
  const ground = await deadQueue();
  await ground.declareLoop();
  await ground.die(names(12));
  await ground.rejectAll();
  const how = ['--canary', '0', '--stop-above', '100', '--end-wait', '2s', '--yes'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...how]);
  expect(ran.code, ran.stderr).toBe(1);
  const [, id = '', said] = /^replay (\S+) is (.*)$/m.exec(ran.stdout) ?? [];
  expect(said).toBe('done: 12 of 12 letters that were sent failed again within 2s');
  expect(ran.stdout).toContain('sent 12 of 12, failed again 12\n');
  expect(ran.stderr).toContain(`which, and why: respool dlq replays report ${id}`);
  const report = await ground.cli(['dlq', 'replays', 'report', id, '--result', 'again', '--json']);
  expect(report.objects()).toHaveLength(12);
});

test('a destination that no consumer reads is said, without a wait, and is no failure', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main);
  await ground.die(names(3));
  const how = ['--canary', '0', '--end-wait', '1d', '--yes'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', ground.dead, ...how]);
  expect(ran.code, ran.stderr).toBe(0);
  expect(ran.stdout).toContain(
    `is done: queue "${ground.main}" has no consumer, and 3 messages wait there\n`,
  );
  expect(ran.stdout).toContain('sent 3 of 3, not attempted yet at most 3\n');
});

test('what dies again and again is parked after three replays', async () => {
  const ground = await deadQueue();
  await ground.declareLoop();
  await ground.die(['again']);
  await ground.rejectAll();
  for (const round of [1, 2, 3]) {
    const ran = await replay(ground, ['--stop-above', '100']);
    const { sent, again } = replayOf(ran).counts;
    expect([round, ran.code, sent, again]).toEqual([round, 1, 1, 1]);
    await expect.poll(() => ground.depth(ground.dead)).toBe(1);
  }
  const ran = await replay(ground, ['--stop-above', '100']);
  expect(replayOf(ran).counts).toMatchObject({ sent: 0, parked: 1 });
  expect(await ground.depth(ground.dead)).toBe(0);
  expect(await ground.idsIn(`${ground.main}.parked`)).toEqual(['again']);
});

test('the parked queue is the one of the configuration', async () => {
  const ground = await deadQueue();
  const parkedQueue = `${ground.prefix}-put-away`;
  await ground.configure({ deadLetters: { parkedQueue, replaysMax: 1 } });
  await ground.declareLoop();
  await ground.die(['again']);
  expect(replayOf(await replay(ground)).counts.sent).toBe(1);
  await ground.rejectAll();
  await expect.poll(() => ground.depth(ground.dead)).toBe(1);
  expect(replayOf(await replay(ground)).counts.parked).toBe(1);
  expect(await ground.idsIn(parkedQueue)).toEqual(['again']);
});

test('a repair changes the message, and its original is kept in the spool', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main);
  await ground.die(['a'], { body: '{"country":null}' });
  await ground.die(['b'], { body: 'no json' });
  const repair = 'export default (_, { json }) => ({ json: { ...json(), country: "CH" } });';
  await writeFile(path.join(ground.folder, 'repair.mjs'), repair);
  const argv = ['dlq', 'replay', '--queue', ground.dead, '--transform', 'repair.mjs'];
  const dry = await ground.cli([...argv, '--dry-run']);
  expect(dry.stdout).toMatch(/^- +"country": null$/m);
  expect(dry.stdout).toMatch(/^\+ +"country": "CH"$/m);
  const ran = await replay(ground, ['--transform', 'repair.mjs']);
  expect(ran.code).toBe(1);
  expect(replayOf(ran).counts).toMatchObject({ sent: 1, failed: 1 });
  const [sent] = await ground.drain(ground.main);
  expect(sent?.content.toString()).toBe('{"country":"CH"}');
  expect(await ground.idsIn(ground.dead)).toEqual(['b']);
  const [kept] = (await ground.cli(['list', '--state', 'archived', '--json'])).objects();
  const cat = await ground.cli(['cat', kept?.['id'] as string]);
  expect(cat.stdout).toBe('{"country":null}');
});

test('several queues are replayed in turn, each as an operation of its own', async () => {
  const ground = await deadQueue();
  const second = `${ground.prefix}-mails.dlq`;
  await ground.declare(ground.main);
  await ground.declare(second);
  await ground.die(names(2));
  await ground.die(['mail'], { into: second });
  const argv = ['--canary', '0', '--yes', '--json'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', `${ground.prefix}*.dlq`, ...argv]);
  expect(ran.code, ran.stderr).toBe(0);
  const told = ran.objects() as unknown as Replay[];
  expect(told.map(({ source, counts }) => [source, counts.sent])).toMatchObject([
    [{ queue: second }, 1],
    [{ queue: ground.dead }, 2],
  ]);
  expect((await ground.idsIn(ground.main)).toSorted()).toEqual([...names(2), 'mail']);
});

test('--to names a queue, or an exchange with a key', async () => {
  const ground = await deadQueue();
  const [other, exchange] = [`${ground.prefix}-other`, `${ground.prefix}-shop`];
  await ground.declare(other);
  await ground.channel.assertExchange(exchange, 'direct', { durable: true });
  await ground.channel.bindQueue(other, exchange, 'order.new');
  await ground.die(['a', 'lost'], { from: '' });
  const first = await replay(ground, ['--to', other, '--limit', '1']);
  expect([first.code, replayOf(first).counts.sent]).toEqual([0, 1]);
  const second = await replay(ground, ['--to', `${exchange}:order.new`]);
  expect([second.code, replayOf(second).counts.sent]).toEqual([0, 1]);
  expect(await ground.idsIn(other)).toEqual(['a', 'lost']);
});

test('a broker that is named on the command line has to be named again to resume', async () => {
  const ground = await deadQueue();
  await writeFile(path.join(ground.folder, 'respool.config.json'), '{}');
  await ground.declare(ground.main);
  await ground.die(names(2));
  const broker = ['--broker', ground.url, '--management-url', ground.managementUrl, '--json'];
  const planned = await replay(ground, ['--plan-only', ...broker]);
  expect(planned.code, planned.stderr).toBe(0);
  const { id } = replayOf(planned);
  const silent = await ground.cli(['dlq', 'replays', 'resume', id]);
  expect([silent.code, silent.stderr]).toEqual([2, expect.stringContaining('--broker')]);
  const resumed = await ground.cli(['dlq', 'replays', 'resume', id, ...broker]);
  expect(resumed.code, resumed.stderr).toBe(0);
  expect(await ground.idsIn(ground.main)).toEqual(names(2));
});

test('a category chooses among the letters of a queue', async () => {
  const ground = await deadQueue();
  await ground.declare(ground.main);
  await ground.die(names(2));
  const none = await replay(ground, ['--category', 'auth']);
  expect([none.code, none.stdout]).toEqual([0, '']);
  const ran = await replay(ground, ['--category', 'resource']);
  expect(replayOf(ran).counts.sent).toBe(2);
});

test('rules replay a dead queue as soon as its destination is consumed', async () => {
  const ground = await deadQueue();
  const rule = { name: 'again', when: { queue: ground.dead, category: 'resource' } };
  await ground.configure({ deadLetters: { rules: [{ ...rule, canary: 0, rate: 1_000 }] } });
  await ground.declare(ground.main);
  await ground.die(names(3));
  const once = ['dlq', 'rules', 'run', '--once', '--json'];
  const [waits] = (await ground.cli(once)).objects();
  expect(waits).toMatchObject({
    result: 'waiting',
    because: `queue "${ground.main}" has no consumer`,
  });
  const arrived: string[] = [];
  await ground.channel.consume(ground.main, (message) => {
    if (message === null) return;
    arrived.push(message.properties.messageId ?? '');
    ground.channel.ack(message);
  });
  const ran = await ground.cli(once);
  expect(ran.objects(), ran.stderr).toMatchObject([{ result: 'done', sent: 3 }]);
  await expect.poll(() => arrived.toSorted()).toEqual(names(3));
  const [quiet] = (await ground.cli(once)).objects();
  expect(quiet).toMatchObject({ result: 'quiet' });
});

test('rules that are ended in the middle of a replay go on with it after the restart', async () => {
  const ground = await deadQueue();
  const rule = { name: 'again', when: { queue: ground.dead }, canary: 0, rate: 20 };
  await ground.configure({ deadLetters: { rules: [rule] } });
  await ground.declare(ground.main);
  await ground.die(names(60));
  const arrived: string[] = [];
  await ground.channel.consume(ground.main, (message) => {
    if (message === null) return;
    arrived.push(message.properties.messageId ?? '');
    ground.channel.ack(message);
  });
  const first = ground.start(['dlq', 'rules', 'run', '--json']);
  await expect.poll(() => arrived.length).toBeGreaterThan(2);
  first.signal('SIGTERM');
  const ended = await first.ended;
  expect(ended.code, ended.stderr).toBe(0);
  expect(arrived.length).toBeLessThan(60);
  const second = ground.start(['dlq', 'rules', 'run', '--json']);
  await second.printed(/"result":"done"/);
  second.signal('SIGTERM');
  await second.ended;
  await expect.poll(() => arrived.toSorted()).toEqual(names(60));
  const replays = (await ground.cli(['dlq', 'replays', 'list', '--json'])).objects();
  expect(replays).toMatchObject([{ state: 'done', counts: { sent: 60 } }]);
});

test('a rule whose canary dies again is stopped, and waits longer', async () => {
  const ground = await deadQueue();
  const rule = { name: 'again', when: { queue: ground.dead }, every: '10m', rate: 1_000 };
  await ground.configure({ deadLetters: { rules: [rule] } });
  await ground.declareLoop();
  await ground.die(names(5));
  await ground.rejectAll();
  const ran = await ground.cli(['dlq', 'rules', 'run', '--once', '--json']);
  const [news] = ran.objects();
  expect([ran.code, news]).toMatchObject([1, { result: 'stopped', sent: 1 }]);
  expect(Number(news?.['nextAt']) - Number(news?.['at'])).toBe(20 * 60_000);
  expect(await ground.depth(ground.dead)).toBe(5);
});

test('a queue that cannot be planned leaves no plan of the others on record', async () => {
  const ground = await deadQueue();
  const second = `${ground.prefix}-mails.dlq`;
  await ground.declare(ground.main);
  await ground.declare(second);
  await ground.die(names(2));
  await ground.die(['mail'], { into: second });
  // As somebody who works on it: the lock goes with his connection.
  await ground.channel.assertQueue(lockName(ground.dead), { exclusive: true, durable: false });
  const argv = ['--canary', '0', '--yes', '--json'];
  const ran = await ground.cli(['dlq', 'replay', '--queue', `${ground.prefix}*.dlq`, ...argv]);
  expect([ran.code, ran.stderr]).toEqual([1, expect.stringContaining('works on it')]);
  expect((await ground.cli(['dlq', 'replays', 'list', '--json'])).objects()).toEqual([]);
  expect([await ground.depth(second), await ground.depth(ground.main)]).toEqual([1, 0]);
  await ground.channel.deleteQueue(lockName(ground.dead));
});
