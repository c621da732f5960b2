/** Replays over queues of a real broker: canaries that come back, and a destination that is mended. */
import { onTestFinished, expect, test } from 'vitest';
import { memory } from 'respool/stores/memory';
import {
  type DeadLetters,
  planReplay,
  type Replay,
  type ReplayOperator,
  type ReplayOptions,
  runReplay,
} from 'respool/dead-letters';
import { withService } from '../../services/index.ts';
import {
  type Ground,
  named,
  setup as setupQueue,
  TYPES,
} from '../../rabbit/queues/queue-letters-ground.ts';

const COUNT = 60;

interface Setup {
  readonly ground: Ground;
  readonly letters: DeadLetters;
  /** What the consumer at home had, oldest first. */
  readonly had: readonly string[];
  readonly recover: () => void;
  readonly begin: (options?: ReplayOptions) => Promise<Replay>;
  /** The consumer leaves. */
  readonly leave: () => Promise<void>;
  readonly run: (id: string) => Promise<Replay>;
}

/** A consumer at home that gives everything up again until it is mended. */
async function setup(type: (typeof TYPES)[number]): Promise<Setup> {
  const ground = await setupQueue(type);
  const { hands, home, queue } = ground;
  let isBroken = true;
  const had: string[] = [];
  const channel = await hands.connection.createChannel();
  const { consumerTag } = await channel.consume(home, (message) => {
    if (message === null) return;
    had.push(message.properties.messageId ?? '');
    const { headers } = message.properties;
    if (!isBroken) return channel.ack(message);
    const options = { messageId: message.properties.messageId, headers };
    void hands.publish('', queue, message.content, options).then(() => channel.ack(message));
  });
  const store = memory();
  await store.open();
  onTestFinished(() => store.close());
  const operator: ReplayOperator = {
    by: 'ann',
    records: store.records,
    recordAction: async () => undefined,
    keep: async () => undefined,
  };
  const letters = ground.open();
  const source = { kind: 'queue', queue, broker: 'test' } as const;
  await ground.put(named(COUNT));
  return {
    ground,
    letters,
    had,
    recover: () => {
      isBroken = false;
    },
    begin: (options = {}) =>
      planReplay(operator, letters, source, {
        canary: 5,
        canaryWait: '2s',
        endWait: '1s',
        ...options,
      }),
    leave: async () => {
      await channel.cancel(consumerTag);
    },
    run: (id) => runReplay(operator, letters, id),
  };
}

withService('rabbitmq', () => {
  test.each(TYPES)(
    'what came back into a %s queue after the last letter was sent is counted at the end',
    async (type) => {
      const { ground, had, begin, run } = await setup(type);
      const { id } = await begin({ canary: 0, stopAbove: 100, endWait: '3s', max: 50 });
      const done = await run(id);
      expect(had).toHaveLength(50);
      expect(done).toMatchObject({ state: 'done', counts: { sent: 50, again: 50 } });
      expect(done.because).toBe('50 of 50 letters that were sent failed again within 3s');
      const left = await ground.lying(ground.queue, COUNT);
      const marks = left.map(({ properties }) => properties.headers?.['respool-replay']);
      expect(marks.filter((mark) => mark === id)).toHaveLength(50);
    },
  );

  test.each(TYPES)(
    'at the end of a replay of a %s queue a destination without a consumer is said',
    async (type) => {
      const { ground, begin, run, leave } = await setup(type);
      await leave();
      const { id } = await begin({ canary: 0, endWait: '1d' });
      const done = await run(id);
      expect(done).toMatchObject({
        state: 'done',
        counts: { sent: COUNT, again: 0, waiting: COUNT },
        because: `queue "${ground.home}" has no consumer, and ${COUNT} messages wait there`,
      });
    },
  );

  test.each(TYPES)(
    'canaries that come back into a %s queue stop it, and the rest goes when it is mended',
    async (type) => {
      const { ground, had, recover, begin, run } = await setup(type);
      const { id, plan } = await begin();
      expect(plan).toMatchObject({ count: COUNT, routes: [{ to: ground.home, count: COUNT }] });
      const stopped = await run(id);
      expect(stopped).toMatchObject({ state: 'stopped', counts: { sent: 5, again: 5 } });
      expect(had).toEqual(named(5));
      await ground.lying(ground.queue, COUNT);
      recover();
      // Those that came back are no letters of this plan any more: they died anew.
      expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: COUNT, gone: 0 } });
      await expect.poll(() => had.length).toBe(COUNT);
      expect([...had].sort()).toEqual(named(COUNT));
      const left = await ground.lying(ground.queue, 5);
      expect(left.map(({ properties }) => properties.headers?.['respool-replay'])).toEqual(
        Array.from({ length: 5 }, () => id),
      );
    },
  );

  test.each(TYPES)(
    'a replay of a %s queue that loses its last acks stops, and goes on without sending twice',
    async (type) => {
      const { ground, letters, had, recover, begin, run } = await setup(type);
      recover();
      const { id } = await begin();
      const settle = letters.settle.bind(letters);
      let settled = 0;
      letters.settle = async (...order) => {
        const answer = await settle(...order);
        settled += 1;
        // Its ack is not on its way yet.
        if (settled === COUNT) {
          ground.connection.consuming.current?.connection?.stream?.destroy(new Error('cut'));
        }
        return answer;
      };
      await expect(run(id)).rejects.toMatchObject({ code: 'broker.unavailable' });
      // Until the broker has noticed, it shows none of what that connection held.
      const watching = await ground.hands.connection.createChannel();
      const consumers = async () => (await watching.checkQueue(ground.queue)).consumerCount;
      await expect.poll(consumers).toBe(0);
      expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: COUNT, gone: 0 } });
      await ground.lying(ground.queue, 0);
      expect(await ground.hands.depth(ground.queue)).toBe(0);
      await expect.poll(() => had.length).toBe(COUNT);
      expect([...had].sort()).toEqual(named(COUNT));
    },
  );
});
