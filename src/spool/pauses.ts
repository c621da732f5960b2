/**
 * pauses — which topics are paused. Durable, and obeyed by every process that shares the store.
 */

import type { Millis } from '../core/duration.ts';
import { NOTHING_PAUSED, type PausedTopics } from '../engine/parts.ts';
import type { RecordStore } from '../ports/record-store.ts';

/** The kind of its records, one for each pattern; the simulator watches them. */
export const PAUSE_KIND = 'pause';
/** The pattern that stands for everything. */
export const EVERYTHING = '#';

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
  /** Patterns that are paused now, as far as this process knows; 'all' for everything. */
  now: readonly string[] | 'all' = NOTHING_PAUSED;

  /** `onChange` is called in the same moment in which they change. */
  constructor(records: RecordStore, onChange: () => void) {
    this.#records = records;
    this.#onChange = onChange;
  }

  /** Reads them again; true when they changed. */
  async refresh(): Promise<boolean> {
    const patterns = (await this.#records.list(PAUSE_KIND)).map((record) => record.key);
    const before = this.now;
    if (patterns.includes(EVERYTHING)) this.now = 'all';
    else this.now = patterns.length === 0 ? NOTHING_PAUSED : patterns;
    const isChanged = String(before) !== String(this.now);
    if (isChanged) this.#onChange();
    return isChanged;
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
}
