/** once with a delivery as its key: messages of others may come without an id. */
import Sqlite from 'better-sqlite3';
import { createSpool, type Delivery } from 'respool';
import { type ListenOptions, listen, migrateInbox, type Once, once } from 'respool/outbox';
import { memory, memoryBodies } from 'respool/stores/memory';
import { expect, onTestFinished, test } from 'vitest';
import { Hands, ownName, Tray } from '../rabbit/ground.ts';
import { withService } from '../services/index.ts';

function inbox(): Sqlite.Database {
  const database = new Sqlite(':memory:');
  onTestFinished(() => void database.close());
  migrateInbox(database);
  return database;
}

test('the delivery of a spool stands for its id', async () => {
  const database = inbox();
  const seen = Promise.withResolvers<Delivery>();
  await using spool = createSpool({ entries: memory(), bodies: memoryBodies() });
  spool.handle('a', (delivery) => seen.resolve(delivery));
  await spool.start();
  await spool.enqueue({ topic: 'a', id: 'm1' });
  const delivery = await seen.promise;
  expect(once(database, delivery, () => 1)).toEqual({ done: true, value: 1 });
  expect(once(database, 'm1', () => 2)).toEqual({ done: false });
});

withService('rabbitmq', (url) => {
  async function hearing(
    options: Partial<ListenOptions>,
    work: (delivery: Delivery) => Once<number>,
  ) {
    const [exchange, queue] = [ownName('shop'), ownName('billing')];
    const tray = new Tray<Once<number> | Error>();
    const given = { url: url(), exchange, queue, retryDelays: ['50ms'], ...options };
    const consumer = listen('#', given, (delivery) => {
      try {
        tray.add(work(delivery));
      } catch (error) {
        tray.add(error as Error);
        throw error;
      }
    });
    const hands = await Hands.open(url());
    onTestFinished(async () => {
      await consumer.stop({ within: '1s' });
      await hands.remove(consumer.plan).catch(() => undefined);
    });
    await consumer.start();
    return { tray, hands, exchange };
  }

  test.each<Partial<ListenOptions>>([{}, { compat: 'outbox' }])(
    'a message without an id is refused, also when it is tried again (%o)',
    async (options) => {
      const database = inbox();
      const { tray, hands, exchange } = await hearing(options, (delivery) =>
        once(database, delivery, () => 1),
      );
      await hands.publish(exchange, 'order.new', { order: 7 });
      const refused = await tray.until(2);
      for (const error of refused) {
        expect(error).toMatchObject({
          code: 'message.invalid',
          message: expect.stringMatching(/arrived without an id.*take a key out of what it says/),
        });
      }
      expect(database.prepare('SELECT count(*) FROM outbox_inbox').pluck().get()).toBe(0);
    },
  );

  test("a message with an id is done once, and a key of one's own needs no id", async () => {
    const database = inbox();
    const { tray, hands, exchange } = await hearing({}, (delivery) =>
      delivery.topic === 'named'
        ? once(database, delivery, () => 1)
        : once(database, 'order-7', () => 2),
    );
    await hands.publish(exchange, 'named', {}, { messageId: 'm1' });
    await tray.until(1);
    await hands.publish(exchange, 'named', {}, { messageId: 'm1' });
    await tray.until(2);
    await hands.publish(exchange, 'nameless', {});
    await tray.until(3);
    await hands.publish(exchange, 'nameless', {});
    expect(await tray.until(4)).toEqual([
      { done: true, value: 1 },
      { done: false },
      { done: true, value: 2 },
      { done: false },
    ]);
  });
});
