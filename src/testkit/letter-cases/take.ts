/** take — letters in hand: only the wanted, a few at once, and back when the loop is left. */

import assert from 'node:assert/strict';
import type { DeadLetters, TakenLetter } from '../../ports/dead-letters.ts';
import {
  assertAll,
  assertLying,
  idOf,
  idsOf,
  type LetterCase,
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
      assertAll(settled, idsOf(samplesOf(MANY).filter(isWanted)), 'done');
      await assertLying(letters, idsOf(samplesOf(MANY).filter((one) => !isWanted(one))));
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
      await assertLying(letters, idsOf(samples));
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
      const rest = idsOf(samples).filter((id) => id !== idOf(3));
      await assertLying(letters, rest);
      assertAll(await settleAll(letters, sendBy('r1')), rest, 'done');
      await assertLying(letters, []);
      assert.deepEqual(idsOf(await arrived(6)).sort(), idsOf(samples));
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
      assert.deepEqual(seen, idsOf(samplesOf(12)));
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
      assertAll(settled, idsOf(samples), 'done');
      await assertLying(letters, idsOf(samples));
    },
  },
  {
    name: 'a signal ends a pass, and nothing is lost',
    async run({ letters, put }) {
      const samples = samplesOf(8);
      await put(samples);
      const stop = new AbortController();
      await takeUntilAborted(letters, stop);
      await assertLying(letters, idsOf(samples));
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
      assert.deepEqual(idsOf(await arrived(samples.length)).sort(), idsOf(samples));
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
