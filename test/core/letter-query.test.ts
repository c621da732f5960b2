/** Which letters fit a query, one condition after the other, and all of them together. */

import { describe, expect, test } from 'vitest';
import { letterMatches } from '../../src/core/letter-query.ts';
import type { Letter, LetterQuery } from 'respool/dead-letters';

const LETTER: Letter = {
  id: 'm1',
  key: 'm1.abc',
  kind: 'dead',
  place: 'orders.dlq',
  topic: 'order.created',
  origin: 'shop/orders',
  home: undefined,
  code: 'http.503',
  reason: 'The Warehouse is closed',
  group: 'g1',
  deaths: 4,
  attempts: 3,
  replays: 0,
  replayedBy: undefined,
  enqueuedAt: 1_000,
  diedAt: 2_000,
  size: 3,
  contentType: undefined,
  headers: { tenant: 'a', empty: '' },
};

describe('a letter', () => {
  test.each<[LetterQuery, boolean]>([
    [{}, true],
    [{ kinds: ['parked', 'dead'] }, true],
    [{ kinds: ['parked'] }, false],
    [{ kinds: [] }, false],
    [{ ids: ['m0', 'm1'] }, true],
    [{ ids: ['m0'] }, false],
    [{ ids: [] }, false],
    [{ topic: 'order.created' }, true],
    [{ topic: 'order.*' }, true],
    [{ topic: '#' }, true],
    [{ topic: 'mail.*' }, false],
    [{ origin: 'shop/orders' }, true],
    [{ origin: 'shop' }, false],
    [{ code: 'http.503' }, true],
    [{ code: 'http' }, false],
    [{ group: 'g1' }, true],
    [{ group: 'g2' }, false],
    [{ deathsAbove: 3 }, true],
    [{ deathsAbove: 4 }, false],
    [{ after: 1_999 }, true],
    [{ after: 2_000 }, false],
    [{ before: 2_001 }, true],
    [{ before: 2_000 }, false],
    [{ after: 1_000, before: 3_000 }, true],
    [{ header: { name: 'tenant' } }, true],
    [{ header: { name: 'tenant', value: 'a' } }, true],
    [{ header: { name: 'tenant', value: 'b' } }, false],
    [{ header: { name: 'empty' } }, true],
    [{ header: { name: 'empty', value: '' } }, true],
    [{ header: { name: 'other' } }, false],
    [{ header: { name: 'toString' } }, false],
    [{ text: 'M1' }, true],
    [{ text: 'created' }, true],
    [{ text: 'SHOP/' }, true],
    [{ text: 'warehouse' }, true],
    [{ text: 'http.503' }, false],
    [{ text: '' }, true],
    [{ code: 'http.503', topic: 'mail.*' }, false],
    [{ code: 'http.503', topic: 'order.*', deathsAbove: 1, text: 'closed' }, true],
  ])('with the conditions %j fits: %s', (query, expected) => {
    expect(letterMatches(LETTER, query)).toBe(expected);
  });

  test('of which nobody knows when it died goes by the time it was enqueued', () => {
    const letter = { ...LETTER, diedAt: undefined };
    expect(letterMatches(letter, { after: 999, before: 1_001 })).toBe(true);
    expect(letterMatches(letter, { after: 1_000 })).toBe(false);
  });

  test('of which nobody knows any time fits every time', () => {
    const letter = { ...LETTER, diedAt: undefined, enqueuedAt: undefined };
    expect(letterMatches(letter, { after: 5, before: 6 })).toBe(true);
  });
});
