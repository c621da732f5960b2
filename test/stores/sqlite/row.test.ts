import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  decodeRow,
  envelopeColumns,
  newColumns,
  statusColumns,
} from '../../../src/stores/sqlite/row.ts';
import { sampleEntry } from 'respool/testkit';

const text = fc.string({ unit: 'binary', maxLength: 20 });

test('the text of an envelope is its JSON, whatever is in it', () => {
  fc.assert(
    fc.property(
      fc.record({
        id: text,
        topic: text,
        digest: text,
        ref: fc.constantFrom('', 'x"'),
        place: fc.constantFrom('inline', 'store'),
        headers: fc.dictionary(text, text, { maxKeys: 2, noNullPrototype: true }),
        encodings: fc.constantFrom([], ['zstd']),
        rare: fc.constantFrom({}, { destination: 'd' }, { ownId: true }),
      }),
      ({ id, topic, digest, ref, place, headers, encodings, rare }) => {
        const { envelope } = sampleEntry('m1');
        const body = { ...envelope.body, digest, ref, place, encodings };
        const given = { ...envelope, id, topic, headers, body, ...rare } as typeof envelope;
        const [, , , , , written] = envelopeColumns(given);
        expect(JSON.parse(written)).toEqual(JSON.parse(JSON.stringify(given)));
      },
    ),
    { numRuns: 1_000 },
  );
});

test('a new entry brings four columns, a handed-over one seven, any other all', () => {
  const { status } = sampleEntry('m1');
  expect(newColumns(status, 'm1')).toHaveLength(4);
  const claimed = {
    ...status,
    state: 'active',
    attempts: 1,
    holder: 'h/1',
    claimedFrom: 'incoming',
  } as const;
  expect(newColumns(claimed, 'm1')).toHaveLength(7);
  expect(newColumns({ ...status, lost: 1 }, 'm1')).toBeUndefined();
  expect(newColumns({ ...status, policy: 'fast' }, 'm1')).toBeUndefined();
  expect(newColumns({ ...status, attempts: 2 }, 'm1')).toBeUndefined();
  expect(() => newColumns({ ...status, dueAt: 1.5 }, 'm1')).toThrow(/whole number/);
});

test('what is written with all columns is read back the same', () => {
  const { envelope, status, inlineBody } = sampleEntry('m1', { bytes: new Uint8Array([1, 2]) });
  const columns = statusColumns(status, 'm1');
  const written = envelopeColumns(envelope)[5];
  expect(decodeRow([1, 'm1', ...columns, written, inlineBody ?? null])).toEqual({
    envelope,
    status,
    inlineBody,
  });
});
