/**
 * shared-reads — heavy counts, asked once for all who want them, and good for a few seconds.
 */

import type { Clock } from '../ports/clock.ts';

const GOOD_FOR_MS = 5_000;
/** Different questions that are remembered, at the most. */
const QUESTIONS_MAX = 64;

/** Answers of late, by their question. */
export class SharedReads {
  readonly #clock: Clock;
  readonly #answers = new Map<string, { readonly answer: Promise<unknown>; goodUntil: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Forgets them all: an operator has changed something and wants to see it. */
  clear(): void {
    this.#answers.clear();
  }

  /** The answer of late, the one on its way, or a new one. A failure is not remembered. */
  async ask<T>(question: string, look: () => Promise<T>): Promise<T> {
    const found = this.#answers.get(question);
    const now = this.#clock.monotonic();
    if (found !== undefined && now < found.goodUntil) return found.answer as Promise<T>;
    this.#answers.delete(question);
    const [oldest] = this.#answers.keys();
    if (this.#answers.size >= QUESTIONS_MAX && oldest !== undefined) this.#answers.delete(oldest);
    const answer = look();
    const kept = { answer, goodUntil: Number.POSITIVE_INFINITY };
    this.#answers.set(question, kept);
    try {
      const value = await answer;
      kept.goodUntil = this.#clock.monotonic() + GOOD_FOR_MS;
      return value;
    } catch (error) {
      if (this.#answers.get(question) === kept) this.#answers.delete(question);
      throw error;
    }
  }
}
