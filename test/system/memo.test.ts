/** memo — questions that are shared and throttled, by virtual time. */

import { describe, expect, test } from 'vitest';
import { SimClock } from 'respool/testkit';
import { type MemoOptions, memo } from '../../src/system/wait.ts';

/** Questions whose answers come when the test says so. */
function setUp(options: MemoOptions) {
  const clock = new SimClock();
  const answers = memo(clock, options);
  const asked: PromiseWithResolvers<number>[] = [];
  const ask = (question = 'how many') =>
    answers.get(question, () => {
      const next = Promise.withResolvers<number>();
      asked.push(next);
      return next.promise;
    });
  const answer = async (value: number) => {
    asked.at(-1)?.resolve(value);
    await clock.settle();
  };
  return { clock, answers, asked, ask, answer };
}

describe('a question', () => {
  test('is asked once while its answer is on its way', async () => {
    const { asked, ask, answer } = setUp({ ttlMs: 1_000 });
    const all = Promise.all([ask(), ask(), ask()]);
    await answer(7);
    expect(await all).toEqual([7, 7, 7]);
    expect(asked.length).toBe(1);
  });

  test('has answers apart from those of other questions', async () => {
    const { asked, ask } = setUp({ ttlMs: 1_000 });
    const both = Promise.all([ask('a'), ask('b')]);
    asked[0]?.resolve(1);
    asked[1]?.resolve(2);
    expect(await both).toEqual([1, 2]);
  });

  test('is asked again at once after a failure', async () => {
    const { asked, ask, answer } = setUp({ ttlMs: 1_000, everyMs: 1_000, restTimes: 10 });
    const failed = ask();
    asked[0]?.reject(new Error('away'));
    await expect(failed).rejects.toThrow('away');
    const again = ask();
    await answer(1);
    expect(await again).toBe(1);
  });

  test('is asked again at once when answers are forgotten', async () => {
    const { answers, asked, ask, answer } = setUp({ ttlMs: 1_000 });
    void ask();
    await answer(1);
    answers.clear();
    void ask();
    expect(asked.length).toBe(2);
  });
});

describe('an answer', () => {
  test('is given again for its time, counted from when it came', async () => {
    const { clock, asked, ask, answer } = setUp({ ttlMs: 1_000 });
    void ask();
    await clock.advance('5s');
    await answer(1);
    await clock.advance('999ms');
    expect(await ask()).toBe(1);
    await clock.advance('1ms');
    void ask();
    expect(asked.length).toBe(2);
  });

  test('is given again until the next one is due, counted from the question', async () => {
    const { clock, asked, ask, answer } = setUp({ everyMs: 1_000 });
    void ask();
    await clock.advance('400ms');
    await answer(1);
    await clock.advance('599ms');
    expect(await ask()).toBe(1);
    await clock.advance('1ms');
    void ask();
    expect(asked.length).toBe(2);
  });

  test('is given again for a multiple of what all questions took', async () => {
    const { clock, asked, ask, answer } = setUp({ restTimes: 3 });
    void ask('other');
    await clock.advance('100ms');
    await answer(1);
    void ask();
    await clock.advance('200ms');
    await answer(2);
    await clock.advance('899ms');
    expect(await ask()).toBe(2);
    await clock.advance('1ms');
    void ask();
    expect(asked.length).toBe(3);
  });

  test('that does not come is asked for again, and does no harm when it comes late', async () => {
    const { clock, asked, ask, answer } = setUp({ ttlMs: 1_000, giveUpMs: 60_000 });
    const late = ask();
    await clock.advance('59s');
    void ask();
    expect(asked.length).toBe(1);
    await clock.advance('1s');
    const next = ask();
    expect(asked.length).toBe(2);
    asked[0]?.reject(new Error('too late'));
    await expect(late).rejects.toThrow('too late');
    await answer(2);
    expect([await next, await ask()]).toEqual([2, 2]);
  });

  test('is forgotten when there are too many, the oldest first', async () => {
    const { asked, ask, answer } = setUp({ ttlMs: 1_000, max: 2 });
    for (const question of ['a', 'b', 'c']) {
      void ask(question);
      await answer(1);
    }
    void ask('b');
    void ask('c');
    expect(asked.length).toBe(3);
    void ask('a');
    expect(asked.length).toBe(4);
  });
});
