import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { goqueueEnvelope, openEnvelope } from '../../../src/rabbit/compat/goqueue.ts';

const MESSAGE = { id: 'a', topic: 'shop', action: 'order.created', timestamp: 1_772_600_767_890 };

describe('an envelope of GoQueue', () => {
  test('is built with the headers that its publisher writes', () => {
    const { content, properties } = goqueueEnvelope({ ...MESSAGE, data: { n: 1 }, appId: 'api' });
    expect(JSON.parse(String(content))).toEqual({
      id: 'a',
      action: 'order.created',
      topic: 'shop',
      data: { n: 1 },
      timestamp: '2026-03-04T05:06:07.890Z',
    });
    expect(properties).toEqual({
      contentType: 'application/json',
      messageId: 'a',
      timestamp: 1_772_600_767,
      appId: 'api',
      headers: {
        'goqueue-app-id': 'api',
        'goqueue-message-id': 'a',
        'goqueue-published-timestamp': '2026-03-04T05:06:07.890Z',
        'goqueue-retry-count': 0,
        'goqueue-content-type': 'application/json',
        'goqueue-queue-service-agent': 'goqueue/rabbitmq',
        'goqueue-schema-version': '1.0.0',
      },
    });
    expect(goqueueEnvelope({ ...MESSAGE, data: 0 }).properties.appId).toBeUndefined();
  });

  test('is refused without data, which GoQueue would discard', () => {
    for (const data of [undefined, null, '']) {
      expect(() => goqueueEnvelope({ ...MESSAGE, data })).toThrow(/cannot put message "a"/);
    }
  });

  test('gives back whatever was put into it', () => {
    const data = fc.jsonValue().filter((value) => value !== null && value !== '');
    fc.assert(
      fc.property(data, (value) => {
        const opened = openEnvelope(goqueueEnvelope({ ...MESSAGE, data: value }).content);
        expect(String(opened?.data())).toBe(JSON.stringify(value));
        expect(opened).toMatchObject({ id: 'a', topic: 'shop', action: 'order.created' });
      }),
    );
  });

  test('keeps numbers that are too long for us, spaces and the last of two', () => {
    const open = (text: string): string => String(openEnvelope(Buffer.from(text))?.data());
    expect(open('{"id":"a","data":{"n":12345678901234567890}}')).toBe('{"n":12345678901234567890}');
    expect(open('{ "x\\"data" : [1,{"data":2}], "data" : "a,\\"}" , "id":"a"}')).toBe('"a,\\"}"');
    expect(open('{"data":1,"id":"a","data": 2 }')).toBe('2');
  });

  test.each(['', 'text', '[]', '{"data":1}', '{"id":"a"}', '{"id":"a","data":', 'null "data"'])(
    'is not seen in %j',
    (text) => {
      expect(openEnvelope(Buffer.from(text))).toBeUndefined();
    },
  );
});
