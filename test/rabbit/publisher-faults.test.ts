/** What once went wrong with publishers and their fallback, at a real broker. */
import { createServer, connect as dial, type Socket } from 'node:net';
import { createSpool, type Delivery, fixed, type Handler, type Spool } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  createPublisher,
  type FallbackSpool,
  type Publisher,
  type PublisherOptions,
} from 'respool/rabbit';
import { openFallback } from '../../src/rabbit/publish/fallback.ts';
import { withService } from '../services/index.ts';
import { type BrokerWorld, brokerWorld, openRoad, setup } from './publisher-setup.ts';

function makeSpool(): Spool {
  const spool = createSpool({ entries: memory(), bodies: memoryBodies() });
  onTestFinished(() => spool.stop({ within: 0 }));
  return spool;
}

/** How many messages are still to be sent. */
async function waiting(spool: Spool): Promise<number> {
  const { incoming, active, deferred } = await spool.count();
  return incoming + active + deferred;
}

function makePublisher(options: PublisherOptions): Publisher {
  const publisher = createPublisher(options);
  onTestFinished(() => publisher.close());
  return publisher;
}

async function worldOf(url: string): Promise<BrokerWorld> {
  const world = await brokerWorld(url);
  onTestFinished(world.dispose);
  return world;
}

/** A broker that takes connections and says nothing, until `answer` is called. */
async function silentRoad(url: string): Promise<{ url: string; answer: () => void }> {
  const target = new URL(url);
  const silent = new Set<Socket>();
  let isAnswering = false;
  const server = createServer((near) => {
    near.on('error', () => undefined);
    if (!isAnswering) {
      silent.add(near);
      return;
    }
    const far = dial(Number(target.port), target.hostname);
    far.on('error', () => undefined);
    near.on('close', () => far.destroy());
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const road = new URL(url);
  road.port = String((server.address() as { readonly port: number }).port);
  const answer = (): void => {
    isAnswering = true;
    for (const socket of silent) socket.destroy();
  };
  return { url: road.href, answer };
}

test('what goes alone goes one by one, and does not wait for long behind one that is slow', async () => {
  let handler: Handler = () => undefined;
  const handle: FallbackSpool['handle'] = (_, given) => {
    handler = given;
    return () => undefined;
  };
  const sending: (() => void)[] = [];
  let now = 0;
  const fallback = openFallback({
    spool: { enqueue: async () => ({ id: 'a' }), handle },
    topic: 'rabbit',
    policy: undefined,
    send: () => Promise.reject(new Error('not alone')),
    sendAlone: () => new Promise((resolve) => sending.push(resolve)),
    broker: 'one',
    now: () => now,
  });
  const delivery = {
    attempt: 2,
    headers: { 'rabbit-exchange': '', 'rabbit-key': 'a', 'rabbit-properties': '{}' },
    signal: new AbortController().signal,
    body: async () => new Uint8Array(),
  } as unknown as Delivery;
  const outcomes = Array.from({ length: 5 }, async () => handler(delivery));
  for (const sent of [1, 2]) {
    await expect.poll(() => sending.length).toBe(sent);
    sending.at(-1)?.();
    expect(await outcomes[sent - 1]).toBeUndefined();
  }
  await expect.poll(() => sending.length).toBe(3);
  now = 5_001;
  sending.at(-1)?.();
  const late = { kind: 'postponed', delayMs: 500, reason: expect.stringContaining('one by one') };
  expect(await Promise.all(outcomes.slice(2))).toEqual([undefined, late, late]);
  const next = handler(delivery);
  await expect.poll(() => sending.length).toBe(4);
  sending.at(-1)?.();
  expect(await next).toBeUndefined();
  fallback.close();
});

withService('rabbitmq', (url) => {
  describe('a fallback', () => {
    // Regression: the spool said "duplicate" of what it had forwarded long before.
    test('keeps an id that was used in an earlier outage, with the same content and another', async () => {
      const { exchange, arrived } = await worldOf(url());
      const road = await openRoad(url());
      onTestFinished(road.cut);
      const spool = makeSpool();
      const publisher = makePublisher({
        url: road.url,
        exchange,
        fallback: spool,
        fallbackAfter: 50,
      });
      await spool.start();
      const bodies = [{ price: 10 }, { price: 99 }, { price: 99 }];
      for (const [at, body] of bodies.entries()) {
        await road.cut();
        const published = await publisher.publish({ id: 'price-4711', key: 'q.a', body });
        expect(published).toEqual({ id: 'price-4711', via: 'spool' });
        await road.recover();
        await arrived(at + 1);
        // The broker's word has come back, too: without it the message would be sent again.
        await expect.poll(() => waiting(spool)).toBe(0);
        await expect.poll(() => publisher.load.isConnected).toBe(true);
      }
      const messages = await arrived(3);
      expect(messages.map(({ content }) => JSON.parse(String(content)) as unknown)).toEqual(bodies);
      expect(messages.map(({ properties }) => properties.messageId as unknown)).toEqual(
        bodies.map(() => 'price-4711'),
      );
    });

    // Regression: nobody asked for the connection again, and everything went to the spool for ever.
    test('is left when the first connect failed later than fallbackAfter', async () => {
      const { exchange, arrived } = await worldOf(url());
      const road = await silentRoad(url());
      const spool = makeSpool();
      const options = { url: road.url, exchange, fallback: spool, fallbackAfter: 20 };
      const publisher = makePublisher(options);
      await spool.start();
      await expect(publisher.publish({ key: 'q.a', id: 'first' })).resolves.toMatchObject({
        via: 'spool',
      });
      road.answer();
      await expect.poll(() => publisher.load.isConnected).toBe(true);
      await expect(publisher.publish({ key: 'q.a' })).resolves.toMatchObject({ via: 'broker' });
      await arrived(2);
    });

    // Regression: each try ended the channel, and with it whatever else was on its way.
    test('gives up what ends its channel, and lets nothing else suffer from it', async () => {
      const world = await worldOf(url());
      const spool = makeSpool();
      const publisher = makePublisher({
        url: url(),
        exchange: world.exchange,
        fallback: spool,
        fallbackPolicy: fixed('10ms', { attempts: 3 }),
      });
      await spool.start();
      const bounced = new Promise<string>((resolve) => {
        spool.on('bounced', ({ id }) => resolve(id));
      });
      // As somebody kept it who did not check: the broker answers with 406.
      await spool.enqueue({
        topic: 'rabbit.poison',
        headers: {
          'rabbit-exchange': world.exchange,
          'rabbit-key': 'q.poison',
          'rabbit-properties': JSON.stringify({ messageId: 'bad', headers: { CC: 'text' } }),
        },
        body: 'x',
      });
      const over = new AbortController();
      const ids: string[] = [];
      let fellBackLate = 0;
      let isAlone = false;
      spool.on('deferred', () => {
        isAlone = true;
      });
      const publishing = (async () => {
        while (!over.signal.aborted) {
          const wasAlone = isAlone;
          const messages = Array.from({ length: 20 }, () => ({ key: 'q.good' }));
          for (const { id, via } of await publisher.publishMany(messages)) {
            ids.push(id ?? '');
            if (wasAlone && via !== 'broker') fellBackLate += 1;
          }
        }
      })();
      const entry = await spool.get(await bounced);
      over.abort();
      await publishing;
      expect(entry?.status).toMatchObject({
        attempts: 3,
        lastFailure: { code: 'broker.unconfirmed' },
      });
      expect(fellBackLate).toBe(0);
      await expect.poll(() => spool.count()).toMatchObject({ incoming: 0, deferred: 0, active: 0 });
      const found = (): Set<unknown> =>
        new Set(world.messages.map(({ properties }) => properties.messageId as unknown));
      await expect.poll(() => found().size).toBe(ids.length);
      expect(found()).toEqual(new Set<unknown>(ids));
    });

    test('tries alone from the start what was on a channel that ended', async () => {
      const { exchange, connection, arrived } = await worldOf(url());
      const spool = makeSpool();
      const publisher = makePublisher({ url: url(), exchange, fallback: spool });
      await publisher.publish({ key: 'q.a', id: 'before' });
      const channel = await connection.createChannel();
      await channel.assertExchange(`${exchange}.inner`, 'topic', { internal: true });
      onTestFinished(async () => {
        const cleaning = await (await import('amqplib')).connect(url());
        const own = await cleaning.createChannel();
        await own.deleteExchange(`${exchange}.inner`);
        await cleaning.close();
      });
      // An internal exchange takes nothing from outside: 403.
      const bad = await publisher.publish({ key: 'q.a', id: 'bad', exchange: `${exchange}.inner` });
      expect(bad.via).toBe('spool');
      const kept: Readonly<Record<string, string>>[] = [];
      for await (const { envelope } of spool.list()) kept.push(envelope.headers);
      expect(kept).toMatchObject([{ 'rabbit-suspect': expect.stringContaining('channel ended') }]);
      const failed = new Promise<string>((resolve) => {
        spool.on('deferred', ({ because }) => resolve(because.text));
      });
      await spool.start();
      expect(await failed).toMatch(/403|ACCESS/);
      await publisher.publish({ key: 'q.a', id: 'after' });
      const ids = (await arrived(2)).map(({ properties }) => properties.messageId as unknown);
      expect(ids).toEqual(['before', 'after']);
    });
  });

  describe('a publisher', () => {
    test.each([
      ['a CC that is no list', { headers: { CC: 'text' } }, /header "CC".*list/],
      ['a BCC with something else in it', { headers: { BCC: ['a', 1] } }, /header "BCC".*list/],
      ['a reply-to of the broker', { replyTo: 'amq.rabbitmq.reply-to' }, /as replyTo/],
    ])('refuses %s, which would end the channel', async (_, bad, text) => {
      const { publisher, arrived } = await setup(url());
      const others = publisher.publishMany(Array.from({ length: 10 }, () => ({ key: 'q.a' })));
      await expect(publisher.publish({ key: 'q.a', ...bad })).rejects.toMatchObject({
        code: 'message.invalid',
        message: expect.stringMatching(text),
      });
      expect(new Set((await others).map(({ via }) => via))).toEqual(new Set(['broker']));
      expect(await arrived(10)).toHaveLength(10);
    });

    test('sends copies to a CC that is a list', async () => {
      const { publisher, arrived } = await setup(url());
      await publisher.publish({ key: 'nobody', headers: { CC: ['q.copy'] } });
      expect((await arrived(1))[0]?.properties.headers).toMatchObject({ CC: ['q.copy'] });
    });

    // Regression: it was declared with the connection only.
    test('declares an exchange again that somebody deleted', async () => {
      const { connection, exchange, publisher, queue, arrived } = await setup(url(), {
        declare: true,
      });
      await publisher.publish({ key: 'q.a', id: 'before' });
      const channel = await connection.createChannel();
      await channel.deleteExchange(exchange);
      // It is there again, without its bindings.
      const messages = Array.from({ length: 20 }, () => ({ key: 'q.a' }));
      for (const result of await publisher.publishMany(messages)) {
        expect(result).toMatchObject({
          error: { code: 'broker.unroutable', message: expect.stringContaining('no queue takes') },
        });
      }
      await channel.bindQueue(queue, exchange, 'q.#');
      await publisher.publish({ key: 'q.a', id: 'after' });
      const ids = (await arrived(2)).map(({ properties }) => properties.messageId as unknown);
      expect(ids).toEqual(['before', 'after']);
    });
  });
});
