/** Properties of the checks at the door. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Headers, isRespoolError } from 'respool';
import {
  checkHeaders,
  checkId,
  checkKey,
  checkPriority,
  checkTopic,
  checkTopicPattern,
} from '../../src/core/limits.ts';
import { always } from './runs.ts';

const MAX_BYTES = 32 * 1024;
const RESERVED = ['__proto__', 'constructor', 'prototype'];

/** The answer, or undefined when it was refused with one of our codes. */
function accepted<T>(check: () => T): T | undefined {
  try {
    return check();
  } catch (error) {
    if (isRespoolError(error, 'message.invalid')) return undefined;
    if (isRespoolError(error, 'limit.exceeded')) return undefined;
    throw error;
  }
}

const oddText = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string(),
  fc.string({
    unit: fc.constantFrom('a', 'Z', '0', '.', '_', '-', '\r', '\n', '\0', 'é', '\ud800'),
  }),
);
const headerName = fc.oneof(oddText, fc.constantFrom(...RESERVED, 'x-a', 'b'));
const headerSet = fc
  .array(fc.tuple(headerName, fc.oneof(oddText, fc.anything())), { maxLength: 6 })
  .map((pairs) => {
    const headers: Record<string, unknown> = {};
    for (const [name, value] of pairs) {
      Object.defineProperty(headers, name, { value, enumerable: true, configurable: true });
    }
    return headers;
  });

describe('headers that are accepted', () => {
  test('have no control character, no half character and no reserved name', () => {
    always([headerSet], (given) => {
      const headers = accepted(() => checkHeaders(given, MAX_BYTES));
      if (headers === undefined) return;
      expect(headers).toEqual(given);
      for (const [name, value] of Object.entries(headers)) {
        expect(RESERVED).not.toContain(name);
        expect(name).toMatch(/^[\w.-]{1,128}$/);
        expect(value).not.toMatch(/\p{Cc}/u);
        expect(value.isWellFormed()).toBe(true);
      }
    });
  });

  test('have at most the bytes that are allowed, counted as UTF-8', () => {
    const value = fc.string({ unit: 'grapheme', maxLength: 40 });
    const names = fc.stringMatching(/^[a-z]{1,9}$/);
    always(
      [fc.dictionary(names, value, { maxKeys: 6 }), fc.nat({ max: 200 })],
      (given: Headers, max) => {
        if (RESERVED.some((name) => Object.hasOwn(given, name))) return;
        if (Object.values(given).some((text) => /\p{Cc}/u.test(text))) return;
        const bytes = Object.entries(given).reduce(
          (sum, [name, text]) => sum + Buffer.byteLength(name) + Buffer.byteLength(text),
          0,
        );
        expect(accepted(() => checkHeaders(given, max)) !== undefined).toBe(bytes <= max);
      },
    );
  });
});

describe('of anything at all', () => {
  const anything = fc.oneof(oddText, fc.anything({ withBigInt: true, withNullPrototype: true }));

  test('an id is accepted exactly when it has the form of one', () => {
    const likely = fc.oneof(anything, fc.stringMatching(/^[0-9a-zA-Z_-]{0,66}$/));
    always([likely], (value) => {
      const isId = typeof value === 'string' && /^[0-9a-z][0-9a-z_-]{0,63}$/.test(value);
      expect(accepted(() => checkId(value))).toBe(isId ? value : undefined);
    });
  });

  test('a topic that is accepted is also a pattern, one that is not pattern-like', () => {
    const likely = fc.oneof(anything, fc.stringMatching(/^[a-z.:*#]{0,12}$/));
    always([likely], (value) => {
      const topic = accepted(() => checkTopic(value));
      if (topic === undefined) return;
      expect(accepted(() => checkTopicPattern(topic))).toBe(topic);
      expect(topic).not.toMatch(/[*#]/);
    });
  });

  test('a key is printable text of 1 to 255 characters', () => {
    always([anything], (value) => {
      const key = accepted(() => checkKey('dedupe key', value));
      if (key === undefined) return;
      expect(key).toBe(value);
      expect(key.length).toBeGreaterThan(0);
      expect(key.length).toBeLessThanOrEqual(255);
      expect(key).not.toMatch(/\p{Cc}/u);
    });
  });

  test('a priority is a whole number 0 to 9', () => {
    always([fc.oneof(fc.integer({ min: -5, max: 15 }), anything)], (value) => {
      const priority = accepted(() => checkPriority(value));
      const fits = Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 9;
      if (value === undefined) expect(priority).toBe(5);
      else expect(priority).toBe(fits ? value : undefined);
    });
  });
});
