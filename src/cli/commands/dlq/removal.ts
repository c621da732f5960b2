/**
 * removal — letters of one place on their way out.
 *
 *   queue: in hand ─▶ copy archived in the spool, durable ─▶ acked      hard: acked
 *   spool: archived, from where restore brings it back                  hard: gone
 *
 * Promise: whoever kills us leaves a letter where it was, in the archive, or in both. What cannot
 * be kept is left where it is.
 */

import type { Control } from '../../../operator/operator.ts';
import { toldBroker } from '../../../dead-letters/archive-broker.ts';
import { isRespoolError, textOf } from '../../../core/errors.ts';
import { REMOVED_FROM } from '../../../core/letter-headers.ts';
import type { Fate, KeptCopy, Letter, Settled, TakenLetter } from '../../../ports/dead-letters.ts';
import type { Place } from './letter-places.ts';

/** What came of it. */
export interface Tally {
  removed: number;
  gone: number;
  failed: number;
  /** The first of them. */
  readonly failures: { readonly id: string; readonly why: string }[];
}

export interface RemovalParts {
  readonly place: Place;
  /** At most so many. */
  readonly count: number;
  readonly control: Pick<Control, 'keep'>;
  readonly fate: Fate & { readonly kind: 'remove' };
  readonly tally: Tally;
  readonly isFitting: (letter: Letter) => boolean;
  /** Hears how many are away, and how many are left. */
  readonly tell: (away: number, left: number) => void;
}

/** In hand at once. */
const IN_HAND = 100;
/**
 * Bodies that are kept in one call; a single one may be longer. n.b. What a service takes in one
 * request: a call of several could be refused half way, and then the first would be kept twice.
 */
const KEPT_MAX_BYTES = 4 * 2 ** 20;
/** Failures that are told one by one. */
const FAILURES_TOLD = 10;

/** A letter in hand, and the copy of it that is kept first; undefined: none is. */
interface InHand {
  readonly taken: TakenLetter;
  readonly copy: KeptCopy | undefined;
}

/** Takes letters away, in batches that are kept in one write. */
export class Removal {
  readonly #parts: RemovalParts;
  /** Keys of those that stay. */
  readonly #left = new Set<string>();
  #away = 0;
  // n.b. Acks have no answer: a kill may find those of one batch unsent, and the next one kept.
  #batchMax = IN_HAND / 2;

  constructor(parts: RemovalParts) {
    this.#parts = parts;
  }

  /** Passes end early where a broker lets nobody hold messages long: until one brings nothing. */
  async run(signal: AbortSignal): Promise<void> {
    let isBringing = true;
    while (isBringing && this.#open > 0 && !signal.aborted) isBringing = await this.#pass(signal);
  }

  /** How many are still to go. */
  get #open(): number {
    return this.#parts.count - this.#away - this.#left.size;
  }

  async #pass(signal: AbortSignal): Promise<boolean> {
    const { letters } = this.#parts.place;
    const isWanted = (letter: Letter): boolean =>
      !this.#left.has(letter.key) && this.#parts.isFitting(letter);
    let isBringing = false;
    const batch: InHand[] = [];
    for await (const taken of letters.take({ isWanted, inHand: IN_HAND, signal })) {
      isBringing = true;
      const inHand = await this.#inHandOf(taken);
      if (inHand !== undefined) {
        const isTooMuch = bytesOf(batch) + taken.letter.size > KEPT_MAX_BYTES;
        if (isTooMuch) await this.#remove(batch.splice(0));
        batch.push(inHand);
      }
      const isFull = batch.length >= Math.min(this.#batchMax, this.#open);
      if (isFull) await this.#remove(batch.splice(0));
      if (this.#open <= 0 || signal.aborted) break;
    }
    // Fewer came than were counted, and what was in hand went back: now one after the other.
    if (batch.length > 0) this.#batchMax = 1;
    return isBringing;
  }

  /** Copied while it lies open; undefined: it cannot be kept, and stays. */
  async #inHandOf(taken: TakenLetter): Promise<InHand | undefined> {
    const { place, fate } = this.#parts;
    if (place.source.kind === 'spool' || fate.hard) return { taken, copy: undefined };
    try {
      const copy = await taken.copy(`${REMOVED_FROM} ${place.letters.name}`);
      return { taken, copy: toldBroker(copy, place.source) };
    } catch (error) {
      await this.#leave(taken, error);
      return undefined;
    }
  }

  /** Keeps the copies, then settles. */
  async #remove(batch: readonly InHand[]): Promise<void> {
    if (batch.length === 0) return;
    const { place, fate, tally, tell } = this.#parts;
    const kept = await this.#keep(batch);
    await Promise.all(
      kept.map(async ({ taken }) => {
        const settled = await place.letters.settle(taken, fate);
        if (isAway(settled)) {
          this.#away += 1;
          tally[settled.kind === 'done' ? 'removed' : 'gone'] += 1;
        } else this.#fail(taken, settled.reason);
      }),
    );
    tell(this.#away, this.#left.size);
  }

  /** All in one write; where one of them is too much for the store, one by one. */
  async #keep(batch: readonly InHand[]): Promise<readonly InHand[]> {
    const copies = batch.flatMap(({ copy }) => (copy === undefined ? [] : [copy]));
    if (copies.length === 0) return batch;
    const { control } = this.#parts;
    try {
      await control.keep(copies);
      return batch;
    } catch (error) {
      if (!isUnkept(error)) throw error;
    }
    const kept: InHand[] = [];
    for (const one of batch) {
      try {
        if (one.copy !== undefined) await control.keep([one.copy]);
        kept.push(one);
      } catch (error) {
        await this.#leave(one.taken, error);
      }
    }
    return kept;
  }

  /** n.b. Not only passed over: what is in hand takes the room of the next ones. */
  async #leave(taken: TakenLetter, error: unknown): Promise<void> {
    if (!isUnkept(error)) throw error;
    this.#fail(taken, textOf(error));
    await this.#parts.place.letters.settle(taken, { kind: 'leave' });
  }

  #fail({ letter }: TakenLetter, why: string): void {
    const { tally } = this.#parts;
    this.#left.add(letter.key);
    tally.failed += 1;
    if (tally.failures.length < FAILURES_TOLD) tally.failures.push({ id: letter.id, why });
  }
}

function bytesOf(batch: readonly InHand[]): number {
  return batch.reduce((sum, { taken }) => sum + taken.letter.size, 0);
}

function isAway(settled: Settled): settled is Settled & { readonly kind: 'done' | 'gone' } {
  return settled.kind === 'done' || settled.kind === 'gone';
}

/** What is wrong with one message, and with no other. */
function isUnkept(error: unknown): boolean {
  return isRespoolError(error, 'limit.exceeded') || isRespoolError(error, 'message.invalid');
}
