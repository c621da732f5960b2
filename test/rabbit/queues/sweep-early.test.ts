/** A sweep that ends before it has seen everything: by its limit, a signal or a failure. */

import { describe, expect, test } from 'vitest';
import { withService } from '../../services/index.ts';
import { KINDS, numberOf, range } from './queues.ts';
import { died, type Ground, halfDead, openGround } from './sweep-ground.ts';

const ALL = 300;
const isOdd = (value: number): boolean => value % 2 === 1;

withService('rabbitmq', () => {
  describe.each(KINDS)('in a %s queue that was looked at before', (kind) => {
    test('the limit of a run leaves the rest in order', async () => {
      const { ground, queue, target } = await lookedAt(kind);
      const report = await ground.sweep({ queue, target, limit: 5, window: 10 });
      expect(report).toMatchObject({ moved: 5, end: 'limit' });
      await restIs(ground, queue, (value) => isOdd(value) || value >= 10);
    });

    test('a signal leaves the rest in order', async () => {
      const { ground, queue, target } = await lookedAt(kind);
      const stop = new AbortController();
      const report = await ground.sweep({
        queue,
        target,
        window: 10,
        signal: stop.signal,
        onProgress: ({ seen }) => {
          if (seen >= 100) stop.abort();
        },
      });
      expect(report).toMatchObject({ end: 'aborted' });
      expect(report.moved).toBeLessThan(ALL / 2);
      const moved = new Set((await ground.queues.takeAll(target, report.moved)).map(numberOf));
      await restIs(ground, queue, (value) => !moved.has(value));
    });

    test('a record that cannot be written leaves all in order', async () => {
      const { ground, queue, target } = await lookedAt(kind);
      const audit = (): Promise<void> => Promise.reject(new Error('no store'));
      const report = await ground.sweep({ queue, target, window: 10, audit });
      expect(report).toMatchObject({
        seen: 1,
        moved: 0,
        left: 1,
        end: 'failed',
        error: 'no store',
      });
      await restIs(ground, queue, () => true);
    });

    test('a target that is full leaves the rest in order', async () => {
      const { ground, queue, target } = await lookedAt(kind);
      const full = { 'x-max-length': 3, 'x-overflow': 'reject-publish' };
      await ground.queues.declare('classic', full, target);
      const report = await ground.sweep({ queue, target, window: 10 });
      expect(report).toMatchObject({ end: 'failed' });
      expect(report.error).toContain('the broker refused it');
      const moved = new Set((await ground.queues.takeAll(target, report.moved)).map(numberOf));
      await restIs(ground, queue, (value) => !moved.has(value));
    });
  });

  test('a large message among many small ones leaves all in order', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.hands.publish('', queue, 'x'.repeat(3 * 2 ** 20));
    await queues.fill(queue, 4_000);
    for (let time = 0; time < 2; time += 1) {
      expect(await sweep({ queue, target })).toMatchObject({ seen: 4_001, end: 'done' });
    }
    const [, ...small] = await queues.takeAll(queue, 4_001);
    expect(small.map(numberOf)).toEqual(range(4_000));
  });

  test('what a failing queue could not move is left to the others of the run', async () => {
    const { queues, pair, sweepAll } = await openGround();
    const { queue } = await pair();
    const other = await queues.declare('own', {}, `${queue}.2`);
    queues.removeLater(`dead.${other}`);
    const full = { 'x-max-length': 1, 'x-overflow': 'reject-publish' };
    await queues.declare('classic', full, `dead.${queue}`);
    for (const one of [queue, other]) await queues.fill(one, 20, () => died(9));
    await queues.hands.publish('', `dead.${queue}`, 'full');
    const options = { patterns: [`${queue}*`], parallel: 1, limit: 20 };
    const swept = await sweepAll({ ...options, target: `dead.${queue}*` });
    expect(swept.queues).toMatchObject([
      { queue, moved: 0, end: 'failed' },
      { queue: other, moved: 20, end: 'done' },
    ]);
  });

  /** All of its messages were given back once: a quorum queue keeps them in another line. */
  async function lookedAt(kind: (typeof KINDS)[number]): Promise<Looked> {
    const ground = await openGround();
    const { queue, target } = await ground.pair(kind);
    await ground.queues.fill(queue, ALL, halfDead);
    await ground.sweep({ queue, target, dryRun: true });
    return { ground, queue, target };
  }
});

interface Looked {
  readonly ground: Ground;
  readonly queue: string;
  readonly target: string;
}

async function restIs(
  { queues }: Ground,
  queue: string,
  isRest: (value: number) => boolean,
): Promise<void> {
  const rest = range(ALL).filter(isRest);
  expect(await queues.hands.depth(queue)).toBe(rest.length);
  expect((await queues.takeAll(queue, rest.length)).map(numberOf)).toEqual(rest);
}
