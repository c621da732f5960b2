/** fake-letters — dead letters in memory, for what only looks at them. */
import { letterMatches, groupOf } from '../../src/core/letter-query.ts';
import type { DeadLetters, Letter, OpenLetter } from 'respool/dead-letters';

/** A letter of a queue that died of a time-out, but for what is given. */
export function letterOf(more: Partial<Letter> = {}): Letter {
  const parts = {
    code: 'timeout',
    reason: 'no answer within 30 s',
    place: 'orders.dlq',
    origin: 'shop/orders',
    ...more,
  };
  return {
    id: 'one',
    key: 'one-1',
    kind: 'dead',
    topic: 'orders.created',
    home: undefined,
    group: groupOf({ ...parts, at: parts.place }),
    deaths: 1,
    attempts: 1,
    replays: 0,
    replayedBy: undefined,
    enqueuedAt: undefined,
    diedAt: undefined,
    size: 2,
    contentType: undefined,
    headers: {},
    ...parts,
  };
}

/** A place with these letters, which can only be looked at. */
export function fakeLetters(
  letters: Iterable<Letter>,
  body: Uint8Array = Buffer.from('{}'),
): DeadLetters {
  const unused = (): never => {
    throw new Error('this place can only be looked at');
  };
  return {
    name: 'queue "orders.dlq"',
    caution: async () => ({ kind: 'free' }),
    count: async () => [...letters].length,
    async *look({ query = {} } = {}) {
      for (const letter of letters) {
        if (letterMatches(letter, query)) yield openLetter(letter, body);
      }
    },
    take: unused,
    settle: unused,
    since: unused,
    isAlone: async () => true,
    close: async () => undefined,
  };
}

/** A letter that lies open. */
export function openLetter(letter: Letter, body: Uint8Array = Buffer.alloc(0)): OpenLetter {
  const { id, topic, headers } = letter;
  return {
    letter,
    body: async () => body,
    copy: async (reason) => ({ id, topic, headers, body, reason }),
  };
}
