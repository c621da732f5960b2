/**
 * pauses — which topics are paused. Durable, and obeyed by every process that shares the store.
 */

import { HOUR_MS, type Millis } from '../core/duration.ts';
import { topicMatches } from '../core/topic.ts';
import { NOTHING_PAUSED, type PausedTopics } from '../engine/parts.ts';
import type { RecordStore } from '../ports/record-store.ts';

/** The kind of its records, one for each pattern; the simulator watches them. */
export const PAUSE_KIND = 'pause';
/** The pattern that stands for everything. */
export const EVERYTHING = '#';

/** How long it is remembered that a pattern was paused. */
const REMEMBERED_MS: number = HOUR_MS;

/** Topics that are not delivered until they are resumed. */
export interface Pause {
  /** A pattern; `#` for everything. */
  readonly topic: string;
  readonly by: string;
  readonly at: Millis;
}

/** Keeps the pauses of a store at hand. */
export class Pauses implements PausedTopics {
  readonly #records: RecordStore;
  readonly #onChange: () => void;
  readonly #now: () => Millis;
  #patterns: readonly string[] = [];
  /** When each pattern was last seen paused, or its resume was noticed. */
  readonly #pausedAt = new Map<string, Millis>();
  /** Patterns that are paused now, as far as this process knows; 'all' for everything. */
  now: readonly string[] | 'all' = NOTHING_PAUSED;

  /** `onChange` is called in the same moment in which they change. */
  constructor(records: RecordStore, onChange: () => void, now: () => Millis) {
    this.#records = records;
    this.#onChange = onChange;
    this.#now = now;
  }

  /** Reads them again; true when they changed. */
  async refresh(): Promise<boolean> {
    const patterns = (await this.#records.list(PAUSE_KIND)).map((record) => record.key);
    this.#remember(patterns);
    const before = this.now;
    if (patterns.includes(EVERYTHING)) this.now = 'all';
    else this.now = patterns.length === 0 ? NOTHING_PAUSED : patterns;
    const isChanged = String(before) !== String(this.now);
    if (isChanged) this.#onChange();
    return isChanged;
  }

  /** Whether a topic was paused at this time or later, in the last hour, as far as is known. */
  wasPaused(topic: string, since: Millis): boolean {
    for (const [pattern, at] of this.#pausedAt) {
      if (at >= since && topicMatches(pattern, topic)) return true;
    }
    return false;
  }

  /** All of them, with who made them and when. */
  async list(): Promise<readonly Pause[]> {
    const records = await this.#records.list(PAUSE_KIND);
    return records.map(({ key, value }) => {
      const { by, at } = value as Omit<Pause, 'topic'>;
      return { topic: key, by, at };
    });
  }

  async pause(pattern: string, by: string, at: number): Promise<void> {
    await this.#records.put(PAUSE_KIND, pattern, { by, at });
    await this.refresh();
  }

  async resume(pattern: string): Promise<void> {
    await this.#records.remove(PAUSE_KIND, pattern);
    await this.refresh();
  }

  #remember(patterns: readonly string[]): void {
    const now = this.#now();
    // Those of before too: what is resumed was paused until about now.
    for (const pattern of [...this.#patterns, ...patterns]) this.#pausedAt.set(pattern, now);
    for (const [pattern, at] of this.#pausedAt) {
      if (Math.abs(now - at) > REMEMBERED_MS) this.#pausedAt.delete(pattern);
    }
    this.#patterns = patterns;
  }
}
