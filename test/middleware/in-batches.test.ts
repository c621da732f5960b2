/** inBatches: several deliveries, one call, an outcome for each (R98). */
import { type Delivery, failed, failure, fixed, held, type Spool } from 'respool';
import { type BatchAnswer, type BatchHandler, inBatches } from 'respool/middleware';
import { createTestSpool, type SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { MINUTE, SECOND } from '../spool/setup.ts';

interface Batches {
  readonly spool: Spool;
  readonly clock: SimClock;
  /** When each call came, and the bodies it got. */
  readonly calls: { at: number; bodies: string[] }[];
  readonly enqueue: (...bodies: string[]) => Promise<string[]>;
}

type Answers = ReturnType<BatchHandler>;

async function setup(
  answer: (deliveries: readonly Delivery[]) => Answers = () => undefined,
): Promise<Batches> {
  const { spool, clock } = await createTestSpool({
    policies: { default: fixed('1h') },
    concurrency: 10,
    retention: { delivered: { archive: '1d' } },
  });
  const startedAt = clock.now();
  const calls: Batches['calls'] = [];
  const handler = async (deliveries: readonly Delivery[]): Promise<Awaited<Answers>> => {
    const at = clock.now() - startedAt;
    calls.push({ at, bodies: await Promise.all(deliveries.map((one) => one.text())) });
    return answer(deliveries);
  };
  spool.handle('a', inBatches({ max: 3, within: '5s', handler, clock }), { timeout: '1m' });
  const enqueue = async (...bodies: string[]): Promise<string[]> => {
    const receipts = await spool.enqueueMany(bodies.map((body) => ({ topic: 'a', body })));
    return receipts.map(({ id }) => id);
  };
  return { spool, clock, calls, enqueue };
}

describe('a handler of batches', () => {
  test('is called with `max` at once, and with fewer `within` after the first', async () => {
    const { spool, clock, calls, enqueue } = await setup();
    const ids = await enqueue('1', '2', '3', '4');
    await clock.settle();
    expect(calls).toEqual([{ at: 0, bodies: ['1', '2', '3'] }]);
    await clock.advance('4s');
    ids.push(...(await enqueue('5')));
    await clock.advance('1s');
    expect(calls[1]).toEqual({ at: 5 * SECOND, bodies: ['4', '5'] });
    const entries = await Promise.all(ids.map((id) => spool.get(id)));
    expect(entries.map((entry) => entry?.status.ending)).toEqual(ids.map(() => 'delivered'));
    await spool.stop();
    expect(clock.timers).toBe(0);
  });

  test('gives each delivery an outcome of its own', async () => {
    const { spool, clock, enqueue } = await setup(() => [
      undefined,
      held('look at this'),
      new Error('busy'),
    ]);
    const [one = '', two = '', three = ''] = await enqueue('1', '2', '3');
    await clock.settle();
    expect((await spool.get(one))?.status.ending).toBe('delivered');
    expect((await spool.get(two))?.status.state).toBe('hold');
    expect((await spool.get(three))?.status.lastFailure).toMatchObject({
      permanence: 'transient',
      reason: 'busy',
    });
    await spool.stop();
  });

  test('that throws fails all of them', async () => {
    const { spool, clock, enqueue } = await setup(() => {
      throw new Error('the database is gone');
    });
    const ids = await enqueue('1', '2', '3');
    await clock.settle();
    for (const id of ids) {
      const status = (await spool.get(id))?.status;
      expect(status).toMatchObject({ state: 'deferred', attempts: 1 });
      expect(status?.lastFailure?.reason).toBe('the database is gone');
    }
    await spool.stop();
  });

  test.each<[string, unknown, string]>([
    ['too few answers', [undefined], 'returned 1 for 3 deliveries'],
    ['something that is no list', 'ok', 'returned "ok" for 3 deliveries'],
    ['answers that say nothing', [false, false, false], 'answered false for one delivery'],
    ['half an outcome', [1, 2, 3].map(() => ({ kind: 'failed' })), 'which is no outcome'],
  ])('that gives %s fails them, and delivers none', async (_, answers, text) => {
    const { spool, clock, enqueue } = await setup(() => answers as BatchAnswer[]);
    const ids = await enqueue('1', '2', '3');
    await clock.settle();
    for (const id of ids) {
      const lastFailure = (await spool.get(id))?.status.lastFailure;
      expect(lastFailure?.code).toBe('outcome.invalid');
      expect(lastFailure?.reason).toContain(text);
    }
    await spool.stop();
  });

  test('lets notes and failures go with the delivery they belong to', async () => {
    const { spool, clock, enqueue } = await setup((deliveries) => {
      for (const [at, delivery] of deliveries.entries()) delivery.note('place', String(at));
      return deliveries.map(() => failed(failure('permanent', 'no', 'never')));
    });
    const ids = await enqueue('1', '2', '3');
    await clock.settle();
    const notes = await Promise.all(ids.map(async (id) => (await spool.get(id))?.status.notes));
    expect(notes).toEqual([{ place: '0' }, { place: '1' }, { place: '2' }]);
    await spool.stop();
  });

  test('is not called for deliveries that a stop calls off before their batch is full', async () => {
    const { spool, clock, calls, enqueue } = await setup();
    const events: string[] = [];
    spool.on('deferred', ({ id, because }) => events.push(`${id} ${because.code}`));
    const ids = await enqueue('1', '2');
    await clock.settle();
    const stopped = spool.stop({ within: '1s' });
    await clock.advance('1s');
    await stopped;
    expect(calls).toEqual([]);
    expect(events).toEqual(ids.map((id) => `${id} batch.left`));
    expect(clock.timers).toBe(0);
  });

  test('takes one that is called off out of its batch and keeps the others', async () => {
    const { spool, clock, calls } = await setup();
    const abort = new AbortController();
    const seen: string[][] = [];
    const handler = inBatches({
      max: 3,
      within: '5s',
      handler: (deliveries) => void seen.push(deliveries.map(({ id }) => id)),
      clock,
    });
    const make = (id: string, signal: AbortSignal): Delivery =>
      ({ id, signal }) as unknown as Delivery;
    const one = handler(make('1', abort.signal));
    const two = handler(make('2', new AbortController().signal));
    abort.abort(new Error('too late'));
    expect(await one).toMatchObject({ kind: 'postponed', delayMs: 0 });
    expect(await handler(make('3', abort.signal))).toMatchObject({ code: 'batch.left' });
    await clock.advance('5s');
    expect(await two).toBeUndefined();
    expect(seen).toEqual([['2']]);
    expect(calls).toEqual([]);
    await spool.stop();
  });

  test('that hangs is given up one by one, and does not hold up the next batch', async () => {
    const hanging = Promise.withResolvers<undefined>();
    let calls = 0;
    const { spool, clock, enqueue } = await setup(() => {
      calls += 1;
      return calls === 1 ? hanging.promise : undefined;
    });
    const [slow = ''] = await enqueue('1', '2', '3');
    const [quick = ''] = await enqueue('4', '5', '6');
    await clock.advance(MINUTE + SECOND);
    expect((await spool.get(slow))?.status.lastFailure?.code).toBe('timeout');
    expect((await spool.get(quick))?.status.ending).toBe('delivered');
    hanging.resolve(undefined);
    await spool.stop();
  });
});
