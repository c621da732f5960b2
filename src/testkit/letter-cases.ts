/**
 * letter-cases — the cases of the suite for dead letters: looking changes nothing, only letters
 * that were asked for come into hand, and what happens to them is safe.
 *
 * The types are public (test/frozen/api/testkit.txt): a new ability is optional. What a maker may
 * omit: dead-letters-suite.ts. Makers repeat the defaults of `LetterSample`.
 */

import assert from 'node:assert/strict';
import type {
  DeadLetters,
  LetterVerdict,
  Letter,
  LetterQuery,
  LetterRoute,
  LetterTakeOptions,
  SettleResult,
  Since,
  TakenLetter,
} from '../ports/dead-letters.ts';

/** A message to be stored as one that was given up. */
export interface LetterSample {
  readonly id: string;
  /** Default `suite.letter`. */
  readonly topic?: string;
  /** Default `suite.failed`, and `it did not work`. */
  readonly code?: string;
  readonly reason?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Default three bytes. */
  readonly body?: Uint8Array;
  /** It has no known home; only where `canBeUnroutable`. */
  readonly isUnroutable?: boolean;
}

/** What the other side has of a letter that was sent on. */
export interface LetterArrival {
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  readonly contentType: string | undefined;
  /** The counter, and the replay it names. */
  readonly replays: number;
  readonly replay: string | undefined;
}

/** A fresh, empty place of dead letters and what the suite may do around it. */
export interface LettersUnderTest {
  readonly letters: DeadLetters;
  /** Puts messages down here, in this order, as of kind `dead`. */
  readonly put: (samples: readonly LetterSample[]) => Promise<void>;
  /**
   * All that was sent home so far and did not fail again, oldest first, also what earlier calls
   * returned; waits until there are at least as many.
   */
  readonly arrived: (count: number) => Promise<readonly LetterArrival[]>;
  /** Ids of what is parked now. */
  readonly parked: () => Promise<readonly string[]>;
  /** The same place opened once more, as another process has; the maker closes it. */
  readonly second?: () => Promise<DeadLetters>;
  /** Lets those that arrived be given up again; resolves when they are here. */
  readonly failAgain?: (ids: readonly string[]) => Promise<void>;
  /** Lets those that arrived be delivered. */
  readonly deliver?: (ids: readonly string[]) => Promise<void>;
  /** From now on nothing can be sent. */
  readonly breakDown?: () => Promise<void>;
  readonly recover?: () => Promise<void>;
  /** Another destination, and what arrived there, as above. */
  readonly elsewhere?: () => Promise<{
    readonly route: LetterRoute;
    readonly arrived: (count: number) => Promise<readonly LetterArrival[]>;
  }>;
  /** Closes everything that was opened and removes the data. */
  readonly dispose: () => Promise<void>;
}

/** Makes a place for one case. */
export type LettersMaker = () => Promise<LettersUnderTest>;

/** Which of the optional parts of the suite fit this place. */
export interface LettersAbilities {
  /** Several processes can look at the same place. */
  readonly canShare: boolean;
  /** What was sent can be given up again, and is seen by `since`. */
  readonly canFailAgain: boolean;
  /** `since` reports what was delivered. */
  readonly canTellDelivered: boolean;
  /** Sending can be made impossible, and be fixed. */
  readonly canBreak: boolean;
  /** There are letters of unknown home. */
  readonly canBeUnroutable: boolean;
  /** Letters can be sent elsewhere than home. */
  readonly canSendElsewhere: boolean;
  /** The content type of a letter is kept, and can be changed. */
  readonly hasContentType: boolean;
}

/** What a case gets: every function is present; one the maker omits fails, naming itself. */
type LettersWorld = Required<Omit<LettersUnderTest, 'dispose'>>;

export interface LetterCase {
  readonly name: string;
  readonly needs?: keyof LettersAbilities;
  readonly run: (world: LettersWorld) => Promise<void>;
}

/** The body of a letter, in cases that do not care about it. */
const BODY: Uint8Array = Uint8Array.of(1, 2, 3);

/** `count` samples with ids `letter-000` and up. */
function samplesOf(count: number, parts: Partial<LetterSample> = {}): LetterSample[] {
  return Array.from({ length: count }, (_, at) => ({ ...parts, id: idOf(at) }));
}

function idOf(at: number): string {
  return `letter-${String(at).padStart(3, '0')}`;
}

/** The letters here, oldest first. */
async function lying(letters: DeadLetters, query?: LetterQuery): Promise<Letter[]> {
  const found: Letter[] = [];
  const options = query === undefined ? {} : { query };
  for await (const { letter } of letters.look(options)) found.push(letter);
  return found;
}

/** How often a place is looked at until what was given back is there again. */
const LOOKS_MAX = 100;

/** Exactly these letters are here, in this order; a broker may take a moment to return them. */
async function assertLying(letters: DeadLetters, ids: readonly string[]): Promise<Letter[]> {
  let found: Letter[] = [];
  for (let looks = 0; looks < LOOKS_MAX; looks += 1) {
    found = await lying(letters);
    if (found.length === ids.length) break;
  }
  assert.deepEqual(letterIds(found), ids, 'what lies here, in its order');
  return found;
}

function letterIds(list: readonly { readonly id: string }[]): string[] {
  return list.map(({ id }) => id);
}

/** A verdict that sends home, under a replay of this name. */
function sendBy(
  replay: string,
  parts: Partial<Extract<LetterVerdict, { kind: 'send' }>> = {},
): LetterVerdict {
  return { kind: 'send', replay, by: 'suite', ...parts };
}

/** Takes what is wanted and settles each with the verdict; what came of each, by id. */
async function settleAll(
  letters: DeadLetters,
  verdict: LetterVerdict,
  options: Partial<LetterTakeOptions> = {},
): Promise<Map<string, SettleResult>> {
  const settled = new Map<string, SettleResult>();
  for await (const taken of letters.take({ isWanted: () => true, ...options })) {
    settled.set(taken.letter.id, await letters.settle(taken, verdict));
  }
  return settled;
}

/** All of these came to this. */
function assertAll(
  settled: ReadonlyMap<string, SettleResult>,
  ids: readonly string[],
  kind: SettleResult['kind'],
): void {
  assert.deepEqual([...settled.keys()], ids, 'what was taken, in its order');
  for (const [id, { kind: found }] of settled) assert.equal(found, kind, `"${id}" came to this`);
}

// Reading dead letters: each once, oldest first, and nothing is changed by it.

export const lookCases: readonly LetterCase[] = [
  {
    name: 'an empty place has nothing to look at and nothing to take',
    async run({ letters }) {
      assert.equal(await letters.count(), 0);
      assert.deepEqual(await lying(letters), []);
      for await (const { letter } of letters.take({ isWanted: () => true })) {
        assert.fail(`took "${letter.id}" out of nothing`);
      }
    },
  },
  {
    name: 'a place has a name for people, and says what looking costs',
    async run({ letters }) {
      assert.notEqual(letters.name, '');
      const { kind } = await letters.caution();
      assert.ok(kind === 'free' || kind === 'counted', 'the suite needs a place that can be read');
    },
  },
  {
    name: 'a letter tells its id, topic, code, reason, kind and size',
    async run({ letters, put }) {
      await put([
        {
          id: 'one',
          topic: 'mail.send',
          code: 'smtp.550',
          reason: 'no such user',
          headers: { colour: 'blue' },
          body: Uint8Array.of(9, 8, 7, 6),
        },
      ]);
      const [letter] = await assertLying(letters, ['one']);
      assert.ok(letter !== undefined);
      assert.equal(letter.topic, 'mail.send');
      assert.equal(letter.code, 'smtp.550');
      assert.equal(letter.reason, 'no such user');
      assert.equal(letter.kind, 'dead');
      assert.equal(letter.size, 4);
      assert.equal(letter.headers['colour'], 'blue');
      assert.equal(letter.replays, 0);
      assert.equal(letter.replayedBy, undefined);
      assert.ok(letter.home !== undefined, 'it knows its home');
      assert.ok(letter.key !== '' && letter.group !== '' && letter.place !== '');
    },
  },
  {
    name: 'looking again and again changes nothing: the same letters, keys and order',
    async run({ letters, put }) {
      const samples = samplesOf(20);
      await put(samples);
      const first = await assertLying(letters, letterIds(samples));
      for (let look = 0; look < 10; look += 1) {
        const again = await assertLying(letters, letterIds(samples));
        assert.deepEqual(
          again.map(({ key, deaths, attempts, replays }) => ({ key, deaths, attempts, replays })),
          first.map(({ key, deaths, attempts, replays }) => ({ key, deaths, attempts, replays })),
        );
      }
      assert.equal(new Set(first.map(({ key }) => key)).size, samples.length, 'keys tell apart');
    },
  },
  {
    name: 'another process sees the same letters under the same keys',
    needs: 'canShare',
    async run({ letters, put, second }) {
      const samples = samplesOf(5);
      await put(samples);
      const here = await assertLying(letters, letterIds(samples));
      const there = await assertLying(await second(), letterIds(samples));
      assert.deepEqual(
        there.map(({ key }) => key),
        here.map(({ key }) => key),
      );
    },
  },
  {
    name: 'a query finds by ids, topic, code, group, text and header',
    async run({ letters, put }) {
      await put([
        { id: 'a', topic: 'mail.send', code: 'smtp.550', reason: 'no such user' },
        { id: 'b', topic: 'mail.copy', code: 'smtp.451', reason: 'try again later' },
        { id: 'c', topic: 'bill.pay', code: 'http.500', reason: 'oh', headers: { tenant: 'x' } },
      ]);
      const all = await assertLying(letters, ['a', 'b', 'c']);
      const group = all[1]?.group ?? '';
      const table: readonly (readonly [LetterQuery, readonly string[]])[] = [
        [{ ids: ['a', 'c', 'nobody'] }, ['a', 'c']],
        [{ topic: 'mail.*' }, ['a', 'b']],
        [{ topic: 'bill.pay' }, ['c']],
        [{ code: 'smtp.451' }, ['b']],
        [{ group }, ['b']],
        [{ text: 'such user' }, ['a']],
        [{ header: { name: 'tenant' } }, ['c']],
        [{ header: { name: 'tenant', value: 'y' } }, []],
        [{ topic: 'mail.*', code: 'smtp.550' }, ['a']],
        [{ kinds: ['parked'] }, []],
      ];
      for (const [query, ids] of table) {
        assert.deepEqual(letterIds(await lying(letters, query)), ids, JSON.stringify(query));
      }
    },
  },
  {
    name: 'a body can be read while its letter lies open, byte for byte',
    async run({ letters, put }) {
      const everyByte = Uint8Array.from({ length: 256 }, (_, at) => at);
      const large = new Uint8Array(100_000).map((_, at) => at % 251);
      const bodies = [new Uint8Array(), everyByte, large];
      await put(bodies.map((body, at) => ({ id: idOf(at), body })));
      let at = 0;
      for await (const open of letters.look()) {
        assert.ok(Buffer.from(await open.body()).equals(bodies[at] ?? Buffer.of(0)), `body ${at}`);
        at += 1;
      }
      assert.equal(at, bodies.length);
    },
  },
  {
    name: 'a look ends at its limit, and leaving one early changes nothing',
    async run({ letters, put }) {
      const samples = samplesOf(10);
      await put(samples);
      const seen: string[] = [];
      for await (const { letter } of letters.look({ max: 4 })) seen.push(letter.id);
      assert.deepEqual(seen, letterIds(samples.slice(0, 4)));
      for await (const { letter } of letters.look()) if (letter.id === idOf(2)) break;
      await assertLying(letters, letterIds(samples));
    },
  },
  {
    name: 'a place can be closed twice',
    async run({ letters, put }) {
      await put(samplesOf(1));
      await assertLying(letters, [idOf(0)]);
      await letters.close();
      await letters.close();
    },
  },
];

// Letters in hand: only those asked for, a few at once, returned when the loop is left;
// and what happens to them: sent on, parked, removed or left.

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
    name: 'leaving the loop gives back what is in hand',
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

export const settleCases: readonly LetterCase[] = [
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
    needs: 'canBeUnroutable',
    async run({ letters, put }) {
      await put([{ id: 'one', isUnroutable: true }]);
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
      const verdict: LetterVerdict = {
        kind: 'park',
        code: 'replay.limit',
        reason: 'enough',
        by: 'suite',
      };
      const isWanted = ({ id }: { readonly id: string }) => id !== idOf(1);
      assertAll(await settleAll(letters, verdict, { isWanted }), [idOf(0), idOf(2)], 'done');
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
      const remove = (hard: boolean): LetterVerdict => ({
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
    name: 'while nothing can be sent, letters stay, and go when it has recovered',
    needs: 'canBreak',
    async run({ letters, put, arrived, breakDown, recover }) {
      const ids = letterIds(samplesOf(3));
      await put(samplesOf(3));
      await breakDown();
      const settled = await settleAll(letters, sendBy('r1')).catch(
        () => new Map<string, SettleResult>(),
      );
      for (const [id, { kind }] of settled) {
        assert.ok(kind === 'failed' || kind === 'unsure', `"${id}" is said to be ${kind}`);
      }
      await recover();
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
