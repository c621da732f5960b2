/** The engine sleeps until something is due; nothing polls for its living (R71, R73, R74). */
import { describe, expect, test } from 'vitest';
import { failing, HOUR, makeGate, MINUTE, SECOND, setup } from '../spool/setup.ts';
import { fixed, RespoolError } from 'respool';

describe('an engine with nothing to do', () => {
  test('calls the store for a slow safety poll and the caretaker only', async () => {
    const { spool, clock, calls, count } = await setup({ caretaker: { every: '1d' } });
    spool.handle('a', () => undefined);
    await clock.settle();
    calls.length = 0;
    await clock.advance('5h');
    // Every 30 s: three claims (due, incoming and lost) and one look for the next due time.
    expect(count('claim')).toBeLessThanOrEqual(2 * 5 * 120 + 2);
    expect(count('nextDueAt')).toBeLessThanOrEqual(5 * 120 + 1);
    expect(count('commit') + count('insert') + count('list') + count('get')).toBe(0);
  });

  // Weakness 11: the other one scans everything a hundred times a second.
  test('does not look more often when a hundred thousand messages wait for later', async () => {
    const { spool, clock, calls, count } = await setup({ caretaker: { every: '1d' } });
    spool.handle('a', () => undefined);
    await spool.enqueueMany(Array.from({ length: 1_000 }, () => ({ topic: 'a', delay: '2h' })));
    await clock.settle();
    calls.length = 0;
    await clock.advance('1h');
    expect(count('claim')).toBeLessThanOrEqual(2 * 120 + 2);
    expect(count('list') + count('get') + count('tally')).toBe(0);
  });

  // Regression: with no handler, or with all of them full, an enqueue made it turn for ever.
  test('sleeps though a message comes in that no handler is there for', async () => {
    const { spool, clock, count } = await setup();
    await clock.settle();
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    expect(count('claim')).toBe(0);
    expect((await spool.get(id))?.status).toMatchObject({ state: 'incoming', attempts: 0 });
  });

  test('sleeps while all handlers with a limit of their own are full', async () => {
    const { spool, clock, count } = await setup({ unhandled: 'leave' });
    const gate = makeGate();
    spool.handle('a', gate.handler, { concurrency: 1, timeout: '1d' });
    await clock.settle();
    const { id: first } = await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(gate.began).toEqual([first]);
    const claims = count('claim');
    await clock.advance('10m');
    expect(count('claim')).toBe(claims);
    gate.open();
    await clock.settle();
    expect(gate.began).toHaveLength(2);
  });

  test('begins with a handler that is registered later, at once', async () => {
    const { spool, clock } = await setup();
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    expect(attempts).toEqual([1]);
  });
});

describe('a due time', () => {
  test('is met exactly, not at the next poll', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed(7 * MINUTE + 13) } });
    const times: number[] = [];
    spool.handle('a', () => {
      times.push(clock.now());
      throw new Error('no');
    });
    const start = clock.now();
    await spool.enqueue({ topic: 'a' });
    await clock.advance('20m');
    expect(times.map((at) => at - start)).toEqual([0, 7 * MINUTE + 13, 14 * MINUTE + 26]);
  });

  test('that is earlier than the one slept for wakes the engine in time', async () => {
    const { spool, clock } = await setup();
    const times: number[] = [];
    spool.handle('a', () => void times.push(clock.now()));
    const start = clock.now();
    await spool.enqueue({ topic: 'a', delay: '20s' });
    await clock.advance(SECOND);
    await spool.enqueue({ topic: 'a', delay: '5s' });
    await clock.advance('1m');
    expect(times.map((at) => at - start)).toEqual([6 * SECOND, 20 * SECOND]);
  });

  test('that another process wrote is met at the safety poll at the latest', async () => {
    const one = await setup();
    const { handler, attempts } = failing(0);
    one.spool.handle('a', handler);
    await one.clock.settle();
    const other = await setup({ with: one, isStarted: false });
    await other.spool.enqueue({ topic: 'a' });
    await one.clock.advance(30 * SECOND);
    expect(attempts).toEqual([1]);
  });

  test('that a watching store tells of is met at once', async () => {
    let tell = (): void => undefined;
    const one = await setup({
      extras: () => ({
        watch: (onDue) => {
          tell = onDue;
          return () => undefined;
        },
      }),
    });
    const { handler, attempts } = failing(0);
    one.spool.handle('a', handler);
    await one.clock.settle();
    const other = await setup({ with: one, isStarted: false });
    await other.spool.enqueue({ topic: 'a' });
    await one.clock.advance(SECOND);
    expect(attempts).toEqual([]);
    tell();
    await one.clock.settle();
    expect(attempts).toEqual([1]);
  });

  // Regression: after an outage a store that had found it again woke only a sleep without trouble.
  test('that a watching store tells of ends the wait after trouble with the store', async () => {
    let tell = (): void => undefined;
    let isAway = false;
    const away = (): void => {
      if (isAway) throw new RespoolError('store.unavailable', 'it is away');
    };
    const one = await setup({
      extras: (store) => ({
        watch: (onDue) => {
          tell = onDue;
          return () => undefined;
        },
        claim: async (request) => {
          away();
          return store.claim(request);
        },
        records: {
          ...store.records,
          list: async (kind) => {
            away();
            return store.records.list(kind);
          },
        },
      }),
    });
    const { handler, attempts } = failing(0);
    one.spool.handle('a', handler);
    await one.clock.settle();
    isAway = true;
    // The waits double: the last one lasts half of all of them.
    await one.clock.advance('2m');
    const other = await setup({ with: one, isStarted: false });
    await other.spool.enqueue({ topic: 'a' });
    // Pauses cannot be read: nothing is known, and what was told must not be lost with that.
    tell();
    await one.clock.settle();
    isAway = false;
    tell();
    // Claims that fail are not repeated for each message of others: a second lies between them.
    await one.clock.settle();
    expect(attempts).toEqual([]);
    await one.clock.advance('1s');
    expect(attempts).toEqual([1]);
  });

  test('that this spool enqueues ends the wait after trouble with a store without a watch', async () => {
    let isAway = false;
    const one = await setup({
      extras: (store) => ({
        claim: async (request) => {
          if (isAway) throw new RespoolError('store.unavailable', 'it is away');
          return store.claim(request);
        },
      }),
    });
    const { handler, attempts } = failing(0);
    one.spool.handle('a', handler);
    await one.clock.settle();
    const other = await setup({ with: one, isStarted: false });
    isAway = true;
    await one.clock.advance('2m');
    await other.spool.enqueue({ topic: 'a' });
    isAway = false;
    await one.spool.enqueue({ topic: 'b' });
    await one.clock.advance('1s');
    expect(attempts).toEqual([1]);
  });

  // Regression: the wait after a claim that failed knew nothing of what was told while it ran.
  test('that a watching store tells of during a claim that fails is met a second later', async () => {
    let tell = (): void => undefined;
    let isAway = false;
    const claims: ((error: Error) => void)[] = [];
    const one = await setup({
      extras: (store) => ({
        watch: (onDue) => {
          tell = onDue;
          return () => undefined;
        },
        claim: (request) =>
          isAway ? new Promise((_, reject) => claims.push(reject)) : store.claim(request),
      }),
    });
    const fail = async (): Promise<void> => {
      const error = new RespoolError('store.unavailable', 'it is away');
      for (const reject of claims.splice(0)) reject(error);
      await one.clock.settle();
    };
    const { handler, attempts } = failing(0);
    one.spool.handle('a', handler);
    await one.clock.settle();
    isAway = true;
    // The waits double, up to half a minute.
    for (let round = 0; round < 10; round += 1) {
      await one.clock.advance(30 * SECOND);
      expect(claims).not.toHaveLength(0);
      await fail();
    }
    const other = await setup({ with: one, isStarted: false });
    await other.spool.enqueue({ topic: 'a' });
    await one.clock.advance(30 * SECOND);
    isAway = false;
    tell();
    await one.clock.settle();
    await fail();
    expect(attempts).toEqual([]);
    await one.clock.advance(SECOND);
    expect(attempts).toEqual([1]);
  });

  test('hours ahead is reached through every safety poll in between', async () => {
    const { spool, clock } = await setup();
    const times: number[] = [];
    spool.handle('a', () => void times.push(clock.now()));
    const dueAt = clock.now() + 3 * HOUR + 1;
    await spool.enqueue({ topic: 'a', dueAt });
    await clock.advance('1d');
    expect(times).toEqual([dueAt]);
  });
});
