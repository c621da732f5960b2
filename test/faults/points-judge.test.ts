/** The judge of the crash points is judged first, too. */
import { describe, expect, test } from 'vitest';
import type { Seen } from '../torture/inspect.ts';
import { bodyOf, sha256 } from '../torture/plans.ts';
import { judgeScript } from '../torture/points-judge.ts';
import { NEIGHBOURS, PREPARED, sizeOf } from '../torture/points-order.ts';

function seen(key: string, state: Seen['state'], more: Partial<Seen> = {}): Seen {
  const hash = sha256(bodyOf(key, sizeOf(key)));
  return { key, id: key, state, revision: 1, attempts: 0, sha256: hash, ...more };
}

/** Everything as it was before the first step, with some entries replaced or taken away. */
function world(change: { readonly [key: string]: Seen | undefined } = {}): Seen[] {
  const before = [...NEIGHBOURS, ...PREPARED].map((key) =>
    seen(key, key.startsWith('old') ? 'archived' : 'incoming'),
  );
  const kept = before.filter(({ key }) => !Object.hasOwn(change, key));
  return [...kept, ...Object.values(change).filter((entry) => entry !== undefined)];
}

describe('the judge of a script', () => {
  test('is content with a program that died before its first step', () => {
    expect(judgeScript([], world())).toEqual([]);
  });

  test('takes a step that was begun either way', () => {
    const lines = ['doing enqueue'];
    expect(judgeScript(lines, world())).toEqual([]);
    expect(judgeScript(lines, world({ new1: seen('new1', 'incoming') }))).toEqual([]);
  });

  test.each([
    ['an acknowledged message is missing', ['doing enqueue', 'acked enqueue'], world()],
    ['a neighbour is missing', [], world({ idle1: undefined })],
    ['a body is another one', [], world({ idle1: seen('idle1', 'incoming', { sha256: 'x' }) })],
    ['a body is gone', [], world({ idle1: { ...seen('idle1', 'incoming'), sha256: '' } })],
    ['a removed message came back', ['doing remove', 'acked remove'], world()],
    ['a claim was forgotten', ['doing ack', 'claimed ack1'], world()],
    [
      'an attempt was not counted',
      ['doing ack', 'claimed ack1'],
      world({ ack1: seen('ack1', 'active', { attempts: 0 }) }),
    ],
    ['a step happened that was not begun', [], world({ hold1: seen('hold1', 'hold') })],
    ['there is a stranger', [], world({ stranger: seen('stranger', 'incoming') })],
  ])('complains when %s', (_, lines, entries) => {
    expect(judgeScript(lines, entries)).not.toEqual([]);
  });

  test('lets a power cut forget a claim and a verdict, but not a message', () => {
    const survived = 'power cut';
    const settled = ['doing ack', 'claimed ack1', 'acked ack'];
    expect(judgeScript(settled, world(), { survived })).toEqual([]);
    const enqueued = ['doing enqueue', 'acked enqueue'];
    expect(judgeScript(enqueued, world(), { survived })).toHaveLength(1);
  });
});
