/** A network that fails while a sweep publishes: what was not moved is where it was. */

import { expect, test } from 'vitest';
import { createConnection, type SweepJournal } from 'respool/rabbit';
import { FaultProxy, type Spoil } from '../../nodes/proxy.ts';
import { service, withService } from '../../services/index.ts';
import { type Kind, numberOf, range } from './queues.ts';
import { died, openGround } from './sweep-ground.ts';

const ALL = 400;
const WINDOW = 20;
/** Some hundred messages with their frames are on the other side by then. */
const BYTES = 60_000;

withService('rabbitmq', () => {
  test.each<[Spoil, Kind]>([
    ['reset', 'own'],
    ['end', 'own'],
    ['reset', 'classic'],
    ['cut-up', 'classic'],
  ])('%s while it publishes out of a queue (%s) loses nothing', async (spoil, kind) => {
    const ground = await openGround();
    const { queue, target } = await ground.pair(kind);
    await ground.queues.fill(queue, ALL, () => died(4));
    await using proxy = await FaultProxy.start(await service('rabbitmq'));
    proxy.spoilAfter('up', BYTES, spoil);
    const broken = await ground.sweep({ url: proxy.url, queue, target, window: WINDOW });
    expect(broken.error).toBeDefined();
    expect(broken.moved).toBeLessThan(ALL);
    expect(broken.end).toBe('failed');
    const { hands } = ground.queues;
    // The broker has everything back when it has seen the connection end.
    await expect
      .poll(async () => (await hands.depth(queue)) + (await hands.depth(target)))
      .toBeGreaterThanOrEqual(ALL);
    const again = await ground.sweep({ queue, target, window: WINDOW });
    expect(again.error).toBeUndefined();
    expect(await hands.depth(queue)).toBe(0);
    const there = await hands.depth(target);
    // In both places: what waits for its confirm, one window at the most, and whose ack was lost.
    expect(there).toBeLessThanOrEqual(ALL + broken.moved + WINDOW);
    const numbers = (await ground.queues.takeAll(target, there)).map(numberOf);
    expect([...new Set(numbers)].toSorted((a, b) => a - b)).toEqual(range(ALL));
  });

  test('a connection that is lost at the very end is told, for acks may be lost with it', async () => {
    const ground = await openGround();
    const { queue, target } = await ground.pair();
    await ground.queues.fill(queue, WINDOW, () => died(4));
    await using connection = createConnection({ url: await service('rabbitmq') });
    const consuming = await connection.consuming.tryConnect();
    let added = 0;
    const dedupe = {
      ...NO_JOURNAL,
      add: async () => {
        added += 1;
        if (added === WINDOW) consuming.connection?.stream?.destroy(new Error('cut'));
      },
    };
    const report = await ground.sweep({ connection, url: undefined, queue, target, dedupe });
    expect(added).toBe(WINDOW);
    expect(report.end).toBe('failed');
    expect(report.error).toContain('the last ones may be there twice');
  });

  test.each<Kind>(['own', 'classic'])(
    'a connection that is lost while the record is written copies nothing (%s)',
    async (kind) => {
      const ground = await openGround();
      const { queue, target } = await ground.pair(kind);
      const { hands } = ground.queues;
      await ground.queues.declare('classic', {}, target);
      await ground.queues.fill(queue, 5, () => died(4));
      await using connection = createConnection({ url: await service('rabbitmq') });
      const { consuming } = connection;
      const audit = async (): Promise<void> => {
        const isDown = new Promise<void>((resolve) => {
          consuming.on(({ kind: told }) => {
            if (told === 'down') resolve();
          });
        });
        consuming.current?.connection?.stream?.destroy(new Error('cut'));
        await isDown;
      };
      const report = await ground.sweep({ connection, url: undefined, queue, target, audit });
      expect(report).toMatchObject({ moved: 0, end: 'failed' });
      expect(report.error).toContain('the channel was lost');
      await expect.poll(() => hands.depth(queue)).toBe(5);
      expect(await hands.depth(target)).toBe(0);
    },
  );

  test('a signal that comes while the record is written moves nothing', async () => {
    const ground = await openGround();
    const { queue, target } = await ground.pair();
    await ground.queues.declare('classic', {}, target);
    await ground.queues.fill(queue, 5, () => died(4));
    const stop = new AbortController();
    const audit = async (): Promise<void> => stop.abort();
    const report = await ground.sweep({ queue, target, audit, signal: stop.signal });
    expect(report).toMatchObject({ moved: 0, end: 'aborted' });
    expect(await ground.queues.hands.depth(queue)).toBe(5);
    expect(await ground.queues.hands.depth(target)).toBe(0);
  });
});

const NO_JOURNAL: SweepJournal = {
  open: () => Promise.resolve(),
  take: () => false,
  identityOf: (queue, { fields }) => `${queue} ${fields.deliveryTag}`,
  add: () => Promise.resolve(),
  settle: () => undefined,
  strike: () => Promise.resolve(),
  forget: () => Promise.resolve(),
  close: () => Promise.resolve(),
};
