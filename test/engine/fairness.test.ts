/** No kind of work starves another (R69, R78). */
import { fixed, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { MINUTE, setup } from '../spool/setup.ts';

describe('while everything is due', () => {
  test('deferred comes before incoming, incoming before notices, when each has few', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    const order: string[] = [];
    spool.handle('bad', () => {
      throw new PermanentError('x', 'y');
    });
    await spool.enqueue({ topic: 'bad' });
    await clock.settle();
    await spool.operator({ by: 'ops' }).pause('#');
    spool.handle('a', ({ headers }) => void order.push(headers['kind'] ?? ''));
    spool.onBounce('bad', () => void order.push('notice'));
    await spool.enqueue({ topic: 'a', delay: '1m', headers: { kind: 'deferred' } });
    await spool.enqueue({ topic: 'a', headers: { kind: 'incoming' } });
    await clock.advance('1m');
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(order.indexOf('deferred')).toBeLessThan(order.indexOf('incoming'));
    expect(order).toHaveLength(3);
  });

  test.each([1, 3, 10])(
    'each kind has at least a quarter of the slots, with %i of them',
    async (concurrency) => {
      const { spool, clock } = await setup({
        concurrency,
        policies: { default: fixed('1m') },
      });
      const order: string[] = [];
      spool.handle('bad', () => {
        throw new PermanentError('x', 'y');
      });
      const many = 200;
      await spool.enqueueMany(Array.from({ length: many }, () => ({ topic: 'bad' })));
      await clock.settle();
      await spool.operator({ by: 'ops' }).pause('#');
      spool.handle('a', ({ headers }) => void order.push(headers['kind'] ?? ''));
      spool.onBounce('bad', () => void order.push('notice'));
      const dueAt = clock.now() + MINUTE;
      const messages = (kind: string, rest: object): { topic: string }[] =>
        Array.from({ length: many }, () => ({ topic: 'a', headers: { kind }, ...rest }));
      await spool.enqueueMany(messages('deferred', { dueAt }));
      await spool.enqueueMany(messages('incoming', {}));
      await clock.advance('1m');
      await spool.operator({ by: 'ops' }).resume('#');
      await clock.settle();
      expect(order).toHaveLength(3 * many);
      const counts: Record<string, number> = { deferred: 0, incoming: 0, notice: 0 };
      for (const [at, kind] of order.slice(0, many).entries()) {
        counts[kind] = (counts[kind] ?? 0) + 1;
        if ((at + 1) % 20 !== 0) continue;
        for (const share of Object.values(counts)) {
          expect(share).toBeGreaterThanOrEqual(Math.floor((at + 1) / 4) - concurrency);
        }
      }
      expect(counts['deferred']).toBeGreaterThanOrEqual(counts['incoming'] ?? 0);
    },
  );

  test('a stream of due retries does not starve new messages', async () => {
    const { spool, clock } = await setup({
      concurrency: 1,
      policies: { default: fixed(0, { attempts: 1_000 }) },
    });
    const delivered: number[] = [];
    let retries = 0;
    let isOver = false;
    spool.handle('again', () => {
      retries += 1;
      if (!isOver && retries < 500) throw new Error('no');
    });
    spool.handle('new', () => {
      delivered.push(retries);
      isOver = delivered.length === 5;
    });
    await spool.operator({ by: 'ops' }).pause('#');
    await spool.enqueueMany(Array.from({ length: 10 }, () => ({ topic: 'again' })));
    await spool.enqueueMany(Array.from({ length: 5 }, () => ({ topic: 'new' })));
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(delivered).toHaveLength(5);
    expect(delivered.at(-1)).toBeLessThan(60);
  });

  test('one kind alone has all the slots', async () => {
    const { spool, clock } = await setup({ concurrency: 8 });
    let running = 0;
    spool.handle('a', () => {
      running += 1;
      return new Promise(() => undefined);
    });
    await spool.operator({ by: 'ops' }).pause('#');
    await spool.enqueueMany(Array.from({ length: 20 }, () => ({ topic: 'a' })));
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(running).toBe(8);
  });
});

test('retries of a handler with a limit of its own go on beside a backlog of another', async () => {
  const { spool, clock } = await setup({ concurrency: 4, policies: { default: fixed('1s') } });
  const takes = (ms: number): Promise<void> => new Promise((end) => void clock.after(ms, end));
  let retried = 0;
  const once = async ({ attempt }: { readonly attempt: number }): Promise<void> => {
    await takes(5);
    if (attempt === 1) throw new Error('not yet');
    retried += 1;
  };
  spool.handle('few', once, { concurrency: 1 });
  await spool.enqueueMany(Array.from({ length: 150 }, () => ({ topic: 'few' })));
  await clock.advance('900ms');
  expect(retried).toBe(0);
  spool.handle('many', () => takes(5));
  await spool.enqueueMany(Array.from({ length: 3_000 }, () => ({ topic: 'many' })));
  for (let n = 0; n < 100; n += 1) await clock.advance('10ms');
  expect(retried).toBeGreaterThan(100);
  const stopping = spool.stop();
  await clock.advance('1s');
  await stopping;
});
