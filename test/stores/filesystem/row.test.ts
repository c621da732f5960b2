/** What a file is called and what stands in it, both ways. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import type { Status } from 'respool';
import {
  FILE_BLOCK_BYTES,
  decodeContent,
  encodeContent,
  fileName,
  headLine,
  mergeStatus,
  type NamedStatus,
  parseFileName,
} from '../../../src/stores/filesystem/row.ts';

const DUE = Date.UTC(2026, 10, 15, 10, 14, 47, 123);

const idArbitrary = fc.stringMatching(/^[0-9a-z][0-9a-z_-]{0,63}$/);
const statusArbitrary: fc.Arbitrary<NamedStatus> = fc.record(
  {
    revision: fc.integer({ min: 1, max: 1e9 }),
    dueAt: fc.option(fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }), { nil: null }),
    attempts: fc.nat(9_999),
    notices: fc.nat(9_999),
    lost: fc.nat(9_999),
    updatedAt: fc.integer({ min: 0, max: Date.UTC(2200, 0) }),
    claimedFrom: fc.constantFrom('incoming', 'deferred', 'bounce', 'active'),
    holder: fc.string({ maxLength: 20 }),
  },
  { requiredKeys: ['revision', 'dueAt', 'attempts', 'notices', 'lost', 'updatedAt'] },
);

describe('file names', () => {
  test('a name tells id, revision, due time, attempts and holder to a person', () => {
    const status = { ...sampleEntry('a').status, revision: 2, attempts: 1, dueAt: DUE };
    const named = { ...status, updatedAt: DUE, claimedFrom: 'incoming', holder: 'k3:7' } as const;
    expect(fileName('0198-e1', named)).toBe(
      '0198-e1,r2,due-20261115T101447123Z,a1,n0,l0,at-20261115T101447123Z,from-incoming,by-k3:7',
    );
    expect(fileName('a', { ...status, dueAt: null })).toContain(',due-never,');
  });

  test('a name is read back as what it was made from', () => {
    fc.assert(
      fc.property(idArbitrary, statusArbitrary, (id, status) => {
        const name = fileName(id, status);
        expect(Buffer.byteLength(name)).toBeLessThanOrEqual(255);
        expect(name).not.toContain('/');
        const parsed = parseFileName(name);
        expect(parsed?.id).toBe(id);
        // A long holder is cut in the name; all other parts come back as they were.
        expect({ ...parsed?.status, holder: '' }).toEqual({ ...status, holder: '' });
        expect(status.holder ?? '').toContain(parsed?.status.holder ?? '');
      }),
    );
  });

  test('a holder that fits comes back as it was', () => {
    for (const holder of ['x:1', 'host/7 (a)', 'ünï, code', '..', "it's*!~", '%41', '']) {
      const { status } = sampleEntry('a');
      expect(parseFileName(fileName('a', { ...status, holder }))?.status.holder).toBe(holder);
    }
  });

  test.each([
    '.DS_Store',
    'a',
    'a,r1',
    'A,r1,due-never,a0,n0,l0,at-20261115T101447123Z',
    'a,r01,due-never,a0,n0,l0,at-20261115T101447123Z',
    'a,r1,due-20261315T101447123Z,a0,n0,l0,at-20261115T101447123Z',
    'a,r1,due-never,a0,n0,l0,at-20261115T101447123Z.bak',
    '../a,r1,due-never,a0,n0,l0,at-20261115T101447123Z',
    'a,r1,due-never,a0,n0,l0,at-20261115T101447123Z,from-active,by-%zz',
  ])('the name %s is not one of ours', (name) => {
    expect(parseFileName(name)).toBeUndefined();
  });
});

describe('contents', () => {
  const { envelope, status } = sampleEntry('a');
  const head = headLine(JSON.stringify(envelope), JSON.stringify(status));
  const body = Buffer.from('the body\nof two lines');

  test('a content is a JSON line, the body and a trailer at the end', () => {
    const text = Buffer.from(encodeContent(head, body)).toString();
    expect(text.split('\n')[0]).toBe(head);
    expect(text).toContain('\nthe body\nof two lines\n');
    expect(text).toMatch(/ respool-end head=\d+ body=21 crc32=[0-9a-f]{8} END\n$/);
  });

  test('a content of any size is a whole number of blocks and comes back', () => {
    for (const size of [0, 1, 1_024, 3_000, 4_095, 4_096, 5_000, 70_000]) {
      const bytes = encodeContent(head, Buffer.alloc(size, 7));
      expect(bytes.length % FILE_BLOCK_BYTES).toBe(0);
      const content = decodeContent(Buffer.from(bytes), 'a');
      expect(content).toMatchObject({ envelope, status });
      expect((content as { body: Uint8Array }).body).toEqual(Buffer.alloc(size, 7));
    }
  });

  test('a content that is cut off anywhere is not believed', () => {
    const bytes = Buffer.from(encodeContent(head, body));
    for (let length = 0; length < bytes.length; length += 13) {
      expect(typeof decodeContent(bytes.subarray(0, length), 'a')).toBe('string');
    }
  });

  test('a content with one flipped bit is not believed', () => {
    const bytes = Buffer.from(encodeContent(head, body));
    for (let at = 0; at < bytes.length; at += 7) {
      const damaged = Buffer.from(bytes);
      damaged[at] = (damaged[at] ?? 0) ^ 1;
      expect(typeof decodeContent(damaged, 'a')).toBe('string');
    }
  });

  test('a content of another message, or of another version, is not believed', () => {
    expect(decodeContent(Buffer.from(encodeContent(head, body)), 'b')).toContain('"a"');
    const newer = head.replace('"respool":1', '"respool":2');
    expect(decodeContent(Buffer.from(encodeContent(newer, body)), 'a')).toContain('version 2');
  });

  test('what the name says wins over what the content says', () => {
    const old: Status = { ...status, holder: 'old:1', claimedFrom: 'incoming', attempts: 4 };
    const { holder: _holder, claimedFrom: _claimedFrom, ...rest } = status;
    const named = { ...rest, revision: 9, attempts: 1, dueAt: null };
    expect(mergeStatus(old, 'hold', named)).toEqual({ ...named, state: 'hold' });
  });
});
