/** styles-broker — what waits in a topology comes back, at a real broker. */

import { describe, expect, test } from 'vitest';
import { ladder } from 'respool';
import {
  mergeTopologies,
  type QueuePlan,
  type QueueType,
  type Topology,
  type WaitRoute,
} from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { declareAll, type Inbox, openInbox, removeAll, send } from './broker.ts';
import { freshPrefix, KINDS, orderOf, queueOf, STYLES } from './order.ts';
import { type AmqpConfirmChannel, connectAmqp } from '../amqp.ts';

const SHORT_MS = 120;
const LONG_MS = 300;
/** What waits so long is still there when the test is over. */
const HOUR_MS = 3_600_000;
const WAITS_MS = [SHORT_MS, LONG_MS, HOUR_MS];
/** The broker and we read clocks of our own, in whole milliseconds. */
const CLOCK_GRAIN_MS = 2;

interface Bench extends AsyncDisposable {
  readonly a: QueuePlan;
  readonly b: QueuePlan;
  readonly topology: Topology;
  readonly channel: AmqpConfirmChannel;
  inbox(queue: string): Promise<Inbox>;
  unrouted(): Promise<Inbox>;
}

withService('rabbitmq', (url) => {
  describe.concurrent.each(KINDS)('%s, %s', (style, type) => {
    test('what waits comes back once, not early, and to the queue that failed', async () => {
      await using bench = await setup(url(), style, type);
      const { a, b, channel } = bench;
      const [atA, atB] = [await bench.inbox(a.queue), await bench.inbox(b.queue)];
      const startedAt = performance.now();
      for (const plan of [a, b]) await send(channel, waitOf(plan, HOUR_MS), 'not yet');
      await send(channel, waitOf(a, LONG_MS), 'long');
      await send(channel, waitOf(a, SHORT_MS), 'short');
      await send(channel, waitOf(b, SHORT_MS), 'other');
      const short = await atA.of('short');
      const long = await atA.of('long');
      await atB.of('other');
      expect(short.at - startedAt).toBeGreaterThanOrEqual(SHORT_MS - CLOCK_GRAIN_MS);
      expect(long.at - startedAt).toBeGreaterThanOrEqual(LONG_MS - CLOCK_GRAIN_MS);
      // Whatever else the broker made of them is in front of these.
      await send(channel, waitOf(a, LONG_MS), 'end of a');
      await send(channel, waitOf(b, LONG_MS), 'end of b');
      await Promise.all([atA.of('end of a'), atB.of('end of b')]);
      expect(idsOf(atA)).toEqual(['end of a', 'long', 'short']);
      expect(idsOf(atB)).toEqual(['end of b', 'other']);
      if (style === 'shared') expect(long.message.fields.routingKey).toBe('order.new');
    });

    test('what is rejected after a wait ends in the dead queue, and does not go round', async () => {
      await using bench = await setup(url(), style, type);
      const { a, channel } = bench;
      const [main, dead] = [await bench.inbox(a.queue), await bench.inbox(a.dead.key)];
      await send(channel, waitOf(a, SHORT_MS), 'poison');
      channel.nack((await main.of('poison')).message, false, false);
      const { properties } = (await dead.of('poison')).message;
      expect(properties.headers?.['x-first-death-reason']).toBe('expired');
      expect(main.arrivals).toHaveLength(1);
    });

    test('again, dead and parked lead to their queues', async () => {
      await using bench = await setup(url(), style, type);
      const { a, channel } = bench;
      for (const route of [a.again, a.dead, a.parked]) {
        const inbox = await bench.inbox(route.key);
        await send(channel, route, 'straight');
        expect((await inbox.of('straight')).message.fields.routingKey).toBe(route.key);
      }
    });

    test('40 messages without a way back do not stall the 20 behind them', async () => {
      await using bench = await setup(url(), style, type);
      const { a, b, channel } = bench;
      const [back, lost] = [await bench.inbox(a.queue), await bench.unrouted()];
      await channel.deleteQueue(b.queue);
      const isOwn = !['shared', 'perDelay by exchange'].includes(style);
      if (isOwn) await unbindFromWayBack(bench);
      const failing = isOwn ? a : b;
      const ids = (count: number) => Array.from({ length: count }, (_, at) => `${at}`);
      await Promise.all(ids(40).map((id) => send(channel, waitOf(failing, SHORT_MS), `bad ${id}`)));
      // Where a queue has wait queues of its own, nothing else can wait there meanwhile.
      if (isOwn) await lost.until(40);
      if (isOwn) await declareAll(channel, a.topology);
      await Promise.all(ids(20).map((id) => send(channel, waitOf(a, SHORT_MS), `good ${id}`)));
      await Promise.all([back.until(20), lost.until(40)]);
      expect(new Set(back.arrivals.map((one) => one.id.split(' ')[0]))).toEqual(new Set(['good']));
      expect(new Set(lost.arrivals.map((one) => one.id)).size).toBe(40);
    });

    test('a wait queue that is missing is told to whoever publishes', async () => {
      await using bench = await setup(url(), style, type);
      const { a, channel, topology } = bench;
      const waiting = topology.queues.filter((queue) => queue.role === 'wait');
      for (const { name } of waiting) await channel.deleteQueue(name);
      await expect(send(channel, waitOf(a, SHORT_MS), 'x')).rejects.toThrow(/was returned/);
    });
  });
});

async function setup(url: string, style: string, type: QueueType): Promise<Bench> {
  const prefix = freshPrefix();
  const policy = ladder(WAITS_MS);
  const build = STYLES[style] as (typeof STYLES)[string];
  const plan = (name: string): QueuePlan =>
    build(prefix).plan(orderOf({ queue: `${prefix}.${name}`, type, policy }));
  const [a, b] = [plan('a'), plan('b')];
  const topology = mergeTopologies([a, b]);
  const connection = await connectAmqp(url);
  const channel = await connection.createConfirmChannel();
  await declareAll(channel, topology);
  const inbox = (queue: string): Promise<Inbox> => openInbox(channel, queue);
  return {
    a,
    b,
    topology,
    channel,
    inbox,
    unrouted: () => inbox(a.topology.queues.find((queue) => queue.role === 'unrouted')?.name ?? ''),
    [Symbol.asyncDispose]: async () => {
      await removeAll(await connection.createChannel(), topology);
      await connection.close();
    },
  };
}

function waitOf(plan: QueuePlan, delayMs: number): WaitRoute {
  const attempt = 1 + WAITS_MS.indexOf(delayMs);
  return plan.wait({ delayMs, attempt, routingKey: 'order.new' });
}

/** The order depends on when they were sent, and a busy machine may need long for that. */
function idsOf({ arrivals }: Inbox): readonly string[] {
  return arrivals.map(({ id }) => id).toSorted();
}

/** As if somebody had taken the binding away: its messages have no queue to come back to. */
async function unbindFromWayBack({ a, channel }: Bench): Promise<void> {
  const waiting = a.topology.queues.find((queue) => queue.role === 'wait')?.name ?? '';
  const wayBack = queueOf(a.topology, waiting).arguments['x-dead-letter-exchange'] as string;
  await channel.unbindQueue(a.queue, wayBack, a.queue);
}
