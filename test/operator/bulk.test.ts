/** bulk: one action over a filter — counted first, done in steps, on record before the first. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createSpool, fixed } from 'respool';
import { describe, expect, onTestFinished, test } from 'vitest';
import { setup } from '../spool/setup.ts';
import { internalsOf } from '../../src/spool/internals.ts';
import { createServiceOperator } from '../../src/spool/operator/spool-operator.ts';

async function operator() {
  const parts = await setup({ policies: { slow: fixed('1h') } });
  return { ...parts, operator: parts.spool.operator({ by: 'ann' }) };
}

async function last<T>(items: AsyncIterable<T>): Promise<T | undefined> {
  let present: T | undefined;
  for await (const item of items) present = item;
  return present;
}

describe('a bulk action', () => {
  test('is counted and not done before it is run', async () => {
    const { spool, operator: ann } = await operator();
    await spool.enqueueMany([{ topic: 'a' }, { topic: 'a' }, { topic: 'b' }]);
    const bulk = await ann.prepare({ kind: 'hold' }, { topic: 'a' });
    expect(bulk).toMatchObject({ count: 2 });
    expect((await spool.count()).hold).toBe(0);
    expect(await spool.operator({ by: 'ops' }).audit()).toEqual([]);
  });

  test('touches what fits, in steps, and tells how far it is', async () => {
    const { spool, operator: ann } = await operator();
    const messages = Array.from({ length: 1_200 }, () => ({ topic: 'a' }));
    await spool.enqueueMany([...messages, { topic: 'b' }]);
    const bulk = await ann.prepare({ kind: 'hold', reason: 'the receiver moves' }, { topic: 'a' });
    const seen: number[] = [];
    for await (const progress of bulk.run()) seen.push(progress.seen);
    expect(seen).toEqual([500, 1_000, 1_200]);
    expect(await spool.count()).toMatchObject({ hold: 1_200, incoming: 1 });
    const [held] = (await spool.page({ state: 'hold', limit: 1 })).entries;
    expect(held?.status.because).toMatchObject({ text: 'the receiver moves', by: 'ann' });
  });

  test('has action, filter and count on record before its first step', async () => {
    const { spool, operator: ann } = await operator();
    const { id } = await spool.enqueue({ topic: 'a' });
    const bulk = await ann.prepare({ kind: 'remove', hard: true }, { topic: 'a' });
    await last(bulk.run());
    expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([
      { action: 'bulk.remove', by: 'ann', ids: [], details: { hard: true, count: 1 } },
      { action: 'remove', by: 'ann', ids: [id] },
    ]);
    expect((await spool.operator({ by: 'ops' }).audit())[0]?.details).toMatchObject({
      filter: { topic: 'a' },
    });
  });

  test('does not touch what came after the count', async () => {
    const { spool, clock, operator: ann } = await operator();
    await spool.enqueue({ topic: 'a' });
    const bulk = await ann.prepare({ kind: 'hold' }, { topic: 'a' });
    await clock.advance('1s');
    await spool.enqueue({ topic: 'a' });
    expect(await last(bulk.run())).toMatchObject({ seen: 1, done: 1 });
    expect(await spool.count()).toMatchObject({ hold: 1, incoming: 1 });
  });

  test('touches no more than were counted, whatever fits by then', async () => {
    const { spool, operator: ann } = await operator();
    await spool.enqueue({ topic: 'a' });
    const bulk = await ann.prepare({ kind: 'hold' }, { topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    expect(await last(bulk.run())).toMatchObject({ seen: 1, done: 1 });
    expect(await spool.count()).toMatchObject({ hold: 1, incoming: 1 });
  });

  test('means the ages of the moment it was counted', async () => {
    const { spool, clock, operator: ann } = await operator();
    const { id: old } = await spool.enqueue({ topic: 'a' });
    await clock.advance('2h');
    await spool.enqueue({ topic: 'a' });
    const bulk = await ann.prepare({ kind: 'hold' }, { olderThan: '1h' });
    expect(bulk.count).toBe(1);
    await clock.advance('2h');
    await last(bulk.run());
    expect((await spool.page({ state: 'hold' })).entries.map((one) => one.envelope.id)).toEqual([
      old,
    ]);
    expect((await ann.prepare({ kind: 'hold' }, { since: '3h' })).count).toBe(1);
  });

  test('says what was refused, and why', async () => {
    const { spool, operator: ann } = await operator();
    await spool.enqueueMany(Array.from({ length: 12 }, () => ({ topic: 'a' })));
    const bulk = await ann.prepare({ kind: 'release' }, { state: 'incoming' });
    const progress = await last(bulk.run());
    expect(progress).toMatchObject({ seen: 12, done: 0, refused: 12, unknown: 0 });
    expect(progress?.refusals).toHaveLength(10);
    expect(progress?.refusals[0]).toMatchObject({ result: 'refused', why: /./ });
  });

  test('can be retry, bounce, policy and release too', async () => {
    const { spool, operator: ann } = await operator();
    const { id } = await spool.enqueue({ topic: 'a', delay: '1h' });
    const state = async () => (await spool.get(id))?.status.state;
    await last((await ann.prepare({ kind: 'retry' }, { ids: [id] })).run());
    expect(await state()).toBe('incoming');
    await last((await ann.prepare({ kind: 'policy', policy: 'slow' }, {})).run());
    expect((await spool.get(id))?.status.policy).toBe('slow');
    await last((await ann.prepare({ kind: 'bounce', reason: 'enough' }, {})).run());
    expect(await state()).toBe('bounce');
    await last((await ann.prepare({ kind: 'hold' }, {})).run());
    await last((await ann.prepare({ kind: 'release' }, {})).run());
    expect(await state()).not.toBe('hold');
  });

  test('stops between two steps when it is asked to', async () => {
    const { spool, operator: ann } = await operator();
    await spool.enqueueMany(Array.from({ length: 600 }, () => ({ topic: 'a' })));
    const abort = new AbortController();
    const run = async () => {
      const bulk = await ann.prepare({ kind: 'hold' }, {});
      for await (const _ of bulk.run({ signal: abort.signal })) abort.abort();
    };
    await expect(run()).rejects.toThrow();
    expect((await spool.count()).hold).toBe(500);
  });

  test('is refused when there is no such action or policy, before anything is on record', async () => {
    const { spool, operator: ann } = await operator();
    const wrong = (action: unknown) => ann.prepare(action as { kind: 'release' }, {});
    await expect(wrong({ kind: 'burn' })).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringContaining('hold | release | retry | bounce | remove | policy'),
    });
    await expect(wrong({ kind: 'hold', hard: true })).rejects.toMatchObject({
      code: 'config.invalid',
    });
    await expect(wrong({ kind: 'policy', policy: 'no' })).rejects.toMatchObject({
      code: 'policy.unknown',
    });
    expect(await spool.operator({ by: 'ops' }).audit()).toEqual([]);
  });

  test('can be done step by step, by who keeps the place', async () => {
    const { spool } = await operator();
    const ann = createServiceOperator(internalsOf(spool), { by: 'ann' });
    await spool.enqueueMany(Array.from({ length: 3 }, () => ({ topic: 'a' })));
    const bulk = await ann.prepare({ kind: 'hold' }, { topic: 'a' });
    await ann.beginBulk({ kind: 'hold' }, bulk);
    const { filter } = bulk;
    const first = await ann.stepBulk({ kind: 'hold' }, { filter, max: 2 });
    expect(first.progress).toMatchObject({ seen: 2, done: 2 });
    const after = first.next ?? '';
    expect(
      (await ann.stepBulk({ kind: 'hold' }, { filter, max: 9, after })).progress,
    ).toMatchObject({ seen: 1, done: 1 });
    expect(await ann.stepBulk({ kind: 'hold' }, { filter, max: 0 })).toMatchObject({
      progress: { seen: 0 },
    });
  });

  test.each([
    [{ kind: 'hold' }, ['incoming', 'deferred']],
    [{ kind: 'release' }, ['hold']],
    [{ kind: 'retry' }, ['deferred', 'hold', 'bounce']],
    [{ kind: 'bounce' }, ['incoming', 'deferred', 'hold']],
    [{ kind: 'remove' }, ['incoming', 'deferred', 'hold', 'bounce']],
    [{ kind: 'remove', hard: true }, ['incoming', 'deferred', 'hold', 'bounce', 'archived']],
    [{ kind: 'policy', policy: 'slow' }, ['incoming', 'deferred', 'hold']],
  ] as const)('%j without states is for %j: archived ones are named or left', async (...given) => {
    const [action, states] = given;
    const { spool, operator: ann } = await operator();
    await spool.enqueueMany([
      { topic: 'a', id: 'incoming' },
      { topic: 'a', id: 'deferred', delay: '1h' },
      { topic: 'a', id: 'hold' },
      { topic: 'a', id: 'bounce' },
      { topic: 'a', id: 'archived' },
    ]);
    await spool.operator({ by: 'ops' }).hold(['hold']);
    await spool.operator({ by: 'ops' }).bounce(['bounce']);
    await spool.operator({ by: 'ops' }).remove(['archived']);
    const fitting = async (filter: object) =>
      (await spool.page((await ann.prepare(action, filter)).filter)).entries
        .map(({ status }) => status.state)
        .toSorted();
    expect(await fitting({ topic: 'a' })).toEqual([...states].sort((a, b) => (a < b ? -1 : 1)));
    expect(await fitting({ state: 'archived' })).toEqual(['archived']);
    expect(await fitting({ ids: ['archived', 'hold'] })).toEqual(['archived', 'hold']);
  });
});

describe('more messages than a store reads for one count', () => {
  /** SQLite reads 20,000 for headers and texts, files 10,000. */
  const MANY = 20_050;

  async function full() {
    const folder = await mkdtemp(path.join(tmpdir(), 'respool-bulk-'));
    const spool = createSpool({ path: folder });
    onTestFinished(async () => {
      await spool.stop();
      await rm(folder, { recursive: true, force: true });
    });
    for (let from = 0; from < MANY; from += 5_000) {
      const count = Math.min(5_000, MANY - from);
      await spool.enqueueMany(
        Array.from({ length: count }, (_, at) => ({ topic: 'a', headers: { n: `${from + at}` } })),
      );
    }
    return { spool, ann: spool.operator({ by: 'ann' }) };
  }

  test('are counted, acted on and shown to the last', async () => {
    const { spool, ann } = await full();
    const header = { name: 'n', value: String(MANY - 1) };
    const one = await ann.prepare({ kind: 'hold' }, { header });
    expect(one.count).toBe(1);
    expect((await ann.shape({ filter: { header } })).total.total).toBe(1);
    expect(await last(one.run())).toMatchObject({ done: 1 });
    const all = await ann.prepare({ kind: 'hold' }, { text: 'a' });
    expect(all.count).toBe(MANY - 1);
    expect(await last(all.run())).toMatchObject({ seen: MANY - 1, done: MANY - 1 });
    expect((await spool.count()).incoming).toBe(0);
    const { states } = await ann.stats();
    expect(states.hold.oldestAt).toBeLessThanOrEqual(internalsOf(spool).now());
    expect(states.hold.oldestAt).not.toBeNull();
  });
});
