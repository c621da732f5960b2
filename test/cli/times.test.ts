/** times — spans and moments as people read them. */
import { expect, test } from 'vitest';
import { both, exact, relative, span } from '../../src/cli/ui/times.ts';

test.each([
  [0, '0ms'],
  [999, '999ms'],
  [1_000, '1s'],
  [1_540, '1.5s'],
  [59_000, '59s'],
  [60_000, '1m'],
  [61_000, '1m1s'],
  [3_600_000 * 4 + 60_000 * 12 + 5_000, '4h12m'],
  [86_400_000 * 3, '3d'],
  [86_400_000 * 400 + 3_600_000, '400d1h'],
  [-5, '0ms'],
])('%i ms is %s', (ms, text) => {
  expect(span(ms)).toBe(text);
});

test('moments are now, ago or ahead, and exact in UTC', () => {
  expect(relative(1_000, 1_500)).toBe('now');
  expect(relative(0, 180_000)).toBe('3m ago');
  expect(relative(180_000, 0)).toBe('in 3m');
  expect(both(0, 180_000)).toBe('3m ago (1970-01-01T00:00:00.000Z)');
  expect(exact(9e15)).toBe('9000000000000000');
});
