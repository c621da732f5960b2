/** fates — what becomes of a letter: sent on, parked, removed or left; what is heard of it. */

import assert from 'node:assert/strict';
import type { Fate, Settled, Since } from '../../ports/dead-letters.ts';
import {
  assertAll,
  assertLying,
  BODY,
  idOf,
  idsOf,
  type LetterCase,
  type LettersWorld,
  samplesOf,
  sendBy,
  settleAll,
} from './shared.ts';

export const fateCases: readonly LetterCase[] = [
  {
    name: 'what is sent arrives at home as it was, marked and counted, and is gone from here',
    async run({ letters, put, arrived }) {
      await put([{ id: 'one', headers: { colour: 'blue' }, body: BODY }]);
      assertAll(await settleAll(letters, sendBy('r1')), ['one'], 'done');
      const [arrival, ...others] = await arrived(1);
      assert.ok(arrival !== undefined && others.length === 0);
      assert.equal(arrival.id, 'one');
      assert.deepEqual([...arrival.body], [...BODY]);
      assert.equal(arrival.headers['colour'], 'blue');
      assert.equal(arrival.replays, 1);
      assert.equal(arrival.replay, 'r1');
      await assertLying(letters, []);
    },
  },
  {
    name: 'what is sent again after it failed again has a counter of two, and says so here',
    needs: 'canFailAgain',
    async run({ letters, put, arrived, failAgain }) {
      await put(samplesOf(1));
      await settleAll(letters, sendBy('r1'));
      await arrived(1);
      await failAgain([idOf(0)]);
      const [letter] = await assertLying(letters, [idOf(0)]);
      assert.equal(letter?.replays, 1);
      assert.equal(letter?.replayedBy, 'r1');
      await settleAll(letters, sendBy('r2'));
      const arrival = (await arrived(1)).at(-1);
      assert.equal(arrival?.replays, 2);
      assert.equal(arrival?.replay, 'r2');
    },
  },
  {
    name: 'a change sets body and headers, takes headers away and leaves the rest',
    async run({ letters, put, arrived }) {
      await put([{ id: 'one', headers: { keep: 'a', drop: 'b', turn: 'c' } }]);
      const change = { body: Uint8Array.of(7), headers: { drop: null, turn: 'd', add: 'e' } };
      assertAll(await settleAll(letters, sendBy('r1', { change })), ['one'], 'done');
      const [arrival] = await arrived(1);
      assert.deepEqual([...(arrival?.body ?? [])], [7]);
      const { keep, drop, turn, add } = arrival?.headers ?? {};
      assert.deepEqual(
        { keep, drop, turn, add },
        { keep: 'a', drop: undefined, turn: 'd', add: 'e' },
      );
    },
  },
  {
    name: 'a change can set the content type',
    needs: 'hasContentType',
    async run({ letters, put, arrived }) {
      await put(samplesOf(1));
      await settleAll(letters, sendBy('r1', { change: { contentType: 'text/csv' } }));
      const [arrival] = await arrived(1);
      assert.equal(arrival?.contentType, 'text/csv');
      assert.deepEqual([...(arrival?.body ?? [])], [...BODY]);
    },
  },
  {
    name: 'a letter can be sent elsewhere than home',
    needs: 'canSendElsewhere',
    async run({ letters, put, arrived, elsewhere }) {
      await put(samplesOf(2));
      const { route, arrived: arrivedThere } = await elsewhere();
      assertAll(await settleAll(letters, sendBy('r1', { to: route })), [idOf(0), idOf(1)], 'done');
      assert.deepEqual(idsOf(await arrivedThere(2)).sort(), [idOf(0), idOf(1)]);
      assert.equal((await arrived(0)).length, 0, 'nothing came home');
    },
  },
  {
    name: 'a letter without a home is not sent, and stays',
    needs: 'canBeHomeless',
    async run({ letters, put }) {
      await put([{ id: 'one', isHomeless: true }]);
      const [letter] = await assertLying(letters, ['one']);
      assert.equal(letter?.home, undefined);
      assertAll(await settleAll(letters, sendBy('r1')), ['one'], 'failed');
      await assertLying(letters, ['one']);
    },
  },
  {
    name: 'what is left stays where it was',
    async run({ letters, put }) {
      await put(samplesOf(4));
      await settleAll(letters, { kind: 'leave' });
      await assertLying(letters, idsOf(samplesOf(4)));
    },
  },
  {
    name: 'what is parked is gone from here and lies among the parked',
    async run({ letters, put, parked, arrived }) {
      await put(samplesOf(3));
      const fate: Fate = { kind: 'park', code: 'replay.limit', reason: 'enough', by: 'suite' };
      const isWanted = ({ id }: { readonly id: string }) => id !== idOf(1);
      assertAll(await settleAll(letters, fate, { isWanted }), [idOf(0), idOf(2)], 'done');
      assert.deepEqual([...(await parked())].sort(), [idOf(0), idOf(2)]);
      assert.equal((await arrived(0)).length, 0);
      const dead = [];
      for await (const { letter } of letters.look({ query: { kinds: ['dead'] } })) {
        dead.push(letter.id);
      }
      assert.deepEqual(dead, [idOf(1)]);
    },
  },
  {
    name: 'what is removed is gone, softly or hard, and sent nowhere',
    async run({ letters, put, arrived, parked }) {
      await put(samplesOf(3));
      const remove = (hard: boolean): Fate => ({
        kind: 'remove',
        hard,
        reason: 'old',
        by: 'suite',
      });
      const only = (at: number) => ({ isWanted: ({ id }: { id: string }) => id === idOf(at) });
      assertAll(await settleAll(letters, remove(true), only(0)), [idOf(0)], 'done');
      assertAll(await settleAll(letters, remove(false), only(2)), [idOf(2)], 'done');
      await assertLying(letters, [idOf(1)]);
      assert.equal((await arrived(0)).length, 0);
      assert.deepEqual(await parked(), []);
    },
  },
  {
    name: 'while nothing can be sent, letters stay, and go when it is mended',
    needs: 'canBreak',
    async run({ letters, put, arrived, breakDown, mend }) {
      const ids = idsOf(samplesOf(3));
      await put(samplesOf(3));
      await breakDown();
      const settled = await settleAll(letters, sendBy('r1')).catch(
        () => new Map<string, Settled>(),
      );
      for (const [id, { kind }] of settled) {
        assert.ok(kind === 'failed' || kind === 'unsure', `"${id}" is said to be ${kind}`);
      }
      await mend();
      await assertLying(letters, ids);
      assertAll(await settleAll(letters, sendBy('r1')), ids, 'done');
      assert.deepEqual(idsOf(await arrived(3)).sort(), ids);
    },
  },
  {
    name: 'since tells what failed again, of this replay and these ids only',
    needs: 'canFailAgain',
    async run({ letters, put, arrived, failAgain }) {
      await sentByTwo({ letters, put, arrived });
      assert.deepEqual(failedOf(await letters.since('r1', [idOf(0), idOf(1)])), []);
      await failAgain([idOf(0), idOf(2)]);
      assert.deepEqual(failedOf(await letters.since('r1', idsOf(samplesOf(4)))), [idOf(0)]);
      assert.deepEqual(failedOf(await letters.since('r2', idsOf(samplesOf(4)))), [idOf(2)]);
      assert.deepEqual(failedOf(await letters.since('r1', [idOf(1)])), []);
    },
  },
  {
    name: 'since tells what was delivered',
    needs: 'canTellDelivered',
    async run({ letters, put, arrived, deliver }) {
      await sentByTwo({ letters, put, arrived });
      await deliver([idOf(1), idOf(3)]);
      assert.deepEqual((await letters.since('r1', [idOf(0), idOf(1)])).delivered, [idOf(1)]);
    },
  },
];

/** Four letters, of which `r1` sends the first two and `r2` the others. */
async function sentByTwo({
  letters,
  put,
  arrived,
}: Pick<LettersWorld, 'letters' | 'put' | 'arrived'>): Promise<void> {
  await put(samplesOf(4));
  const isEarly = ({ id }: { readonly id: string }) => id < idOf(2);
  await settleAll(letters, sendBy('r1'), { isWanted: isEarly });
  await settleAll(letters, sendBy('r2'));
  await arrived(4);
}

function failedOf({ failed }: Since): readonly string[] {
  return failed.map(({ id }) => id);
}
