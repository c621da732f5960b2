/**
 * news — what is heard of letters that were sent: delivered, or given up again. Asked rarely: for a
 * queue each question is a look through it.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { DeadLetters } from '../../ports/dead-letters.ts';
import type { Guard } from './guard.ts';
import type { Journal } from './journal.ts';
import type { Ledger } from './ledger.ts';
import type { Tenure } from './tenure.ts';
import { waitFor } from './pace.ts';

/** Between two questions; and so many times as long as the last one took. */
const ASK_EVERY_MS: number = 5 * SECOND_MS;
const REST_FACTOR = 10;
/** Ids in one question; the others have their turn the next time. */
const IDS_MAX = 1_000;
/** Canaries are looked for after this, and then after twice as long each time. */
const CANARY_FIRST_MS = 250;
const CANARY_EVERY_MS: number = 5 * SECOND_MS;

interface NewsParts {
  readonly id: string;
  readonly letters: DeadLetters;
  readonly ledger: Ledger;
  readonly journal: Journal;
  readonly guard: Guard;
  readonly clock: Clock;
}

/** The letters of this run of which nothing was heard yet. */
export class News {
  readonly #parts: NewsParts;
  /** By id, in the order they were sent; two copies may share one. */
  readonly #silent = new Map<string, number[]>();
  #tenure: Tenure | undefined;
  #nextMs: number;
  #asking: Promise<void> | undefined;

  constructor(parts: NewsParts) {
    this.#parts = parts;
    this.#nextMs = parts.clock.monotonic() + ASK_EVERY_MS;
  }

  /** From now on questions are asked while letters are sent, and bad news halt this tenure. */
  watch(tenure: Tenure): void {
    this.#tenure = tenure;
  }

  /** This one was sent. */
  expect(item: number): void {
    const { ledger, guard, clock } = this.#parts;
    const id = ledger.idOf(item);
    const items = this.#silent.get(id);
    if (items === undefined) this.#silent.set(id, [item]);
    else items.push(item);
    if (!guard.isOn || this.#tenure === undefined || this.#asking !== undefined) return;
    if (clock.monotonic() >= this.#nextMs)
      this.#asking = this.#ask(this.#tenure).finally(() => (this.#asking = undefined));
  }

  /** Waits until nothing is being asked. */
  async quiet(): Promise<void> {
    await this.#asking;
  }

  /** Watches what was sent so far until all is heard of, or the span is over. */
  async watchCanaries(tenure: Tenure, waitMs: number): Promise<void> {
    const { clock } = this.#parts;
    const untilMs = clock.monotonic() + waitMs;
    let spanMs = CANARY_FIRST_MS;
    for (;;) {
      const restMs = untilMs - clock.monotonic();
      await waitFor(clock, Math.max(0, Math.min(spanMs, restMs)), tenure.halt.signal);
      if (!tenure.isHeld) return;
      await this.#ask(tenure, clock.monotonic() < untilMs);
      if (!tenure.isHeld || this.#silent.size === 0 || clock.monotonic() >= untilMs) break;
      spanMs = Math.min(2 * spanMs, CANARY_EVERY_MS);
    }
    this.#judge(tenure, true);
  }

  /** A last question, of no consequence for the run; the text says when it has no answer. */
  async last(): Promise<string | undefined> {
    if (this.#silent.size === 0) return undefined;
    try {
      await this.#hear();
      return undefined;
    } catch (error) {
      return `cannot tell whether letters failed again: ${textOf(error)}`;
    }
  }

  /**
   * Never rejects: a guard that cannot see stops the run. `isAskedAgain`: somebody who is busy
   * there, as one who looks, is waited for.
   */
  async #ask(tenure: Tenure, isAskedAgain = false): Promise<void> {
    try {
      await this.#hear();
      this.#judge(tenure, false);
    } catch (error) {
      if (isAskedAgain && isRespoolError(error, 'move.refused')) return;
      const because = `cannot tell whether letters failed again: ${textOf(error)}`;
      tenure.halt.stop({ kind: 'end', state: 'stopped', because });
    }
  }

  async #hear(): Promise<void> {
    const { id, letters, clock, guard, ledger, journal } = this.#parts;
    const beganMs = clock.monotonic();
    const ids = [...this.#silent.keys()].slice(0, IDS_MAX);
    const { failed, delivered } = await letters.since(id, ids);
    const endedMs = clock.monotonic();
    this.#nextMs = endedMs + Math.max(ASK_EVERY_MS, REST_FACTOR * (endedMs - beganMs));
    let again = 0;
    for (const { id: name, code, reason } of failed) {
      for (const item of this.#forget(name)) {
        again += 1;
        const outcome = { result: 'again', code, reason } as const;
        ledger.settle(item, outcome, clock.now());
        journal.note(item, outcome);
      }
    }
    guard.countNews(again, delivered.flatMap((name) => this.#forget(name)).length);
    // Those nothing is heard of go to the end of the line.
    for (const name of ids) {
      const items = this.#silent.get(name);
      if (items === undefined) continue;
      this.#silent.delete(name);
      this.#silent.set(name, items);
    }
  }

  #forget(name: string): readonly number[] {
    const items = this.#silent.get(name) ?? [];
    this.#silent.delete(name);
    return items;
  }

  #judge(tenure: Tenure, isWhole: boolean): void {
    const because = this.#parts.guard.verdict(isWhole);
    if (because !== undefined) tenure.halt.stop({ kind: 'end', state: 'stopped', because });
  }
}
