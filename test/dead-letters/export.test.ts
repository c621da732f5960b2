/** export — a letter as one object with stable keys, and its body in the plainest safe form. */
import { expect, test } from 'vitest';
import { bodyObject, exportLetter, letterObject } from '../../src/dead-letters/export.ts';
import { fakeLetters, letterOf } from './fake-letters.ts';

test('a letter has the same keys in the same order, whatever is known of it', () => {
  const bare = letterObject(letterOf());
  const full = letterObject(
    letterOf({
      replayedBy: 'r1',
      enqueuedAt: 1,
      diedAt: 2,
      contentType: 'text/plain',
      home: { kind: 'topic', topic: 'a' },
    }),
  );
  expect(Object.keys(bare)).toEqual(Object.keys(full));
  expect(bare).toMatchObject({ replayedBy: null, enqueuedAt: null, diedAt: null, home: null });
  expect(full).toMatchObject({ replayedBy: 'r1', home: { kind: 'topic', topic: 'a' } });
});

test.each([
  ['{"a":1, "b":[true]}', undefined, { json: { a: 1, b: [true] } }],
  ['{"a":1}', 'application/problem+json', { json: { a: 1 } }],
  ['{"a":1}', 'text/plain', { text: '{"a":1}' }],
  // What would not come back as it was stays text.
  ['{"a":12345678901234567890}', undefined, { text: '{"a":12345678901234567890}' }],
  ['{"a":1,"a":2}', undefined, { text: '{"a":1,"a":2}' }],
  ['{"a":', 'application/json', { text: '{"a":' }],
  ['7', undefined, { text: '7' }],
  ['', undefined, { text: '' }],
  ['two\nlines', undefined, { text: 'two\nlines' }],
  ['\u001b[2J', undefined, { base64: 'G1sySg==' }],
  [Buffer.from([0xff, 0x00]), 'application/json', { base64: '/wA=' }],
] as const)('the body %j of type %s is %j', (body, contentType, expected) => {
  expect(bodyObject(Buffer.from(body), contentType)).toEqual(expected);
});

test('a letter and its body are one object, and what is added stands before the body', async () => {
  const lines: object[] = [];
  for await (const open of fakeLetters([letterOf()], Buffer.from('[1]')).look()) {
    lines.push(await exportLetter(open, { category: 'timeout' }));
  }
  expect(lines).toMatchObject([{ id: 'one', category: 'timeout', json: [1] }]);
  expect(Object.keys(lines[0] ?? {}).slice(-2)).toEqual(['category', 'json']);
});
