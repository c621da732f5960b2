/**
 * reaper — removes bodies, only after the removal of their entries is durable (invariant 4).
 *
 * A crash in between leaves a body without entry; the caretaker finds it. Never the other way
 * round.
 */

import type { BodyStore, SettledAs } from '../ports/body-store.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import { isRef } from './body.ts';

/** A body that is to go, and how its message ended; `replaced`: by another body of its message. */
interface Going {
  readonly ref: string;
  readonly because: SettledAs | 'replaced';
}

/** Collects refs and removes them in batches. */
export class Reaper {
  readonly #entries: EntryStore;
  readonly #bodies: BodyStore;
  readonly #onTrouble: (error: unknown) => void;
  #going: Going[] = [];
  #work: Promise<void> | undefined;

  constructor(entries: EntryStore, bodies: BodyStore, onTrouble: (error: unknown) => void) {
    this.#entries = entries;
    this.#bodies = bodies;
    this.#onTrouble = onTrouble;
  }

  /** The entry of this body is committed as gone; the body may follow when that is durable. */
  add(ref: string, because: Going['because']): void {
    // One that is no ref, from a damaged record, would keep the others from being removed.
    if (!isRef(ref)) return;
    this.#going.push({ ref, because });
    this.#work ??= this.#run();
  }

  /** Resolves when everything added so far is removed. */
  async idle(): Promise<void> {
    while (this.#work !== undefined) await this.#work;
  }

  async #run(): Promise<void> {
    // Let what was added in this turn of the loop come together.
    await Promise.resolve();
    while (this.#going.length > 0) {
      const all = this.#going;
      this.#going = [];
      try {
        await this.#entries.flush();
        for (const because of ['delivered', 'removed', 'replaced'] as const) {
          const refs = all.filter((one) => one.because === because).map(({ ref }) => ref);
          const settledAs = because === 'replaced' ? undefined : because;
          if (refs.length > 0) await this.#bodies.remove(refs, settledAs);
        }
      } catch (error) {
        // Not tried again here: they are orphans now, and orphans are the caretaker's.
        this.#onTrouble(error);
      }
    }
    this.#work = undefined;
  }
}
