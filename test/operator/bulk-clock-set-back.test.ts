/** bulk: what came before the clock was set back is meant too, though its times lie ahead. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createSpool, fixed, type Spool } from 'respool';
import type { BulkAction, BulkProgress, Operator } from 'respool/operator';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { setup } from '../spool/setup.ts';

const HOUR = 3_600_000;

async function run(
  operator: Operator,
  action: BulkAction,
  filter: Parameters<Operator['prepare']>[1] = {},
): Promise<{ readonly count: number } & Partial<BulkProgress>> {
  const bulk = await operator.prepare(action, filter);
  let progress: BulkProgress | undefined;
  for await (const one of bulk.run()) progress = one;
  return { count: bulk.count, ...progress };
}

/** Two incoming messages, a deferred and an archived one; then the clock goes back. */
async function fill(spool: Spool, clock: SimClock): Promise<void> {
  await spool.operator({ by: 'ops' }).pause('#');
  const add = (id: string, rest = {}) => spool.enqueue({ id, topic: 'mail', ...rest });
  await add('m-1');
  await add('m-2', { topic: 'hook' });
  await add('m-3', { delay: '2h' });
  await add('m-4');
  await spool.operator({ by: 'ops' }).remove(['m-4']);
  clock.jump(-HOUR);
}

async function inMemory() {
  const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
  await fill(spool, clock);
  return { spool, clock, status, operator: spool.operator({ by: 'ann' }) };
}

describe('after the clock was set back by an hour', () => {
  test('a retry makes incoming and deferred messages due, and leaves archived ones', async () => {
    const { spool, clock, status, operator } = await inMemory();
    expect(await run(operator, { kind: 'retry' })).toMatchObject({ count: 3, done: 3, refused: 0 });
    for (const id of ['m-1', 'm-2', 'm-3']) {
      expect(await status(id)).toMatchObject({ state: 'incoming', dueAt: clock.now() });
    }
    expect((await spool.count()).archived).toBe(1);
    const delivered: string[] = [];
    spool.handle('#', ({ id }) => void delivered.push(id));
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(delivered.toSorted()).toEqual(['m-1', 'm-2', 'm-3']);
  });

  test('the same on SQLite, for one topic', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'respool-bulk-'));
    const clock = new SimClock();
    const spool = createSpool({ path: folder, clock });
    onTestFinished(async () => {
      await spool.stop({ within: 0 });
      await rm(folder, { recursive: true, force: true });
    });
    await fill(spool, clock);
    const operator = spool.operator({ by: 'ann' });
    const retried = await run(operator, { kind: 'retry' }, { topic: 'mail' });
    expect(retried).toMatchObject({ count: 2, done: 2 });
    expect((await spool.get('m-1'))?.status.dueAt).toBe(clock.now());
  });

  test.each([
    ['hold', 3],
    ['bounce', 3],
    ['remove', 3],
  ] as const)('%s reaches them too', async (kind, count) => {
    const { operator } = await inMemory();
    expect(await run(operator, { kind })).toMatchObject({ count, done: count });
  });

  test('states and ages of the filter are taken as they are', async () => {
    const { operator } = await inMemory();
    const count = async (filter: object) =>
      (await operator.prepare({ kind: 'retry' }, filter)).count;
    expect(await count({ state: 'deferred' })).toBe(1);
    expect(await count({ state: 'incoming' })).toBe(2);
    expect(await count({ since: '1m' })).toBe(3);
    expect(await count({ olderThan: '1m' })).toBe(0);
  });

  test('no more is touched than was counted', async () => {
    const { spool, operator } = await inMemory();
    const bulk = await operator.prepare({ kind: 'hold' }, {});
    await spool.enqueueMany([{ topic: 'mail' }, { topic: 'mail' }]);
    let progress: BulkProgress | undefined;
    for await (const one of bulk.run()) progress = one;
    expect(progress).toMatchObject({ seen: 3, done: 3 });
  });
});

test('a clock that was not set back: a retry means no incoming message', async () => {
  const { spool, clock } = await setup();
  await spool.operator({ by: 'ops' }).pause('#');
  await spool.enqueueMany([{ topic: 'a' }, { topic: 'a', delay: '1h' }]);
  await clock.advance('2m');
  const operator = spool.operator({ by: 'ann' });
  expect(await run(operator, { kind: 'retry' })).toMatchObject({ count: 1, done: 1 });
});
