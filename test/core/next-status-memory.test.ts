/** What a message remembers from step to step, and what is kept after its end. */
import { describe, expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import type { AttemptRecord } from 'respool';
import {
  retainedUntil,
  isDeduplicated,
  keepsBody,
  NOTES_KEPT_MAX,
  nextStatus,
} from '../../src/core/next-status.ts';
import { KEEPING, LEAN, NOW, VERDICTS, active, context, settled } from './settling.ts';
import { DAY_MS, HOUR_MS } from '../time.ts';

describe('holders lost in a row', () => {
  test('are forgotten when a holder lived to settle', () => {
    for (const name of ['defer', 'postpone', 'bounce', 'hold'] as const) {
      expect(settled(active('delivery', 'deferred'), name).lost, name).toBe(0);
    }
  });

  test('are kept by a settlement that only judged the loss', () => {
    for (const name of ['defer', 'bounce', 'hold'] as const) {
      expect(settled(active('delivery', 'active'), name).lost, name).toBe(2);
    }
  });

  test('have counted their attempt: a free step after a loss gives none back', () => {
    for (const name of ['postpone', 'free hold', 'expire'] as const) {
      expect(settled(active('delivery', 'active'), name).attempts, name).toBe(3);
    }
  });
});

describe('the memory of a message', () => {
  const line = (attempt: number): AttemptRecord => ({
    at: NOW + attempt,
    tookMs: 5,
    by: 'engine',
    lane: 'delivery',
    attempt,
    code: 'smtp.451',
  });

  test.each<[number, number]>([
    [0, 1],
    [8, 9],
    [9, 10],
    [10, 10],
  ])('of %d attempts has %d after one more, the newest last', (before, after) => {
    const history = Array.from({ length: before }, (_, at) => line(at + 1));
    const entry = active('delivery', 'incoming', { history });
    const to = settled(entry, 'defer', { attempt: line(before + 1) });
    expect(to.history).toHaveLength(after);
    expect(to.history.at(-1)).toEqual(line(before + 1));
    expect(to.history[0]).toEqual(line(before + 2 - after));
  });

  test('is unchanged when no handler ran', () => {
    const entry = active('delivery', 'active', { history: [line(1)] });
    expect(settled(entry, 'defer').history).toEqual([line(1)]);
  });

  test('keeps the newest notes up to their limit over all attempts', () => {
    const many = (from: number, count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, at) => [`n${from + at}`, 'x']));
    const entry = active('delivery', 'incoming', { notes: many(0, NOTES_KEPT_MAX) });
    const { notes } = settled(entry, 'defer', { notes: many(1_000, 2) });
    expect(Object.keys(notes)).toHaveLength(NOTES_KEPT_MAX);
    expect(notes).not.toHaveProperty('n1');
    expect(notes).toHaveProperty('n1001');
  });

  test('takes notes over what was noted before, on success and on failure', () => {
    const entry = active('delivery', 'incoming', { notes: { a: '1', b: '1' } });
    const notes = { b: '2', c: '2' };
    for (const name of ['ack', 'defer', 'bounce', 'hold', 'release'] as const) {
      const to = settled(entry, name, { notes, retention: KEEPING });
      expect(to.notes, name).toEqual({ a: '1', b: '2', c: '2' });
    }
    expect(settled(entry, 'defer').notes).toEqual({ a: '1', b: '1' });
  });
});

test('settling what is not active is a bug', () => {
  for (const state of ['incoming', 'deferred', 'hold', 'bounce', 'archived'] as const) {
    const entry = sampleEntry('m-1', { state });
    expect(() => nextStatus(entry, VERDICTS.ack, context())).toThrow(
      `bug in respool: settled "m-1" while it was ${state}`,
    );
  }
});

describe('what is kept after the end', () => {
  test('a repeated enqueue is recognised by a dedupe key or a chosen id', () => {
    expect(isDeduplicated(sampleEntry('m').envelope)).toBe(false);
    expect(isDeduplicated(sampleEntry('m', { dedupeKey: 'k' }).envelope)).toBe(true);
    expect(isDeduplicated(sampleEntry('m', { ownId: true }).envelope)).toBe(true);
  });

  test('an entry is forgotten after its retention, at least after the dedupe window', () => {
    const when = { now: NOW, retention: LEAN };
    expect(retainedUntil(sampleEntry('m').envelope, HOUR_MS, when)).toBe(NOW + HOUR_MS);
    const keyed = sampleEntry('m', { dedupeKey: 'k' }).envelope;
    expect(retainedUntil(keyed, HOUR_MS, when)).toBe(NOW + DAY_MS);
    expect(retainedUntil(keyed, 2 * DAY_MS, when)).toBe(NOW + 2 * DAY_MS);
  });

  test('the body is let go only when nothing but the memory of a delivery is kept', () => {
    const { status } = sampleEntry('m', { state: 'archived', ending: 'delivered' });
    expect(keepsBody(status, LEAN)).toBe(false);
    expect(keepsBody(status, KEEPING)).toBe(true);
    expect(keepsBody({ ...status, ending: 'removed' }, LEAN)).toBe(true);
    expect(keepsBody({ ...status, state: 'bounce', ending: 'bounced' }, LEAN)).toBe(true);
    expect(keepsBody(sampleEntry('m').status, LEAN)).toBe(true);
  });
});
