/** What lies in the place of a replay and is none: written by somebody else, or by another hand. */
import { expect, test } from 'vitest';
import { cancelReplay, getReplay, listReplays, pauseReplay } from 'respool/dead-letters';
import { setup } from './setup.ts';

const KIND = 'dlq.replays';

test('does not keep the others from being listed, and is neither run nor changed', async () => {
  const { records, plan, process, run } = await setup(3);
  const good = await plan();
  const { operator } = process();
  const odd: unknown[] = [
    null,
    7,
    [],
    'x',
    {},
    { ...good },
    { ...good, id: 'odd', counts: null },
    { ...good, id: 'odd', counts: { sent: 1 } },
    { ...good, id: 'odd', plan: 7 },
    { ...good, id: 'odd', plan: { ...good.plan, groups: [null] } },
    { ...good, id: 'odd', source: { kind: 'queue', queue: 7, broker: 'main' } },
    { ...good, id: 'odd', state: '\u001B[31m' },
    { ...good, id: 'odd', runner: 7 },
  ];
  const corrupt = { code: 'store.corrupt' };
  for (const value of odd) {
    await records.put(KIND, 'odd', value);
    expect((await listReplays(operator)).map(({ id }) => id)).toEqual([good.id]);
    await expect(getReplay(operator, 'odd')).rejects.toMatchObject(corrupt);
    await expect(pauseReplay(operator, 'odd')).rejects.toMatchObject(corrupt);
    await expect(cancelReplay(operator, 'odd')).rejects.toMatchObject(corrupt);
    await expect(run('odd')).rejects.toMatchObject(corrupt);
    expect((await records.get(KIND, 'odd'))?.value).toEqual(value);
  }
});

test('a replay reads as it was written, at its plan and at its end', async () => {
  const { plan, run, process } = await setup(3);
  const { operator } = process();
  const planned = await plan();
  expect(await getReplay(operator, planned.id)).toEqual(planned);
  const done = await run(planned.id);
  expect(await getReplay(operator, planned.id)).toEqual(done);
});

test('what earlier versions recorded as homeless is read as unroutable', async () => {
  const { records, plan, process, report } = await setup(1);
  const { operator } = process();
  const planned = await plan();
  const row = { text: 'their origin is unknown', count: 1, ids: ['letter-000'] };
  const cannot = [{ why: 'homeless', ...row }];
  await records.put(KIND, planned.id, { ...planned, plan: { ...planned.plan, cannot } });
  const results = [{ result: 'left', code: 'replay.homeless', items: [0] }];
  await records.append(`dlq.replay.${planned.id}`, { kind: 'step', at: 1, results });

  const replay = await getReplay(operator, planned.id);
  expect(replay?.plan.cannot).toEqual([{ why: 'unroutable', ...row }]);
  expect(await report(planned.id)).toMatchObject([{ id: 'letter-000', code: 'replay.unroutable' }]);
});
