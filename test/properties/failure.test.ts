/** Whatever is thrown becomes a failure. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { classify, fingerprint, isPermanent, isRetryable, PermanentError } from 'respool';
import { textOf } from '../../src/core/errors.ts';
import { checkedFailure, CODE_MAX_CHARS, REASON_MAX_CHARS } from '../../src/core/failure.ts';
import { isOutcome } from '../../src/core/verdict.ts';
import { always } from './runs.ts';

const anything = fc.anything({
  withBigInt: true,
  withDate: true,
  withMap: true,
  withNullPrototype: true,
  withSparseArray: true,
  withTypedArray: true,
  key: fc.oneof(
    fc.constantFrom('code', 'cause', 'isRetryable', 'retryAfterMs', 'message', 'name', 'toJSON'),
    fc.string(),
  ),
});

/** Errors with odd fields, some of which throw when they are read, and chains of them. */
const oddError = fc
  .tuple(
    fc.string(),
    fc.dictionary(
      fc.constantFrom('code', 'cause', 'isRetryable', 'retryAfterMs', 'message', 'name'),
      fc.oneof(anything, fc.func(anything), fc.constant(PermanentError)),
      { maxKeys: 4 },
    ),
    fc.boolean(),
  )
  .map(([text, fields, isHostile]) => {
    const error = new Error(text);
    for (const [name, value] of Object.entries(fields)) {
      const get = (): unknown => {
        if (isHostile) throw new Error('bang');
        return value;
      };
      Object.defineProperty(error, name, { get, configurable: true });
    }
    return error;
  });

const thrown = fc.oneof(anything, oddError, fc.string({ maxLength: 3_000, size: 'max' }));

describe('of anything thrown', () => {
  test('classify makes a failure within its limits, and never throws', () => {
    always([thrown], (value) => {
      const found = classify(value);
      expect(['transient', 'permanent']).toContain(found.permanence);
      expect(found.code.length).toBeLessThanOrEqual(CODE_MAX_CHARS);
      expect(found.reason.length).toBeLessThanOrEqual(REASON_MAX_CHARS);
      expect(found.code + found.reason).not.toMatch(/\p{Cc}/u);
      expect((found.code + found.reason).isWellFormed()).toBe(true);
      expect(found.fingerprint).toBe(fingerprint(found.code, found.reason));
      expect(Number.isSafeInteger(found.retryAfterMs ?? 0)).toBe(true);
      expect(found.retryAfterMs ?? 0).toBeGreaterThanOrEqual(0);
      expect(JSON.parse(JSON.stringify(found))).toEqual(found);
      expect(checkedFailure(found)).toEqual(found);
    });
  });

  test('it is retryable or permanent, never both', () => {
    always([thrown], (value) => {
      expect(isRetryable(value)).toBe(!isPermanent(value));
      expect(classify(value).permanence).toBe(isRetryable(value) ? 'transient' : 'permanent');
    });
  });

  test('it is permanent only if it or a cause of it said so', () => {
    always([fc.string(), fc.string()], (text, inner) => {
      expect(isPermanent(new Error(text))).toBe(false);
      expect(isPermanent(new Error(text, { cause: inner }))).toBe(false);
      expect(isPermanent(new Error(text, { cause: new PermanentError('x', inner) }))).toBe(true);
    });
  });

  test('it has a text', () => {
    always([thrown], (value) => {
      expect(typeof textOf(value)).toBe('string');
    });
  });
});

test('of anything returned, a handler’s word is told from what is none, or it is a failure', () => {
  const kinds = fc.record({
    kind: fc.constantFrom('delivered', 'failed', 'postponed', 'held', 'other'),
    failure: anything,
    delayMs: fc.oneof(fc.nat(), anything),
    reason: fc.oneof(fc.string(), anything),
  });
  always([fc.oneof(anything, kinds)], (value) => {
    try {
      expect(typeof isOutcome(value)).toBe('boolean');
    } catch (error) {
      expect(classify(error)).toMatchObject({ permanence: 'transient', code: 'outcome.invalid' });
    }
  });
});

test('a fingerprint does not see numbers, ids and quoted parts', () => {
  const word = fc.constantFrom('disk', 'full', 'user', 'gone', 'port');
  const numbers = fc.tuple(fc.nat(), fc.uuid(), fc.stringMatching(/^[a-z ]{0,20}$/));
  always([fc.array(word), word, numbers, numbers], (words, code, one, other) => {
    const reason = ([number, id, quoted]: readonly [number, string, string]): string =>
      [...words, number, id, `"${quoted}"`, 'end'].join(' ');
    expect(fingerprint(code, reason(one))).toBe(fingerprint(code, reason(other)));
  });
});
