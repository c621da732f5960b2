/** What an operator has for dead letters: records of their kinds only, audit, copies, replays. */
import { describe, expect, test } from 'vitest';
import { codeOf, setup } from '../spool/setup.ts';

async function operator() {
  const world = await setup({ isStarted: false });
  return { ...world, ann: world.spool.operator({ by: 'ann' }) };
}

describe('records', () => {
  test('are durable facts of kinds that begin with dlq.', async () => {
    const { ann } = await operator();
    const { records } = ann;
    expect(await records.put('dlq.notes', 'g', 'look at this', 0)).toBe('done');
    expect(await records.get('dlq.notes', 'g')).toMatchObject({ value: 'look at this' });
    expect(await records.append('dlq.replay.1', { a: 1 })).toBe(1);
    expect(await records.read('dlq.replay.1', 0, 10)).toEqual([{ sequence: 1, record: { a: 1 } }]);
    await records.trim('dlq.replay.1', 1);
    expect(await records.read('dlq.replay.1', 0, 10)).toEqual([]);
    await records.remove('dlq.notes', 'g');
    expect(await records.list('dlq.notes')).toEqual([]);
  });

  test.each(['audit', 'pause', 'dlq', 'dlq.', '', 'DLQ.x'])(
    'of kind "%s" are refused',
    async (kind) => {
      const { ann } = await operator();
      const { records } = ann;
      const asked = [
        records.append(kind, 1),
        records.read(kind, 0, 1),
        records.trim(kind, 1),
        records.put(kind, 'k', 1),
        records.get(kind, 'k'),
        records.list(kind),
        records.remove(kind, 'k'),
      ];
      for (const one of asked) expect(await codeOf(one)).toBe('config.invalid');
    },
  );
});

test('what is about to be done is on the audit record, in the operator’s name', async () => {
  const { ann } = await operator();
  await ann.recordAction('dlq.sweep', { queue: 'orders.dlq' });
  expect(await ann.audit()).toMatchObject([
    { by: 'ann', action: 'dlq.sweep', ids: [], details: { queue: 'orders.dlq' } },
  ]);
});

test('copies and replays are the spool’s own, in the operator’s name', async () => {
  const { ann, spool } = await operator();
  await ann.keep([{ id: 'x', topic: 'a', headers: {}, body: Buffer.of(1), reason: 'changed' }]);
  const [found] = (await ann.page({ state: 'archived' })).entries;
  expect(found?.status.because).toMatchObject({ text: 'changed', by: 'ann' });
  const id = found?.envelope.id ?? '';
  expect(await ann.replay([id], { replay: 'r1' })).toEqual([{ id, result: 'done' }]);
  expect((await spool.get(id))?.envelope.headers).toEqual({
    'respool-original-of': 'x',
    'respool-replay': 'r1',
  });
  expect((await ann.audit()).at(-1)).toMatchObject({ by: 'ann', action: 'replay', ids: [id] });
});
