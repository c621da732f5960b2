/** options — every option of a consumer has an effect at a real broker, and wrong ones a text. */

import { connect } from 'amqplib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { isRespoolError, ladder, postponed } from 'respool';
import {
  type AmqpConnection,
  type ConsumerOptions,
  createConnection,
  createConsumer,
  createManagement,
  perDelay,
  shared,
} from 'respool/rabbit';
import { service, withService } from '../services/index.ts';
import { freshUser } from './admin/management/setup.ts';
import { consume, Hands, nextEvent, ownName, Tray } from './ground.ts';
import { until } from './until.ts';

const URL_ANY = 'amqp://localhost';

function errorOf(make: () => unknown): { code: string; message: string } {
  try {
    make();
  } catch (error) {
    if (isRespoolError(error)) return { code: error.code, message: error.message };
  }
  throw new Error('nothing was thrown');
}

describe('createConsumer refuses', () => {
  test.each<[string, object, RegExp]>([
    ['a name it does not know', { prefech: 1 }, /no option "prefech" of createConsumer/],
    ['no url and no connection', { url: undefined }, /either "url" or "connection"/],
    ['both', { connection: {} }, /either "url" or "connection"/],
    ['a connection that is none', { url: undefined, connection: {} }, /createConnection\(\)/],
    ['another protocol', { url: [] }, /"url"/],
    ['a prefetch beyond the broker', { prefetch: 2_001 }, /"prefetch".*1 to 2000/],
    ['a concurrency of nothing', { concurrency: 0 }, /"concurrency"/],
    ['a timeout beyond the consumer timeout', { timeout: '26m' }, /timeout/],
    ['another type', { type: 'stream' }, /quorum \| classic/],
    ['another declare', { declare: 'maybe' }, /apply \| verify \| none/],
    ['a negative maxLost', { maxLost: -1 }, /"maxLost"/],
    ['a style that is none', { topology: {} }, /shared\(\), perDelay\(\) or perAttempt\(\)/],
    ['a style beside compat', { topology: shared(), compat: 'goqueue' }, /"compat"/],
    ['another compat', { compat: 'celery' }, /goqueue \| spring \| outbox/],
    ['waits that are no list', { waits: '1m' }, /"waits"/],
    ['middleware that is no list', { middleware: () => 1 }, /list of functions/],
    ['a schema that is none', { schema: {} }, /Standard Schema/],
    ['a custom policy without its function', { policy: custom() }, /"backoffs"/],
    ['unknown options of the queue', { queueOptions: { ttl: 1 } }, /"ttl" of queueOptions/],
    [
      'an option of the queue that is neither true nor false',
      { queueOptions: { durable: 'yes' } },
      /"yes" as "queueOptions.durable": allowed is true or false/,
    ],
    ['a queue without a name', { queue: '' }, /queue/],
  ])('%s', (_, options, text) => {
    const all = { url: URL_ANY, queue: 'q', ...options } as ConsumerOptions;
    const error = errorOf(() => createConsumer(all, () => undefined));
    expect(error.message).toMatch(text);
    expect(error.code).toMatch(/^(?:config|policy)\.invalid$/);
  });

  test('a handler that is no function', () => {
    const make = (): unknown => createConsumer({ url: URL_ANY, queue: 'q' }, 'x' as never);
    expect(errorOf(make).message).toContain('a handler is a function');
  });
});

function custom(): ConsumerOptions['policy'] {
  const backoff = { kind: 'custom', name: 'own', rungsMs: [1] } as const;
  return { maxAttempts: 2, maxAgeMs: null, jitter: 0, backoff };
}

test('its waits are those of its policies, and longer ones by default', () => {
  const plan = (options: object) =>
    createConsumer({ url: URL_ANY, queue: 'q', ...options }, () => undefined).plan.waitsMs;
  expect(plan({})).toEqual([5_000, 30_000, 120_000, 600_000, 3_600_000]);
  expect(plan({ policy: ladder(['2s']) })).toEqual([2_000, 60_000, 3_600_000]);
  expect(plan({ policy: ladder(['2s']), waits: ['7s'] })).toEqual([2_000, 7_000]);
  expect(plan({ policy: ladder(['2s']), policies: { a: ladder(['3s']) }, waits: [] })).toEqual([
    2_000, 3_000,
  ]);
  // What is postponed has to wait somewhere.
  expect(plan({ policy: ladder([]), waits: [] })).toEqual([60_000, 3_600_000]);
});

withService('rabbitmq', (url) => {
  async function setup(
    options: Partial<ConsumerOptions> = {},
    handler: Parameters<typeof consume>[1] = () => undefined,
    how: Parameters<typeof consume>[2] = {},
  ) {
    const queue = ownName();
    const hands = await Hands.open();
    const topology = shared({ prefix: queue });
    const base = { queue, topology, policy: ladder([50]), waits: [] };
    const consumer = await consume(
      options.compat === undefined ? { ...base, ...options } : { queue, ...options },
      handler,
      how,
    );
    return { queue, hands, consumer };
  }

  test('no more handlers run at once than its concurrency, no more is sent ahead than its prefetch', async () => {
    const running = new Tray<() => void>();
    let most = 0;
    let now = 0;
    const { queue, hands, consumer } = await setup({ prefetch: 5, concurrency: 2 }, async () => {
      now += 1;
      most = Math.max(most, now);
      await new Promise<void>((resolve) => running.add(resolve));
      now -= 1;
    });
    for (let at = 0; at < 12; at += 1) await hands.publish('', queue, {});
    await running.until(2);
    expect(consumer.load).toMatchObject({ running: 2, isConnected: true, isBlocked: false });
    expect(consumer.load.buffered).toBeLessThanOrEqual(3);
    expect(await hands.depth(queue)).toBe(7);
    for (let at = 0; at < 12; at += 1) (await running.until(at + 1))[at]?.();
    expect(most).toBe(2);
  });

  test('a handler that takes longer than its timeout failed, and its signal is aborted', async () => {
    const aborted = new Tray<string>();
    const { queue, hands, consumer } = await setup(
      { timeout: 30, policy: ladder([]) },
      async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        aborted.add((signal.reason as Error).message);
      },
    );
    await hands.publish('', queue, {});
    const dead = await hands.take(consumer.plan.dead.key);
    expect(dead.properties.headers).toMatchObject({ 'respool-code': 'timeout' });
    expect((await aborted.until(1))[0]).toContain('time limit');
  });

  test('without the right to declare it verifies, and says what is missing', async () => {
    const { consumer } = await setup({ declare: 'verify' }, undefined, { isStarted: false });
    const error: unknown = await consumer.start().catch((thrown: unknown) => thrown);
    expect(isRespoolError(error, 'topology.mismatch')).toBe(true);
    expect(String(error)).toContain(consumer.queue);
    const { consumer: twin } = await setup({ queue: consumer.queue });
    await twin.stop();
    const again = await consume(
      {
        queue: consumer.queue,
        topology: shared({ prefix: twin.queue }),
        declare: 'verify',
        policy: ladder([50]),
        waits: [],
      },
      () => undefined,
      { isStarted: false },
    );
    await expect(again.start()).rejects.toThrow(/wait|return|dlq|parked/);
  });

  test('a user who may not configure anything consumes and retries all the same', async () => {
    const { consumer: maker, queue } = await setup();
    await maker.stop();
    await using user = await freshUser({ write: '.*', read: '.*', password: 'pässword' });
    const own = new URL(url());
    own.username = user.name;
    own.password = encodeURIComponent(user.password);
    const seen = new Tray<number>();
    const topology = shared({ prefix: queue });
    const options = { queue, topology, policy: ladder([50]), waits: [], url: own.href };
    const handler = ({ attempt }: { readonly attempt: number }): void => {
      seen.add(attempt);
      if (attempt === 1) throw new Error('once more');
    };
    const refused = createConsumer(options, handler);
    await expect(refused.start()).rejects.toThrow(/permission|configure/i);
    await refused.stop();
    await using consumer = createConsumer({ ...options, declare: 'verify' }, handler);
    await consumer.start();
    const hands = await Hands.open();
    await hands.publish('', queue, {});
    expect(await seen.until(2)).toEqual([1, 2]);
  });

  test('with declare "none" it only consumes, and a missing queue is told', async () => {
    const { consumer } = await setup({ declare: 'none' }, undefined, { isStarted: false });
    await expect(consumer.start()).rejects.toThrow(new RegExp(`queue "${consumer.queue}"`));
    const { consumer: maker, queue } = await setup({});
    await maker.stop();
    const seen = new Tray<string>();
    const topology = shared({ prefix: queue });
    await consume({ queue, topology, policy: ladder([50]), waits: [], declare: 'none' }, ({ id }) =>
      seen.add(id),
    );
    const hands = await Hands.open();
    await hands.publish('', queue, {}, { messageId: 'm' });
    expect(await seen.until(1)).toEqual(['m']);
  });

  test('the broker knows the consumer by its tag, arguments and priority', async () => {
    const managementUrl = await service('rabbitmq-management');
    const management = createManagement({ url: managementUrl });
    onTestFinished(() => management.close());
    const { queue } = await setup({
      consumerTag: 'the-one',
      priority: 7,
      consumeArguments: { 'x-own': 'a' },
    });
    const info = await until(async () => {
      management.forget();
      const details: unknown = (await management.queue(queue))?.raw['consumer_details'];
      return Array.isArray(details) && details.length > 0 ? (details as object[]) : undefined;
    });
    expect(info[0]).toMatchObject({
      consumer_tag: 'the-one',
      arguments: { 'x-priority': 7, 'x-own': 'a' },
    });
  });

  test('an exclusive consumer is the only one', async () => {
    const { consumer, queue } = await setup({ exclusive: true, type: 'classic' });
    const other = createConsumer(
      {
        url: url(),
        queue,
        type: 'classic',
        topology: shared({ prefix: queue }),
        policy: ladder([50]),
        waits: [],
      },
      () => undefined,
    );
    await expect(other.start()).rejects.toThrow(/exclusive|ACCESS_REFUSED|refused/i);
    await other.stop();
    expect(consumer.isConnected).toBe(true);
  });

  test('options of the queue are declared with it', async () => {
    const { queue, hands } = await setup({
      type: 'classic',
      queueOptions: { arguments: { 'x-max-priority': 5 } },
    });
    const channel = await hands.connection.createChannel();
    channel.on('error', () => undefined);
    await expect(channel.assertQueue(queue, { durable: true })).rejects.toThrow(/inequivalent arg/);
  });

  test('several consumers share one connection, and a stop of one leaves the others', async () => {
    const connection = createConnection({ url: url() });
    onTestFinished(() => connection.close());
    const seen = new Tray<string>();
    const one = await setup({ connection, url: undefined }, ({ queue }) => seen.add(queue));
    const two = await setup({ connection, url: undefined }, ({ queue }) => seen.add(queue));
    await one.consumer.stop();
    expect(connection.isConnected).toBe(true);
    await two.hands.publish('', two.queue, {});
    await one.hands.publish('', one.queue, {});
    expect(await seen.until(1)).toEqual([two.queue]);
    // Its connection is not its own: it can begin again.
    await one.consumer.start();
    expect(await seen.until(2)).toEqual([two.queue, one.queue]);
  });

  test('a connection of amqplib can be passed in, and is not closed', async () => {
    const amqp: AmqpConnection = await connect(url());
    onTestFinished(() => amqp.close());
    const seen = new Tray<number>();
    const { consumer, hands, queue } = await setup(
      { connection: amqp, url: undefined },
      ({ attempt }) => {
        seen.add(attempt);
        if (attempt === 1) throw new Error('once more');
      },
    );
    await hands.publish('', queue, {});
    expect(await seen.until(2)).toEqual([1, 2]);
    await consumer.stop();
    const channel = await amqp.createChannel();
    await channel.close();
  });

  test('of several URLs it takes one that answers', async () => {
    const seen = new Tray<string>();
    const { hands, queue } = await setup({ url: ['amqp://127.0.0.1:1', url()] }, ({ id }) =>
      seen.add(id),
    );
    await hands.publish('', queue, {}, { messageId: 'm' });
    expect(await seen.until(1)).toEqual(['m']);
  });

  test('when none of several URLs answers, all are named', async () => {
    const urls = ['amqp://127.0.0.1:1', 'amqp://127.0.0.1:2'];
    const { consumer } = await setup({ url: urls }, () => undefined, { isStarted: false });
    await expect(consumer.start()).rejects.toThrow(/127.0.0.1:1.*127.0.0.1:2/);
  });

  test.each(['quorum', 'classic'] as const)(
    'a message of a %s queue that is given back at every stop is never parked for that',
    async (type) => {
      const connection = createConnection({ url: url() });
      onTestFinished(() => connection.close());
      const started = new Tray<number>();
      const { hands, queue, consumer } = await setup(
        { connection, url: undefined, type, maxLost: 3 },
        async ({ signal, attempt }) => {
          started.add(attempt);
          if (started.items.length > 8) return;
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
          throw signal.reason;
        },
      );
      const done = nextEvent(consumer, 'delivered');
      await hands.publish('', queue, {});
      for (let stops = 1; stops <= 8; stops += 1) {
        await started.until(stops);
        await consumer.stop({ within: 0 });
        await consumer.start();
      }
      expect((await done).attempt).toBe(1);
      expect(await hands.depth(consumer.plan.parked.key)).toBe(0);
    },
  );

  test('paused it takes nothing and gives back what waits; resumed it goes on', async () => {
    const seen = new Tray<string>();
    const { hands, queue, consumer } = await setup({}, ({ id }) => seen.add(id));
    await consumer.pause();
    await hands.publish('', queue, {}, { messageId: 'm' });
    expect(await hands.depth(queue)).toBe(1);
    await consumer.resume();
    expect(await seen.until(1)).toEqual(['m']);
  });

  test('bindings with several keys and wildcards bring each message once', async () => {
    const exchange = ownName('ex');
    const seen = new Tray<string>();
    const { hands } = await setup(
      {
        topology: perDelay({ by: 'exchange', exchange }),
        bindings: [
          { exchange, key: 'order.*' },
          { exchange, key: 'mail.#' },
        ],
      },
      ({ routingKey }) => seen.add(routingKey),
    );
    await hands.publish(exchange, 'order.created', {});
    await hands.publish(exchange, 'mail', {});
    await hands.publish(exchange, 'mail.a.b', {});
    await hands.publish(exchange, 'order.a.b', {}, { messageId: 'nobody' });
    expect([...(await seen.until(3))].toSorted()).toEqual(['mail', 'mail.a.b', 'order.created']);
    expect(hands.returned).toEqual(['nobody']);
  });

  test('a postponed message waits at no cost', async () => {
    const seen = new Tray<number>();
    const { hands, queue, consumer } = await setup({}, ({ attempt }) => {
      seen.add(attempt);
      return seen.items.length < 3 ? postponed(50, 'not yet') : undefined;
    });
    const done = nextEvent(consumer, 'delivered');
    await hands.publish('', queue, {});
    await done;
    expect(seen.items).toEqual([1, 1, 1]);
  });

  test('a vhost that is not there is named, with how to make it', async () => {
    const none = Object.assign(new URL(url()), { pathname: '/no%20such' }).href;
    const consumer = createConsumer({ url: none, queue: 'q' }, () => undefined);
    const error = await consumer.start().catch((thrown: Error) => thrown);
    expect(String(error)).toContain('the broker refuses the vhost "no such": it is not there');
    expect(String(error)).toContain('rabbitmqctl add_vhost no such');
    expect(String(error)).not.toContain('ConnectionOpenOk');
    await consumer.stop();
  });

  test('a wrong password is told without it', async () => {
    const bad = url().replace(/:[^:@/]+@/, ':wörng@');
    const consumer = createConsumer({ url: bad, queue: 'q' }, () => undefined);
    const error = await consumer.start().catch((thrown: Error) => thrown);
    expect(String(error)).toMatch(/check user, password and vhost/);
    expect(String(error)).not.toMatch(/rng/);
    await consumer.stop();
  });
});
