/** A check through a service tells how far it is, and comes to its report whatever that takes. */
import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { connectOperator } from 'respool/web';
import type { CheckProgress } from 'respool';
import { json, setup } from './setup.ts';

/** A service whose check stands still after one of four until it may go on. */
async function standing() {
  const begun = Promise.withResolvers<void>();
  const goOn = Promise.withResolvers<void>();
  const world = await setup({
    operator: (operator) => ({
      check: async (options) => {
        options?.onProgress?.({ seen: 1, total: 4 });
        begun.resolve();
        await goOn.promise;
        return operator.check(options);
      },
    }),
  });
  await world.spool.enqueue({ topic: 'a', body: 'x' });
  return { ...world, begun: begun.promise, goOn: goOn.resolve };
}

test('whoever asks hears every second how far it is', async () => {
  const { url, begun, goOn } = await standing();
  const clock = new SimClock();
  const far = connectOperator({ url, clock });
  const heard: CheckProgress[] = [];
  const first = Promise.withResolvers<void>();
  const report = far.check({
    onProgress: (progress) => {
      heard.push(progress);
      first.resolve();
    },
  });
  await begun;
  expect(heard).toEqual([]);
  await clock.advance('1s');
  await first.promise;
  expect(heard).toMatchObject([{ seen: 1, total: 4 }]);
  goOn();
  expect(await report).toMatchObject({ entries: 1, findings: [] });
});

test('GET /v1/check tells of the checks that run, and of none afterwards', async () => {
  const { ask, post, begun, goOn } = await standing();
  expect(await json(ask('/v1/check'))).toEqual({ running: [] });
  const report = post('/v1/check', {});
  await begun;
  expect(await json(ask('/v1/check'))).toEqual({ running: [{ by: 'local', seen: 1, total: 4 }] });
  goOn();
  expect(await json(report)).toMatchObject({ entries: 1 });
  expect(await json(ask('/v1/check'))).toEqual({ running: [] });
});
