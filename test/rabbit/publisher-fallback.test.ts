/** The fallback of a publisher: what the broker cannot take goes to a spool, and on from there. */
import { once } from 'node:events';
import { connect } from 'amqplib';
import {
  type Clock,
  createSpool,
  fixed,
  type Message,
  type Spool,
  type SpoolOptions,
} from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  createConnection,
  createPublisher,
  type FallbackSpool,
  type Publisher,
  type PublisherOptions,
} from 'respool/rabbit';
import { withService } from '../services/index.ts';
import { brokerWorld, fallbackTimes, openRoad, setup } from './publisher-setup.ts';
import { systemClock } from '../time.ts';

/** Nobody listens there. */
const NOWHERE = 'amqp://127.0.0.1:1';

function makeSpool(options: SpoolOptions = {}): Spool {
  const spool = createSpool({ entries: memory(), bodies: memoryBodies(), ...options });
  onTestFinished(() => spool.stop({ within: 0 }));
  return spool;
}

/** The message id that was kept, whatever id the spool gave. */
function messageIdOf({
  headers,
}: {
  readonly headers?: Readonly<Record<string, string>>;
}): unknown {
  return (JSON.parse(headers?.['rabbit-properties'] ?? '{}') as { messageId?: unknown }).messageId;
}

function makePublisher(options: PublisherOptions): Publisher {
  const publisher = createPublisher(options);
  onTestFinished(() => publisher.close());
  return publisher;
}

/** A spool that only keeps what it is given. */
function shelf(): { readonly spool: FallbackSpool; readonly kept: Message[] } {
  const kept: Message[] = [];
  const enqueue: FallbackSpool['enqueue'] = async (message) => {
    kept.push(message);
    return { id: `kept-${kept.length}` };
  };
  return { kept, spool: { enqueue, handle: () => () => undefined } };
}

describe('without a broker', () => {
  test('a message is kept with everything that publishing needs, under an id of the spool', async () => {
    const { spool, kept } = shelf();
    const publisher = makePublisher({ url: NOWHERE, fallback: spool, fallbackAfter: 0 });
    const published = await publisher.publish({
      exchange: 'shop.orders',
      key: 'order.created',
      body: { n: 1 },
      headers: { at: Buffer.from([0, 255]), odd: '\u0085' },
    });
    expect(published).toEqual({ id: expect.any(String), via: 'spool' });
    expect(kept).toEqual([
      {
        topic: 'rabbit.shop-orders',
        body: Buffer.from('{"n":1}'),
        headers: {
          'rabbit-exchange': 'shop.orders',
          'rabbit-key': 'order.created',
          'rabbit-properties': expect.stringContaining(`"messageId":"${published.id}"`),
        },
      },
    ]);
    expect(publisher.load.fellBack).toBe(1);
  });

  test('the first waits for fallbackAfter, the next go at once', async () => {
    const { spool, kept } = shelf();
    const calls: (() => void)[] = [];
    const after: Clock['after'] = (ms, call) => {
      if (ms !== 3_600_000) return systemClock.after(ms, call);
      calls.push(call);
      return () => undefined;
    };
    const publisher = makePublisher({
      url: NOWHERE,
      fallback: spool,
      fallbackAfter: '1h',
      clock: { ...systemClock, after },
    });
    const first = publisher.publish({ key: 'a' });
    await expect.poll(() => calls.length).toBe(1);
    expect(kept).toEqual([]);
    // An hour is over. No other one will be.
    calls.pop()?.();
    await first;
    await Promise.all(Array.from({ length: 100 }, () => publisher.publish({ key: 'a' })));
    expect(kept).toHaveLength(101);
  });

  test('what is above the bounds of memory goes to the spool at once', async () => {
    const { spool, kept } = shelf();
    const publisher = makePublisher({
      url: NOWHERE,
      fallback: spool,
      fallbackAfter: '1h',
      waitingMax: 3,
      confirmTimeout: 500,
    });
    const publishing = Array.from({ length: 5 }, (_, at) =>
      publisher.publish({ key: 'a', id: `m-${at}` }),
    );
    await Promise.all(publishing.slice(3));
    expect(kept.map(messageIdOf)).toEqual(['m-3', 'm-4']);
    expect(new Set((await Promise.all(publishing)).map(({ via }) => via))).toEqual(
      new Set(['spool']),
    );
  });

  test('an id that no spool could use is no trouble, and a time limit goes along', async () => {
    const { spool, kept } = shelf();
    const publisher = makePublisher({
      url: NOWHERE,
      fallback: spool,
      fallbackAfter: 0,
      fallbackTopic: 'later',
    });
    await publisher.publish({ key: 'a', id: 'Order 7', expiration: '1m' });
    expect(kept).toMatchObject([{ topic: 'later.default', expires: 60_000 }]);
    expect(kept.map(messageIdOf)).toEqual(['Order 7']);
  });

  // Regression: a later message was taken for a duplicate of an earlier one, and was lost.
  test('one id is as many messages as are published with it', async () => {
    const spool = makeSpool();
    const publisher = makePublisher({ url: NOWHERE, fallback: spool, fallbackAfter: 0 });
    for (const key of ['a', 'b', 'a', 'b']) await publisher.publish({ id: 'order-7', key });
    const keys: string[] = [];
    for await (const { envelope } of spool.list()) {
      expect(messageIdOf(envelope)).toBe('order-7');
      keys.push(envelope.headers['rabbit-key'] ?? '');
    }
    expect(keys.toSorted()).toEqual(['a', 'a', 'b', 'b']);
  });

  test('when the spool fails too, the error says both', async () => {
    const { spool } = shelf();
    const full = { ...spool, enqueue: () => Promise.reject(new Error('the disk is full')) };
    const publisher = makePublisher({ url: NOWHERE, fallback: full, fallbackAfter: 0 });
    const error = await publisher.publish({ key: 'a' }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      code: expect.stringMatching(/^broker\./),
      message: expect.stringMatching(
        /no connection to the broker.*fallback could not keep.*disk is full/,
      ),
    });
  });

  test('when the spool is stopping, the error says both', async () => {
    const spool = makeSpool();
    const publisher = makePublisher({ url: NOWHERE, fallback: spool, fallbackAfter: 0 });
    const busy = Promise.withResolvers<void>();
    const rest = Promise.withResolvers<void>();
    spool.handle('slow', () => {
      busy.resolve();
      return rest.promise;
    });
    await spool.start();
    await spool.enqueue({ topic: 'slow', body: '' });
    await busy.promise;
    const stopped = spool.stop();
    await expect(publisher.publish({ key: 'a' })).rejects.toMatchObject({
      code: expect.stringMatching(/^broker\./),
      message: expect.stringMatching(
        /no connection to the broker.*fallback could not keep.*the spool is stopping/,
      ),
    });
    expect(publisher.load.fellBack).toBe(0);
    rest.resolve();
    await stopped;
  });

  test('when the spool takes no such size, the error says both', async () => {
    const spool = makeSpool({ limits: { bodyBytes: 10 } });
    const publisher = makePublisher({ url: NOWHERE, fallback: spool, fallbackAfter: 0 });
    await expect(publisher.publish({ key: 'a', body: 'x'.repeat(100) })).rejects.toMatchObject({
      code: expect.stringMatching(/^broker\./),
      message: expect.stringMatching(/no connection to the broker.*fallback could not keep.*10/),
      cause: { errors: [{ code: expect.any(String) }, { code: 'limit.exceeded' }] },
    });
  });

  // Regression: a second connection object to the same broker was refused for ever.
  test('a spool goes over to another broker when no publisher of the first is left', async () => {
    const { spool } = shelf();
    const first = createConnection({ url: NOWHERE });
    await createPublisher({ connection: first, fallback: spool }).close();
    await first.close();
    const second = createConnection({ url: NOWHERE });
    onTestFinished(() => second.close());
    const publisher = makePublisher({ connection: second, fallback: spool, fallbackAfter: 0 });
    await expect(publisher.publish({ key: 'a' })).resolves.toMatchObject({ via: 'spool' });
  });

  test('two brokers may not share the topics of one spool, publishers of one may', () => {
    const { spool } = shelf();
    const options = { url: NOWHERE, fallback: spool };
    makePublisher(options);
    makePublisher(options);
    makePublisher({ ...options, url: 'amqp://other', fallbackTopic: 'other' });
    expect(() => createPublisher({ ...options, url: 'amqp://other' })).toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringContaining('fallbackTopic'),
      }),
    );
  });
});

withService('rabbitmq', (url) => {
  /** Publishers over a road that can be cut, with a started spool. */
  const world = async (
    options: Partial<PublisherOptions> = {},
    spoolOptions: SpoolOptions = {},
  ) => {
    const broker = await brokerWorld(url());
    onTestFinished(broker.dispose);
    const road = await openRoad(url());
    onTestFinished(road.cut);
    const times = fallbackTimes();
    const cut = (): Promise<void> => {
      times.begin();
      return road.cut();
    };
    const spool = makeSpool(spoolOptions);
    const open = (): Publisher =>
      makePublisher({
        url: road.url,
        exchange: broker.exchange,
        fallback: spool,
        ...times.options,
        ...options,
      });
    const publisher = open();
    await spool.start();
    return { ...broker, road: { ...road, cut }, spool, publisher, open };
  };

  describe('with a broker that comes back', () => {
    test('messages are forwarded, with the same ids and properties, and nothing is left', async () => {
      const { publisher, road, arrived, messages: arrivals, spool } = await world();
      await publisher.publish({ key: 'q.before', id: 'before' });
      await arrived(1);
      await road.cut();
      const headers = { n: 1, bytes: Buffer.from([0, 255]), deep: { list: ['\u0085', true] } };
      const message = { key: 'q.during', body: 'text', contentType: 'text/plain', headers };
      const results = await publisher.publishMany(
        Array.from({ length: 30 }, (_, at) => ({ ...message, id: `m-${at}`, correlationId: 'c' })),
      );
      expect(new Set(results.map(({ via }) => via))).toEqual(new Set(['spool']));
      await road.recover();
      const messages = (await arrived(31)).slice(1);
      expect(new Set(messages.map(({ properties }) => properties.messageId as unknown))).toEqual(
        new Set<unknown>(results.map(({ id }) => id)),
      );
      for (const { content, fields, properties } of messages) {
        expect(String(content)).toBe('text');
        expect(fields.routingKey).toBe('q.during');
        expect(properties).toMatchObject({
          contentType: 'text/plain',
          correlationId: 'c',
          deliveryMode: 2,
          headers,
        });
      }
      // A message can be there before its confirm; whose confirm is late is forwarded once more.
      const left = { incoming: 0, deferred: 0, active: 0, hold: 0 };
      await expect.poll(() => spool.count()).toMatchObject(left);
      await spool.stop();
      expect(new Set(arrivals.map(({ properties }) => properties.messageId as unknown)).size).toBe(
        31,
      );
      await expect(publisher.publish({ key: 'q.after' })).resolves.toMatchObject({ via: 'broker' });
    });

    test('what waits for a publisher is forwarded by the next one', async () => {
      const { publisher, road, arrived, open, spool } = await world();
      await road.cut();
      await publisher.publish({ key: 'q.a', id: 'kept' });
      await publisher.close();
      await road.recover();
      const postponed = new Promise<string>((resolve) => {
        spool.on('deferred', ({ because }) => {
          if (because.text === 'no publisher is open') resolve(because.text);
        });
      });
      await postponed;
      open();
      const [message] = await arrived(1);
      expect(message?.properties.messageId).toBe('kept');
    });

    test('what it waited counts against its time limit', async () => {
      const { publisher, road, arrived } = await world();
      await road.cut();
      await publisher.publish({ key: 'q.a', expiration: '1h' });
      await road.recover();
      const [message] = await arrived(1);
      const rest = Number(message?.properties.expiration);
      expect(rest).toBeLessThan(3_600_000);
      expect(rest).toBeGreaterThan(3_500_000);
    });

    test('what no queue takes when it is forwarded goes by fallbackPolicy', async () => {
      const { publisher, road, spool } = await world({
        fallbackPolicy: fixed('10ms', { attempts: 2 }),
      });
      await road.cut();
      const bounced = new Promise<string>((resolve) => {
        spool.on('bounced', ({ id }) => resolve(id));
      });
      await publisher.publish({ key: 'nobody', id: 'stray' });
      await road.recover();
      const entry = await spool.get(await bounced);
      expect(messageIdOf(entry?.envelope ?? {})).toBe('stray');
      expect(entry?.status).toMatchObject({
        attempts: 2,
        lastFailure: { code: 'broker.unroutable' },
      });
    });

    test('what nobody published is not forwarded', async () => {
      const { spool } = await world();
      const failed = new Promise<string>((resolve) => {
        spool.on('deferred', ({ because }) => resolve(because.text));
      });
      await spool.enqueue({ topic: 'rabbit.stray', body: 'x' });
      expect(await failed).toContain('was not put here by a publisher');
    });
  });

  test('what no queue takes is an error of the caller, and not for the spool', async () => {
    const { spool, kept } = shelf();
    const { publisher } = await setup(url(), { fallback: spool });
    await expect(publisher.publish({ key: 'nobody' })).rejects.toMatchObject({
      code: 'broker.unroutable',
    });
    expect(kept).toEqual([]);
  });

  test('a connection that the broker blocks is waited for as long as fallbackAfter', async () => {
    const { exchange, arrived, dispose } = await brokerWorld(url());
    onTestFinished(dispose);
    const { spool, kept } = shelf();
    const connection = await connect(url());
    const { options, begin } = fallbackTimes();
    const publisher = makePublisher({ connection, exchange, fallback: spool, ...options });
    await publisher.publish({ key: 'q.a', id: 'before' });
    begin();
    connection.emit('blocked', 'low on memory');
    expect(publisher.load.isBlocked).toBe(true);
    const results = await publisher.publishMany([
      { key: 'q.a', id: 'during-1' },
      { key: 'q.a', id: 'during-2' },
    ]);
    expect(results.map(({ via }) => via)).toEqual(['spool', 'spool']);
    await publisher.publish({ key: 'q.a', id: 'during-3' });
    expect(kept.map(messageIdOf)).toEqual(['during-1', 'during-2', 'during-3']);
    connection.emit('unblocked');
    await expect(publisher.publish({ key: 'q.a', id: 'after' })).resolves.toMatchObject({
      via: 'broker',
    });
    const ids = (await arrived(2)).map(({ properties }) => properties.messageId as unknown);
    expect(ids).toEqual(['before', 'after']);
    await publisher.close();
    const closed = once(connection, 'close');
    await connection.close();
    await closed;
  });
});
