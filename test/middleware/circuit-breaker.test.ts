/** circuitBreaker: opens after failures, postpones, lets one try, closes (R98, R114). */
import { failed, failure, fixed, held, type Outcome, PermanentError, postponed } from 'respool';
import { circuitBreaker, type CircuitBreakerOptions } from 'respool/middleware';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { HOUR } from '../spool/setup.ts';
import { pass } from './setup.ts';

const fails = async (): Promise<Outcome> => {
  throw new Error('the door is shut');
};

function setup(options: CircuitBreakerOptions = {}) {
  const clock = new SimClock();
  const changes: string[] = [];
  const breaker = circuitBreaker({
    failures: 2,
    onChange: (change, key) => changes.push(`${key} ${change}`),
    clock,
    ...options,
  });
  const failTimes = async (times: number, next = fails, of = {}): Promise<void> => {
    for (let number = 0; number < times; number += 1) {
      await pass(breaker, of, next).catch(() => undefined);
    }
  };
  return { clock, breaker, changes, failTimes };
}

describe('a circuit breaker', () => {
  test('on a spool keeps deliveries from a shut door, at no cost of attempts', async () => {
    const { spool, clock } = await createTestSpool({
      policies: { default: fixed('1h') },
      concurrency: 1,
      retention: { delivered: { archive: '1d' } },
    });
    let isShut = true;
    let calls = 0;
    const changes: string[] = [];
    const breaker = circuitBreaker({
      failures: 3,
      halfOpenAfter: '1m',
      onChange: (change) => changes.push(change),
      clock,
    });
    const handler = (): void => {
      calls += 1;
      if (isShut) throw new Error('the door is shut');
    };
    spool.handle('a', handler, { middleware: [breaker] });
    const ids: string[] = [];
    for (let number = 0; number < 8; number += 1) {
      ids.push((await spool.enqueue({ topic: 'a' })).id);
    }
    await clock.settle();
    expect(calls).toBe(3);
    expect(changes).toEqual(['open']);
    const statuses = await Promise.all(ids.map(async (id) => (await spool.get(id))?.status));
    expect(statuses.map((status) => status?.attempts)).toEqual([1, 1, 1, 0, 0, 0, 0, 0]);
    expect(statuses[4]?.because?.code).toBe('circuit.open');
    // One tries every time it is half-open.
    await clock.advance('1m');
    expect(calls).toBe(4);
    isShut = false;
    await clock.advance(HOUR + 1);
    expect(changes.at(-1)).toBe('closed');
    const ended = await Promise.all(ids.map(async (id) => (await spool.get(id))?.status.ending));
    expect(ended).toEqual(Array.from({ length: 8 }, () => 'delivered'));
    await spool.stop();
    expect(clock.timers).toBe(0);
  });

  test('postpones until it is half-open, then lets one through and the others wait', async () => {
    const { clock, breaker, changes, failTimes } = setup({ halfOpenAfter: '20s' });
    await failTimes(2);
    await clock.advance('5s');
    expect(await pass(breaker)).toMatchObject({ kind: 'postponed', delayMs: 15_000 });
    await clock.advance('15s');
    const trial = Promise.withResolvers<Outcome>();
    const first = pass(breaker, {}, () => trial.promise);
    expect(await pass(breaker)).toMatchObject({ kind: 'postponed', delayMs: 5_000 });
    trial.resolve({ kind: 'delivered' });
    await first;
    expect((await pass(breaker)).kind).toBe('delivered');
    expect(changes).toEqual(['a open', 'a half-open', 'a closed']);
  });

  test('opens again for as long when the one that tries fails', async () => {
    const { clock, breaker, changes, failTimes } = setup({ halfOpenAfter: '20s' });
    await failTimes(2);
    await clock.advance('20s');
    await failTimes(1);
    expect(await pass(breaker)).toMatchObject({ kind: 'postponed', delayMs: 20_000 });
    expect(changes).toEqual(['a open', 'a half-open', 'a open']);
  });

  test('takes no notice of a wall clock that jumps', async () => {
    const { clock, breaker, failTimes } = setup({ halfOpenAfter: '20s' });
    await failTimes(2);
    clock.jump(-HOUR);
    await clock.advance('20s');
    expect((await pass(breaker)).kind).toBe('delivered');
  });

  test.each<[string, () => Promise<Outcome>]>([
    ['a permanent error', () => Promise.reject(new PermanentError('no', 'never'))],
    ['a permanent failure', async () => failed(failure('permanent', 'no', 'never'))],
    ['a held message', async () => held('look at this')],
    ['a postponed message', async () => postponed('1m', 'later')],
  ])('does not count %s, neither as a failure nor as a success', async (_, next) => {
    const { breaker, changes, failTimes } = setup();
    await failTimes(5, next);
    expect(changes).toEqual([]);
    await failTimes(1);
    await failTimes(1, next);
    await failTimes(1);
    expect(changes).toEqual(['a open']);
    expect((await pass(breaker)).kind).toBe('postponed');
  });

  test('counts failures that are returned like those that are thrown', async () => {
    const { changes, failTimes } = setup();
    await failTimes(2, async () => failed(failure('transient', 'busy', 'later')));
    expect(changes).toEqual(['a open']);
  });

  test('counts failures in a row: one that goes well begins anew', async () => {
    const { breaker, changes, failTimes } = setup();
    await failTimes(1);
    await pass(breaker);
    await failTimes(1);
    expect(changes).toEqual([]);
  });

  test('is not kept half-open by a handler that never ends', async () => {
    const { spool, clock } = await createTestSpool({ policies: { default: fixed('10s') } });
    const changes: string[] = [];
    const onChange = (change: string): void => void changes.push(change);
    const breaker = circuitBreaker({ failures: 1, halfOpenAfter: '10s', onChange, clock });
    let calls = 0;
    const handler = async (): Promise<void> => {
      calls += 1;
      if (calls === 1) throw new Error('the door is shut');
      if (calls === 2) await Promise.withResolvers<void>().promise;
    };
    spool.handle('a', handler, { middleware: [breaker], timeout: '1m' });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('5m');
    expect(changes).toEqual(['open', 'half-open', 'open', 'half-open', 'closed']);
    await spool.stop({ within: '1s' });
  });

  test('has a circuit for each topic unless told otherwise', async () => {
    const { breaker, failTimes } = setup();
    await failTimes(2);
    expect((await pass(breaker, { topic: 'a' })).kind).toBe('postponed');
    expect((await pass(breaker, { topic: 'b' })).kind).toBe('delivered');
  });

  test.each<[string, CircuitBreakerOptions['by'], string[]]>([
    ['destination', 'destination', ['delivered', 'postponed', 'delivered']],
    [
      'what a function says',
      ({ topic }) => topic.slice(0, 1),
      ['delivered', 'postponed', 'postponed'],
    ],
    ['all', 'all', ['postponed', 'postponed', 'postponed']],
  ])('may have a circuit for each %s', async (_, by = 'all', kinds) => {
    const { breaker, failTimes } = setup({ by });
    await failTimes(2, fails, { topic: 'ab', destination: 'x' });
    const of = [
      { topic: 'ba', destination: 'y' },
      { topic: 'ab', destination: 'x' },
      { topic: 'ab' },
    ];
    const outcomes = await Promise.all(of.map((one) => pass(breaker, one)));
    expect(outcomes.map(({ kind }) => kind)).toEqual(kinds);
  });

  test('opens after 5 failures for 30s unless told otherwise', async () => {
    const clock = new SimClock();
    const breaker = circuitBreaker({ clock });
    for (let number = 0; number < 5; number += 1) {
      await expect(pass(breaker, {}, fails)).rejects.toThrow('the door is shut');
    }
    expect(await pass(breaker)).toMatchObject({ kind: 'postponed', delayMs: 30_000 });
  });

  test('is not harmed by an onChange that throws', async () => {
    const { breaker, failTimes } = setup({
      onChange: () => {
        throw new Error('the pager is broken');
      },
    });
    await failTimes(2);
    expect((await pass(breaker)).kind).toBe('postponed');
  });
});
