/** What comes in, and what is refused at the door. */
import { describe, expect, test } from 'vitest';
import {
  checkHeaders,
  checkId,
  checkKey,
  checkNames,
  checkNumber,
  checkOneOf,
  checkPriority,
  checkTopic,
  checkTopicPattern,
  HEADERS_MAX,
  KEY_MAX_CHARS,
  PRIORITY_DEFAULT,
  TOPIC_MAX_CHARS,
} from '../../src/core/limits.ts';
import { refusal } from './refusal.ts';

const HEADERS_MAX_BYTES = 32 * 1024;
const ODD_VALUES: readonly unknown[] = [
  undefined,
  null,
  7,
  7n,
  true,
  [],
  {},
  Symbol('x'),
  Object.create(null),
];

describe('an id', () => {
  test.each([
    'a',
    '0',
    'order-42_b',
    '0198c0de-0000-7000-8000-000000000001',
    'z'.repeat(64),
    '9-',
    'a__',
  ])('%j is fine', (id) => {
    expect(checkId(id)).toBe(id);
  });

  test.each([
    '',
    '-a',
    '_a',
    'A',
    'a.b',
    'a/b',
    '../a',
    'a b',
    'a\n',
    'a\u0000',
    'ä',
    'ａ',
    'z'.repeat(65),
    ...ODD_VALUES,
  ])('%o is refused with the allowed form', (id) => {
    const error = refusal(() => checkId(id));
    expect(error.code).toBe('message.invalid');
    expect(error.message).toMatch(
      /^cannot use .+ as id: allowed is 1 to 64 of 0-9 a-z _ -, starting with a letter or digit$/,
    );
  });

  test('a refused value is named, quoted and cut short', () => {
    expect(refusal(() => checkId('A b')).message).toContain('"A b"');
    expect(refusal(() => checkId('A'.repeat(10_000_000))).message.length).toBeLessThan(200);
  });
});

describe('a topic', () => {
  test.each(['mail', 'mail.send', 'Mail.Send-2_x', 'order:42/paid.now', 't'.repeat(255)])(
    '%j is fine',
    (topic) => {
      expect(checkTopic(topic)).toBe(topic);
    },
  );

  test.each([
    '',
    '.',
    'mail.',
    '.mail',
    'a..b',
    'a b',
    'mail.*',
    '#',
    'a\r\nb',
    'a\u0000',
    'größe',
    't'.repeat(TOPIC_MAX_CHARS + 1),
    ...ODD_VALUES,
  ])('%o is refused with the allowed form', (topic) => {
    const error = refusal(() => checkTopic(topic));
    expect(error.code).toBe('message.invalid');
    expect(error.message).toMatch(/ as topic: allowed is words of .* up to 255 characters$/);
  });
});

describe('a topic pattern', () => {
  test.each(['#', '*', 'mail.*', 'mail.#.now', 'mail.send', 'order:42/x.*', '#.#'])(
    '%j is fine',
    (pattern) => {
      expect(checkTopicPattern(pattern)).toBe(pattern);
    },
  );

  test.each(['', 'mail*', 'a.**', '##', 'a..b', '.#', '#.', 'a b', `${'*.'.repeat(200)}*`, null])(
    '%o is refused',
    (pattern) => {
      const error = refusal(() => checkTopicPattern(pattern));
      expect(error.code).toBe('message.invalid');
      expect(error.message).toContain('as topic pattern: allowed is dot-separated words');
    },
  );
});

describe('headers', () => {
  test('none are an empty set', () => {
    expect(checkHeaders(undefined, HEADERS_MAX_BYTES)).toEqual({});
    expect(checkHeaders({}, HEADERS_MAX_BYTES)).toEqual({});
  });

  test('come back as a copy with the same names and values', () => {
    const given = { 'X-Trace.Id_1': 'a', empty: '', unicode: 'Größe 😀 漢字 \u202e' };
    const clean = checkHeaders(given, HEADERS_MAX_BYTES);
    expect(clean).toEqual(given);
    expect(clean).not.toBe(given);
  });

  test.each<[unknown]>([[null], ['a=b'], [[]], [[['a', 'b']]], [7]])('%o are none', (headers) => {
    const error = refusal(() => checkHeaders(headers, HEADERS_MAX_BYTES));
    expect(error.code).toBe('message.invalid');
    expect(error.message).toContain('allowed is an object of names to strings');
  });

  test.each([
    '',
    'a b',
    'a:b',
    'a\r\nb',
    'a\nBcc',
    'a\u0000',
    'ä',
    'n'.repeat(129),
    'constructor',
    'prototype',
  ])('the name %j is refused', (name) => {
    const error = refusal(() => checkHeaders({ [name]: 'x' }, HEADERS_MAX_BYTES));
    expect(error.code).toBe('message.invalid');
    expect(error.message).toContain('as header name: allowed is 1 to 128 of A-Z a-z 0-9 . _ -');
  });

  test('the name __proto__ is refused and changes no prototype', () => {
    const headers: unknown = JSON.parse('{"__proto__": "x"}');
    expect(refusal(() => checkHeaders(headers, HEADERS_MAX_BYTES)).code).toBe('message.invalid');
    expect(Object.getPrototypeOf({})).toBe(Object.prototype);
  });

  test.each<[string, unknown]>([
    ['a line break', 'a\r\nBcc: b'],
    ['a line feed', 'a\nb'],
    ['NUL', 'a\u0000'],
    ['a tab', 'a\tb'],
    ['DEL', 'a\u007f'],
    ['the next-line character', 'a\u0085b'],
    ['half a character', 'a\ud800'],
    ['a number', 7],
    ['nothing', undefined],
    ['null', null],
    ['a list', ['a']],
  ])('a value with %s is refused and the header is named', (_, value) => {
    const error = refusal(() => checkHeaders({ fine: 'x', 'x-bad': value }, HEADERS_MAX_BYTES));
    expect(error.code).toBe('message.invalid');
    expect(error.message).toContain('as header "x-bad": allowed is well-formed text');
  });

  test('64 are accepted, 65 are too many', () => {
    const many = (count: number): Record<string, string> =>
      Object.fromEntries(Array.from({ length: count }, (_, at) => [`h${at}`, 'x']));
    expect(Object.keys(checkHeaders(many(HEADERS_MAX), HEADERS_MAX_BYTES))).toHaveLength(64);
    const error = refusal(() => checkHeaders(many(HEADERS_MAX + 1), HEADERS_MAX_BYTES));
    expect(error.code).toBe('limit.exceeded');
    expect(error.message).toBe('cannot accept headers: 65 is more than the allowed 64 headers');
  });

  test('32 KiB of names and values are accepted, one byte more is not', () => {
    const value = 'x'.repeat(HEADERS_MAX_BYTES - 4);
    expect(checkHeaders({ name: value }, HEADERS_MAX_BYTES)).toEqual({ name: value });
    const error = refusal(() => checkHeaders({ name: `${value}x` }, HEADERS_MAX_BYTES));
    expect(error.code).toBe('limit.exceeded');
    expect(error.message).toBe(
      'cannot accept headers: 32769 is more than the allowed 32768 bytes in all',
    );
  });

  test.each<[string, number]>([
    ['a', 1],
    ['é', 2],
    ['漢', 3],
    ['😀', 4],
  ])('%j counts as %d bytes', (character, bytes) => {
    expect(Buffer.byteLength(character)).toBe(bytes);
    expect(checkHeaders({ n: character }, 1 + bytes)).toEqual({ n: character });
    expect(refusal(() => checkHeaders({ n: character }, bytes)).code).toBe('limit.exceeded');
  });

  test('what is inherited is not a header', () => {
    expect(checkHeaders(Object.create({ a: 'b' }), HEADERS_MAX_BYTES)).toEqual({});
  });
});

describe('a key', () => {
  test.each(['a', 'user 42', 'Größe 😀', 'k'.repeat(KEY_MAX_CHARS)])('%j is fine', (key) => {
    expect(checkKey('dedupe key', key)).toBe(key);
  });

  test.each(['', 'a\nb', 'a\u0000', 'a\ud800', 'k'.repeat(KEY_MAX_CHARS + 1), ...ODD_VALUES])(
    '%o is refused by its name',
    (key) => {
      const error = refusal(() => checkKey('order key', key));
      expect(error.code).toBe('message.invalid');
      expect(error.message).toContain('as order key: allowed is 1 to 255 well-formed characters');
    },
  );
});

describe('a priority', () => {
  test('is 5 when nothing is said', () => {
    expect(checkPriority(undefined)).toBe(5);
    expect(PRIORITY_DEFAULT).toBe(5);
  });

  test.each([0, 1, 5, 9])('%d is fine', (priority) => {
    expect(checkPriority(priority)).toBe(priority);
  });

  test.each([-1, 10, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '5', null, true, 5n, [5]])(
    '%o is refused with the range',
    (priority) => {
      const error = refusal(() => checkPriority(priority));
      expect(error.code).toBe('message.invalid');
      expect(error.message).toContain(
        'as priority: allowed is a whole number 0 (first) to 9 (last)',
      );
    },
  );
});

describe('a setting', () => {
  test.each([1, 50, 100])('%d inside its range is fine', (value) => {
    expect(checkNumber('concurrency', value, { min: 1, max: 100 })).toBe(value);
  });

  test.each<[unknown, string]>([
    [0, '0'],
    [101, '101'],
    [1.5, '1.5'],
    ['10', '"10"'],
    [Number.NaN, 'NaN'],
    [undefined, 'undefined'],
    [10n, '10'],
  ])('%o outside its range is refused with key, value and range', (value, shown) => {
    const error = refusal(() => checkNumber('concurrency', value, { min: 1, max: 100 }));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toBe(
      `cannot use ${shown} as "concurrency": allowed is a whole number 1 to 100`,
    );
  });

  test('one of a list of words is fine, another is refused with the list', () => {
    const allowed = ['hold', 'leave'] as const;
    expect(checkOneOf('unhandled', 'leave', allowed)).toBe('leave');
    for (const value of ['Hold', '', undefined, 0]) {
      const error = refusal(() => checkOneOf('unhandled', value, allowed));
      expect(error.code).toBe('config.invalid');
      expect(error.message).toContain('as "unhandled": allowed is hold | leave');
    }
  });

  test('a name that does not exist is refused with those that do', () => {
    expect(() => checkNames('createSpool', { path: 1 }, ['path', 'lease'])).not.toThrow();
    const error = refusal(() => checkNames('createSpool', { laese: 1 }, ['path', 'lease']));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toBe('there is no option "laese" of createSpool: known are path, lease');
  });
});
