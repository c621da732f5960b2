/** What a handler threw, turned into data. */
import { describe, expect, test } from 'vitest';
import { DURATION_MAX_MS } from '../../src/core/duration.ts';
import {
  classify,
  type Failure,
  failure,
  fingerprint,
  isPermanent,
  isRetryable,
  PermanentError,
  RetryableError,
} from 'respool';
import { checkedFailure, CODE_MAX_CHARS, REASON_MAX_CHARS } from '../../src/core/failure.ts';
import { refusal } from './refusal.ts';

function bang(): never {
  throw new Error('bang');
}

function withCause(cause: unknown): Error {
  return new Error('outer', { cause });
}

function withField(name: string, value: unknown): Error {
  return Object.assign(new Error('x'), { [name]: value });
}

function withGetter(name: string): Error {
  return Object.defineProperty(new Error('x'), name, { get: bang });
}

function nested(error: Error, depth: number): Error {
  return depth === 0 ? error : new Error('around', { cause: nested(error, depth - 1) });
}

const cycle = new Error('cycle');
cycle.cause = cycle;

describe('what is not positively final is transient', () => {
  test.each<[string, unknown]>([
    ['a plain Error', new Error('no route')],
    ['a TypeError', new TypeError('x is not a function')],
    ['a RetryableError', new RetryableError('smtp.451', 'greylisted')],
    ['a RetryableError around a PermanentError', new RetryableError('a', 'b', cause(final()))],
    ['an error whose isRetryable is true', withField('isRetryable', true)],
    ['an error whose isRetryable() says true', withField('isRetryable', () => true)],
    ['an error whose isRetryable() says nothing', withField('isRetryable', () => undefined)],
    ['an error whose isRetryable() throws', withField('isRetryable', bang)],
    ['an error whose isRetryable cannot be read', withGetter('isRetryable')],
    ['an error whose isRetryable is a word', withField('isRetryable', 'no')],
    ['an error whose isRetryable is 0', withField('isRetryable', 0)],
    ['an error with an unreadable cause', withGetter('cause')],
    ['an error that causes itself', cycle],
    ['a PermanentError deeper than ten causes', nested(final(), 10)],
    ['undefined', undefined],
    ['null', null],
    ['a string', 'permanent'],
    ['a number', 550],
    ['a plain object', { permanent: true }],
    ['a function', bang],
    ['a revoked proxy', revoked()],
  ])('%s', (_, thrown) => {
    expect(classify(thrown).permanence).toBe('transient');
    expect(isRetryable(thrown)).toBe(true);
    expect(isPermanent(thrown)).toBe(false);
  });
});

describe('only what says so itself is permanent', () => {
  test.each<[string, unknown]>([
    ['a PermanentError', final()],
    ['an error whose cause is a PermanentError', withCause(final())],
    ['a PermanentError nine causes deep', nested(final(), 9)],
    ['a PermanentError around a RetryableError', new PermanentError('a', 'b', cause(again()))],
    ['an error whose isRetryable is false', withField('isRetryable', false)],
    ['an error whose isRetryable() says false', withField('isRetryable', () => false)],
    ['an object whose isRetryable is false', { isRetryable: false }],
    ['an error whose cause is not retryable', withCause(withField('isRetryable', false))],
    ['a subclass of PermanentError', new (class extends PermanentError {})('a', 'b')],
  ])('%s', (_, thrown) => {
    expect(classify(thrown).permanence).toBe('permanent');
    expect(isRetryable(thrown)).toBe(false);
    expect(isPermanent(thrown)).toBe(true);
  });

  test('isRetryable() is asked with the error as this', () => {
    const error = Object.assign(new Error('x'), {
      status: 404,
      isRetryable(this: { status: number }) {
        return this.status >= 500;
      },
    });
    expect(isRetryable(error)).toBe(false);
  });
});

describe('the code of a failure', () => {
  test.each<[string, unknown, string]>([
    ['a plain Error has the plain code', new Error('x'), 'error'],
    ['a kind of error gives its name', new TypeError('x'), 'error.typeerror'],
    ['a strange name is made a word', withField('name', 'My Error (v2)'), 'error.my-error-v2-'],
    ['a name that is no string is left out', withField('name', 42), 'error'],
    ['our own errors say theirs', new PermanentError('smtp.550', 'x'), 'smtp.550'],
    [
      'a system error says its own, in small letters',
      withField('code', 'ECONNRESET'),
      'econnreset',
    ],
    ['spaces become dashes', withField('code', 'Not  Found'), 'not-found'],
    ['a number is no code', withField('code', 11_000), 'error'],
    ['an empty code is none', withField('code', ''), 'error'],
    ['the cause is asked next', withCause(withField('code', 'EPIPE')), 'epipe'],
    ['the outer code comes first', Object.assign(withCause(final()), { code: 'out' }), 'out'],
    ['an unreadable code is left out', withGetter('code'), 'error'],
    ['a string has the plain code', 'no', 'error'],
    ['a control character becomes a dash', withField('code', 'a\u0000b'), 'a-b'],
  ])('%s', (_, thrown, code) => {
    expect(classify(thrown).code).toBe(code);
  });

  test('is cut at its limit, however long it comes', () => {
    expect(classify(withField('code', 'x'.repeat(5_000_000))).code).toBe(
      'x'.repeat(CODE_MAX_CHARS),
    );
    expect(failure('transient', 'y'.repeat(65), 'why').code).toHaveLength(CODE_MAX_CHARS);
  });
});

describe('the reason of a failure', () => {
  const loop: { self?: unknown } = {};
  loop.self = loop;
  test.each<[string, unknown, string]>([
    ['is the message', new Error('no route'), 'no route'],
    ['is a thrown string', 'no route', 'no route'],
    ['is undefined, when that was thrown', undefined, 'undefined'],
    ['is JSON of a thrown object', { status: 503 }, '{"status":503}'],
    ['is the type of a circular object', loop, '[object Object]'],
    ['is the type of an error with an odd message', withField('message', {}), '[object Error]'],
    ['is one line', new Error('first\r\nsecond\u0000\u0085third'), 'first second third'],
    ['has no half character', new Error('a\ud800b'), 'a\ufffdb'],
  ])('%s', (_, thrown, reason) => {
    expect(classify(thrown).reason).toBe(reason);
  });

  test('of exactly a thousand characters is kept whole', () => {
    const text = 'r'.repeat(REASON_MAX_CHARS);
    expect(classify(new Error(text)).reason).toBe(text);
  });

  test('of 100 MB is cut to a thousand characters and marked', () => {
    const { reason } = classify(new Error('r'.repeat(100 * 2 ** 20)));
    expect(reason).toBe(`${'r'.repeat(REASON_MAX_CHARS - 1)}…`);
  });

  test('is never cut through a character', () => {
    const { reason } = classify(new Error('😀'.repeat(REASON_MAX_CHARS)));
    expect(reason.isWellFormed()).toBe(true);
    expect(reason).toHaveLength(REASON_MAX_CHARS);
  });

  test('names no stack and no cause', () => {
    expect(classify(new Error('outer', { cause: new Error('secret') })).reason).toBe('outer');
  });
});

describe('the wait the other side asked for', () => {
  test.each<[string, unknown, number | undefined]>([
    ['is kept', new RetryableError('http.429', 'slow down', { retryAfter: '30s' }), 30_000],
    ['may be zero', new RetryableError('x', 'y', { retryAfter: 0 }), 0],
    ['is taken from any error that has it', withField('retryAfterMs', 1_500), 1_500],
    ['is taken from a cause', withCause(withField('retryAfterMs', 20)), 20],
    ['is rounded up', withField('retryAfterMs', 0.5), 1],
    ['is bounded', withField('retryAfterMs', 1e300), DURATION_MAX_MS],
    ['is not negative', withField('retryAfterMs', -1), undefined],
    ['is a number', withField('retryAfterMs', '30'), undefined],
    ['is not NaN', withField('retryAfterMs', Number.NaN), undefined],
    ['is not endless', withField('retryAfterMs', Number.POSITIVE_INFINITY), undefined],
    ['is not asked for by a plain error', new Error('x'), undefined],
    ['is left out when it cannot be read', withGetter('retryAfterMs'), undefined],
  ])('%s', (_, thrown, ms) => {
    const found = classify(thrown);
    expect(found.retryAfterMs).toBe(ms);
    expect('retryAfterMs' in found).toBe(ms !== undefined);
  });

  test('is refused when it is not a duration', () => {
    const error = refusal(() => new RetryableError('x', 'y', { retryAfter: 'soon' }));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toContain('"soon" as "retryAfter"');
  });
});

describe('our error classes', () => {
  test('keep name, code, reason and cause', () => {
    const why = new Error('why');
    const retryable = new RetryableError('a.b', 'c', { cause: why });
    const permanent = new PermanentError('a.b', 'c', { cause: undefined });
    expect([retryable.name, retryable.code, retryable.message]).toEqual([
      'RetryableError',
      'a.b',
      'c',
    ]);
    expect(retryable.cause).toBe(why);
    expect(retryable.retryAfterMs).toBeUndefined();
    expect([permanent.name, permanent.code, permanent.message]).toEqual([
      'PermanentError',
      'a.b',
      'c',
    ]);
    expect(Object.hasOwn(permanent, 'cause')).toBe(true);
    expect(Object.hasOwn(new PermanentError('a', 'b'), 'cause')).toBe(false);
  });
});

test('a failure carries the fingerprint of what is kept of it', () => {
  const long = `m-1 ${'x'.repeat(2_000)}`;
  const found = failure('transient', 'timeout', long);
  expect(found.fingerprint).toBe(fingerprint('timeout', found.reason));
  expect(classify(new Error('took 5 ms')).fingerprint).toBe(
    classify(new Error('took 77 ms')).fingerprint,
  );
});

describe('a failure that a handler built by hand', () => {
  const good: Failure = {
    permanence: 'transient',
    code: 'a',
    reason: 'b',
    fingerprint: 'own-word',
  };

  test('is taken as it is, with its own grouping', () => {
    expect(checkedFailure(good)).toEqual(good);
    expect(checkedFailure({ ...good, retryAfterMs: 5 })).toEqual({ ...good, retryAfterMs: 5 });
  });

  test('is cut to the limits', () => {
    const found = checkedFailure({ ...good, code: 'c'.repeat(999), reason: 'r'.repeat(9_999) });
    expect(found?.code).toHaveLength(CODE_MAX_CHARS);
    expect(found?.reason).toHaveLength(REASON_MAX_CHARS);
  });

  test.each<[string, unknown]>([
    ['missing', undefined],
    ['too long', 'f'.repeat(65)],
    ['not a word', 'a b'],
    ['not a string', 7],
  ])('gets a fingerprint when its own is %s', (_, own) => {
    expect(checkedFailure({ ...good, fingerprint: own })?.fingerprint).toBe(fingerprint('a', 'b'));
  });

  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['a string', 'b'],
    ['an Error', new Error('x')],
    ['another permanence', { ...good, permanence: 'maybe' }],
    ['no code', { ...good, code: undefined }],
    ['no reason', { ...good, reason: undefined }],
    ['a negative wait', { ...good, retryAfterMs: -1 }],
    ['a wait that is no number', { ...good, retryAfterMs: '5s' }],
    ['a wait that is NaN', { ...good, retryAfterMs: Number.NaN }],
  ])('is none with %s', (_, value) => {
    expect(checkedFailure(value)).toBeNull();
  });
});

function final(): PermanentError {
  return new PermanentError('smtp.550', 'no such user');
}

function again(): RetryableError {
  return new RetryableError('smtp.451', 'greylisted');
}

function cause(error: Error): { readonly cause: Error } {
  return { cause: error };
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}
