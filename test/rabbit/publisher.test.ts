/** The publisher on a real broker: confirms, returns, properties, order, limits (R97, R138, R143–R146). */
import { connect } from 'amqplib';
import { describe, expect, test } from 'vitest';
import {
  type AmqpConnection,
  createConnection,
  createPublisher,
  type PublisherOptions,
  type PublishMiddleware,
} from 'respool/rabbit';
import { withService } from '../services/index.ts';
import { openRoad, setup } from './publisher-setup.ts';

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

withService('rabbitmq', (url) => {
  describe('publish', () => {
    test('resolves when the message is in a queue, with an id, a time and a content type', async () => {
      const { publisher, arrived } = await setup(url());
      const before = Math.floor(Date.now() / 1_000);
      const { id, via } = await publisher.publish({ key: 'q.a', body: { hello: 'wörld' } });
      const [message] = await arrived(1);
      expect(via).toBe('broker');
      expect(id).toMatch(UUID_V7);
      expect(message?.fields.routingKey).toBe('q.a');
      expect(JSON.parse(String(message?.content))).toEqual({ hello: 'wörld' });
      expect(message?.properties).toMatchObject({
        messageId: id,
        contentType: 'application/json',
        deliveryMode: 2,
      });
      expect(message?.properties.timestamp).toBeGreaterThanOrEqual(before);
    });

    test('writes every property that the message names', async () => {
      const { publisher, arrived } = await setup(url());
      await publisher.publish({
        key: 'q.a',
        body: 'text',
        contentType: 'text/plain',
        contentEncoding: 'utf-8',
        headers: { n: 1, deep: { list: [true] } },
        id: 'MY id 1',
        type: 'order.created',
        correlationId: 'c1',
        replyTo: 'answers',
        expiration: '1h',
        priority: 7,
        timestamp: new Date(1_700_000_000_999),
      });
      const [message] = await arrived(1);
      expect(String(message?.content)).toBe('text');
      expect(message?.properties).toMatchObject({
        contentType: 'text/plain',
        contentEncoding: 'utf-8',
        headers: { n: 1, deep: { list: [true] } },
        messageId: 'MY id 1',
        type: 'order.created',
        correlationId: 'c1',
        replyTo: 'answers',
        expiration: '3600000',
        priority: 7,
        timestamp: 1_700_000_000,
      });
    });

    test('adds what the publisher says of all its messages', async () => {
      const { publisher, arrived } = await setup(url(), {
        id: 'shop-1',
        appId: 'shop',
        headers: { region: 'eu', tier: 1 },
        contentType: 'text/plain',
        persistent: false,
        priority: 3,
      });
      await publisher.publish({ key: 'q.a', body: 'x', headers: { tier: 2 } });
      const [message] = await arrived(1);
      expect(message?.properties).toMatchObject({
        appId: 'shop',
        headers: { region: 'eu', tier: 2, 'publisher-id': 'shop-1' },
        contentType: 'text/plain',
        deliveryMode: 1,
        priority: 3,
      });
    });

    test('sends bytes as they are, and says so', async () => {
      const { publisher, arrived } = await setup(url());
      await publisher.publish({ key: 'q.a', body: Uint8Array.of(0, 255) });
      const [message] = await arrived(1);
      expect([...(message?.content ?? [])]).toEqual([0, 255]);
      expect(message?.properties.contentType).toBe('application/octet-stream');
    });

    test('uses an encoder that was registered', async () => {
      const { publisher, arrived } = await setup(url(), {
        encoders: [
          {
            contentType: 'text/csv',
            encode: (rows) => Buffer.from((rows as string[]).join(',')),
            decode: (bytes) => bytes,
          },
        ],
      });
      await publisher.publish({ key: 'q.a', body: ['a', 'b'], contentType: 'text/csv' });
      expect(String((await arrived(1))[0]?.content)).toBe('a,b');
    });

    test('goes to the queue of that name at the exchange ""', async () => {
      const { publisher, arrived, queue } = await setup(url());
      await publisher.publish({ exchange: '', key: queue, body: 1 });
      expect((await arrived(1))[0]?.fields.exchange).toBe('');
    });

    test('is refused with broker.unroutable when no queue takes it', async () => {
      const { publisher, exchange, arrived } = await setup(url());
      const lost = publisher.publish({ key: 'nobody', body: 1 });
      const kept = publisher.publish({ key: 'q.a', body: 2 });
      await expect(lost).rejects.toMatchObject({
        code: 'broker.unroutable',
        message: expect.stringContaining(`exchange "${exchange}" with key "nobody"`),
      });
      await expect(kept).resolves.toMatchObject({ via: 'broker' });
      expect(await arrived(1)).toHaveLength(1);
    });

    test('is refused with broker.unroutable when there is no such exchange, and goes on', async () => {
      const { publisher, arrived } = await setup(url());
      await expect(publisher.publish({ exchange: 'none-such', key: 'a' })).rejects.toMatchObject({
        code: 'broker.unroutable',
      });
      await publisher.publish({ key: 'q.a' });
      expect(await arrived(1)).toHaveLength(1);
    });

    test('is refused before it is sent when its body is above maxBytes', async () => {
      const { publisher, arrived, messages } = await setup(url(), { maxBytes: 10 });
      await expect(publisher.publish({ key: 'q.a', body: '123456789' })).rejects.toMatchObject({
        code: 'limit.exceeded',
        message: expect.stringContaining('11 bytes, allowed are 10'),
      });
      await publisher.publish({ key: 'q.a', body: 'short' });
      await arrived(1);
      expect(messages).toHaveLength(1);
    });

    test.each([
      [{ body: 1 }, /as key/],
      [{ key: 'x'.repeat(256) }, /up to 255 bytes/],
      [{ key: 'a\nb' }, /no control characters/],
      [{ key: 'a', id: 'ü'.repeat(200) }, /as id/],
      [{ key: 'a', priority: 256 }, /as priority/],
      [{ key: 'a', timestamp: -1 }, /as timestamp/],
      [{ key: 'a', headers: 'x' }, /as headers/],
      [{ key: 'a', topic: 'x' }, /no field "topic"/],
      ['text', /an object with a key/],
    ])('refuses %j', async (message, text) => {
      const { publisher } = await setup(url());
      const publishing = publisher.publish(message as never);
      await expect(publishing).rejects.toMatchObject({
        code: 'message.invalid',
        message: expect.stringMatching(text),
      });
    });
  });

  describe('many messages', () => {
    test('a thousand in a window arrive in the order they were published', async () => {
      const { publisher, arrived } = await setup(url(), { window: 1_000 });
      const keys = Array.from({ length: 1_000 }, (_, at) => `q.${at}`);
      await publisher.publish({ key: 'q.first' });
      const publishing = keys.map((key) => publisher.publish({ key, body: key }));
      // The way is open: they are on it at once, before any confirm can come.
      const { inFlight } = publisher.load;
      const results = await Promise.all(publishing);
      expect(new Set(results.map(({ via }) => via))).toEqual(new Set(['broker']));
      const messages = (await arrived(1_001)).slice(1);
      expect(messages.map(({ fields }) => fields.routingKey)).toEqual(keys);
      expect(inFlight).toBe(1_000);
    });

    test('no more are on their way than the window allows', async () => {
      const { publisher } = await setup(url(), { window: 5 });
      let inFlight = 0;
      const publishing = Array.from({ length: 100 }, async (_, at) => {
        await publisher.publish({ key: `q.${at}` });
        inFlight = Math.max(inFlight, publisher.load.inFlight);
      });
      await Promise.all(publishing);
      expect(inFlight).toBeGreaterThan(0);
      expect(inFlight).toBeLessThanOrEqual(5);
    });

    test('publishMany gives one result each, in order, also for those that failed', async () => {
      const { publisher, arrived } = await setup(url(), { window: 10 });
      const messages = Array.from({ length: 50 }, (_, at) => ({
        key: at === 20 ? 'nobody' : `q.${at}`,
        id: `m-${at}`,
        ...(at === 30 ? { body: 1n } : {}),
      }));
      const results = await publisher.publishMany(messages);
      expect(results.map(({ id }) => id)).toEqual(messages.map(({ id }) => id));
      expect(results[20]).toMatchObject({ via: 'nothing', error: { code: 'broker.unroutable' } });
      expect(results[30]).toMatchObject({ via: 'nothing', error: { code: 'message.invalid' } });
      expect(results.filter(({ via }) => via === 'broker')).toHaveLength(48);
      expect(await arrived(48)).toHaveLength(48);
    });

    test('publishMany refuses what is no list', async () => {
      const { publisher } = await setup(url());
      await expect(publisher.publishMany({ key: 'a' } as never)).rejects.toThrow(/takes a list/);
    });
  });

  describe('middleware', () => {
    test('wraps in listed order, may change the message, and sees what came of it', async () => {
      const order: string[] = [];
      const tracing =
        (name: string): PublishMiddleware =>
        async (publication, next) => {
          order.push(`${name} in ${String(publication.headers['by'])}`);
          const published = await next({ ...publication, headers: { by: name } });
          order.push(`${name} out ${published.via}`);
          return published;
        };
      const { publisher, arrived } = await setup(url(), {
        middleware: [tracing('first'), tracing('second'), (_, next) => next()],
      });
      await publisher.publish({ key: 'q.a', body: 1 });
      expect(order).toEqual([
        'first in undefined',
        'second in first',
        'second out broker',
        'first out broker',
      ]);
      expect((await arrived(1))[0]?.properties.headers).toEqual({ by: 'second' });
    });

    test('sees a failure as a rejection, and may answer without publishing', async () => {
      const seen: unknown[] = [];
      const { publisher } = await setup(url(), {
        middleware: [
          async (publication, next) => {
            if (publication.key === 'skip') return { id: publication.id, via: 'broker' };
            return next().catch((error: unknown) => {
              seen.push((error as { code: string }).code);
              throw error;
            });
          },
        ],
      });
      await expect(publisher.publish({ key: 'nobody' })).rejects.toMatchObject({
        code: 'broker.unroutable',
      });
      await expect(publisher.publish({ key: 'skip', id: 's' })).resolves.toMatchObject({ id: 's' });
      await expect(publisher.publish({ key: 'q.a', body: 1n })).rejects.toThrow(/BigInt/);
      expect(seen).toEqual(['broker.unroutable', 'message.invalid']);
    });

    // Regression: publish threw instead of rejecting, and close waited for ever.
    test.each<[string, unknown]>([
      ['returns nothing', undefined],
      ['resolves to nothing', Promise.resolve()],
    ])('that %s is told to return what next gives, and a close ends', async (_, answer) => {
      const { publisher } = await setup(url(), { middleware: [() => answer as never] });
      await expect(publisher.publish({ key: 'q.a' })).rejects.toMatchObject({
        code: 'config.invalid',
        message: expect.stringContaining('return what next() gives'),
      });
      await publisher.close();
    });
  });

  describe('the envelope of GoQueue', () => {
    test('carries id, action, topic, data and time, and its headers', async () => {
      const { publisher, arrived, exchange } = await setup(url(), {
        envelope: 'goqueue',
        appId: 'shop',
        headers: { own: 'yes' },
      });
      const { id } = await publisher.publish({
        key: 'q.a',
        body: { n: 1 },
        timestamp: 1_700_000_000_000,
      });
      const [message] = await arrived(1);
      expect(JSON.parse(String(message?.content))).toEqual({
        id,
        action: 'q.a',
        topic: exchange,
        data: { n: 1 },
        timestamp: '2023-11-14T22:13:20.000Z',
      });
      expect(message?.properties).toMatchObject({
        messageId: id,
        appId: 'shop',
        deliveryMode: 2,
        headers: { 'goqueue-message-id': id, 'goqueue-schema-version': '1.0.0', own: 'yes' },
      });
    });

    test('refuses bytes, which it cannot hold', async () => {
      const { publisher } = await setup(url(), { envelope: 'goqueue' });
      await expect(publisher.publish({ key: 'q.a', body: Uint8Array.of(1) })).rejects.toMatchObject(
        {
          code: 'message.invalid',
        },
      );
    });
  });

  describe('connection and life', () => {
    test('declares its exchange, and says when another type is there', async () => {
      const { exchange, connection } = await setup(url());
      const own = `${exchange}.declared`;
      const options = { url: url(), exchange: own, declare: true } as const;
      const channel = await connection.createChannel();
      await using direct = createPublisher({ ...options, exchangeType: 'direct' });
      await expect(direct.publish({ key: 'a' })).rejects.toMatchObject({
        code: 'broker.unroutable',
        message: expect.stringContaining('no queue takes it'),
      });
      await using topic = createPublisher(options);
      await expect(topic.publish({ key: 'a' })).rejects.toMatchObject({
        code: 'topology.mismatch',
        message: expect.stringContaining(own),
      });
      await channel.deleteExchange(own);
      await expect(topic.publish({ key: 'a' })).rejects.toMatchObject({
        code: 'broker.unroutable',
      });
      await channel.deleteExchange(own);
    });

    // Regression: it was declared once, however often the broker came back.
    test('declares its exchange again for every connection', async () => {
      const { exchange, queue, connection } = await setup(url());
      const own = `${exchange}.declared`;
      const channel = await connection.createChannel();
      const road = await openRoad(url());
      await using ours = createConnection({ url: road.url });
      await using publisher = createPublisher({ connection: ours, exchange: own, declare: true });
      const lost = Promise.withResolvers<void>();
      ours.publishing.on(({ kind }) => kind === 'down' && lost.resolve());
      await expect(publisher.publish({ key: 'a' })).rejects.toThrow(/no queue takes it/);
      await channel.deleteExchange(own);
      await road.cut();
      await lost.promise;
      await road.recover();
      await expect(publisher.publish({ key: 'a' })).rejects.toThrow(/no queue takes it/);
      await channel.bindQueue(queue, own, 'a');
      await expect(publisher.publish({ key: 'a' })).resolves.toMatchObject({ via: 'broker' });
      await channel.deleteExchange(own);
      await publisher.close();
      await ours.close();
      await road.cut();
    });

    test('uses a connection of createConnection or of amqplib, and leaves it open', async () => {
      await using ours = createConnection({ url: url() });
      const theirs = (await connect(url())) as AmqpConnection;
      for (const connection of [ours, theirs]) {
        const { publisher, arrived } = await setup(url(), { connection });
        await publisher.publish({ key: 'q.a' });
        await arrived(1);
        await publisher.close();
      }
      expect(ours.publishing.isUp).toBe(true);
      await (await theirs.createChannel()).close();
      await theirs.close();
    });

    test('close waits for what is on its way, and then refuses', async () => {
      const { publisher, arrived } = await setup(url());
      const publishing = Promise.all(
        Array.from({ length: 20 }, (_, at) => publisher.publish({ key: `q.${at}` })),
      );
      await publisher.close();
      await publisher.close();
      expect(await publishing).toHaveLength(20);
      expect(await arrived(20)).toHaveLength(20);
      await expect(publisher.publish({ key: 'q.a' })).rejects.toMatchObject({
        code: 'engine.stopping',
      });
      expect(publisher.load).toMatchObject({ isConnected: false, inFlight: 0, waiting: 0 });
    });
  });
});

describe('createPublisher', () => {
  test.each([
    [{}, /either "url" or "connection"/],
    [{ url: 'amqp://x', connection: {} }, /either "url" or "connection"/],
    [{ url: 'amqp://x', exchangeType: 'x-topic' }, /"exchangeType"/],
    [{ url: 'amqp://x', declare: true }, /name an "exchange"/],
    [{ url: 'amqp://x', window: 0 }, /"window"/],
    [{ url: 'amqp://x', waitingMax: 0 }, /"waitingMax"/],
    [{ url: 'amqp://x', waitingMaxBytes: 0 }, /"waitingMaxBytes"/],
    [{ url: 'amqp://x', maxBytes: 0 }, /"maxBytes"/],
    [{ url: 'amqp://x', priority: 256 }, /"priority"/],
    [{ url: 'amqp://x', confirmTimeout: 'soon' }, /confirmTimeout/],
    [{ url: 'amqp://x', middleware: [1] }, /"middleware"/],
    [{ url: 'amqp://x', envelope: 'x' }, /"envelope"/],
    [{ url: 'amqp://x', fallback: {} }, /"fallback"/],
    [{ url: 'amqp://x', fallbackTopic: 'a.b' }, /"fallbackTopic"/],
    [{ url: 'amqp://x', headers: 'x' }, /"headers"/],
    [{ url: 'amqp://x', encoders: [1] }, /"encoders"/],
    [{ url: 'amqp://x', queue: 'q' }, /there is no option "queue"/],
  ])('refuses %j', (options, text) => {
    expect(() => createPublisher(options as PublisherOptions)).toThrow(
      expect.objectContaining({ code: 'config.invalid', message: expect.stringMatching(text) }),
    );
  });

  test('tells at the first message that the URL is none of AMQP', async () => {
    await using publisher = createPublisher({ url: 'http://u:secret@127.0.0.1' });
    const error = await publisher.publish({ key: 'a' }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'config.invalid' });
    expect(String(error)).not.toContain('secret');
  });

  test('waits for a broker that is away as long as confirmTimeout, in bounded memory', async () => {
    await using publisher = createPublisher({
      url: 'amqp://127.0.0.1:1',
      confirmTimeout: 200,
      waitingMax: 3,
    });
    const publishing = Array.from({ length: 5 }, () => publisher.publish({ key: 'a', body: 'x' }));
    const codes = await Promise.all(publishing.map((one) => one.catch((e: unknown) => codeOf(e))));
    expect(codes.filter((code) => code === 'limit.exceeded')).toHaveLength(2);
    expect(codes.filter((code) => code === 'broker.unavailable')).toHaveLength(3);
  });

  test('counts bytes as well as messages', async () => {
    await using publisher = createPublisher({
      url: 'amqp://127.0.0.1:1',
      confirmTimeout: 200,
      waitingMaxBytes: 100,
    });
    const body = Buffer.alloc(60);
    const publishing = Array.from({ length: 3 }, () => publisher.publish({ key: 'a', body }));
    const codes = await Promise.all(publishing.map((one) => one.catch((e: unknown) => codeOf(e))));
    expect(codes.filter((code) => code === 'limit.exceeded')).toHaveLength(2);
    expect(codes).toContain('broker.unavailable');
  });
});

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown }).code;
}
