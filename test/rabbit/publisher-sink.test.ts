/** An exchange of a real broker as a sink, by the suite (R149). */
import { connect } from 'amqplib';
import { createConnection, rabbitSink } from 'respool/rabbit';
import { createSpool, forward } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { sinkSuite, type SinkUnderTest } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { withService } from '../services/index.ts';
import { runSuite } from '../suite.ts';
import { brokerWorld, confirmTimes, openRoad } from './publisher-setup.ts';

withService('rabbitmq', (url) => {
  const make = async (): Promise<SinkUnderTest> => {
    const world = await brokerWorld(url());
    const road = await openRoad(url());
    const times = confirmTimes();
    const sink = rabbitSink({
      url: road.url,
      exchange: world.exchange,
      key: ({ topic }) => `q.${topic}`,
      ...times.options,
    });
    return {
      sink,
      arrived: async (count) =>
        (await world.arrived(count)).map(({ content, fields, properties }) => ({
          id: String(properties.messageId),
          topic: fields.routingKey.slice('q.'.length),
          headers: properties.headers as Record<string, string>,
          body: content,
        })),
      breakDown: async () => {
        await road.cut();
        times.setAway(true);
      },
      recover: async () => {
        times.setAway(false);
        await road.recover();
      },
      // Longer than a routing key may be.
      refusable: (parcel) => ({ ...parcel, topic: 'x'.repeat(300) }),
      dispose: async () => {
        await sink.close();
        await road.cut();
        await world.dispose();
      },
    };
  };
  runSuite(
    'an exchange as a sink',
    sinkSuite(make, { canBreak: true, canRefuse: true, keepsOrder: true }),
  );

  describe('rabbitSink', () => {
    // Regression: the broker ended the channel, and with it everything that was on its way.
    test('gives up a parcel with a CC that is no list, and sends the others', async () => {
      const { exchange, arrived, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      const sink = rabbitSink({ url: url(), exchange, key: 'q.a' });
      onTestFinished(() => sink.close());
      const parcel = { id: 'a1', topic: 'mail', body: Buffer.from('{}'), enqueuedAt: 5_000 };
      const answers = await sink.send([
        { ...parcel, headers: {} },
        { ...parcel, headers: { CC: 'text' } },
        { ...parcel, headers: {} },
      ]);
      expect(answers).toEqual([
        'confirmed',
        expect.objectContaining({ permanence: 'permanent', code: 'message.invalid' }),
        'confirmed',
      ]);
      expect(await arrived(2)).toHaveLength(2);
    });

    test('writes what a parcel says, and a content type that its headers name', async () => {
      const { exchange, arrived, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      const sink = rabbitSink({ url: url(), exchange, key: 'q.fixed' });
      onTestFinished(() => sink.close());
      const parcel = { id: 'a1', topic: 'mail', body: Buffer.from('{}'), enqueuedAt: 5_000 };
      const headers = { 'content-type': 'application/json', x: '1' };
      await sink.send([
        { ...parcel, headers },
        { ...parcel, headers: {} },
      ]);
      const [typed, plain] = await arrived(2);
      expect(typed?.fields.routingKey).toBe('q.fixed');
      expect(typed?.properties).toMatchObject({
        messageId: 'a1',
        timestamp: 5,
        deliveryMode: 2,
        contentType: 'application/json',
        headers,
      });
      expect(plain?.properties.contentType).toBe('application/octet-stream');
    });

    test('answers what no queue takes by a transient, what is too large by a permanent failure', async () => {
      const { exchange, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      await using connection = createConnection({ url: url() });
      const sink = rabbitSink({ connection, exchange, maxBytes: 2 });
      const parcel = { id: 'a1', topic: 'nobody', headers: {}, enqueuedAt: 0 };
      const answers = await sink.send([
        { ...parcel, body: Buffer.from('ab') },
        { ...parcel, body: Buffer.from('abc') },
      ]);
      expect(answers).toMatchObject([
        { permanence: 'transient', code: 'broker.unroutable' },
        { permanence: 'permanent', code: 'limit.exceeded' },
      ]);
      await sink.close();
      expect(connection.publishing.isUp).toBe(true);
    });

    test('answers at once while the broker is away for longer than awayAfter, and calls when it is back', async () => {
      const { exchange, arrived, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      const road = await openRoad(url());
      const sink = rabbitSink({ url: road.url, exchange, key: 'q.a', awayAfter: 50 });
      onTestFinished(async () => {
        await sink.close();
        await road.cut();
      });
      const parcel = { topic: 'mail', headers: {}, body: Buffer.from('{}'), enqueuedAt: 5_000 };
      await road.cut();
      // Its confirm may take 30 s: without awayAfter it would wait for so long.
      const [first] = await sink.send([{ ...parcel, id: 'a1' }]);
      expect(first).toMatchObject({ permanence: 'transient' });
      const [second] = await sink.send([{ ...parcel, id: 'a2' }]);
      expect(second).toMatchObject({ permanence: 'transient', code: 'broker.unavailable' });
      let undo = (): void => undefined;
      const back = new Promise<void>((resolve) => {
        undo = sink.onBack(resolve);
      });
      await road.recover();
      await back;
      undo();
      expect(await sink.send([{ ...parcel, id: 'a3' }])).toEqual(['confirmed']);
      expect(await arrived(1)).toHaveLength(1);
    });

    test('says why there is no connection, and reaches out before the first parcel', async () => {
      const { exchange, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      const wrong = new URL(url());
      wrong.password = 'not-the-one';
      const sink = rabbitSink({ url: wrong.href, exchange, awayAfter: 1 });
      onTestFinished(() => sink.close({ waits: false }));
      await expect(sink.reach()).rejects.toMatchObject({
        code: 'broker.unavailable',
        message: expect.stringMatching(/ACCESS.REFUSED.*check user, password and vhost$/),
      });
      const parcel = { topic: 'q.a', headers: {}, body: Buffer.from('{}'), enqueuedAt: 5_000 };
      await sink.send([{ ...parcel, id: 'a1' }]);
      const [second] = await sink.send([{ ...parcel, id: 'a2' }]);
      expect(second).toMatchObject({
        code: 'broker.unavailable',
        reason: expect.stringMatching(
          /no connection to the broker \(.*ACCESS.REFUSED.*check user, password and vhost\)$/,
        ),
      });
      expect(JSON.stringify(second)).not.toContain('not-the-one');
      const missing = rabbitSink({ url: url(), exchange: `${exchange}.nowhere` });
      onTestFinished(() => missing.close());
      await expect(missing.reach()).rejects.toThrow(/there is no exchange .*nowhere"; declare it/);
      const right = rabbitSink({ url: url(), exchange });
      onTestFinished(() => right.close());
      await expect(right.reach()).resolves.toBeUndefined();
    });

    test('tells what its queue refuses from a broker that is lost', async () => {
      const { exchange, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      const connection = await connect(url());
      const channel = await connection.createChannel();
      onTestFinished(() => connection.close());
      const args = { 'x-max-length': 1, 'x-overflow': 'reject-publish' };
      const { queue } = await channel.assertQueue('', { exclusive: true, arguments: args });
      await channel.bindQueue(queue, exchange, 'full');
      const sink = rabbitSink({ url: url(), exchange, key: 'full' });
      onTestFinished(() => sink.close());
      const parcel = { topic: 'mail', headers: {}, body: Buffer.from('{}'), enqueuedAt: 5_000 };
      const ids = ['a1', 'a2', 'a3'];
      const answers = await sink.send(ids.map((id) => ({ ...parcel, id })));
      expect(answers).toContainEqual(
        expect.objectContaining({ permanence: 'transient', code: 'broker.refused' }),
      );
    });

    test('takes a send of any size: the parcels are in memory already', async () => {
      const { exchange, arrived, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      const sink = rabbitSink({ url: url(), exchange, key: 'q.a' });
      onTestFinished(() => sink.close());
      const body = Buffer.alloc(2 ** 20);
      // More than waits for a broker elsewhere.
      const parcels = Array.from({ length: 110 }, (_, at) => ({
        id: `a${at}`,
        topic: 'mail',
        headers: {},
        body,
        enqueuedAt: 5_000,
      }));
      const answers = await sink.send(parcels);
      expect(new Set(answers)).toEqual(new Set(['confirmed']));
      expect(await arrived(110)).toHaveLength(110);
    });

    test('takes what a spool forwards', async () => {
      const { exchange, arrived, dispose } = await brokerWorld(url());
      onTestFinished(dispose);
      const sink = rabbitSink({ url: url(), exchange });
      await using spool = createSpool({ entries: memory(), bodies: memoryBodies() });
      spool.handle('q.#', forward(sink));
      await spool.start();
      const ids: string[] = [];
      for (let at = 0; at < 50; at += 1) {
        ids.push((await spool.enqueue({ topic: 'q.mail', body: `${at}` })).id);
      }
      const messages = await arrived(50);
      expect(new Set(messages.map(({ properties }) => properties.messageId as unknown))).toEqual(
        new Set<unknown>(ids),
      );
      await spool.stop();
      await sink.close();
    });

    test.each([
      [{ exchange: 'x' }, /either "url" or "connection"/],
      [{ url: 'amqp://x' }, /as exchange/],
      [{ url: 'amqp://x', exchange: 'x', maxBytes: 0 }, /"maxBytes"/],
      [{ url: 'amqp://x', exchange: 'x', confirmTimeout: 0 }, /confirmTimeout/],
      [{ url: 'amqp://x', exchange: 'x', awayAfter: 0 }, /awayAfter/],
      [{ url: 'amqp://x', exchange: 'x', queue: 'x' }, /no option "queue"/],
    ])('refuses %j', (options, text) => {
      expect(() => rabbitSink(options as never)).toThrow(
        expect.objectContaining({ code: 'config.invalid', message: expect.stringMatching(text) }),
      );
    });
  });
});
