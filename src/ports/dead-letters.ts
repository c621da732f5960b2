/**
 * dead-letters — the interface to messages that were given up: a dead or parked queue of RabbitMQ,
 * and the spool's bounced, held and archived messages.
 *
 *   look ─▶ letters, nothing is changed
 *   take ─▶ taken letter ─settle─▶ sent · parked · removed · left where it was
 *
 * Promise: a letter leaves its place only when it is safely stored where it goes; a letter that was
 * taken and not settled stays where it was, in its order. `testkit/deadLettersSuite` is the
 * contract in full.
 *
 * Why: docs/decisions/0031-dead-letters-are-looked-at-taken-and-settled.md
 */

import type { Millis } from '../core/duration.ts';
import type { Headers } from '../core/entry.ts';
import type { LetterKind, LetterQuery } from '../core/letter-query.ts';

export type { LetterKind, LetterQuery };

/** Where a letter can be sent. */
export type LetterRoute =
  | { readonly kind: 'queue'; readonly exchange: string; readonly key: string }
  | { readonly kind: 'topic'; readonly topic: string };

/** A message that was given up, without its body. */
export interface Letter {
  /** Its message id; where it has none, one made of what it is. */
  readonly id: string;
  /**
   * Identifies it among the letters of its place, and is the same at every look, also in another
   * process: plans consist of these. Two copies of one message may have the same key.
   */
  readonly key: string;
  readonly kind: LetterKind;
  /** The name of the queue, or the state of the spool. */
  readonly place: string;
  /** Its topic, or the routing key it was first published with. */
  readonly topic: string;
  /** Where it came from or was going: `exchange/queue` at a broker, its destination in a spool. */
  readonly origin: string;
  /** Where a replay sends it; undefined: unknown. */
  readonly home: LetterRoute | undefined;
  /** Why it was given up; `unknown` and '' without a reason. */
  readonly code: string;
  readonly reason: string;
  /** The same for failures that are alike at the same place: `groupOf` of core. */
  readonly group: string;
  /** How often it died, by everything that counted it. */
  readonly deaths: number;
  /** Attempts of our handlers; 0 where none counted. */
  readonly attempts: number;
  /** How often an operator sent it again, and by which replay last. */
  readonly replays: number;
  readonly replayedBy: string | undefined;
  /** Of a queue: whether the broker delivered it before, to anyone; absent: unknown. */
  readonly isRedelivered?: boolean;
  readonly enqueuedAt: Millis | undefined;
  readonly diedAt: Millis | undefined;
  readonly size: number;
  readonly contentType: string | undefined;
  /** As text, for people and filters. */
  readonly headers: Headers;
}

/** A letter with access to its body: valid until the next one is requested, or it is settled. */
export interface OpenLetter {
  readonly letter: Letter;
  body(): Promise<Uint8Array>;
  /**
   * A copy that a spool can keep and a restore can bring back; refuses what no spool could keep.
   */
  copy(reason: string): Promise<KeptCopy>;
}

/** The original of a message that is removed from its queue, or changed by a repair. */
export interface KeptCopy {
  /** Of the letter; the entry has an id of its own, and this one in a header. */
  readonly id: string;
  readonly topic: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** Why it is kept: `removed from queue "orders.dlq"`. */
  readonly reason: string;
}

/** What looking costs at this place. */
export type Caution =
  | { readonly kind: 'free' }
  /** The broker counts each look as a delivery, and does nothing about it. */
  | { readonly kind: 'counted'; readonly text: string }
  /** The broker may drop what is looked at: looking is refused; `remedy` says what would help. */
  | { readonly kind: 'refused'; readonly text: string; readonly remedy: string };

/** Which letters to look at, and how many. */
export interface LetterLookOptions {
  readonly query?: LetterQuery;
  /** Looks at this many at most, fitting or not; default 100,000. */
  readonly max?: number;
  readonly signal?: AbortSignal;
}

/** Which letters to take, and how many at a time. */
export interface LetterTakeOptions {
  /** Which letters; the others stay as they are. */
  readonly isWanted: (letter: Letter) => boolean;
  /** Taken and not yet settled at once, 1 to 1,000; default 100. */
  readonly inHand?: number;
  readonly signal?: AbortSignal;
}

/** A letter that was taken: settle it, or leave the loop, which returns it. */
export interface TakenLetter extends OpenLetter {
  readonly token: unknown;
}

/** What a repair makes of a letter; what is absent stays. */
export interface LetterChange {
  readonly body?: Uint8Array;
  readonly contentType?: string;
  /** null takes one away. */
  readonly headers?: Readonly<Record<string, string | null>>;
}

/** What to do with a taken letter. */
export type LetterVerdict =
  | { readonly kind: 'leave' }
  | {
      readonly kind: 'send';
      /** Default: its home. */
      readonly to?: LetterRoute;
      readonly change?: LetterChange;
      /** The replay that sends it; written with the message, beside a counter that is raised. */
      readonly replay: string;
      /** One of those that are sent first: how it ends is recorded, where the place can do so. */
      readonly isCanary?: true;
      readonly by: string;
    }
  | { readonly kind: 'park'; readonly code: string; readonly reason: string; readonly by: string }
  /**
   * Removed from its place. A spool archives it as removed, unless `hard`. A queue only acks it:
   * the caller stores `copy()` first if it is to be kept.
   */
  | {
      readonly kind: 'remove';
      readonly hard: boolean;
      readonly reason: string;
      readonly by: string;
    };

/** The result of settling a letter. */
export type SettleResult =
  | { readonly kind: 'done' }
  /** It was no longer here: another process was faster. */
  | { readonly kind: 'gone' }
  /** It was not sent, and is where it was. */
  | { readonly kind: 'failed'; readonly code: string; readonly reason: string }
  /** It is where it was, but may also have been sent. */
  | { readonly kind: 'unsure'; readonly reason: string };

/** What happened to letters since they were sent again. */
export interface Since {
  /** Those that failed again, and why this time; an id once for each letter that did. */
  readonly failed: readonly Pick<Letter, 'id' | 'code' | 'reason'>[];
  /** Ids of those that are known to be delivered; unknown for a queue. */
  readonly delivered: readonly string[];
  /**
   * Ids of those that are no longer there, for whatever reason: delivered and not kept,
   * removed, or sent again by others; absent if the place does not know.
   */
  readonly gone?: readonly string[];
  /** Letters that were not looked at: there are too many, or the look ended before its end. */
  readonly unseen?: number;
}

/** A destination of letters that were sent, as it is now. */
export interface DestinationState {
  /** As people call it: `queue "orders"`. */
  readonly name: string;
  /** Messages that no consumer has taken yet. */
  readonly ready: number;
  readonly consumers: number;
  /** Messages that consumers have taken and not settled; absent: unknown. */
  readonly unacked?: number;
}

/** Messages that were given up, in one place. */
export interface DeadLetters {
  /** As people call it: `queue "orders.dlq"`, `spool`. */
  readonly name: string;
  /** Asked for before the first look; a place that refuses is not looked at. */
  caution(): Promise<Caution>;
  /** Approximate number of letters here. */
  count(): Promise<number>;
  /** Reads the letters here once, oldest first, and changes nothing. */
  look(options?: LetterLookOptions): AsyncIterable<OpenLetter>;
  /**
   * Takes the letters here once, oldest first. Leaving the loop returns those that are not settled.
   * A pass may end early (a broker limits how long messages may stay unacked): everything was taken
   * once a pass brings nothing. The end of the loop throws `broker.unavailable` if the letters
   * settled last may still be here.
   */
  take(options: LetterTakeOptions): AsyncIterable<TakenLetter>;
  /**
   * Whether a take that brings nothing has certainly seen everything: no other client has taken
   * letters of this place. Asked while no take is open.
   */
  isAlone(): Promise<boolean>;
  settle(letter: TakenLetter, verdict: LetterVerdict): Promise<SettleResult>;
  /**
   * What happened to the letters that this replay sent, as far as it can be seen from here. `ids`:
   * an id as often as letters with it were sent.
   */
  since(replay: string, ids: readonly string[]): Promise<Since>;
  /**
   * The queues that these routes lead to, and how many messages wait there; undefined: unknown.
   * `isFull`: also those that consumers have taken, as far as that is known. Only at a place whose
   * `since` does not detect deliveries.
   */
  waitingAt?(
    routes: readonly LetterRoute[],
    options?: { readonly isFull?: boolean },
  ): Promise<readonly DestinationState[] | undefined>;
  close(): Promise<void>;
}
