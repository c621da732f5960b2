/** groups — letters by what they died of, in one look and bounded memory. */
import { expect, test } from 'vitest';
import { groupsOf, type Letter } from 'respool/dead-letters';
import { groupOf } from '../../src/core/letter-query.ts';
import { fakeLetters, letterOf } from './fake-letters.ts';

test('letters that differ only in ids and numbers are one group, with its first and last', async () => {
  const place = fakeLetters([
    letterOf({ id: 'a', reason: 'no answer within 30 s', diedAt: 2_000 }),
    letterOf({ id: 'b', reason: 'no answer within 45 s', diedAt: 1_000, replays: 2 }),
    letterOf({ id: 'c', reason: 'no answer within 60 s', enqueuedAt: 3_000, replays: 1 }),
  ]);
  const { groups, seen, others } = await groupsOf(place);
  expect(groups).toEqual([
    {
      group: letterOf().group,
      code: 'timeout',
      reason: 'no answer within <n> s',
      reasonSample: 'no answer within 30 s',
      at: 'orders.dlq',
      origin: 'shop/orders',
      category: 'timeout',
      count: 3,
      firstAt: 1_000,
      lastAt: 3_000,
      samples: ['a', 'b', 'c'],
      replays: 3,
    },
  ]);
  expect({ seen, others }).toEqual({ seen: 3, others: 0 });
});

test('the largest group is first, over several places', async () => {
  const one = fakeLetters([letterOf({ code: 'http.404' }), letterOf()]);
  const other = fakeLetters([letterOf({ id: 'two' })]);
  const { groups } = await groupsOf([one, other]);
  expect(groups.map(({ code, count }) => [code, count])).toEqual([
    ['timeout', 2],
    ['http.404', 1],
  ]);
});

test('a spool groups by topic, a queue by itself or its main queue, and each is told', async () => {
  const parts = { code: 'x', reason: '', origin: 'shop/mail', topic: 'mail.send' };
  const group = groupOf({ ...parts, at: 'mail.send' });
  const { groups } = await groupsOf([
    fakeLetters([letterOf({ ...parts, place: 'bounce', group })]),
    fakeLetters([letterOf({ ...parts, place: 'mail.dlq' })]),
    fakeLetters([letterOf({ ...parts, group: groupOf({ ...parts, at: 'mail' }) })]),
  ]);
  expect(groups.map(({ at }) => at)).toEqual(['mail.send', 'mail.dlq', 'mail']);
});

test('where nobody knows when it died, nothing is claimed', async () => {
  const { groups } = await groupsOf(fakeLetters([letterOf()]));
  expect(groups[0]).toMatchObject({ firstAt: null, lastAt: null });
});

test('the query, the category and the rules decide what is counted', async () => {
  const place = fakeLetters([
    letterOf({ topic: 'a.x' }),
    letterOf({ topic: 'b.x' }),
    letterOf({ code: 'erp.7', reason: 'locked' }),
  ]);
  expect(await groupsOf(place, { query: { topic: 'a.*' } })).toMatchObject({ seen: 1 });
  expect(await groupsOf(place, { category: 'timeout' })).toMatchObject({ seen: 2 });
  const rules = [{ category: 'conflict' as const, code: 'erp.*' }];
  const { groups, seen } = await groupsOf(place, { category: 'conflict', rules });
  expect({ seen, code: groups[0]?.code }).toEqual({ seen: 1, code: 'erp.7' });
});

test('an option that does not exist, or is out of range, is refused', async () => {
  const misspelt = { sample: 5 };
  await expect(groupsOf(fakeLetters([]), misspelt as object)).rejects.toThrow('"sample"');
  await expect(groupsOf(fakeLetters([]), { samples: 101 })).rejects.toThrow('0 to 100');
});

test('100,000 letters of as many groups cost the memory of those that are named', async () => {
  function* many(): Generator<Letter> {
    for (let at = 0; at < 100_000; at += 1) {
      yield letterOf({ id: `m${at}`, code: `code.${at % 50_000}`, group: `g${at % 50_000}` });
    }
  }
  const { groups, seen, others } = await groupsOf(fakeLetters(many()), { max: 10, samples: 1 });
  expect(groups).toHaveLength(10);
  expect(groups.every(({ count, samples }) => count === 2 && samples.length === 1)).toBe(true);
  expect({ seen, others }).toEqual({ seen: 100_000, others: 99_980 });
});

test.each([{ max: 0 }, { max: 100_001 }, { samples: -1 }, { samples: 101 }])(
  'refuses %j',
  async (options) => {
    await expect(groupsOf(fakeLetters([]), options)).rejects.toMatchObject({
      code: 'config.invalid',
    });
  },
);
