/**
 * cache — answers that are young enough are given again, and a question that is on its way is
 * asked once: screens and probes that look often cost the broker little.
 */

import { SECOND_MS } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';

/** RabbitMQ itself counts messages every 5 s: asking more often brings nothing new. */
export const NUMBERS_MAX_AGE_MS: number = 5 * SECOND_MS;
const ANSWERS_MAX = 32;

export interface Cache {
  /** The answer of this key, asked for where there is none that is young enough. */
  get<T>(key: string, ask: () => Promise<T>): Promise<T>;
  forget(): void;
}

export function createCache(clock: Clock): Cache {
  const answers = new Map<string, { readonly at: number; readonly answer: Promise<unknown> }>();
  return {
    get<T>(key: string, ask: () => Promise<T>): Promise<T> {
      const known = answers.get(key);
      if (known !== undefined && clock.monotonic() - known.at < NUMBERS_MAX_AGE_MS) {
        return known.answer as Promise<T>;
      }
      const answer = ask();
      const entry = { at: clock.monotonic(), answer };
      answers.delete(key);
      answers.set(key, entry);
      for (const oldest of answers.keys()) {
        if (answers.size <= ANSWERS_MAX) break;
        answers.delete(oldest);
      }
      // A failure is not kept: the next who asks tries again.
      answer.catch(() => {
        if (answers.get(key) === entry) answers.delete(key);
      });
      return answer;
    },
    forget: () => answers.clear(),
  };
}
