/**
 * memo — queries that are shared and throttled: a caller during a running query gets its answer,
 * and an answer is reused until it is time for a new query.
 */

import type { Clock } from '../ports/clock.ts';

/** When it is time for a new answer: once all of these are over. Default of each: at once. */
export interface MemoOptions {
  /** Time since the answer came. */
  readonly ttlMs?: number;
  /** Time since the question was asked: it is asked at most this often. */
  readonly everyMs?: number;
  /** Time since the answer came, as a multiple of how long all questions of this memo took. */
  readonly restTimes?: number;
  /** An answer that has not come within this time is asked for again; default: never. */
  readonly giveUpMs?: number;
  /** Answers that are remembered, by their questions; default: all. */
  readonly max?: number;
}

interface Entry {
  readonly answer: Promise<unknown>;
  readonly askedAt: number;
  /** How long the last answer took. */
  tookMs: number;
  /** Undefined while it is on its way. */
  endedAt: number | undefined;
}

/** Answers by question. */
export interface Memo {
  /** The answer of late, the one on its way, or a new one. A failure is not remembered. */
  get<T>(question: string, ask: () => Promise<T>): Promise<T>;
  clear(): void;
}

export function memo(clock: Pick<Clock, 'monotonic'>, options: MemoOptions): Memo {
  const { ttlMs = 0, everyMs = 0, restTimes = 0, giveUpMs, max } = options;
  const entries = new Map<string, Entry>();

  function isFresh({ askedAt, endedAt }: Entry): boolean {
    const now = clock.monotonic();
    if (endedAt === undefined) return now - askedAt < (giveUpMs ?? Number.POSITIVE_INFINITY);
    if (now - endedAt < ttlMs || now - askedAt < everyMs) return true;
    if (restTimes === 0) return false;
    let allMs = 0;
    for (const { tookMs } of entries.values()) allMs += tookMs;
    return now - endedAt < restTimes * allMs;
  }

  function dropOldest(): void {
    const [oldest] = entries.keys();
    if (oldest !== undefined) entries.delete(oldest);
  }

  return {
    get<T>(question: string, ask: () => Promise<T>): Promise<T> {
      const last = entries.get(question);
      if (last !== undefined && isFresh(last)) return last.answer as Promise<T>;
      const askedAt = clock.monotonic();
      const answer = ask();
      const entry: Entry = { answer, askedAt, tookMs: last?.tookMs ?? 0, endedAt: undefined };
      entries.delete(question);
      if (max !== undefined && entries.size >= max) dropOldest();
      entries.set(question, entry);
      answer.then(
        () => {
          entry.endedAt = clock.monotonic();
          entry.tookMs = entry.endedAt - askedAt;
        },
        () => {
          if (entries.get(question) === entry) entries.delete(question);
        },
      );
      return answer;
    },
    clear: () => entries.clear(),
  };
}
