/** Headers of a publisher: what is refused, and what survives the way through a spool. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readProperties, writtenProperties } from '../../src/rabbit/publish/fallback.ts';
import { checkMessageHeaders } from '../../src/rabbit/publish/message.ts';

const name = fc.oneof(
  fc.string({ maxLength: 10 }).filter((text) => text !== '__proto__'),
  fc.constantFrom('respool-bytes', 'respool-number', 'respool-integer', 'respool-date'),
  fc.constantFrom('respool-table', '!', 'value', 'toJSON'),
);

const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.string({ unit: 'binary' }),
    fc.double(),
    fc.constantFrom<unknown>(null, true, false, -0, Number.NaN, Infinity, -Infinity),
    fc.bigInt(),
    fc.date({ noInvalidDate: false }),
    fc.uint8Array().map((bytes) => Buffer.from(bytes)),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(name, tie('value'), { maxKeys: 4, noNullPrototype: true }),
  ),
}));

describe('on the way through a spool', () => {
  test('every value comes back as it was, in text without control characters', () => {
    fc.assert(
      fc.property(
        fc.dictionary(name, value, { maxKeys: 5, noNullPrototype: true }),
        fc.string(),
        (headers, messageId) => {
          const text = writtenProperties({ headers, messageId });
          // oxlint-disable-next-line no-control-regex -- they are what is looked for.
          expect(text).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
          expect(readProperties(text)).toStrictEqual({ headers, messageId });
        },
      ),
    );
  });

  test('what is undefined is left out, as AMQP does it', () => {
    const text = writtenProperties({ appId: undefined, headers: { a: undefined, b: 1 } });
    expect(readProperties(text)).toStrictEqual({ headers: { b: 1 } });
  });

  test.each([() => 1, Symbol('x'), [undefined]])('%o is refused', (odd) => {
    expect(() => writtenProperties({ headers: { odd } })).toThrow(
      expect.objectContaining({ code: 'message.invalid' }),
    );
  });
});

describe('before anything is sent', () => {
  test.each<[string, unknown, RegExp]>([
    ['NaN', Number.NaN, /'double'/],
    ['-Infinity', -Infinity, /'double'/],
    ['a bigint', 5n, /'int64'/],
    ['a Date', new Date(0), /'timestamp'/],
    ['a Map', new Map(), /a list or table/],
    ['bytes that are no Buffer', new Uint8Array(2), /a Buffer/],
    ['a function', () => 1, /allowed|use text/],
    ['a gap in a list', [undefined], /use text/],
    ['something deep down', { a: [{ b: 5n }] }, /header "x"/],
  ])('%s is refused, and the text says what to write', (_, bad, text) => {
    expect(() => checkMessageHeaders({ x: bad })).toThrow(
      expect.objectContaining({
        code: 'message.invalid',
        message: expect.stringMatching(text),
      }),
    );
  });

  test('a cycle and a name that is too long are refused', () => {
    const cycle: Record<string, unknown> = {};
    cycle['self'] = cycle;
    expect(() => checkMessageHeaders({ cycle })).toThrow(/nested more than 32 deep/);
    expect(() => checkMessageHeaders({ ['ü'.repeat(128)]: 1 })).toThrow(/255 bytes/);
  });

  test('what AMQP has a word for is taken', () => {
    const typed = { '!': 'int64', value: 2n ** 60n };
    const headers = { a: 'x', b: [1, null, { c: true, d: undefined }], e: Buffer.from('x'), typed };
    expect(() => checkMessageHeaders({ ...headers, f: Infinity, g: undefined })).not.toThrow();
    expect(() => checkMessageHeaders({ ['x'.repeat(255)]: 1 })).not.toThrow();
  });
});
