/**
 * take — letters in hand: only those asked for, a few at once, returned when the loop is left;
 * and what happens to them: sent on, parked, removed or left, with its events.
 */

import assert from 'node:assert/strict';
import type {
  DeadLetters,
  Fate,
  SettleResult,
  Since,
  TakenLetter,
} from '../../ports/dead-letters.ts';
import {
  assertAll,
  assertLying,
  BODY,
  idOf,
  letterIds,
  type LetterCase,
  type LettersWorld,
  samplesOf,
  sendBy,
  settleAll,
} from './shared.ts';

const MANY = 30;

export const takeCases: readonly LetterCase[] = [
  {
    name: 'only the wanted are taken, and the others stay in their order',
    async run({ letters, put, arrived }) {
      await put(samplesOf(MANY));
      const isWanted = ({ id }: { readonly id: string }) => Number(id.slice(-3)) % 3 === 0;
      const settled = await settleAll(letters, sendBy('r1'), { isWanted });
      assertAll(settled, letterIds(samplesOf(MANY).filter(isWanted)), 'done');
      await assertLying(letters, letterIds(samplesOf(MANY).filter((one) => !isWanted(one))));
      assert.equal((await arrived(MANY / 3)).length, MANY / 3);
    },
  },
  {
    name: 'whoever leaves the loop gives back what is in hand',
    async run({ letters, put }) {
      const samples = samplesOf(MANY);
      await put(samples);
      let taken = 0;
      for await (const _ of letters.take({ isWanted: () => true })) {
        taken += 1;
        if (taken === 5) break;
      }
      await assertLying(letters, letterIds(samples));
    },
  },
  {
    name: 'what is not settled when the loop ends stays, and can be taken again',
    async run({ letters, put, arrived }) {
      const samples = samplesOf(6);
      await put(samples);
      for await (const taken of letters.take({ isWanted: () => true, inHand: 6 })) {
        if (taken.letter.id === idOf(3)) await letters.settle(taken, sendBy('r1'));
        if (taken.letter.id === idOf(5)) break;
      }
      const rest = letterIds(samples).filter((id) => id !== idOf(3));
      await assertLying(letters, rest);
      assertAll(await settleAll(letters, sendBy('r1')), rest, 'done');
      await assertLying(letters, []);
      assert.deepEqual(letterIds(await arrived(6)).sort(), letterIds(samples));
    },
  },
  {
    name: 'no more are in hand at once than asked for',
    async run({ letters, put }) {
      await put(samplesOf(12));
      const inHand: TakenLetter[] = [];
      const seen: string[] = [];
      const settleFirst = async () => {
        const first = inHand.shift();
        if (first !== undefined) await letters.settle(first, { kind: 'leave' });
      };
      for await (const taken of letters.take({ isWanted: () => true, inHand: 4 })) {
        inHand.push(taken);
        seen.push(taken.letter.id);
        assert.ok(inHand.length <= 4, `${inHand.length} in hand`);
        if (inHand.length === 4) await settleFirst();
      }
      assert.deepEqual(seen, letterIds(samplesOf(12)));
    },
  },
  {
    name: 'the body of a letter in hand can be read',
    async run({ letters, put }) {
      await put(samplesOf(3, { body: Uint8Array.of(5, 6) }));
      for await (const taken of letters.take({ isWanted: () => true })) {
        assert.deepEqual([...(await taken.body())], [5, 6]);
        await letters.settle(taken, { kind: 'leave' });
      }
    },
  },
  {
    name: 'a pass goes over what lay here at its beginning, and not over what it leaves',
    async run({ letters, put }) {
      const samples = samplesOf(5);
      await put(samples);
      const settled = await settleAll(letters, { kind: 'leave' });
      assertAll(settled, letterIds(samples), 'done');
      await assertLying(letters, letterIds(samples));
    },
  },
  {
    name: 'a signal ends a pass, and nothing is lost',
    async run({ letters, put }) {
      const samples = samplesOf(8);
      await put(samples);
      const stop = new AbortController();
      await takeUntilAborted(letters, stop);
      await assertLying(letters, letterIds(samples));
    },
  },
  {
    name: 'of two passes at once each letter is settled by one, or the second is refused',
    needs: 'canShare',
    async run({ letters, put, second, arrived }) {
      const samples = samplesOf(10);
      await put(samples);
      const other = await second();
      let done = 0;
      let isFirst = true;
      for await (const taken of letters.take({ isWanted: () => true, inHand: 10 })) {
        if (isFirst) {
          isFirst = false;
          const theirs = await settleAll(other, sendBy('r2')).catch(() => new Map());
          for (const { kind } of theirs.values()) if (kind === 'done') done += 1;
        }
        const { kind } = await letters.settle(taken, sendBy('r1'));
        if (kind === 'done') done += 1;
        else assert.equal(kind, 'gone', 'what another was quicker with is gone');
      }
      assert.equal(done, samples.length, 'each is settled once');
      await assertLying(letters, []);
      assert.deepEqual(letterIds(await arrived(samples.length)).sort(), letterIds(samples));
    },
  },
];

/** n.b. Whether a pass that is called off ends or rejects is its own choice. */
async function takeUntilAborted(letters: DeadLetters, stop: AbortController): Promise<void> {
  let taken = 0;
  try {
    const options = { isWanted: () => true, inHand: 2, signal: stop.signal };
    for await (const _ of letters.take(options)) {
      taken += 1;
      if (taken === 2) stop.abort();
    }
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  }
  assert.ok(taken <= 3, `${taken} were given after the signal`);
}

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
      assert.deepEqual(letterIds(await arrivedThere(2)).sort(), [idOf(0), idOf(1)]);
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
      await assertLying(letters, letterIds(samplesOf(4)));
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
      const ids = letterIds(samplesOf(3));
      await put(samplesOf(3));
      await breakDown();
      const settled = await settleAll(letters, sendBy('r1')).catch(
        () => new Map<string, SettleResult>(),
      );
      for (const [id, { kind }] of settled) {
        assert.ok(kind === 'failed' || kind === 'unsure', `"${id}" is said to be ${kind}`);
      }
      await mend();
      await assertLying(letters, ids);
      assertAll(await settleAll(letters, sendBy('r1')), ids, 'done');
      assert.deepEqual(letterIds(await arrived(3)).sort(), ids);
    },
  },
  {
    name: 'since tells what failed again, of this replay and these ids only',
    needs: 'canFailAgain',
    async run({ letters, put, arrived, failAgain }) {
      await sentByTwo({ letters, put, arrived });
      assert.deepEqual(failedOf(await letters.since('r1', [idOf(0), idOf(1)])), []);
      await failAgain([idOf(0), idOf(2)]);
      assert.deepEqual(failedOf(await letters.since('r1', letterIds(samplesOf(4)))), [idOf(0)]);
      assert.deepEqual(failedOf(await letters.since('r2', letterIds(samplesOf(4)))), [idOf(2)]);
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
