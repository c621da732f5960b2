/** category — rules of the user, then the code, then the words of the reason. */
import { describe, expect, test } from 'vitest';
import {
  CATEGORIES,
  CATEGORY_RULES_MAX,
  CATEGORY_TEXT_MAX_CHARS,
  type CategoryRule,
  categoriser,
  categoryOf,
  checkCategoryRules,
} from '../../src/core/category.ts';

const BY_CODE: readonly (readonly [string, string])[] = [
  ['http.429', 'rate-limit'],
  ['http.401', 'auth'],
  ['http.403', 'auth'],
  ['http.404', 'not-found'],
  ['http.410', 'not-found'],
  ['http.408', 'timeout'],
  ['http.504', 'timeout'],
  ['http.timeout', 'timeout'],
  ['http.409', 'conflict'],
  ['http.400', 'validation'],
  ['http.422', 'validation'],
  ['http.500', 'bug'],
  ['http.502', 'network'],
  ['http.503', 'resource'],
  ['http.unreachable', 'network'],
  ['smtp.535', 'auth'],
  ['smtp.550', 'not-found'],
  ['smtp.451', 'resource'],
  ['smtp.421', 'network'],
  ['smtp.501', 'validation'],
  ['amqp.404', 'not-found'],
  ['amqp.406', 'conflict'],
  ['amqp.506', 'resource'],
  ['amqp.320', 'network'],
  ['broker.unroutable', 'not-found'],
  ['broker.unavailable', 'network'],
  ['expired', 'timeout'],
  ['amqp.maxlen', 'resource'],
  ['amqp.delivery_limit', 'bug'],
  ['holder.lost', 'bug'],
  ['body.invalid', 'validation'],
  ['timeout', 'timeout'],
  ['erp.timeout', 'timeout'],
  ['ETIMEDOUT', 'timeout'],
  ['UND_ERR_CONNECT_TIMEOUT', 'timeout'],
  ['ECONNREFUSED', 'network'],
  ['ENOTFOUND', 'network'],
  ['EAI_AGAIN', 'network'],
  ['ENOSPC', 'resource'],
  ['EACCES', 'auth'],
  ['ENOENT', 'not-found'],
  ['23505', 'conflict'],
  ['23502', 'validation'],
  ['TypeError', 'bug'],
  ['ZodError', 'validation'],
  ['unknown', 'other'],
];

test.each(BY_CODE)('the code %s is %s', (code, category) => {
  expect(categoryOf({ code, reason: '' })).toBe(category);
});

const BY_REASON: readonly (readonly [string, string])[] = [
  ['connection timed out after 30 s', 'timeout'],
  ['Rate limit reached', 'rate-limit'],
  ['Request failed with status code 404', 'not-found'],
  ['HTTP/1.1 503 from upstream', 'resource'],
  ["Cannot read properties of undefined (reading 'id')", 'bug'],
  ['getaddrinfo ENOTFOUND erp.local', 'network'],
  ['connect ECONNREFUSED 127.0.0.1:80', 'network'],
  ['Permission denied for order 7', 'auth'],
  ['invalid token', 'auth'],
  ['duplicate key value violates unique constraint', 'conflict'],
  ['order 4711 does not exist', 'not-found'],
  ['no space left on device', 'resource'],
  ['field "amount" is required', 'validation'],
  ['it did not go', 'other'],
  ['', 'other'],
];

test.each(BY_REASON)('without a telling code, "%s" is %s', (reason, category) => {
  expect(categoryOf({ code: 'unknown', reason })).toBe(category);
});

test('the code goes before the words of the reason', () => {
  expect(categoryOf({ code: 'http.409', reason: 'timed out' })).toBe('conflict');
});

describe('rules of the user', () => {
  const failed = {
    code: 'erp.E42',
    reason: 'Customer 7 is LOCKED by month end',
    topic: 'orders.created',
    place: 'orders.dlq',
  };

  test.each([
    [{ code: 'erp.*' }, true],
    [{ code: 'erp.E?2' }, true],
    [{ code: 'erp' }, false],
    [{ reason: 'locked' }, true],
    [{ reason: 'customer*month' }, true],
    [{ reason: 'month*customer' }, false],
    [{ topic: 'orders.*' }, true],
    [{ topic: 'mail.#' }, false],
    [{ queue: 'orders.*' }, true],
    [{ queue: 'mail.*' }, false],
    [{ code: 'erp.*', queue: 'mail.*' }, false],
  ])('%j fits: %s', (conditions, isFitting) => {
    const rules: CategoryRule[] = [{ category: 'conflict', ...conditions }];
    expect(categoryOf(failed, rules)).toBe(isFitting ? 'conflict' : 'other');
  });

  test('go before what is built in, and the first that fits decides', () => {
    const tell = categoriser([
      { category: 'auth', code: 'http.404', topic: 'mail.#' },
      { category: 'bug', code: 'http.404' },
    ]);
    expect(tell({ code: 'http.404', reason: '', topic: 'orders' })).toBe('bug');
    expect(tell({ code: 'http.404', reason: '', topic: 'mail.a' })).toBe('auth');
    expect(tell({ code: 'http.409', reason: '' })).toBe('conflict');
  });

  test('a reason of any length and a pattern of stars take no time', () => {
    const reason = 'a'.repeat(1_000_000);
    const rule = { category: 'bug' as const, reason: `${'a*'.repeat(127)}b` };
    expect(categoryOf({ code: 'x', reason }, [rule])).toBe('other');
  });
});

describe('checkCategoryRules', () => {
  test('takes every category', () => {
    const rules = CATEGORIES.map((category) => ({ category, code: 'x' }));
    expect(checkCategoryRules(rules)).toEqual(rules);
  });

  test.each([
    [{}, /"categories": allowed is a list/],
    [['x'], /"categories\[0\]": allowed is a rule/],
    [[{ category: 'wrong', code: 'x' }], /"categories\[0\]\.category": allowed is network/],
    [[{ category: 'bug' }], /at least one of code, reason, topic, queue/],
    [[{ category: 'bug', code: 'x', other: 1 }], /no option "other"/],
    [[{ category: 'bug', code: '*' }], /not "\*" alone/],
    [[{ category: 'bug', reason: ' ' }], /categories\[0\]\.reason/],
    [[{ category: 'bug', code: 7 }], /categories\[0\]\.code/],
    [[{ category: 'bug', topic: 'a b' }], /categories\[0\]\.topic.*dot-separated/],
    [[{ category: 'bug', reason: 'x'.repeat(CATEGORY_TEXT_MAX_CHARS + 1) }], /255 characters/],
    [Array.from({ length: CATEGORY_RULES_MAX + 1 }, () => ({})), /at most 100/],
  ])('refuses %j', (rules, text) => {
    expect(() => checkCategoryRules(rules)).toThrow(text);
  });
});
