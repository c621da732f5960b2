/** The closed list of codes, and texts of unknown values. */
import { describe, expect, test } from 'vitest';
import { ERROR_CODES, isRespoolError, RespoolError } from 'respool';
import { asError, assert, show, textOf, unreachable } from '../../src/core/errors.ts';

/** An object whose every property throws. */
const hostile = new Proxy({}, { get: () => bang(), getPrototypeOf: () => bang() });

function bang(): never {
  throw new Error('bang');
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

test('the list of codes is what users switch on: it changes only on purpose', () => {
  expect(ERROR_CODES).toEqual([
    'store.unavailable',
    'store.corrupt',
    'store.version',
    'store.full',
    'body.missing',
    'body.corrupt',
    'move.refused',
    'message.unknown',
    'message.duplicate',
    'message.invalid',
    'policy.unknown',
    'policy.invalid',
    'handler.missing',
    'config.invalid',
    'peer.missing',
    'broker.unavailable',
    'broker.unroutable',
    'broker.unconfirmed',
    'topology.mismatch',
    'key.unavailable',
    'transform.missing',
    'limit.exceeded',
    'engine.stopping',
  ]);
});

test('every code is there once, in the form room.word', () => {
  expect(new Set(ERROR_CODES).size).toBe(ERROR_CODES.length);
  for (const code of ERROR_CODES) expect(code).toMatch(/^[a-z]+\.[a-z]+$/);
});

describe('a RespoolError', () => {
  test('carries its code, its text and its cause', () => {
    const cause = new Error('disk gone');
    const error = new RespoolError('store.unavailable', 'cannot open "x"', { cause });
    expect(error).toBeInstanceOf(Error);
    expect(error.name).toBe('RespoolError');
    expect(error.code).toBe('store.unavailable');
    expect(error.message).toBe('cannot open "x"');
    expect(error.cause).toBe(cause);
  });

  test('is recognised, also by its code', () => {
    const error = new RespoolError('store.full', 'no room');
    expect(isRespoolError(error)).toBe(true);
    expect(isRespoolError(error, 'store.full')).toBe(true);
    expect(isRespoolError(error, 'store.corrupt')).toBe(false);
    for (const other of [new Error('x'), { code: 'store.full' }, undefined, null, 'store.full']) {
      expect(isRespoolError(other)).toBe(false);
    }
  });
});

describe('a bug', () => {
  test('a failed assertion says that it is ours', () => {
    expect(() => assert(false, 'revision went backwards')).toThrow(
      'bug in respool: revision went backwards',
    );
    expect(() => assert(1, 'fine')).not.toThrow();
  });

  test('a case nobody thought of stops the program and names the value', () => {
    expect(() => unreachable({ kind: 'odd' } as never)).toThrow(
      'bug in respool: unexpected {"kind":"odd"}',
    );
  });
});

describe('the text of an unknown value', () => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  test.each<[string, unknown, string]>([
    ['an error says its message', new Error('no route'), 'no route'],
    ['an error without a message says its name', new TypeError(''), 'TypeError'],
    ['a string is itself', 'no route', 'no route'],
    ['an empty string stays empty', '', ''],
    ['an object is written as JSON', { status: 503 }, '{"status":503}'],
    ['undefined has a name', undefined, 'undefined'],
    ['null has a name', null, 'null'],
    ['a number is written', Number.NaN, 'NaN'],
    ['a bigint is written', 12n, '12'],
    ['a symbol is written', Symbol('odd'), 'Symbol(odd)'],
    ['a cycle has a type', cycle, '[object Object]'],
    ['a hostile toJSON leaves the type', { toJSON: bang }, '[object Object]'],
    ['a toJSON that says nothing leaves the type', { toJSON: () => undefined }, '[object Object]'],
    [
      'a message that is no string leaves the type',
      Object.assign(new Error('x'), { message: 42 }),
      '[object Error]',
    ],
    ['a hostile proxy is unreadable', hostile, '[unreadable object]'],
    ['a revoked proxy is unreadable', revoked(), '[unreadable object]'],
  ])('%s', (_, value, text) => {
    expect(textOf(value)).toBe(text);
  });

  test('in an error text a long path keeps its file name', () => {
    const file = `${'/a-long-folder-name'.repeat(8)}/inner/respool.config.production.yaml`;
    expect(show(file)).toMatch(
      /^"\/a-long-folder-name.*….*\/inner\/respool\.config\.production\.yaml"$/,
    );
    expect(show(file)).toHaveLength(80);
    expect(show(`😀${'😀'.repeat(100)}`).isWellFormed()).toBe(true);
  });

  test('in an error text it is quoted and shortened in the middle', () => {
    expect(show('a"b')).toBe('"a\\"b"');
    expect(show(7)).toBe('7');
    expect(show('x'.repeat(500))).toBe(`"${'x'.repeat(24)}…${'x'.repeat(53)}"`);
    expect(show(hostile)).toBe('[unreadable object]');
  });
});

test('whatever is thrown becomes an error, and that never throws', () => {
  const error = new Error('x');
  expect(asError(error)).toBe(error);
  expect(asError('text').message).toBe('text');
  // String() of this one throws.
  expect(asError(Object.create(null))).toBeInstanceOf(Error);
  const hostile = new Proxy(
    {},
    {
      getPrototypeOf: () => {
        throw new Error('no');
      },
    },
  );
  expect(asError(hostile)).toBeInstanceOf(Error);
});
