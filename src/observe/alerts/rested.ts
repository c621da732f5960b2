/**
 * rested — questions to a store, with rests: asking is at most a twentieth of the time, however
 * often rules are looked at and however many messages there are.
 *
 * An answer is given again until it has rested; who asks while one is on its way gets that one.
 */

import { MINUTE_MS } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';

/** An answer that has not come by then is not waited for: the question is asked anew. */
const GIVEN_UP_MS: number = MINUTE_MS;
/** So many times as long as all answers took, each of them is kept. */
const REST = 19;

interface Asked<T> {
  readonly answer: Promise<T>;
  readonly beganAt: number;
  tookMs: number;
  /** When it came; undefined: it is on its way. */
  endedAt?: number;
}

/** Answers that are kept for as long as asking rests. */
export class Rested<T> {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #asked = new Map<string, Asked<T>>();

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /** The answer to the question of this name; one that failed is not kept. */
  ask(question: string, work: () => Promise<T>): Promise<T> {
    const found = this.#asked.get(question);
    if (found !== undefined && !this.#isOver(found)) return found.answer;
    const beganAt = this.#clock.monotonic();
    const answer = work();
    const asked: Asked<T> = { answer, beganAt, tookMs: found?.tookMs ?? 0 };
    this.#asked.set(question, asked);
    answer.then(
      () => {
        asked.endedAt = this.#clock.monotonic();
        asked.tookMs = asked.endedAt - beganAt;
      },
      () => {
        if (this.#asked.get(question) === asked) this.#asked.delete(question);
      },
    );
    return answer;
  }

  #isOver({ beganAt, endedAt }: Asked<T>): boolean {
    const now = this.#clock.monotonic();
    if (endedAt === undefined) return now - beganAt >= GIVEN_UP_MS;
    let allMs = 0;
    for (const { tookMs } of this.#asked.values()) allMs += tookMs;
    return now - endedAt >= REST * allMs;
  }
}
