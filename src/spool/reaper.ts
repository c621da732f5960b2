/**
 * reaper — removes bodies, only after the removal of their entries is durable (invariant 4).
 *
 * A crash in between leaves a body without entry; the caretaker finds it. Never the other way
 * round.
 */

import type { BodyStore } from '../ports/body-store.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import { isRef } from './body-record.ts';

/** Collects refs and removes them in batches. */
export class Reaper {
  readonly #entries: EntryStore;
  readonly #bodies: BodyStore;
  readonly #onTrouble: (error: unknown) => void;
  #refs: string[] = [];
  #work: Promise<void> | undefined;

  constructor(entries: EntryStore, bodies: BodyStore, onTrouble: (error: unknown) => void) {
    this.#entries = entries;
    this.#bodies = bodies;
    this.#onTrouble = onTrouble;
  }

  /** The entry of this body is committed as gone; the body may follow when that is durable. */
  add(ref: string): void {
    // One that is no ref, from a damaged record, would keep the others from being removed.
    if (!isRef(ref)) return;
    this.#refs.push(ref);
    this.#work ??= this.#run();
  }

  /** Resolves when everything added so far is removed. */
  async idle(): Promise<void> {
    while (this.#work !== undefined) await this.#work;
  }

  async #run(): Promise<void> {
    // Let what was added in this turn of the loop come together.
    await Promise.resolve();
    while (this.#refs.length > 0) {
      const refs = this.#refs;
      this.#refs = [];
      try {
        await this.#entries.flush();
        await this.#bodies.remove(refs);
      } catch (error) {
        // Not tried again here: they are orphans now, and orphans are the caretaker's.
        this.#onTrouble(error);
      }
    }
    this.#work = undefined;
  }
}
