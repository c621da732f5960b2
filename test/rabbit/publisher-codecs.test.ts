/** Codecs: from values to bytes and back, by content type (R144). */
import { describe, expect, test } from 'vitest';
import type { ContentCodec } from 'respool/rabbit';
import { decodersOf, encodersOf } from '../../src/rabbit/publish/codecs.ts';

/** A type of our own: numbers as one byte. */
const byte: ContentCodec = {
  contentType: 'application/x-byte',
  encode: (value) => Uint8Array.of(Number(value)),
  decode: (bytes) => bytes[0],
};

describe('the built-in codecs', () => {
  const encode = encodersOf();
  const decode = decodersOf();

  test.each([
    ['application/json', { a: [1, 'ü', null] }],
    ['application/json; charset=utf-8', 'text'],
    ['Application/JSON', false],
    ['application/problem+json', { title: 'gone' }],
    ['text/plain', 'Grüße'],
    ['text/plain; charset=utf-8', ''],
  ])('%s: a value comes back as it was', (contentType, value) => {
    expect(decode(contentType, encode(contentType, value))).toEqual(value);
  });

  test('bytes go as they are, whatever the content type says', () => {
    const bytes = Uint8Array.of(0, 255, 128);
    expect([...encode('application/octet-stream', bytes)]).toEqual([0, 255, 128]);
    expect([...encode('application/zstd', bytes)]).toEqual([0, 255, 128]);
    expect([...(decode('application/octet-stream', bytes) as Uint8Array)]).toEqual([0, 255, 128]);
  });

  test('a message without a content type is read as JSON', () => {
    expect(decode(undefined, Buffer.from('{"a":1}'))).toEqual({ a: 1 });
  });

  test('no body is an empty one', () => {
    expect(encode('application/json', undefined)).toHaveLength(0);
  });

  test.each([
    ['application/json', () => 1, /cannot write the body as "application\/json": function/],
    ['application/json', 1n, /BigInt/],
    ['text/plain', 7, /7 is no text/],
    ['text/plain', 'a\uD83Db', /half a surrogate pair/],
    ['application/octet-stream', 'text', /"text" is not bytes/],
    ['image/png', { a: 1 }, /known are application\/json, text\/plain/],
  ])('%s refuses what it cannot write', (contentType, value, text) => {
    expect(() => encode(contentType, value)).toThrow(
      expect.objectContaining({ code: 'message.invalid', message: expect.stringMatching(text) }),
    );
  });

  test.each([
    ['application/json', Buffer.from('{"a":'), /not what its content type/],
    ['application/json', Buffer.alloc(0), /not what its content type/],
    ['text/plain', Uint8Array.of(0xc3), /not what its content type/],
    ['image/png', Buffer.from('x'), /known are .*register a decoder/],
  ])('%s refuses what it cannot read, for good', (contentType, bytes, text) => {
    expect(() => decode(contentType, bytes)).toThrow(
      expect.objectContaining({
        name: 'PermanentError',
        code: 'body.invalid',
        message: expect.stringMatching(text),
      }),
    );
  });
});

describe('a codec of your own', () => {
  test('is used both ways for its content type', () => {
    expect([...encodersOf([byte])('application/x-byte', 7)]).toEqual([7]);
    expect(decodersOf([byte])('application/X-Byte;v=1', Uint8Array.of(7))).toBe(7);
  });

  test('replaces a built-in one', () => {
    const loud: ContentCodec = { ...byte, contentType: 'text/plain', decode: () => 'LOUD' };
    expect(decodersOf([loud])('text/plain', Buffer.from('x'))).toBe('LOUD');
  });

  test('that gives no bytes is told so', () => {
    const broken = { ...byte, encode: () => 'text' } as unknown as ContentCodec;
    expect(() => encodersOf([broken])('application/x-byte', 7)).toThrow(/an encoder gives bytes/);
  });

  test.each([
    ['no list', byte],
    ['no codec', [7]],
    ['no content type', [{ ...byte, contentType: ' ' }]],
    ['half a codec', [{ contentType: 'a/b', encode: () => Uint8Array.of(1) }]],
    ['a strange name', [{ ...byte, decoder: () => 1 }]],
  ])('is refused when it is %s', (_, codecs) => {
    expect(() => decodersOf(codecs as unknown as ContentCodec[])).toThrow(
      expect.objectContaining({ code: 'config.invalid' }),
    );
  });
});
