/** control: the operator — the spool's own actions, in one operator's name. */
import { fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { lock } from '../spool/sample-transforms.ts';
import { failing, setup } from '../spool/setup.ts';

describe('an operator', () => {
  test('writes its operator’s name into every record', async () => {
    const { spool } = await setup({ policies: { slow: fixed('1h') } });
    const operator = spool.operator({ by: 'ann' });
    expect(operator.by).toBe('ann');
    const { id } = await spool.enqueue({ topic: 'a' });
    await operator.hold([id], { reason: 'look at this' });
    await operator.release([id]);
    await operator.setPolicy([id], 'slow');
    await operator.bounce([id], { reason: 'enough' });
    await operator.retry([id]);
    await operator.pause('a.*');
    await operator.resume('a.*');
    await operator.pause('#');
    await operator.resume('#');
    await operator.remove([id], { reason: 'spam' });
    await operator.remove([id], { hard: true });
    const lines = await operator.audit();
    expect(lines.every(({ by }) => by === 'ann')).toBe(true);
    expect(lines.map(({ action, details }) => [action, details])).toEqual([
      ['hold', { reason: 'look at this' }],
      ['release', {}],
      ['setPolicy', { policy: 'slow' }],
      ['bounce', { reason: 'enough' }],
      ['retry', {}],
      ['pause', { topic: 'a.*' }],
      ['resume', { topic: 'a.*' }],
      ['pause', { topic: '#' }],
      ['resume', { topic: '#' }],
      ['remove', { hard: false, reason: 'spam' }],
      ['remove', { hard: true, reason: 'removed by an operator' }],
    ]);
    expect(await operator.audit(9, 1)).toMatchObject([{ sequence: 10 }]);
  });

  test('does what the spool does', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1h') } });
    const operator = spool.operator({ by: 'ann' });
    const { handler, attempts } = failing(1);
    spool.handle('a', handler);
    const { id } = await spool.enqueue({ topic: 'a', id: 'mine' });
    await clock.settle();
    expect(await operator.hold([id, 'nobody'])).toEqual([
      { id, result: 'done' },
      { id: 'nobody', result: 'unknown' },
    ]);
    expect((await operator.get(id))?.status.because).toMatchObject({ by: 'ann' });
    expect(await operator.release([id])).toEqual([{ id, result: 'done' }]);
    await clock.settle();
    expect(attempts).toEqual([1, 2]);
  });

  test('brings bodies to the encryption of today, with its progress and its name', async () => {
    const before = await setup({ isStarted: false });
    const { id } = await before.spool.enqueue({ topic: 'a', body: 'as it was' });
    await before.spool.stop();
    const { spool } = await setup({
      with: before,
      isStarted: false,
      transforms: [lock({ k1: 3 }, 'k1')],
    });
    const operator = spool.operator({ by: 'ann' });
    const told: number[] = [];
    const report = await operator.rekey({ onProgress: ({ done }) => told.push(done) });
    expect(report).toMatchObject({ count: 1, done: 1, left: 0 });
    expect(told).toEqual([0, 1]);
    expect((await operator.get(id))?.envelope.body.encodings).toEqual(['lock;key=k1']);
    expect(await operator.audit()).toMatchObject([
      { by: 'ann', action: 'rekey', details: { count: 1, to: 'lock;key=k1' } },
    ]);
  });

  test('looks as the spool looks', async () => {
    // An operator over handlers also tells what has none: see unhandled.test.ts.
    const { spool } = await setup({ isStarted: false });
    const operator = spool.operator({ by: 'ann' });
    await spool.enqueueMany([
      { topic: 'a', body: Buffer.alloc(50_000) },
      { topic: 'b', delay: '1h' },
    ]);
    expect(await operator.count()).toEqual(await spool.count());
    expect(await operator.page({ topic: 'b' })).toEqual(await spool.page({ topic: 'b' }));
    expect(await operator.page()).toMatchObject({ entries: [{}, {}] });
    expect(await operator.tally('topic')).toEqual(
      await spool.operator({ by: 'ops' }).tally('topic'),
    );
    expect(await operator.tally('topic', { state: 'deferred' })).toMatchObject([{ key: 'b' }]);
    expect(await operator.check()).toEqual({ entries: 2, bodies: 1, findings: [] });
    expect(await operator.get('nobody')).toBeUndefined();
  });

  test('repairs when it is asked to', async () => {
    const { spool, bodies } = await setup();
    const operator = spool.operator({ by: 'ann' });
    const { id } = await spool.enqueue({ topic: 'a', body: Buffer.alloc(50_000) });
    await bodies.remove([(await spool.get(id))?.envelope.body.ref ?? '']);
    expect((await operator.check({ repair: true })).findings).toMatchObject([
      { kind: 'body.missing', id, repaired: 'it was held' },
    ]);
    expect((await operator.get(id))?.status.state).toBe('hold');
  });

  test('two operators over one spool keep their names apart', async () => {
    const { spool } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool.operator({ by: 'ann' }).hold([id]);
    await spool.operator({ by: 'bob' }).release([id]);
    expect((await spool.operator({ by: 'ops' }).audit()).map(({ by }) => by)).toEqual([
      'ann',
      'bob',
    ]);
  });
});
