/** Whatever headers hold, there is a letter, and it can be shown. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { goqueue, outbox, type Properties, spring } from 'respool/rabbit';
import { LETTER_HEADER_MAX_CHARS } from '../../../src/rabbit/queues/letter.ts';
import { letterOf } from './letter-ground.ts';

const WIRES = [undefined, goqueue().wire, spring().wire, outbox().wire];
const OURS = [
  'respool-queue',
  'respool-exchange',
  'respool-routing-key',
  'respool-deaths',
  'respool-replays',
  'respool-replay',
  'respool-ended-code',
  'respool-ended-reason',
  'respool-ended-at',
  'respool-code',
  'respool-reason',
  'respool-notes',
  'respool-first-at',
  'respool-swept-from',
  'return-to',
  'x-death',
  'x-first-death-queue',
  'x-exception-message',
  'goqueue-retry-count',
  'x-message-retries',
  'x-delivery-count',
];

test('any table of headers gives a letter that can be shown', () => {
  const value = fc.oneof(
    fc.anything({
      withBigInt: true,
      withDate: true,
      withTypedArray: true,
      withNullPrototype: true,
    }),
    fc.string({ unit: 'binary' }),
    fc.array(
      fc.record(
        {
          queue: fc.anything(),
          reason: fc.anything(),
          count: fc.anything(),
          time: fc.anything(),
          exchange: fc.anything(),
          'routing-keys': fc.anything(),
        },
        { requiredKeys: [] },
      ),
    ),
  );
  const headers = fc.dictionary(fc.oneof(fc.constantFrom(...OURS), fc.string()), value);
  const anyProperties = fc.record({
    messageId: fc.oneof(fc.string({ unit: 'binary' }), fc.anything()),
    contentType: fc.anything(),
    timestamp: fc.anything(),
    expiration: fc.anything(),
  });
  const bodies = fc.oneof(fc.string(), fc.json());
  fc.assert(
    fc.property(
      headers,
      anyProperties,
      bodies,
      fc.constantFrom(...WIRES),
      (table, properties, content, wire) => {
        const parts = { properties: properties as Properties, content, place: { wire } };
        const letter = letterOf(table, parts);
        expect(letter.id).not.toBe('');
        expect(letterOf(table, parts).key).toBe(letter.key);
        expect(letter.deaths).toBeGreaterThanOrEqual(0);
        const { id, topic, origin, code, reason, headers: texts } = letter;
        for (const text of [id, topic, origin, code, reason, ...Object.entries(texts).flat()]) {
          expect(text).not.toMatch(/\p{Cc}/u);
          expect(text.isWellFormed()).toBe(true);
          expect(text.length).toBeLessThanOrEqual(LETTER_HEADER_MAX_CHARS);
        }
      },
    ),
    { numRuns: 500 },
  );
});
