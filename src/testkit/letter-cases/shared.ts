/** shared — what the cases of the suite for dead letters have in common. */

import assert from 'node:assert/strict';
import type {
  DeadLetters,
  Fate,
  Letter,
  LetterQuery,
  LetterRoute,
  LetterTakeOptions,
  SettleResult,
} from '../../ports/dead-letters.ts';

/** A message to be put down as one that was given up. */
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
  /** Nobody knows where it came from; only where `canBeHomeless`. */
  readonly isHomeless?: boolean;
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
  /** What was sent home so far, oldest first; waits until there are as many. */
  readonly arrived: (count: number) => Promise<readonly LetterArrival[]>;
  /** Ids of what is parked now. */
  readonly parked: () => Promise<readonly string[]>;
  /** Another door to the same place, as another process has; the maker closes it. */
  readonly second?: () => Promise<DeadLetters>;
  /** Lets those that arrived be given up again; resolves when they are here. */
  readonly failAgain?: (ids: readonly string[]) => Promise<void>;
  /** Lets those that arrived be delivered. */
  readonly deliver?: (ids: readonly string[]) => Promise<void>;
  /** From now on nothing can be sent. */
  readonly breakDown?: () => Promise<void>;
  readonly mend?: () => Promise<void>;
  /** Another destination, and what arrived there. */
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
  readonly canBeHomeless: boolean;
  /** Letters can be sent elsewhere than home. */
  readonly canSendElsewhere: boolean;
  /** The content type of a letter is kept, and can be changed. */
  readonly hasContentType: boolean;
}

/** What a case gets: all ways are there, those the maker does not give fail by name. */
export type LettersWorld = Required<Omit<LettersUnderTest, 'dispose'>>;

export interface LetterCase {
  readonly name: string;
  readonly needs?: keyof LettersAbilities;
  readonly run: (world: LettersWorld) => Promise<void>;
}

/** A letter as the other cases do not care about it. */
export const BODY: Uint8Array = Uint8Array.of(1, 2, 3);

/** `count` samples with ids `letter-000` and up. */
export function samplesOf(count: number, parts: Partial<LetterSample> = {}): LetterSample[] {
  return Array.from({ length: count }, (_, at) => ({ ...parts, id: idOf(at) }));
}

export function idOf(at: number): string {
  return `letter-${String(at).padStart(3, '0')}`;
}

/** The letters here, oldest first. */
export async function lying(letters: DeadLetters, query?: LetterQuery): Promise<Letter[]> {
  const found: Letter[] = [];
  const options = query === undefined ? {} : { query };
  for await (const { letter } of letters.look(options)) found.push(letter);
  return found;
}

/** How often a place is looked at until what was given back is there again. */
const LOOKS_MAX = 100;

/** Exactly these letters are here, in this order; a broker may take a moment to return them. */
export async function assertLying(letters: DeadLetters, ids: readonly string[]): Promise<Letter[]> {
  let found: Letter[] = [];
  for (let looks = 0; looks < LOOKS_MAX; looks += 1) {
    found = await lying(letters);
    if (found.length === ids.length) break;
  }
  assert.deepEqual(letterIds(found), ids, 'what lies here, in its order');
  return found;
}

export function letterIds(list: readonly { readonly id: string }[]): string[] {
  return list.map(({ id }) => id);
}

/** A fate that sends home, under a replay of this name. */
export function sendBy(replay: string, parts: Partial<Extract<Fate, { kind: 'send' }>> = {}): Fate {
  return { kind: 'send', replay, by: 'suite', ...parts };
}

/** Takes what is wanted and gives each the fate; what came of each, by id. */
export async function settleAll(
  letters: DeadLetters,
  fate: Fate,
  options: Partial<LetterTakeOptions> = {},
): Promise<Map<string, SettleResult>> {
  const settled = new Map<string, SettleResult>();
  for await (const taken of letters.take({ isWanted: () => true, ...options })) {
    settled.set(taken.letter.id, await letters.settle(taken, fate));
  }
  return settled;
}

/** All of these came to this. */
export function assertAll(
  settled: ReadonlyMap<string, SettleResult>,
  ids: readonly string[],
  kind: SettleResult['kind'],
): void {
  assert.deepEqual([...settled.keys()], ids, 'what was taken, in its order');
  for (const [id, { kind: found }] of settled) assert.equal(found, kind, `"${id}" came to this`);
}
