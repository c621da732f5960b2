/** Posts of one turn of the loop reach the spool together, so that they share a write. */
import type { ServiceOperator } from '../../src/spool/operator/operator.ts';
import { createTestSpool, SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { internalsOf } from '../../src/spool/internals.ts';
import { createServiceOperator } from '../../src/spool/operator/spool-operator.ts';
import { PostBatcher } from '../../src/web/server/service.ts';
import { rejection } from '../spool/setup.ts';

const gathered = async (change: Partial<ServiceOperator> = {}) => {
  const { spool } = await createTestSpool();
  const enqueued: string[] = [];
  const operator: ServiceOperator = {
    ...createServiceOperator(internalsOf(spool), { by: 'ann' }),
    enqueue: async ({ topic }) => {
      enqueued.push(topic);
      return { id: topic, duplicate: false };
    },
    ...change,
  };
  const turns: (() => void)[] = [];
  const clock = new SimClock();
  clock.soon = (call) => void turns.push(call);
  return { operator: new PostBatcher(clock).over(operator), enqueued, turns };
};

test('messages wait for the end of the turn, and no longer', async () => {
  const { operator, enqueued, turns } = await gathered();
  const first = operator.enqueue({ topic: 'a' });
  await Promise.resolve();
  const second = operator.enqueue({ topic: 'b' });
  expect([enqueued, turns.length]).toEqual([[], 1]);
  turns[0]?.();
  expect(enqueued).toEqual(['a', 'b']);
  expect([(await first).id, (await second).id]).toEqual(['a', 'b']);
  const third = operator.enqueue({ topic: 'c' });
  expect(turns).toHaveLength(2);
  turns[1]?.();
  expect((await third).id).toBe('c');
});

test('one that fails does not concern the others', async () => {
  const { operator, turns } = await gathered({
    enqueue: ({ topic }) => {
      if (topic === 'bad') throw new Error('no');
      return Promise.resolve({ id: topic, duplicate: false });
    },
  });
  const bad = rejection(operator.enqueue({ topic: 'bad' }));
  const good = operator.enqueue({ topic: 'good' });
  turns[0]?.();
  expect((await bad).message).toBe('no');
  expect((await good).id).toBe('good');
});
