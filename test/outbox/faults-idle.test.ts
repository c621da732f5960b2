/**
 * A relay whose broker is away, or whose rows cannot be sent, neither spins nor stands in the way of
 * other rows: statements and turns of the event loop of a real process are counted, each for the
 * time that the process itself measured. A slow machine only makes them fewer.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { type Child } from '../torture/child.ts';
import { Relays, workOf } from './faults/relays.ts';
import { exchangeOn, outboxOn } from './faults/setup.ts';

/** How long a process is watched. */
const WATCHED_MS = 3_000;
/** Rows that wait: a relay that spins sends thousands of statements for them in that time. */
const ROWS = 300;
/** Probes, wake-ups and looks of a second. */
const IDLE_QUERIES_MAX = 20;
/** Turns of the event loop in a second with nothing to do. */
const IDLE_TURNS_MAX = 100;
/** Nobody listens there. */
const NOWHERE = 'amqp://127.0.0.1:1';

withService('postgres', (database) => {
  withService('rabbitmq', (broker) => {
    test('while the broker is away a relay computes and asks next to nothing', async () => {
      await using ground = await outboxOn(database());
      const { outbox, url, schema } = ground;
      await emit(ground, 'shop.paid', ROWS);
      const order = { url, schema, amqp: NOWHERE, exchange: 'shop', pauseMs: 1_000 };
      await using stack = new AsyncDisposableStack();
      const relays = new Relays(order);
      stack.defer(() => relays.close());
      await relays.start(1);
      const child = relays.children[0] as Child;
      await child.line('trouble');
      const { seconds, queries, turns } = await watch(child);
      expect(queries).toBeLessThan(IDLE_QUERIES_MAX * seconds);
      expect(turns).toBeLessThan(IDLE_TURNS_MAX * seconds);
      // Nothing was sent, and the outage cost no attempts.
      await relays.stop();
      expect(relays.complaints).toEqual([]);
      expect(await outbox.spool.count()).toMatchObject({ bounce: 0 });
      const sql = `SELECT count(*)::int, max(attempts) FROM "${schema}".entries`;
      expect(await ground.query(sql)).toEqual([[ROWS, 0]]);
    });

    test('rows that cannot be routed wait for their turn, and others pass them', async () => {
      await using ground = await outboxOn(database());
      const { url, schema } = ground;
      await using exchange = await exchangeOn(broker(), 'good.#');
      await emit(ground, 'nowhere.at.all', ROWS);
      const order = { url, schema, amqp: broker(), exchange: exchange.name, pauseMs: 1_000 };
      await using stack = new AsyncDisposableStack();
      const relays = new Relays(order);
      stack.defer(() => relays.close());
      await relays.start(1);
      const good = [...(await emit(ground, 'good.one', 50))];
      await expect.poll(() => exchange.ids.length).toBe(good.length);
      const child = relays.children[0] as Child;
      const attempts = async (): Promise<number> => {
        const [[sum] = []] = await ground.query(`SELECT sum(attempts) FROM "${schema}".entries`);
        return Number(sum);
      };
      const before = await attempts();
      const { seconds, queries, turns } = await watch(child);
      const tried = (await attempts()) - before;
      // Each waits 1 s, then 2 s and so on; a claim and a settle for some of them at a time.
      expect(tried).toBeLessThanOrEqual(ROWS * Math.floor(1 + Math.log2(1 + seconds)));
      expect(queries).toBeLessThan(IDLE_QUERIES_MAX * seconds + 3 * tried);
      expect(turns).toBeLessThan(IDLE_TURNS_MAX * seconds + 3 * tried);
      good.push(...(await emit(ground, 'good.two', 50)));
      await expect.poll(() => exchange.ids.length).toBe(good.length);
      expect(exchange.ids.toSorted()).toEqual(good.toSorted());
      const sql = `SELECT count(*)::int, min(attempts) > 0 FROM "${schema}".entries`;
      await expect.poll(() => ground.query(sql)).toEqual([[ROWS, true]]);
      await relays.stop();
      expect(relays.complaints).toEqual([]);
    });
  });
});

async function emit(
  { outbox }: Awaited<ReturnType<typeof outboxOn>>,
  routingKey: string,
  count: number,
): Promise<readonly string[]> {
  const messages = Array.from({ length: count }, (_, at) => ({ routingKey, body: { at } }));
  const emitted = await outbox.transaction((tx) => outbox.emitMany(tx, messages));
  return emitted.map(({ id }) => id);
}

/** What a process does while nobody disturbs it. */
async function watch(
  child: Child,
): Promise<{ readonly seconds: number; readonly queries: number; readonly turns: number }> {
  const before = await workOf(child);
  await sleep(WATCHED_MS);
  const after = await workOf(child);
  return {
    seconds: (after.atMs - before.atMs) / 1_000,
    queries: after.queries - before.queries,
    turns: after.turns - before.turns,
  };
}
