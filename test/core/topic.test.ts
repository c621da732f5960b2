/** Topics and the patterns over them. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { topicMatches, type TopicRule } from 'respool';
import { isPattern, patternsCovering, takesTopic, wordsMatch } from '../../src/core/topic.ts';

describe('a pattern', () => {
  test.each<[string, string, boolean]>([
    ['mail.send', 'mail.send', true],
    ['mail.send', 'mail.sent', false],
    ['mail.send', 'mail', false],
    ['mail', 'mail.send', false],
    ['Mail.send', 'mail.send', false],
    ['*', 'mail', true],
    ['*', 'mail.send', false],
    ['mail.*', 'mail.send', true],
    ['mail.*', 'mail', false],
    ['mail.*', 'mail.send.now', false],
    ['*.send', 'mail.send', true],
    ['*.*', 'mail.send', true],
    ['*.*', 'mail', false],
    ['mail.*.now', 'mail.send.now', true],
    ['mail.*.now', 'mail.now', false],
    ['#', 'mail', true],
    ['#', 'mail.send.now', true],
    ['mail.#', 'mail', true],
    ['mail.#', 'mail.send', true],
    ['mail.#', 'mail.send.now', true],
    ['mail.#', 'mailbox', false],
    ['mail.#', 'sms.mail', false],
    ['#.now', 'now', true],
    ['#.now', 'mail.send.now', true],
    ['#.now', 'mail.now.send', false],
    ['mail.#.now', 'mail.now', true],
    ['mail.#.now', 'mail.a.b.now', true],
    ['mail.#.now', 'mail.a.now.b', false],
    ['#.a.#', 'a', true],
    ['#.a.#', 'x.y.a.z', true],
    ['#.a.#', 'x.y.z', false],
    ['#.*', 'a', true],
    ['#.*', 'a.b', true],
    ['*.#', 'a', true],
    ['#.#', 'a', true],
    ['#.*.*', 'a', false],
    ['#.a.*.b', 'a.a.b.a.c.b', true],
    ['#.a.*.b', 'a.b.a.b', false],
    ['order:*', 'order:1', false],
    ['order:1.*', 'order:1.paid', true],
  ])('%j over %j: %j', (pattern, topic, fits) => {
    expect(topicMatches(pattern, topic)).toBe(fits);
  });

  test('a dot, a plus or a bracket in it is a character, not an expression', () => {
    expect(topicMatches('a.c.*', 'abc.x')).toBe(false);
    expect(topicMatches('a+.*', 'aa.x')).toBe(false);
    expect(topicMatches('[a-z].#', 'b')).toBe(false);
  });

  test('is told from a plain topic by its wildcard', () => {
    expect(isPattern('mail.send')).toBe(false);
    expect(isPattern('mail.*')).toBe(true);
    expect(isPattern('#')).toBe(true);
  });
});

describe('an ordered list of rules', () => {
  const rules: readonly TopicRule[] = [
    { pattern: 'mail.slow', take: false },
    { pattern: 'mail.#', take: true },
    { pattern: 'sms.*', take: false },
    { pattern: 'sms.#', take: true },
  ];

  test.each<[string, boolean]>([
    ['mail.slow', false],
    ['mail.fast', true],
    ['mail', true],
    ['sms.a', false],
    ['sms.a.b', true],
    ['fax', false],
  ])('the first match decides on %j: %j', (topic, takes) => {
    expect(takesTopic(rules, topic)).toBe(takes);
  });

  test('no list takes everything, an empty list nothing', () => {
    expect(takesTopic(undefined, 'mail')).toBe(true);
    expect(takesTopic([], 'mail')).toBe(false);
  });
});

describe('a pathological pattern', () => {
  const words = Array.from({ length: 128 }, () => 'a');
  test.each<[string, string]>([
    ['many hashes', `${'#.a.'.repeat(40)}b`],
    ['many hashes and stars', `${'#.*.'.repeat(60)}b`],
    ['a long tail after a hash', `#.${'a.'.repeat(100)}b`],
    ['hashes only', `${'#.'.repeat(127)}b`],
    ['pairs behind hashes', `${'#.a.a.'.repeat(40)}b`],
  ])('with %s is refused in no more steps than words times words', (_, pattern) => {
    const parts = pattern.split('.');
    let steps = 0;
    const counted = new Proxy(words, {
      get: (target, key, receiver): unknown => {
        if (typeof key === 'string' && /^\d+$/.test(key)) steps += 1;
        return Reflect.get(target, key, receiver);
      },
    });
    expect(wordsMatch(parts, counted)).toBe(false);
    expect(topicMatches(pattern, words.join('.'))).toBe(false);
    expect(steps).toBeLessThanOrEqual(parts.length * words.length);
  });
});

describe('an earlier pattern covers a later one', () => {
  test.each<[string, string, boolean]>([
    ['mail.*', 'mail.welcome', true],
    ['mail.welcome', 'mail.*', false],
    ['a.#', 'a.*', true],
    ['a.#', 'a.b', true],
    ['a.#', 'a', true],
    ['a.*', 'a.#', false],
    ['a.*', 'a', false],
    ['#', 'a.#', true],
    ['a.#', '#', false],
    ['#.*', '#', true],
    ['*.#', '#', true],
    ['*.*', '#.*', false],
    ['#.b', 'a.#.b', true],
    ['a.#.b', 'a.*.b', true],
    ['a.#.b', 'a.#.c.b', true],
    ['a.#.b', 'a.#', false],
    ['#.a.#', '#.a', true],
    ['*.#.*', '*.*.#', true],
    ['mail.*', 'mailbox.x', false],
    ['a', 'b', false],
  ])('%j over %j: %j', (earlier, later, covers) => {
    expect(patternsCovering([earlier], later)).toEqual(covers ? [0] : undefined);
  });

  test('patterns of very many wildcards are no trouble', () => {
    const many = Array.from({ length: 60 }, (_, at) => (at % 2 === 0 ? '#' : 'a')).join('.');
    expect(patternsCovering([many], `${many}.b`)).toBeUndefined();
    expect(patternsCovering([`${many}.#`], `${many}.b`)).toEqual([0]);
  });
});

describe('several earlier patterns cover a later one together', () => {
  test.each<[readonly string[], string, readonly number[] | undefined]>([
    [['a', 'a.*', 'a.*.*.#'], 'a.#', [0, 1, 2]],
    [['a', 'a.*.*.#'], 'a.#', undefined],
    [['*', 'x', '*.*.#'], '#', [0, 2]],
    [['a', '*.#.b', 'a.*', 'a.#.*.*'], 'a.#', [0, 2, 3]],
    // Even and odd counts of words are not to be told apart by patterns: none of these is whole.
    [['*', '*.*', '*.*.*'], '#', undefined],
    // The first one that does alone is named, however many do so together.
    [['a', 'a.*.#', 'a.#', '#'], 'a.#', [2]],
    [['b.#', '*.#'], 'a.b.#', [1]],
    // Without a # in it a pattern is taken by one or by none: a word that nobody names tells.
    [['mail.#', '*.welcome'], 'mail.welcome', [0]],
    [['a.*', '*.b'], '*.*', undefined],
    [[], 'a.#', undefined],
  ])('%j over %j: %j', (earlier, later, covering) => {
    expect(patternsCovering(earlier, later)).toEqual(covering);
  });

  test('of a hundred patterns that might, and of no more', () => {
    const words = (count: number): string => Array.from({ length: count }, () => '*').join('.');
    const parts = (count: number): string[] => [
      ...Array.from({ length: count - 1 }, (_, at) => words(at + 1)),
      `${words(count)}.#`,
    ];
    expect(patternsCovering(parts(100), '#')).toHaveLength(100);
    expect(patternsCovering(parts(101), '#')).toBeUndefined();
    // Those with a word of their own are none of them.
    const others = Array.from({ length: 1_000 }, (_, at) => `#.topic-${at}`);
    expect(patternsCovering([...others, ...parts(3)], '#')).toEqual([1_000, 1_001, 1_002]);
  });

  test('what has too many places to go through is not covered, though it is', () => {
    // An a with this many words behind it; where each of many such may be is a state of its own.
    const earlier = (words: number): string => `#.a.${'*.'.repeat(words)}#`;
    const later = (times: number, words: number): string =>
      `${'#.a.'.repeat(times)}${'*.'.repeat(words)}#`;
    expect(patternsCovering([earlier(6)], later(3, 6))).toEqual([0]);
    expect(patternsCovering([earlier(30)], later(10, 30))).toBeUndefined();
  });

  const word = fc.constantFrom('a', 'b', '*', '#');
  const pattern = fc.array(word, { minLength: 1, maxLength: 4 }).map((words) => words.join('.'));
  /** All topics of up to six words of three, one of which no pattern names. */
  const topics = [1, 2, 3, 4, 5, 6].flatMap((length) =>
    Array.from({ length: 3 ** length }, (_, at) =>
      at
        .toString(3)
        .padStart(length, '0')
        .replaceAll(/./g, (digit) => '.' + 'abx'.charAt(+digit))
        .slice(1),
    ),
  );
  /** The same sample each time: topics of six words do not tell apart every two sets of patterns. */
  const SAMPLE = { numRuns: 2_000, seed: 5 };
  const missedBy = (earlier: readonly string[], later: string): string | undefined =>
    topics.find(
      (topic) => topicMatches(later, topic) && !earlier.some((one) => topicMatches(one, topic)),
    );

  test('exactly if each topic of the later fits one of them, and then none can be left out', () => {
    fc.assert(
      fc.property(fc.array(pattern, { maxLength: 6 }), pattern, (earlier, later) => {
        const covering = patternsCovering(earlier, later);
        const missed = missedBy(earlier, later);
        expect([covering === undefined, missed]).toEqual([missed !== undefined, missed]);
        if (covering === undefined) return;
        const named = covering.map((at) => earlier[at] ?? '');
        expect(missedBy(named, later)).toBeUndefined();
        for (const one of named) {
          expect(missedBy(named.toSpliced(named.indexOf(one), 1), later)).toBeDefined();
        }
        const alone = earlier.findIndex((one) => missedBy([one], later) === undefined);
        if (alone >= 0) expect(covering).toEqual([alone]);
      }),
      SAMPLE,
    );
  });

  test('also where the later is of many words, and the earlier ones of wildcards', () => {
    const wild = fc.constantFrom('*', '#', 'a');
    const few = fc.array(wild, { minLength: 1, maxLength: 4 }).map((words) => words.join('.'));
    fc.assert(
      fc.property(fc.array(few, { minLength: 2, maxLength: 8 }), few, (earlier, later) => {
        const missed = missedBy(earlier, later);
        const covering = patternsCovering(earlier, later);
        expect([covering === undefined, missed]).toEqual([missed !== undefined, missed]);
      }),
      SAMPLE,
    );
  });
});
