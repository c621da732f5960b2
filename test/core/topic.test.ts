/** Topics and the patterns over them. */
import { describe, expect, test } from 'vitest';
import { topicMatches, type TopicRule } from 'respool';
import { isPattern, patternCovers, takesTopic, wordsMatch } from '../../src/core/topic.ts';

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
    expect(patternCovers(earlier, later)).toBe(covers);
  });

  /** Everything of one word up to `most` words, each from these letters. */
  const everyText = (letters: string, most: number): readonly string[] => {
    const longer = (texts: readonly string[]): readonly string[] =>
      texts.flatMap((text) => [...letters].map((letter) => `${text}.${letter}`));
    let last: readonly string[] = [...letters];
    const all = [...last];
    for (let length = 2; length <= most; length += 1) {
      last = longer(last);
      all.push(...last);
    }
    return all;
  };

  // All pairs and no sample: two patterns of five words may differ in topics of eight words alone.
  test('exactly if each topic of the later fits the earlier', () => {
    const topics = everyText('abx', 6);
    const fitting = everyText('ab*#', 4).map(
      (pattern) => [pattern, topics.map((topic) => topicMatches(pattern, topic))] as const,
    );
    const wrong: string[] = [];
    for (const [earlier, fitsEarlier] of fitting) {
      for (const [later, fitsLater] of fitting) {
        const missed = fitsLater.findIndex((fits, at) => fits && fitsEarlier[at] === false);
        if (patternCovers(earlier, later) !== (missed === -1)) {
          wrong.push(`${earlier} over ${later}, as of ${topics[missed]}`);
        }
      }
    }
    expect(wrong).toEqual([]);
  });

  test('patterns of very many wildcards are no trouble', () => {
    const many = Array.from({ length: 60 }, (_, at) => (at % 2 === 0 ? '#' : 'a')).join('.');
    expect(patternCovers(many, `${many}.b`)).toBe(false);
    expect(patternCovers(`${many}.#`, `${many}.b`)).toBe(true);
  });
});
