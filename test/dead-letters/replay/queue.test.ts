/** Replays over queues of a real broker: canaries that come back, and a destination that is recovered. */
import { onTestFinished, expect, test } from 'vitest';
import { memory } from 'respool/stores/memory';
import type { KeptCopy } from 'respool';
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
  bodiesOf,
  type Ground,
  named,
  setup as setupQueue,
  TYPES,
} from '../../rabbit/queues/queue-letters-ground.ts';

const COUNT = 60;

interface Setup {
  readonly ground: Ground;
  readonly kept: KeptCopy[];
  readonly letters: DeadLetters;
  /** What the consumer at home had, oldest first. */
  readonly had: readonly string[];
  readonly recover: () => void;
  readonly begin: (options?: ReplayOptions) => Promise<Replay>;
  /** The consumer leaves. */
  readonly leave: () => Promise<void>;
  readonly run: (id: string, signal?: AbortSignal) => Promise<Replay>;
}

/**
 * A consumer at home that gives everything up again until it is recovered; with `marks` under the
 * headers that came, as a broker does it, without under those that its letters have at first.
 */
async function setup(
  type: (typeof TYPES)[number],
  marks: 'kept' | 'lost' = 'kept',
): Promise<Setup> {
  const ground = await setupQueue(type);
  const { hands, home, queue } = ground;
  let isBroken = true;
  const had: string[] = [];
  const channel = await hands.connection.createChannel();
  const { consumerTag } = await channel.consume(home, (message) => {
    if (message === null) return;
    had.push(message.properties.messageId ?? '');
    const { messageId } = message.properties;
    const headers = marks === 'kept' ? message.properties.headers : { 'respool-queue': home };
    if (!isBroken) return channel.ack(message);
    const options = { messageId, headers };
    void hands.publish('', queue, message.content, options).then(() => channel.ack(message));
  });
  const store = memory();
  await store.open();
  onTestFinished(() => store.close());
  const kept: KeptCopy[] = [];
  const operator: ReplayOperator = {
    by: 'ann',
    records: store.records,
    recordAction: async () => undefined,
    keep: async (copies) => void kept.push(...copies),
  };
  const letters = ground.open();
  const source = { kind: 'queue', queue, broker: 'test' } as const;
  await ground.put(named(COUNT));
  return {
    ground,
    kept,
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
    run: (id, signal) => runReplay(operator, letters, id, signal === undefined ? {} : { signal }),
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
      const { id } = await begin({ canary: 0 });
      const done = await run(id);
      expect(done).toMatchObject({
        state: 'done',
        counts: { sent: COUNT, again: 0, waiting: COUNT },
        because: `queue "${ground.home}" has no consumer, and ${COUNT} messages wait there`,
      });
    },
  );

  test.each(TYPES)(
    'canaries that come back into a %s queue stop it, and the rest goes when it is recovered',
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
    'what a consumer gives up again without our headers stays in a %s queue, however it is resumed',
    async (type) => {
      const { ground, had, kept, begin, run } = await setup(type, 'lost');
      const { id } = await begin({ canary: 0, rate: 50, stopAbove: 100, endWait: '2s' });
      const stop = new AbortController();
      const first = run(id, stop.signal);
      await expect.poll(() => had.length).toBeGreaterThan(5);
      stop.abort();
      expect(await first).toMatchObject({ state: 'paused' });
      expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: COUNT, gone: 0 } });
      expect([...had].sort()).toEqual(named(COUNT));
      const left = await ground.lying(ground.queue, COUNT);
      expect(bodiesOf(left).toSorted()).toEqual(named(COUNT));
      expect(kept).toEqual([]);
    },
  );

  test.each(TYPES)(
    'a replay of a %s queue that loses its last acks stops, and goes on without sending twice',
    async (type) => {
      const { ground, letters, had, kept, recover, begin, run } = await setup(type);
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
      // At once: the broker need not have noticed yet.
      let done = await run(id);
      while (done.state === 'stopped') {
        expect(done.because).toMatch(/were sent without a confirmed ack/);
        done = await run(id);
      }
      expect(done).toMatchObject({ state: 'done', counts: { sent: COUNT, gone: 0 } });
      expect(await ground.hands.depth(ground.queue)).toBe(0);
      await expect.poll(() => had.length).toBe(COUNT);
      expect([...had].sort()).toEqual(named(COUNT));
      // With a copy of each that had come back.
      expect(kept.length).toBeGreaterThan(0);
      expect(done.because).toContain(`${kept.length} letters that were sent were in`);
    },
  );
});
